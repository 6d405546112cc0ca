"""Wait on a queue: for its marker, and for the events that tell of endings."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple, TypeAlias, cast

import msgpack

from toril.clock import Clock, give_way, wait_future
from toril.errors import StorageError
from toril.outcome import CANCELLED, Failure
from toril.resp.client import Client, Reply, See
from toril.resp.wakeups import WakeUps
from toril.storage.bullmq import codec
from toril.storage.protocol import Ending, EndingKind

Place: TypeAlias = tuple[int, int]
"""Where an event stands in the stream."""

_TAIL_S: Final = 1.0
"""How long a wait for a result trusts the events before it asks."""
_TAIL_MS: Final = round(_TAIL_S * 1000)
_PAGE: Final = 1000
_BUSY: Final = 500
"""Events in one read from which on asking for the awaited jobs is cheaper than listening."""
_BUSY_PAUSE_S: Final = 0.05
_WORTH: Final = 50
"""Unless one event in so many is an awaited ending."""
_TURNS: Final = 3
"""In so many turns of the loop those who were told leave; if they were the last, all is told."""
_MOST_STARTS: Final = 10_000
_ENDS: Final = frozenset({b"completed", b"failed", b"removed", b"cancelled"})


def wake_ups(client: Client, key: str) -> WakeUps:
    """Wait for the marker that says a queue may have work."""

    async def mark(told: Reply) -> None:
        """Put a marker back; a newer one of its kind is left alone."""
        _, member, score = cast("list[bytes]", told or [b"", b"0", b"0"])
        # A server that is away needs no marker: whoever reconnects claims.
        with suppress(StorageError):
            await client.call(key, "ZADD", key, "NX", score, member)

    return WakeUps(client, key, "BZPOPMIN", mark)


Tell: TypeAlias = "Callable[[Ending | None], None]"
"""Takes an ending, or None if it has to be asked for."""


class Told(NamedTuple):
    """What an event said of a job that ended: where it stands, what it is, the result or reason."""

    place: Place
    kind: bytes
    value: bytes


class Start(NamedTuple):
    """A hand-in of ours: the last event before anything could become of the job, and when."""

    place: Place
    at: float


class Endings:
    """Follows the events of a queue for those who wait for jobs to end.

    Who has just handed a job in need not ask for it, if every event since then is read.
    """

    def __init__(self, client: Client, key: str) -> None:
        self._client = client
        self._key = key
        self._watchers: dict[str, set[asyncio.Future[None]]] = {}
        self._hearers: dict[str, Tell] = {}
        self._told: dict[str, Told] = {}
        self._starts: dict[str, Start | None] = {}
        self._task: asyncio.Task[None] | None = None
        self._last = b"0-0"
        self._counted = (0, 0)
        self._whole: Place = (0, 0)
        """Since this place all events are read."""

    def expect(self, ids: Sequence[str], count: int) -> See:
        """Take note of jobs that are about to be handed in by callers who will wait for them.

        The reply of the script, which adds `count` jobs, is to be shown to what this gives.
        """
        for job_id in ids:
            self._unhear(job_id)  # an ending of the job before would now be taken for another's
            self._starts.pop(job_id, None)
            self._starts[job_id] = None
        while len(self._starts) > _MOST_STARTS:
            del self._starts[next(iter(self._starts))]

        def see(reply: Reply) -> None:
            done, event = cast("tuple[int, bytes]", reply)
            self._note_starts(ids, event if done == count else b"")

        return see

    def _note_starts(self, ids: Sequence[str], event: bytes) -> None:
        """Note the last event at the hand-in of jobs, b"" if it was not we who made them.

        Whoever waits for them will come; by then the question for their endings is under way.
        """
        if not event:
            for job_id in ids:
                self._starts.pop(job_id, None)
            return
        start = Start(_place(event), time.monotonic())
        for job_id in ids:
            if job_id in self._starts:
                self._starts[job_id] = start
        self._follow(start.place)

    def hear(self, job_id: str, tell: Tell) -> bool:
        """Tell how a job ends that was handed in just now; False if it has to be asked for."""
        first = self._first_start((job_id,))
        if first is None:
            return False
        self._follow(first)
        if first < self._whole:
            return False
        self._unhear(job_id)
        self._hearers[job_id] = tell
        return True

    def _follow(self, first: Place) -> None:
        if self._task is None or self._task.done():
            # The next event in the same millisecond can only be the start of this very job, of
            # one handed in together with it, or one that nobody here waits for.
            self._begin(b"%d-%d" % (first[0], first[1] + 1), first)

    def _begin(self, last: bytes, whole: Place) -> None:
        self._last, self._whole = last, whole
        self._task = asyncio.create_task(self._listen(self._ask_for_events()))

    def _unhear(self, job_id: str, ending: Ending | None = None) -> None:
        tell = self._hearers.pop(job_id, None)
        if tell is not None:
            tell(ending)

    async def wait(
        self,
        ids: Sequence[str],
        clock: Clock,
        until: float,
        ask: Callable[[], Awaitable[Sequence[Ending]]],
    ) -> Sequence[Ending]:
        """Listen and ask for endings until there are some or the time is up."""
        future: asyncio.Future[None] | None = None
        asked = False
        try:
            while True:
                future = asyncio.get_running_loop().create_future()
                for job_id in ids:
                    self._watchers.setdefault(job_id, set()).add(future)
                heard = clock.monotonic() < until and await self._listen_for(ids)
                known = () if heard and not asked else await ask()
                asked = True
                seconds = until - clock.monotonic()
                if known or seconds <= 0:
                    return known
                await wait_future(clock, future, seconds)
                if self._task is None:  # closed
                    return ()
                if known := self._heard(ids):
                    return known
                self._leave(ids, future)
        finally:
            if future is not None:
                self._leave(ids, future)

    def told(self, job_id: str) -> Told | None:
        """What the events said of a job that somebody waits for."""
        return self._told.get(job_id)

    async def close(self) -> None:
        """Stop listening."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
        self._wake_all()

    def _heard(self, ids: Iterable[str]) -> list[Ending]:
        """Give the results that events told of jobs handed in by us; they need no asking."""
        known = []
        for job_id in ids:
            told, start = self._told.get(job_id), self._starts.get(job_id)
            if told and start and told.kind == b"completed" and told.place > start.place:
                del self._starts[job_id]
                result = told.value or b"null"
                known.append(Ending(id=job_id, kind=EndingKind.COMPLETED, result=result))
        return known

    def _leave(self, ids: Sequence[str], future: asyncio.Future[None]) -> None:
        for job_id in ids:
            watchers = self._watchers.get(job_id)
            if watchers is not None:
                watchers.discard(future)
                if not watchers:
                    del self._watchers[job_id]
                    self._told.pop(job_id, None)

    async def _listen_for(self, ids: Sequence[str]) -> bool:
        """See to it that every event from here on is heard.

        Tells whether it is so from the hand-in of each job on: then there is nothing to ask for.
        """
        first = self._first_start(ids)
        if self._task is not None and not self._task.done():
            return first is not None and first >= self._whole
        begin = await self._newest() if first is None else b"%d-%d" % first
        if self._task is None or self._task.done():
            self._begin(begin, _place(begin))
        return first is not None and first >= self._whole

    def _first_start(self, ids: Iterable[str]) -> Place | None:
        """The first hand-in of the jobs; None if one is not ours or too old to go by."""
        first: Place | None = None
        oldest = time.monotonic() - _TAIL_S
        for job_id in ids:
            start = self._starts.get(job_id)
            if start is None or start.at < oldest:
                return None
            if first is None or start.place < first:
                first = start.place
        return first

    async def _newest(self) -> bytes:
        entries = cast(
            "list[list[bytes]]",
            await self._client.call(self._key, "XREVRANGE", self._key, "+", "-", "COUNT", 1),
        )
        return entries[0][0] if entries else b"0-0"

    async def _listen(self, read: Callable[[], Awaitable[Reply]]) -> None:
        asked = time.monotonic()
        while True:
            everybody = False
            try:
                await read()
                count, ends = self._counted
                # Silence may mean that the stream is gone; then whoever waits looks for himself.
                everybody = not count
                if count >= _BUSY and ends * _WORTH < count:
                    everybody = True
                    await asyncio.sleep(_BUSY_PAUSE_S)
                    self._last = await self._newest()
                    self._whole = _place(self._last)
            except StorageError:
                everybody = True
                await asyncio.sleep(_BUSY_PAUSE_S)
            if everybody or time.monotonic() - asked >= _TAIL_S:
                asked = time.monotonic()
                self._wake_all()
            if self._is_done():  # who comes next begins anew
                return
            await give_way(_TURNS)
            if self._is_done():
                return
            read = self._ask_for_events()

    def _is_done(self) -> bool:
        return not (self._hearers or self._watchers)

    def _ask_for_events(self) -> Callable[[], Awaitable[Reply]]:
        self._counted = (0, 0)
        return self._client.block_soon(
            self._key,
            *("XREAD", "COUNT", _PAGE, "BLOCK", _TAIL_MS),
            *("STREAMS", self._key, self._last),
            timeout_s=_TAIL_S,
            see=self._hand_out,
        )

    def _hand_out(self, reply: Reply) -> None:
        """Tell what events say, before anything else goes on; count them, and those waited for."""
        entries = cast("list[list[list[tuple[bytes, list[bytes]]]]]", reply)[0][1] if reply else []
        ended, heard = [], 0
        for raw_id, flat in entries:
            if flat[1] in _ENDS and len(flat) > 3:
                job_id = flat[3].decode(errors="replace")
                if job_id in self._watchers:
                    value = flat[5] if len(flat) > 5 else b""
                    self._told[job_id] = Told(_place(raw_id), flat[1], value)
                    ended.append(job_id)
                if job_id in self._hearers:
                    heard += 1
                    self._hear_of(job_id, raw_id, flat)
                elif job_id not in self._watchers:
                    self._starts.pop(job_id, None)  # who comes for it must ask
        if entries:
            self._last = entries[-1][0]
        self._wake(ended)
        self._counted = (len(entries), len(ended) + heard)

    def _hear_of(self, job_id: str, raw_id: bytes, flat: Sequence[bytes]) -> None:
        """Tell a result; what else may have become of the job is asked for."""
        start, ending = self._starts.get(job_id), None
        if start is not None and flat[1] == b"completed" and _place(raw_id) > start.place:
            result = flat[5] if len(flat) > 5 else b""
            ending = Ending(id=job_id, kind=EndingKind.COMPLETED, result=result or b"null")
        if job_id not in self._watchers:
            self._starts.pop(job_id, None)
        self._unhear(job_id, ending)

    def _wake_all(self) -> None:
        for job_id in list(self._hearers):
            self._unhear(job_id)
        self._wake(self._watchers)

    def _wake(self, ids: Iterable[str]) -> None:
        for job_id in list(ids):
            for future in self._watchers.get(job_id, ()):
                if not future.done():
                    future.set_result(None)


def _place(raw_id: bytes) -> Place:
    major, _, minor = raw_id.partition(b"-")
    return int(major), int(minor)


def read_ending(job_id: str, answer: Sequence[Any], told: Told | None) -> Ending:
    """Read what `ended.lua` said of one job; of a job that is gone, the events may know more."""
    kind: bytes = answer[0]
    value: Any = answer[1] if len(answer) > 1 else None
    if kind == b"completed":
        return Ending(id=job_id, kind=EndingKind.COMPLETED, result=value or b"null")
    if kind == b"failed":
        return _failed(job_id, codec.read_failure(codec.fields_of(value)))
    if value is not None:
        word, *rest = cast("list[bytes]", msgpack.unpackb(value, raw=True))
        return _left(job_id, word, rest)
    if told is not None and told.kind in (b"completed", b"failed"):
        return _left(job_id, told.kind, [told.value])
    return Ending(id=job_id, kind=EndingKind.GONE)


def _left(job_id: str, word: bytes, rest: Sequence[bytes]) -> Ending:
    """Read what a job left behind: how it ended, its result or reason, the kind of failure."""
    if word == b"completed":
        return Ending(id=job_id, kind=EndingKind.COMPLETED, result=rest[0])
    if word == b"failed":
        kind = rest[1].decode(errors="replace") if len(rest) > 1 else "Error"
        return _failed(job_id, Failure(kind=kind, reason=rest[0].decode(errors="replace")))
    return Ending(id=job_id, kind=EndingKind(word.decode()))


def _failed(job_id: str, failure: Failure | None) -> Ending:
    cancelled = failure is not None and failure.kind == CANCELLED
    kind = EndingKind.CANCELLED if cancelled else EndingKind.FAILED
    return Ending(id=job_id, kind=kind, failure=failure)
