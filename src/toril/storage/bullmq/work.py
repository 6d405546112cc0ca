"""Claim jobs, wait for them, keep their leases, find those whose owners are gone."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from string import ascii_lowercase
from typing import Any, Final, cast

from toril.errors import StorageError, StorageUnavailable
from toril.outcome import Lease
from toril.resp.replies import Argument
from toril.storage.bullmq import codec
from toril.storage.bullmq.crew import Crew, worker_name
from toril.storage.bullmq.heart import in_order, read_renewal, renew_commands
from toril.storage.bullmq.keys import Keys
from toril.storage.bullmq.leases import Fate
from toril.storage.bullmq.link import CHUNK, ENDING_KEPT_MS
from toril.storage.bullmq.repeat import Repeats
from toril.storage.bullmq.scripts import Command, call, check_token
from toril.storage.bullmq.sheets import Sheets
from toril.storage.protocol import Batch, Claim, Claimed, Reaped, Renewal

BATCH: Final = 25
"""Jobs per call of a batch script, and per pipeline of official ones: about 1 ms of the server."""
_BOUND: Final = 2
"""What `finish.lua` says of a queue that is paused or has bounds."""
_NO_LEASE_MS: Final = 30_000
_NO_NUMBER: Final = "is not an integer"
"""What the server says to a script that counts up what is no number."""
_SWEPT_AT_ONCE: Final = 100
_LETTERS: Final = ascii_lowercase[:BATCH]
"""The ends of the tokens that one call of `finish.lua` gives."""


@dataclass(slots=True)
class Catch:
    """What the replies of moveToActive brought together."""

    jobs: list[Claimed] = field(default_factory=list)
    repeating: list[tuple[str, dict[bytes, bytes]]] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    limited_ms: int = 0
    next_ms: int | None = None
    empty: bool = False
    rest: bool = False
    """Whether the official scripts may find jobs that a batch script left."""
    _sheets: Sheets = field(default_factory=Sheets)

    def take(self, reply: Sequence[Any], token: str, now_ms: int) -> None:
        """Read one reply: a job, or why there is none."""
        flat, raw_id, limited, _ = reply
        if not flat or not raw_id:
            self.empty = True
            self.limited_ms = max(self.limited_ms, int(float(limited)))
            return
        job_id = raw_id.decode() if isinstance(raw_id, bytes) else str(raw_id)
        self.add(job_id, codec.fields_of(flat), token, now_ms)

    def grant(self, parts: Sequence[Any], token: str, now_ms: int) -> None:
        """Note one job as the batch script hands it out: its id, and its fields in some way."""
        raw_id, first = parts[0], parts[1]
        if first.__class__ is list:
            self.add(raw_id.decode(), codec.fields_of(first), token, now_ms)
            return
        job = codec.read_bare(parts, self._sheets, token, now_ms)
        if job is not None:
            self.jobs.append(job)
            return
        fields = dict(zip(codec.BARE, parts[1:], strict=True))
        self.add(raw_id.decode(), {**fields, b"ats": b"1"}, token, now_ms)

    def add(self, job_id: str, fields: dict[bytes, bytes], token: str, now_ms: int) -> None:
        """Note one job that is ours now."""
        if b"rjk" in fields:
            self.repeating.append((job_id, fields))
        job = codec.read_claimed(job_id, fields, token, now_ms)
        if job.doom is not None and job.doom.kind == codec.BROKEN_KIND:
            self.broken.append(token)
        self.jobs.append(job)

    def batch(self) -> Batch:
        """Give it as the contract wants it."""
        return Batch(jobs=self.jobs, limited_for_ms=self.limited_ms, next_in_ms=self.next_ms)


@dataclass(slots=True)
class Ended:
    """A job that was completed, as the batch script takes it."""

    lease: Lease
    result: bytes
    fate: Fate
    ending: bytes
    done: bool = False


def ended_arguments(ended: Sequence[Ended]) -> list[Argument]:
    """Write jobs that were completed as the last arguments of the batch script."""
    bare = "".join(["1" if one.fate.bare else "0" for one in ended])
    values: list[str | bytes] = []
    if all(one.fate.for_good for one in ended):
        for one in ended:
            lease = one.lease
            values += (lease.job_id, lease.token, one.result)
        return [bare, 3, codec.pack_texts(values)]
    for one in ended:
        lease, fate = one.lease, one.fate
        values += (lease.job_id, lease.token, one.result, "1" if fate.kept else "0")
        values += ("" if fate.ttl_ms is None else str(fate.ttl_ms), one.ending)
        values.append("1" if fate.waits else "0")
    return [bare, 7, codec.pack_texts(values)]


_NOBODY: Final = ended_arguments(())


class Work(Repeats, Crew):
    """The worker's verbs but `settle`."""

    async def claim(self, queue: str, claim: Claim) -> Batch:
        """Lease up to `count` jobs that may start now."""
        keys = await self.meet(queue)
        await self.show(queue, claim)
        try:
            catch = await self._claim(keys, queue, claim)
        except StorageError as error:
            # Nothing is sent twice by itself; the second time looks for what the first one got.
            await self.get_over(error, queue, claim)
            catch = await self._claim(keys, queue, claim)
        return await self.go_on(queue, catch)

    async def _claim(self, keys: Keys, queue: str, claim: Claim) -> Catch:
        catch = Catch()
        if self.know(claim.token):
            await self.recall(queue, claim, catch)
        await self.fill(keys, queue, claim, catch)
        return catch

    async def get_over(
        self, error: StorageError, queue: str, claim: Claim | None, tokens: Sequence[str] = ()
    ) -> None:
        """Make way for a second try, or raise what none would mend."""
        if isinstance(error, StorageUnavailable):
            return
        if claim is None or _NO_NUMBER not in str(error):
            raise error
        # A start could not be counted: the script died of garbage, and the job is ours.
        await self.own("mend", queue, "granted", claim.token, *tokens)

    async def recall(
        self, queue: str, claim: Claim, catch: Catch, tokens: Sequence[str] = ()
    ) -> None:
        """Find what was granted already to a claim that is repeated."""
        found = await self.own("granted", queue, claim.lease_ms, claim.token, *tokens)
        now = await self.now(queue)
        for raw_id, lock, flat in found:
            catch.add(raw_id.decode(), codec.fields_of(flat), lock.decode(), now)

    async def fill(self, keys: Keys, queue: str, claim: Claim, catch: Catch) -> None:
        """Ask for jobs until there are enough, or no more."""
        if self.takes("finish", queue) and claim.rate is None:
            more = True
            while more and (want := claim.count - len(catch.jobs)) > 0:
                # Two at once only where there are many: who was idle mostly finds one job.
                groups = [()] if want <= BATCH or not catch.jobs else [(), ()]
                more = await self.finish(queue, groups, claim, catch)
            if not catch.rest or len(catch.jobs) >= claim.count:
                return
        while True:
            want = min(claim.count - len(catch.jobs), BATCH)
            now = await self.now(queue)
            tokens = [self.wire_token(claim.token) for _ in range(max(0, want))]
            commands = [grant_command(keys, claim, token, now) for token in tokens]
            replies = await self.pipe(queue, [*commands, next_command(keys)], once=True)
            for token, reply in zip(tokens, replies, strict=False):
                catch.take(reply, token, now)
            catch.next_ms = read_next(replies[-1], now)
            if catch.empty or len(catch.jobs) >= claim.count:
                return

    async def finish(
        self,
        queue: str,
        groups: Sequence[Sequence[Ended]],
        claim: Claim | None,
        catch: Catch,
    ) -> bool:
        """Complete plain jobs and fetch plain ones; tell whether there may be more to fetch.

        Groups go out together, a call for each; after a job that was left no other one is
        completed. What was completed is marked so.
        """
        left = 0 if claim is None else max(0, claim.count - len(catch.jobs))
        commands: list[Command] = []
        asked: list[tuple[str, int]] = []
        guard = ("", "")
        for ended in groups:
            want = min(left, BATCH)
            left -= want
            stem = "" if claim is None else f"{self.wire_token(claim.token)}."
            args = self.finish_arguments(claim, stem, want, ended, guard)
            if ended:
                guard = (ended[-1].lease.job_id, ended[-1].lease.token)
            commands.append(self.own_command("finish", queue, *args))
            asked.append((stem, want))
        replies = await self.pipe(queue, commands, once=True)
        go_on = True
        for ended, (stem, want), reply in zip(groups, asked, replies, strict=True):
            for one in ended[: reply[0]]:
                one.done = True
            go_on = self.read_granted(queue, reply, stem, want, catch) and go_on
        return go_on

    def finish_arguments(
        self,
        claim: Claim | None,
        stem: str,
        want: int,
        ended: Sequence[Ended] = (),
        guard: tuple[str, str] = ("", ""),
    ) -> list[Argument]:
        """Write the arguments of one call of the batch script, from the lease on."""
        lease_ms, worker = _NO_LEASE_MS, ""
        if claim is not None:
            lease_ms, worker = claim.lease_ms, codec.clean(worker_name(claim))
        args: list[Argument] = [lease_ms, worker, stem, want, ENDING_KEPT_MS, *guard]
        args.append(self.metrics or "")
        return args + (ended_arguments(ended) if ended else _NOBODY)

    def read_granted(
        self, queue: str, reply: Sequence[Any], stem: str, want: int, catch: Catch
    ) -> bool:
        """Read the jobs one call of the batch script handed out; tell whether there may be more."""
        _done, more, next_due, packed, now = reply
        values = codec.unpack_texts(packed)
        found = range(0, len(values), 1 + len(codec.BARE))
        for at, letter in zip(found, _LETTERS[: len(found)], strict=True):
            catch.grant(values[at : at + found.step], stem + letter, now)
        catch.next_ms = None if next_due < 0 else max(0, next_due - now)
        catch.rest = bool(more)
        if more == _BOUND:
            self.refuses("finish", queue)
        return len(found) == want and not more

    def wire_token(self, token: str) -> str:
        """Derive a token that is sent for one job and never again."""
        self._sent += 1
        return f"{token}:{self._sent}"

    async def go_on(self, queue: str, catch: Catch) -> Batch:
        """Mend the jobs in hand, let schedulers make those after them, then hand them over."""
        if catch.broken:
            await self.own("mend", queue, "held", *catch.broken)
        if catch.repeating:
            held = {job.spec.id for job in catch.jobs}
            for job_id, fields in catch.repeating:
                if job_id in held:
                    await self.carry_on(queue, job_id, fields)
        return catch.batch()

    async def wait(self, queues: Sequence[str], timeout_ms: int) -> None:
        """Return when one of the queues may have work."""
        outlooks = [ms for queue in queues for ms in await self.own("outlook", queue)]
        wait_ms = min([timeout_ms, *(ms for ms in outlooks if ms >= 0)])
        if wait_ms <= 0:
            return
        waits = [
            asyncio.ensure_future(self.wake(queue).wait(self.clock, wait_ms / 1000))
            for queue in queues
        ]
        try:
            done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waits:
                one.cancel()
            await asyncio.gather(*waits, return_exceptions=True)
        for one in done:
            one.result()

    def poke(self) -> None:
        """Let blocked calls look again; for tests that move the clock."""
        for wakes in self._wakes.values():
            wakes.poke()

    async def renew(self, queue: str, leases: Sequence[Lease], lease_ms: int) -> Renewal:
        """Prolong the leases still held; report the ones that are gone."""
        keys = self.keys(queue)
        lost: list[Lease] = []
        cancelled: list[Lease] = []
        _ = self.client
        for some, commands in renew_commands(keys, leases, lease_ms, CHUNK):
            replies = await self.pipe(queue, commands)
            read_renewal(some, replies, lost, cancelled)
        return in_order(leases, lost, cancelled)

    async def reap(self, queue: str, max_stalls: int, interval_ms: int) -> Reaped:
        """Put jobs back that were marked a pass ago and have no lease; mark the running ones.

        Whoever finds the guard set learns when it falls, and need not sleep a whole interval.
        """
        keys = self.keys(queue)
        now = await self.now(queue)
        guard = keys.of("stalled-check")
        commands: list[Command] = [
            ("MULTI",),
            self.own_command("mend", queue, "stalled"),
            call("moveStalledJobsToWait", keys, max_stalls, keys.base, now, interval_ms),
            ("PTTL", guard),
            ("EXEC",),
        ]
        _, moved, guarded = (await self.pipe(queue, commands))[-1]
        ids = [one.decode() for one in moved]
        text = codec.CANCELLED_TEXT
        flags = (await self.own("sweep", queue, _SWEPT_AT_ONCE, text, *ids)).decode()
        fates = list(zip(ids, flags, strict=True))
        return Reaped(
            stalled=[job_id for job_id, flag in fates if flag == "0"],
            doomed=[job_id for job_id, flag in fates if flag == "1"],
            next_in_ms=max(0, guarded),
        )

    async def lease_left_ms(self, queue: str, lease: Lease) -> int | None:
        """How long a lease has to go, None if somebody else's or gone; for tests."""
        key = self.keys(queue).lock(lease.job_id)
        if await self.client.call(key, "GET", key) != lease.token.encode():
            return None
        return cast("int", await self.client.call(key, "PTTL", key))


def grant_options(claim: Claim, token: str) -> dict[str, object]:
    """The options of scripts that hand out jobs."""
    options: dict[str, object] = {
        "token": check_token(token),
        "lockDuration": claim.lease_ms,
        "name": codec.clean(worker_name(claim)),
    }
    if claim.rate is not None:
        options["limiter"] = {"max": claim.rate.max, "duration": claim.rate.duration_ms}
    return options


def grant_command(keys: Keys, claim: Claim, token: str, now_ms: int) -> Command:
    """Write the command that hands out one job."""
    return call("moveToActive", keys, keys.base, now_ms, codec.pack(grant_options(claim, token)))


def next_command(keys: Keys) -> Command:
    """Write the command that finds the next delayed job."""
    return ("ZRANGE", keys.of("delayed"), 0, 0, "WITHSCORES")


def read_next(reply: Sequence[Any], now_ms: int) -> int | None:
    """Read when the next delayed job falls due, in ms from now."""
    if not reply:
        return None
    score = reply[0][1] if isinstance(reply[0], list) else reply[1]
    return max(0, int(float(score)) // 4096 - now_ms)
