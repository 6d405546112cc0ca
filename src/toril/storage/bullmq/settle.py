"""End attempts under their leases, and fetch the next jobs in the same call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, assert_never

from toril.errors import StorageError
from toril.outcome import (
    DONE,
    GONE,
    LOST,
    Answer,
    AnswerKind,
    Completed,
    Failed,
    Failure,
    Lease,
    Outcome,
    Postponed,
    Released,
    Retried,
)
from toril.storage.bullmq import codec
from toril.storage.bullmq.codes import Code, text_of
from toril.storage.bullmq.keys import Keys
from toril.storage.bullmq.leases import Fate, Note, is_foreign, read_note, tail_of
from toril.storage.bullmq.link import ENDING_KEPT_MS, chunks
from toril.storage.bullmq.scripts import Command, call, check_token
from toril.storage.bullmq.terms import keep_jobs, keep_option
from toril.storage.bullmq.work import (
    BATCH,
    Catch,
    Ended,
    Work,
    grant_command,
    grant_options,
    next_command,
)
from toril.storage.bullmq.work import read_next as read_next_due
from toril.storage.protocol import EMPTY_BATCH, Claim, Settlement

_NO_LEASE_MS: Final = 30_000
_SETTLED_AT_ONCE: Final = 2 * BATCH
"""Jobs whose batches go out together."""
_FATES: Final = 1024
"""Sets of options remembered, to know what becomes of a completed job."""
_MANY: Final = 1 << 30
"""An `attempts` that no job reaches: moveToFinished then tells of no exhaustion."""


@dataclass(slots=True)
class Plan:
    """The commands of one settle, and where the reply to each outcome will be."""

    now_ms: int
    later_ms: int
    commands: list[Command] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    fetches: set[int] = field(default_factory=set)
    tokens: list[tuple[int, str]] = field(default_factory=list)
    whole: bool = False


class Settle(Work):
    """The verb `settle`."""

    async def settle(
        self, queue: str, outcomes: Sequence[Outcome], refill: Claim | None = None
    ) -> Settlement:
        """End attempts under their leases, then claim the next jobs."""
        _ = self.client
        if refill is None and len(outcomes) == 1 and await self._settle_one(queue, outcomes[0]):
            await self.secure(queue)
            return Settlement(answers=[DONE], batch=EMPTY_BATCH)
        catch = Catch()
        try:
            answers = await self._settle(queue, outcomes, refill, catch)
        except StorageError as error:
            await self.get_over(error, queue, refill, [one.lease.token for one in outcomes])
            catch = Catch()
            answers = await self._settle(queue, outcomes, refill, catch)
        if outcomes:
            await self.secure(queue)
        if refill is None:
            return Settlement(answers=answers, batch=EMPTY_BATCH)
        return Settlement(answers=answers, batch=await self.go_on(queue, catch))

    async def _settle_one(self, queue: str, outcome: Outcome) -> bool:
        """Complete a plain job that nothing goes out with; tell whether it is done.

        What the script leaves is judged by the official ones, also a call that was repeated.
        """
        ended = self._ended(outcome) if self.takes("finish", queue) else None
        if ended is None:
            return False
        fate = ended.fate
        if fate.bare and fate.kept and not ended.ending and self.metrics is None:
            lease, ttl = ended.lease, "" if fate.ttl_ms is None else fate.ttl_ms
            args = (lease.job_id, lease.token, ended.result, ttl)
            return bool(await self.own("finish_alone", queue, *args))
        reply = await self.own("finish", queue, *self.finish_arguments(None, "", 0, (ended,)))
        return bool(reply[0])

    async def _settle(
        self, queue: str, outcomes: Sequence[Outcome], refill: Claim | None, catch: Catch
    ) -> list[Answer]:
        if refill is not None and self.know(refill.token):
            await self._recall_refill(queue, outcomes, refill, catch)
        batch = self.takes("finish", queue)
        ended = [self._ended(outcome) for outcome in outcomes] if batch else [None]
        plain = [one for one in ended if one is not None]
        if len(plain) < len(ended) or (refill is not None and refill.rate is not None):
            return await self._settle_officially(queue, outcomes, refill, catch)
        await self._settle_plain(queue, plain, refill, catch)
        left = [outcome for outcome, one in zip(outcomes, plain, strict=True) if not one.done]
        short = refill is not None and len(catch.jobs) < refill.count
        others: Sequence[Answer] = ()
        if left or (catch.rest and short):
            others = await self._settle_officially(queue, left, refill, catch)
        rest = iter(others)
        return [DONE if one.done else next(rest) for one in plain]

    async def _settle_plain(
        self, queue: str, ended: Sequence[Ended], refill: Claim | None, catch: Catch
    ) -> None:
        """Settle completions by the batch script, up to the first that it leaves."""
        more = False
        for some in list(chunks(ended, _SETTLED_AT_ONCE)) or [()]:
            if some or refill is not None:
                groups = list(chunks(some, BATCH)) or [()]
                more = await self.finish(queue, groups, refill, catch)
            if not all(one.done for one in some):
                return
        if more and refill is not None and len(catch.jobs) < refill.count:
            await self.fill(self.keys(queue), queue, refill, catch)
            catch.rest = False

    def _ended(self, outcome: Outcome) -> Ended | None:
        """Make of a completion what the batch script takes; None for what it does not do."""
        if not isinstance(outcome, Completed):
            return None
        lease, result = outcome.lease, outcome.result
        tail = tail_of(lease)
        fate = self._fates.get(tail)
        if fate is None:
            fate = self._fates[tail] = self._fate(lease)
        if not fate.plain:
            return None
        if not result.isascii():
            codec.check_payload(f"result of job {lease.job_id!r}", result)
        return Ended(lease, result, fate, b"" if fate.outlives else _ending(outcome))

    def _fate(self, lease: Lease) -> Fate:
        """Tell what becomes of completed jobs with the options of this one."""
        note = read_note(lease)
        if len(self._fates) >= _FATES:
            self._fates.clear()
        keep = self._keep_jobs(note, done=True)
        kept, ttl_ms = keep != {"count": 0}, note["ttl_ms"]
        return Fate(
            plain=not is_foreign(note) and keep in ({"count": -1}, {"count": 0}),
            kept=kept,
            ttl_ms=ttl_ms,
            for_good=kept and ttl_ms is None,
            outlives=kept and (ttl_ms is None or ttl_ms >= ENDING_KEPT_MS),
            waits=note["waits"],
            bare=note["bare"],
        )

    async def _settle_officially(
        self, queue: str, outcomes: Sequence[Outcome], refill: Claim | None, catch: Catch
    ) -> list[Answer]:
        keys = self.keys(queue)
        stacks = await self._stacks(keys, queue, outcomes)
        plan = await self._plan(keys, queue, outcomes, stacks, refill, catch)
        if not plan.commands:
            return []
        replies = await self._send(queue, plan, once=refill is not None)
        answers = [
            self._read(replies[place], outcome, catch, plan.now_ms)
            for outcome, place in zip(outcomes, plan.places, strict=True)
        ]
        # 0 instead of a job: there was none to fetch.
        catch.empty |= any(replies[place] == 0 for place in plan.fetches)
        for place, token in plan.tokens:
            catch.take(replies[place], token, plan.now_ms)
        await self._judge(queue, outcomes, answers)
        if refill is not None:
            catch.next_ms = read_next_due(replies[-1], plan.now_ms)
            if not catch.empty and len(catch.jobs) < refill.count:
                await self.fill(keys, queue, refill, catch)
        return [answer if answer is not None else LOST for answer in answers]

    async def _recall_refill(
        self, queue: str, outcomes: Sequence[Outcome], refill: Claim, catch: Catch
    ) -> None:
        """Find what the lost call had fetched, also under the tokens of the jobs it ended.

        A job is left out only if id and start are those of the lease: one that was retried at
        once may have come back under its neighbour's token.
        """
        tokens = [outcome.lease.token for outcome in outcomes]
        await self.recall(queue, refill, catch, tokens)
        held = {(o.lease.job_id, read_note(o.lease)["ats"]) for o in outcomes}
        catch.jobs = [job for job in catch.jobs if (job.spec.id, job.started) not in held]

    async def _stacks(
        self, keys: Keys, queue: str, outcomes: Sequence[Outcome]
    ) -> dict[str, bytes | None]:
        """Read the stack traces of jobs that failed: one JSON array that grows."""
        ids = [o.lease.job_id for o in outcomes if isinstance(o, Failed | Retried)]
        if not ids:
            return {}
        found = await self.pipe(queue, [("HGET", keys.of(one), "stacktrace") for one in ids])
        return dict(zip(ids, found, strict=True))

    async def _plan(
        self,
        keys: Keys,
        queue: str,
        outcomes: Sequence[Outcome],
        stacks: dict[str, bytes | None],
        refill: Claim | None,
        catch: Catch,
    ) -> Plan:
        plan = Plan(
            now_ms=await self.now(queue),
            later_ms=await self.later(queue),
            places=[0] * len(outcomes),
        )
        want = 0 if refill is None else refill.count - len(catch.jobs)
        released = False
        # Jobs that go back in line first: what is fetched for the others may be one of them.
        for at in sorted(range(len(outcomes)), key=lambda at: _is_end(outcomes[at])):
            outcome = outcomes[at]
            await self._plan_end(plan, queue, outcome)
            fetch = want > 0 and _is_end(outcome)
            want -= fetch
            plan.places[at] = len(plan.commands)
            if fetch:
                plan.fetches.add(len(plan.commands))
            plan.commands.append(
                self._command(keys, outcome, stacks, refill if fetch else None, plan)
            )
            if isinstance(outcome, Postponed | Released):
                plan.whole = True
                lease, start = outcome.lease, read_note(outcome.lease)["ats"]
                back = self.own_command("back", queue, lease.job_id, start, lease.attempt - 1)
                plan.commands.append(back)
            released |= isinstance(outcome, Released) or _comes_back_now(outcome, plan.now_ms)
        if refill is None:
            if outcomes:
                # A slot is free that only this worker knows of, or a job that wakes nobody.
                plan.commands.append(self.own_command("ring", queue))
            return plan
        for _ in range(want):
            token = self.wire_token(refill.token)
            plan.tokens.append((len(plan.commands), token))
            plan.commands.append(grant_command(keys, refill, token, plan.now_ms))
        if released:
            plan.commands.append(self.own_command("ring", queue))
        plan.commands.append(next_command(keys))
        return plan

    async def _plan_end(self, plan: Plan, queue: str, outcome: Outcome) -> None:
        """Let the result's keep time and the ending for a waiting caller be written along."""
        if not isinstance(outcome, Completed | Failed):
            return
        note = read_note(outcome.lease)
        done = isinstance(outcome, Completed)
        kept = self._keep_jobs(note, done) == {"count": -1}
        ttl_ms = note["ttl_ms"]
        if kept and ttl_ms is None:
            return
        plan.whole = True
        lease = outcome.lease
        plan.commands.append(
            self.own_command(
                "end",
                queue,
                *(lease.job_id, lease.token, "" if ttl_ms is None else ttl_ms),
                *(_ending(outcome), ENDING_KEPT_MS),
            )
        )

    async def _send(self, queue: str, plan: Plan, *, once: bool) -> list[Any]:
        if not plan.whole:
            return await self.pipe(queue, plan.commands, once=once)
        commands: list[Command] = [("MULTI",), *plan.commands, ("EXEC",)]
        replies: list[Any] = (await self.pipe(queue, commands, once=once))[-1]
        return replies

    def _command(
        self,
        keys: Keys,
        outcome: Outcome,
        stacks: dict[str, bytes | None],
        fetch: Claim | None,
        plan: Plan,
    ) -> Command:
        lease, now_ms = outcome.lease, plan.now_ms
        token = check_token(lease.token)
        match outcome:
            case Completed():
                value = codec.check_payload(f"result of job {lease.job_id!r}", outcome.result)
                return self._finish(keys, lease, "completed", value, 1, b"", fetch, now_ms)
            case Failed(failure=failure):
                fields = _failure_fields(lease, failure, stacks)
                limit = read_note(lease)["attempts"]
                attempts = 1 if outcome.exhausted else _MANY if limit is None else limit
                reason = codec.clean(failure.reason)
                return self._finish(keys, lease, "failed", reason, attempts, fields, fetch, now_ms)
            case Retried(failure=failure):
                fields = _failure_fields(lease, failure, stacks)
                if outcome.delay_ms > 0:
                    return _delay(keys, lease, outcome.delay_ms, "0", fields, plan.later_ms)
                push = "RPUSH" if read_note(lease)["lifo"] else "LPUSH"
                args = (keys.base, now_ms, push, lease.job_id, token, fields)
                return call("retryJob", keys, *args, job_id=lease.job_id)
            case Postponed():
                if _comes_back_now(outcome, now_ms):
                    return _release(keys, lease)
                later_ms = plan.later_ms
                return _delay(keys, lease, _wait_of(outcome, later_ms), "1", b"", later_ms)
            case Released():
                return _release(keys, lease)
            case _:
                assert_never(outcome)

    def _keep_jobs(self, note: Note, done: bool) -> dict[str, Any]:
        """How a finished job is kept: its own option, else the storage's."""
        option = note["keep_completed"] if done else note["keep_failed"]
        if option is None:
            option = keep_option(self.keep_completed if done else self.keep_failed)
        return keep_jobs(option)

    def _finish(
        self,
        keys: Keys,
        lease: Lease,
        target: str,
        value: str,
        attempts: int,
        fields: bytes,
        fetch: Claim | None,
        now_ms: int,
    ) -> Command:
        """Write moveToFinished with all the options it dies without."""
        done = target == "completed"
        options: dict[str, object] = {
            "token": lease.token,
            "keepJobs": self._keep_jobs(read_note(lease), done),
            "attempts": attempts,
            "maxMetricsSize": self.metrics or "",
            "lockDuration": _NO_LEASE_MS,
        }
        if fetch is not None:
            options |= grant_options(fetch, lease.token)
        return call(
            "moveToFinished",
            keys,
            *(lease.job_id, now_ms, "returnvalue" if done else "failedReason", value, target),
            *("0" if fetch is None else "1", keys.base, codec.pack(options), fields),
            job_id=lease.job_id,
            special=target,
        )

    @staticmethod
    def _read(reply: Any, outcome: Outcome, catch: Catch, now_ms: int) -> Answer | None:
        """Read the reply to one outcome; None where it takes another look."""
        if isinstance(reply, list):
            catch.take(reply, outcome.lease.token, now_ms)
            return DONE
        if reply >= 0:
            return DONE
        if reply == Code.JOB_MISSING:
            return GONE
        if reply in (Code.PENDING_CHILDREN, Code.FAILED_CHILDREN):
            return Answer(kind=AnswerKind.REFUSED, reason=text_of(reply))
        return None

    async def _judge(
        self, queue: str, outcomes: Sequence[Outcome], answers: list[Answer | None]
    ) -> None:
        """Tell our own settle, repeated, from one that came too late.

        Only a stall takes a job from its owner, and each one is counted. So if none was, and the
        job is no longer in the start that the lease is of, it was us; unless it is another job of
        the same id by now, which was made at another time or has started less often.
        """
        doubts = [at for at, answer in enumerate(answers) if answer is None]
        if not doubts:
            return
        ids = [outcomes[at].lease.job_id for at in doubts]
        for at, fate in zip(doubts, await self.own("fate", queue, *ids), strict=True):
            exists, started, stalls, active, made_ms = fate
            note = read_note(outcomes[at].lease)
            same = made_ms == note["made_ms"] and started >= note["ats"]
            ours = same and stalls == note["stc"] and (started != note["ats"] or not active)
            answers[at] = GONE if not exists else DONE if ours else LOST


def _is_end(outcome: Outcome) -> bool:
    return isinstance(outcome, Completed | Failed)


def _ending(outcome: Completed | Failed) -> bytes:
    """Pack how a job ended, for a caller who asks when it is gone."""
    if isinstance(outcome, Completed):
        return codec.pack(["completed", outcome.result.decode()])
    return codec.pack(["failed", outcome.failure.reason, outcome.failure.kind])


def _failure_fields(lease: Lease, failure: Failure, stacks: dict[str, bytes | None]) -> bytes:
    limit = read_note(lease)["stacks"]
    traces = codec.add_stack(stacks.get(lease.job_id), failure, limit)
    reason = codec.clean(failure.reason)
    return codec.pack(
        ["failedReason", reason, "stacktrace", traces, codec.KIND, codec.clean(failure.kind)]
    )


def _wait_of(outcome: Postponed, now_ms: int) -> int:
    if outcome.delay_ms is not None:
        return outcome.delay_ms
    return max(0, (outcome.until_ms or 0) - now_ms)


def _comes_back_now(outcome: Outcome, now_ms: int) -> bool:
    return isinstance(outcome, Postponed) and _wait_of(outcome, now_ms) <= 0


def _delay(
    keys: Keys, lease: Lease, delay_ms: int, skip: str, fields: bytes, now_ms: int
) -> Command:
    args = (keys.base, now_ms, lease.job_id, lease.token, delay_ms, skip, fields)
    return call("moveToDelayed", keys, *args, job_id=lease.job_id)


def _release(keys: Keys, lease: Lease) -> Command:
    job_id = lease.job_id
    return call("moveJobFromActiveToWait", keys, job_id, lease.token, keys.of(job_id))
