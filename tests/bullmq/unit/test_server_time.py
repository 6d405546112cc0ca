"""Delays follow the server's clock, however long a look at it takes."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator
from typing import cast

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.bullmq.unit.test_storage import bench_on, store
from tests.resp.proxy import Mode, Proxy
from tests.servers import Server
from toril.errors import StorageUnavailable
from toril.job import Dedup, State, Terms
from toril.outcome import Failure, Retried
from toril.storage.bullmq.server_time import Ahead, ServerTime
from toril.testing import Bench

LATE_S = 0.15
DELAY_MS = 60_000
TIE = 4096


@pytest.fixture
async def proxy(server: Server) -> AsyncIterator[Proxy]:
    """A line to the server that can be slow in one direction."""
    async with Proxy(server.port) as proxy:
        yield proxy


@pytest.fixture
async def bench(proxy: Proxy) -> AsyncIterator[Bench]:
    """A storage behind that line that knows its queue, and no time yet."""
    made = await bench_on(f"redis://127.0.0.1:{proxy.port}")
    await store(made).meet(made.queue)
    yield made
    proxy.switch("pass_")
    await made.storage.close()


@pytest.fixture
async def straight(server: Server) -> AsyncIterator[Bench]:
    """A storage right beside the server."""
    made = await bench_on(server.url)
    yield made
    await made.storage.close()


async def server_ms(bench: Bench) -> float:
    """Ask the server for its time."""
    seconds, micros = cast("list[bytes]", await store(bench).client.call("", "TIME"))
    return int(seconds) * 1000 + int(micros) / 1000


async def due_ms(bench: Bench, straight: Bench, job_id: str) -> int:
    """When the server will let a job start."""
    key = store(bench).keys(bench.queue).of("delayed")
    score = await store(straight).client.call(key, "ZSCORE", key, job_id)
    assert isinstance(score, bytes | float), score
    return int(float(score)) // TIE


@pytest.mark.parametrize("mode", ["late_requests", "late_replies"])
@pytest.mark.parametrize(
    "terms",
    [Terms(delay_ms=DELAY_MS), Terms(delay_ms=DELAY_MS, dedup=Dedup(key="once"))],
    ids=["by our script", "by the official one"],
)
async def test_a_slow_line_makes_no_delay_shorter(
    bench: Bench, straight: Bench, proxy: Proxy, mode: Mode, terms: Terms
) -> None:
    proxy.switch(mode, delay_s=LATE_S)
    await store(bench).now(bench.queue)  # a look that took long
    proxy.switch("pass_")
    before = await server_ms(straight)
    await bench.add("a", terms=terms)
    assert before + DELAY_MS <= await due_ms(bench, straight, "a") + 1


@pytest.mark.parametrize("mode", ["late_requests", "late_replies"])
async def test_a_slow_line_makes_no_retry_come_early(
    bench: Bench, straight: Bench, proxy: Proxy, mode: Mode
) -> None:
    proxy.switch(mode, delay_s=LATE_S)
    await store(bench).now(bench.queue)  # a look that took long
    proxy.switch("pass_")
    await bench.add("a")
    job = await bench.take()
    before = await server_ms(straight)
    failure = Failure(reason="boom", kind="Boom")
    await bench.settle(Retried(lease=job.lease, failure=failure, delay_ms=DELAY_MS))
    assert before + DELAY_MS <= await due_ms(bench, straight, "a") + 1


@pytest.mark.parametrize("mode", ["late_requests", "late_replies"])
async def test_a_slow_line_never_makes_it_later_than_it_is(
    bench: Bench, straight: Bench, proxy: Proxy, mode: Mode
) -> None:
    proxy.switch(mode, delay_s=LATE_S)
    told = await store(bench).now(bench.queue)
    assert told <= await server_ms(straight)


@pytest.mark.parametrize("mode", ["late_requests", "late_replies"])
@pytest.mark.parametrize(
    "terms",
    [Terms(priority=3), Terms(delay_ms=DELAY_MS), Terms(delay_ms=DELAY_MS, dedup=Dedup(key="k"))],
    ids=["prioritised", "delayed", "delayed by the official script"],
)
async def test_a_slow_line_spares_no_job_from_a_purge_of_all(
    bench: Bench, proxy: Proxy, mode: Mode, terms: Terms
) -> None:
    proxy.switch(mode, delay_s=LATE_S)
    await store(bench).now(bench.queue)  # a look that took long
    proxy.switch("pass_")
    await bench.add("a", terms=terms)
    state = State.PRIORITIZED if terms.priority else State.DELAYED
    assert await bench.storage.purge(bench.queue, [state], 60_000, 10) == []
    assert await bench.storage.purge(bench.queue, [state], 0, 10) == ["a"]


async def test_after_a_reconnect_the_clock_is_looked_at_again(bench: Bench, proxy: Proxy) -> None:
    await store(bench).now(bench.queue)
    known = await times_asked(bench)
    await store(bench).now(bench.queue)
    assert await times_asked(bench) == known
    proxy.abort_all()  # as a failover does: behind the same address there may be another clock
    assert await store(bench).client.call("", "PING")
    await store(bench).now(bench.queue)
    assert await times_asked(bench) > known


async def times_asked(bench: Bench) -> int:
    """How often the server told its time."""
    told = await store(bench).client.call("", "INFO", "commandstats")
    found = re.search(rb"cmdstat_time:calls=(\d+)", cast("bytes", told))
    return int(found[1]) if found else 0


_MS = st.floats(0, 500)


@example(apart=3193306.0, ways=[(0.0, 499.0), (499.46183931781, 0.0)])  # they meet in a point
@given(apart=st.floats(-1e7, 1e7), ways=st.lists(st.tuples(_MS, _MS), min_size=1, max_size=5))
def test_the_truth_lies_between_the_bounds_of_all_looks(
    apart: float, ways: list[tuple[float, float]]
) -> None:
    ahead, here = Ahead(), 1e6
    for there, back in ways:
        after = here + there + back
        ahead = ahead.saw(before=here, server=here + there + apart, after=after)
        here = after
    assert ahead.least - 1e-3 <= apart <= ahead.most + 1e-3
    assert ahead.most - ahead.least <= min(there + back for there, back in ways) + 1e-3


def test_looks_that_exclude_each_other_tell_of_a_clock_that_was_set() -> None:
    ahead = Ahead().saw(before=0, server=10, after=20)
    assert ahead == (-10, 10)
    assert ahead.saw(before=100, server=5_000, after=101) == (4_899, 4_900)


class Silence:
    """A server that nobody reaches; counts who tried."""

    def __init__(self) -> None:
        self.tries = 0

    async def ask(self) -> float:
        """Give up after a while."""
        self.tries += 1
        await asyncio.sleep(0.01)
        raise StorageUnavailable("gave up")


async def test_many_who_ask_a_silent_server_give_up_together() -> None:
    there = Silence()
    clock = ServerTime(there.ask, lambda: None)
    told = await asyncio.gather(*(clock.read() for _ in range(100)), return_exceptions=True)
    assert [str(error) for error in told] == ["gave up"] * 100
    assert len({id(error) for error in told}) == 100, "a shared error grows everybody's traceback"
    assert there.tries == 1
    with pytest.raises(StorageUnavailable):
        await clock.read()
    assert there.tries == 2


async def test_who_is_cancelled_ends_nobody_elses_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", time.monotonic)
    there = Hourglass()
    clock = ServerTime(there.ask, lambda: there)
    first, second = (asyncio.ensure_future(clock.read()) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    least, _ = await second
    assert least <= (time.monotonic() + 3_600) * 1000
    assert first.cancelled()


async def test_a_look_that_began_without_a_line_is_not_kept() -> None:
    there = Hourglass()
    lines: list[object | None] = [None]
    clock = ServerTime(there.ask, lambda: lines[-1])
    await clock.read()
    lines.append(there)
    looks = there.looks
    await clock.read()
    assert there.looks > looks
    looks = there.looks
    await clock.read()
    assert there.looks == looks
    lines.append(None)
    await clock.read()
    assert there.looks > looks


class Hourglass:
    """A clock an hour ahead of ours, that counts who looks."""

    def __init__(self) -> None:
        self.looks = 0

    async def ask(self) -> float:
        """Tell the time."""
        self.looks += 1
        await asyncio.sleep(0)
        return (time.monotonic() + 3_600) * 1000


async def test_many_who_ask_at_once_share_a_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", time.monotonic)
    there = Hourglass()
    clock = ServerTime(there.ask, lambda: there)
    told = await asyncio.gather(*(clock.read() for _ in range(100)))
    assert all(least <= (time.monotonic() + 3_600) * 1000 for least, _ in told)
    await clock.read()
    assert there.looks <= 3


@pytest.mark.parametrize("by_s", [-600, 0.1, 600])
async def test_a_clock_of_ours_that_is_set_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, by_s: float
) -> None:
    monkeypatch.setattr(time, "time", time.monotonic)
    there = Hourglass()
    clock = ServerTime(there.ask, lambda: there)
    await clock.read()
    monkeypatch.setattr(time, "time", lambda: time.monotonic() + by_s)
    before = (time.monotonic() + 3_600) * 1000
    least, most = await clock.read()
    assert least <= (time.monotonic() + 3_600) * 1000
    assert before <= most < before + 60_000
