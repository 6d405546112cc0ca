"""Run handlers and turn what they do into outcomes; nothing they do harms the worker."""

from __future__ import annotations

import asyncio
import heapq
import inspect
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from itertools import count
from typing import Any, Generic, cast

from toril.clock import Clock, Timer
from toril.context import Desk, JobContext, current_job
from toril.engine.hand import Cause, Hand, Run
from toril.engine.journal import Journal
from toril.engine.lanes import Lanes
from toril.errors import InvalidPayload, JobCancelled, JobTimeout, PermanentError, UnknownTask
from toril.job import In, Out
from toril.outcome import (
    CANCELLED,
    Failed,
    Failure,
    Outcome,
    Postponed,
    Released,
    Retried,
)
from toril.quick import new_completed
from toril.retry import Again, Postpone, RetryPolicy, Wish
from toril.serde import Serde, check_size
from toril.storage.protocol import Claimed
from toril.text import describe_error, printable, suggest

Handler = Callable[[JobContext[In]], Awaitable[Out] | Out]
Finish = Callable[[Run[In], Outcome], None]


class Handlers(Generic[In, Out]):
    """One handler for all jobs, or one per job name."""

    def __init__(self, handler: Handler[In, Out] | Mapping[str, Handler[In, Out]]) -> None:
        by_name = handler if isinstance(handler, Mapping) else {}
        self._for_all = None if isinstance(handler, Mapping) else handler
        self._by_name = dict(by_name)
        self._async = {id(h): _is_async(h) for h in (*by_name.values(), self._for_all) if h}

    @property
    def any_plain(self) -> bool:
        """Whether some handler needs a thread."""
        return not all(self._async.values())

    @property
    def names(self) -> tuple[str, ...]:
        """The job names that have a handler of their own."""
        return tuple(self._by_name)

    def find(self, name: str, job_id: str, queue: str) -> tuple[Handler[In, Out], bool]:
        """Return the handler for a job's name, and whether it runs on the event loop."""
        handler = self._for_all or self._by_name.get(name)
        if handler is None:
            known = ", ".join(sorted(self._by_name))
            shown = printable(job_id, 60)
            raise UnknownTask(
                f"toril[E05] job '{shown}' asks for task '{printable(name, 60)}'; this worker"
                f" knows: {printable(known, 200)}.{suggest(name, self._by_name)} It is kept in"
                f" failed. fix: deploy the task, then: toril job retry {queue} {shown}"
            )
        return handler, self._async[id(handler)]


def _is_async(handler: object) -> bool:
    target = handler
    while hasattr(target, "func"):  # functools.partial
        target = target.func
    call = getattr(target, "__call__", None)  # noqa: B004 - an object with `async def __call__`
    return inspect.iscoroutinefunction(target) or inspect.iscoroutinefunction(call)


class Executor(Generic[In, Out]):
    """Starts each claimed job, with a context of its own."""

    def __init__(
        self,
        *,
        handlers: Handlers[In, Out],
        hand: Hand[In],
        desk: Desk,
        serde: Serde[In],
        result_serde: Serde[Out],
        policy: RetryPolicy,
        clock: Clock,
        journal: Journal,
        finish: Finish[In],
        result_limit: int,
    ) -> None:
        self._handlers = handlers
        self._hand = hand
        self._desk = desk
        self._serde = serde
        self._result_serde = result_serde
        self._policy = policy
        self._clock = clock
        self._journal = journal
        self._finish = finish
        self._result_limit = result_limit
        self._deadlines = Deadlines(clock, self._time_out)
        self._threads: ThreadPoolExecutor | None = None
        self._lanes = Lanes(desk.loop, self._attempt)

    def start(self, jobs: Sequence[Claimed]) -> Sequence[Run[In]]:
        """Begin an attempt at each job; its outcome goes to `finish` when it ends."""
        now, desk, no_data = self._clock.monotonic(), self._desk, cast("In", None)
        runs = [Run(claimed, JobContext(claimed, desk, no_data), now) for claimed in jobs]
        self._hand.add(*runs)
        self._journal.picked_up(jobs)
        for run in runs:
            self._lanes.start(run)
            timeout_ms = run.claimed.spec.terms.timeout_ms
            if timeout_ms is not None:
                run.context.deadline = now + timeout_ms / 1000
                self._deadlines.add(run.context.deadline, run)
        return runs

    def stop(self, run: Run[In], cause: Cause) -> None:
        """Tell a run to stop; interrupt it unless it should decide for itself.

        A thread cannot be interrupted: asked to cancel, it sees `cancelled` and its answer
        counts; at a timeout or shutdown it is left behind.
        """
        run.stop(cause)
        if not (run.plain and cause is Cause.CANCELLED):
            run.interrupt()

    def close(self) -> None:
        """Let the threads go; one that still runs a handler ends with it."""
        self._deadlines.close()
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)

    def _time_out(self, run: Run[In]) -> None:
        if run in self._hand.runs:
            self.stop(run, Cause.TIMEOUT)

    async def _attempt(self, run: Run[In]) -> None:
        run.begun = True
        claimed = run.claimed
        spec = claimed.spec
        context: JobContext[Any] = run.context  # a cast would be a call
        current_job.set(context)
        try:
            if run.cause is not None:
                raise asyncio.CancelledError
            outcome: Outcome | None = None
            if claimed.doom is not None or spec.terms.expires_ms is not None:
                outcome = refusal(claimed)
            if outcome is None:
                handler, is_async = self._handlers.find(spec.name, spec.id, self._desk.queue)
                context.data = self._serde.loads(spec.payload)
                value: Any
                if is_async:
                    answer: Any = handler(context)
                    value = await answer
                else:
                    run.plain = True
                    value = await self._call_plain(handler, run)
                outcome = new_completed(lease=claimed.lease, result=self._encode(run, value))
        except BaseException as error:
            outcome = self._judge(run, error)
        run.seconds = self._clock.monotonic() - run.started
        self._finish(run, outcome)

    async def _call_plain(self, handler: Handler[In, Out], run: Run[In]) -> Out:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(self._hand.size, thread_name_prefix="toril")
        context = copy_context()

        def call() -> tuple[Awaitable[Out] | Out | None, BaseException | None]:
            # Futures cannot carry every exception (StopIteration), tuples can.
            try:
                return context.run(handler, run.context), None
            except BaseException as error:
                return None, error

        future = self._desk.loop.run_in_executor(self._threads, call)
        try:
            value, error = await asyncio.shield(future)
        except asyncio.CancelledError:
            if not future.done():  # a thread cannot be stopped; it keeps its place until it ends
                self._hand.take(1)
                future.add_done_callback(lambda _done: self._hand.give_back(1))
            raise
        if error is not None:
            raise error
        return cast("Out", await value if inspect.isawaitable(value) else value)

    def _encode(self, run: Run[In], value: Out) -> bytes:
        try:
            payload = self._result_serde.dumps(value)
        except InvalidPayload as error:
            raise InvalidPayload(
                f"toril[E04] {_subject(run)} of task '{printable(run.claimed.spec.name, 60)}':"
                f" {error}",
                path=error.path,
            ) from error
        if len(payload) > self._result_limit:
            check_size(_subject(run), len(payload), self._result_limit)
        run.result = value
        return payload

    def _judge(self, run: Run[In], error: BaseException) -> Outcome:
        """Turn what a handler raised into an outcome; never raises itself."""
        try:
            return self._outcome_of(run, error)
        except Exception as trouble:  # a classifier or strategy of the user's own
            run.error = trouble
            self._journal.trouble("retry policy raised", trouble)
            return Failed(lease=run.claimed.lease, failure=_failure(trouble))

    def _outcome_of(self, run: Run[In], error: BaseException) -> Outcome:
        claimed = run.claimed
        spec, lease = claimed.spec, claimed.lease
        cancelled = isinstance(error, asyncio.CancelledError)
        teardown = (
            cancelled and run.cause is None and run.task is not None and run.task.cancelling()
        )
        if run.cause is Cause.SHUTDOWN or teardown:
            return Released(lease=lease)
        if run.cause is Cause.CANCELLED:
            run.error = JobCancelled(f"job {spec.id!r} was cancelled while it ran", job_id=spec.id)
            return Failed(lease=lease, failure=Failure(kind=CANCELLED, reason=str(run.error)))
        if run.cause is Cause.TIMEOUT and cancelled:
            limit = (spec.terms.timeout_ms or 0) / 1000
            text = f"job {spec.id!r} ran longer than its timeout of {limit:g} s"
            error = JobTimeout(text, job_id=spec.id)
        run.error = error
        if isinstance(error, Postpone):
            return Postponed(lease=lease, delay_ms=error.delay_ms, until_ms=error.until_ms)
        verdict = self._policy.judge(
            error,
            attempt=lease.attempt,
            attempts=spec.terms.attempts,
            backoff=spec.terms.backoff,
            spread=random.random(),
        )
        failure = _failure(error)
        if isinstance(verdict, Again):
            return Retried(lease=lease, failure=failure, delay_ms=verdict.delay_ms)
        return Failed(lease=lease, failure=failure, exhausted=verdict.exhausted)

    def refused(self, run: Run[In], reason: str) -> Outcome:
        """Turn a completion the storage refused into a failed attempt."""
        return self._judge(run, PermanentError(f"storage refused the result: {reason}"))


def refusal(claimed: Claimed) -> Outcome | None:
    """Fail a job that must not run."""
    terms = claimed.spec.terms
    if claimed.doom is not None:
        return Failed(lease=claimed.lease, failure=claimed.doom)
    late = terms.expires_ms is not None and claimed.age_ms > terms.expires_ms
    if late and claimed.started == 1:
        reason = f"not started within expires_in={(terms.expires_ms or 0) / 1000:g} s"
        failure = Failure(kind="JobExpired", reason=reason)
        return Failed(lease=claimed.lease, failure=failure)
    return None


def _subject(run: Run[In]) -> str:
    return f"result of job {run.claimed.spec.id!r}"


def _failure(error: BaseException) -> Failure:
    if isinstance(error, Wish):
        return Failure(kind=type(error).__name__, reason=str(error))
    kind, reason, stack = describe_error(error)
    return Failure(kind=kind, reason=reason, stack=stack)


class Deadlines(Generic[In]):
    """Call back at the deadlines of many runs with one timer."""

    def __init__(self, clock: Clock, expire: Callable[[Run[In]], None]) -> None:
        self._clock = clock
        self._expire = expire
        self._heap: list[tuple[float, int, Run[In]]] = []
        self._numbers = count()
        self._timer: Timer | None = None
        self._due = float("inf")

    def add(self, deadline: float, run: Run[In]) -> None:
        """Watch a run until its deadline."""
        heapq.heappush(self._heap, (deadline, next(self._numbers), run))
        self._arm()

    def close(self) -> None:
        """Stop watching."""
        self._heap.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _arm(self) -> None:
        if not self._heap or self._heap[0][0] >= self._due:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._due = self._heap[0][0]
        wait = max(0.0, self._due - self._clock.monotonic())
        self._timer = self._clock.call_later(wait, self._ring)

    def _ring(self) -> None:
        self._timer, self._due = None, float("inf")
        now = self._clock.monotonic()
        while self._heap and self._heap[0][0] <= now:
            self._expire(heapq.heappop(self._heap)[2])
        self._arm()
