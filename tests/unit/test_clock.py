"""Time stands still until it is moved, and no timer leaks."""

from __future__ import annotations

import asyncio
import math
import threading
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toril.clock import Clock, ManualClock, SystemClock, wait_future
from toril.errors import InvalidInput

START = 1_700_000_000_000


def new_future() -> asyncio.Future[int]:
    return asyncio.get_running_loop().create_future()


def test_both_clocks_are_clocks() -> None:
    clocks: list[Clock] = [SystemClock(), ManualClock()]
    assert len(clocks) == 2


def test_the_system_clock_tells_unix_milliseconds_and_never_goes_back() -> None:
    clock = SystemClock()
    assert clock.now_ms() > START
    assert clock.monotonic() <= clock.monotonic()


async def test_the_system_clock_sleeps_and_fires_timers() -> None:
    clock = SystemClock()
    fired = new_future()
    clock.call_later(0.001, lambda: fired.set_result(1))
    await clock.sleep(0)
    assert await wait_future(clock, fired, 5)


async def test_a_cancelled_timer_of_the_system_clock_does_not_fire() -> None:
    clock = SystemClock()
    fired = new_future()
    clock.call_later(0, lambda: fired.set_result(1)).cancel()
    assert not await wait_future(clock, fired, 0.005)


async def test_a_manual_clock_stands_still_until_it_is_moved() -> None:
    clock = ManualClock()
    await clock.settle()
    assert (clock.now_ms(), clock.monotonic()) == (START, 0.0)
    await clock.advance(1.5)
    assert (clock.now_ms(), clock.monotonic()) == (START + 1_500, 1.5)


async def test_timers_fire_in_order_of_due_time_at_their_due_time() -> None:
    clock = ManualClock()
    seen: list[tuple[str, int]] = []

    def note(name: str) -> None:
        seen.append((name, clock.now_ms() - START))

    for name, seconds in [("c", 3), ("a", 1), ("b1", 2), ("b2", 2)]:
        clock.call_later(seconds, partial(note, name))
    await clock.advance(10)
    assert seen == [("a", 1_000), ("b1", 2_000), ("b2", 2_000), ("c", 3_000)]
    assert clock.now_ms() == START + 10_000


async def test_a_timer_is_not_fired_before_it_is_due() -> None:
    clock = ManualClock()
    seen: list[int] = []
    clock.call_later(1, lambda: seen.append(1))
    await clock.advance(0.999_999)
    assert not seen
    await clock.advance(0.000_001)
    assert seen == [1]


async def test_ten_small_steps_reach_a_timer_one_second_away() -> None:
    clock = ManualClock()
    seen: list[int] = []
    clock.call_later(1, lambda: seen.append(1))
    for _ in range(10):
        await clock.advance(0.1)
    assert seen == [1]
    assert clock.monotonic() == 1.0


async def test_a_timer_set_while_advancing_fires_in_the_same_advance() -> None:
    clock = ManualClock()
    seen: list[float] = []

    async def tick() -> None:
        while True:
            await clock.sleep(1)
            seen.append(clock.monotonic())

    task = asyncio.create_task(tick())
    await clock.advance(3.5)
    task.cancel()
    await clock.settle()
    assert seen == [1.0, 2.0, 3.0]
    assert clock.pending == 0


async def test_a_task_made_just_before_an_advance_takes_part_in_it() -> None:
    clock = ManualClock()
    task = asyncio.create_task(clock.sleep(5))
    await clock.advance(5)
    assert task.done()


async def test_a_timer_cancelled_by_an_earlier_one_does_not_fire() -> None:
    clock = ManualClock()
    seen: list[int] = []
    later = clock.call_later(2, lambda: seen.append(2))
    clock.call_later(1, later.cancel)
    await clock.advance(5)
    assert not seen
    later.cancel()


@pytest.mark.parametrize("seconds", [0, -1])
async def test_a_timer_without_delay_fires_in_the_next_turn(seconds: float) -> None:
    clock = ManualClock()
    seen: list[int] = []
    clock.call_later(seconds, lambda: seen.append(1))
    clock.call_later(seconds, lambda: seen.append(2)).cancel()
    assert not seen
    await asyncio.sleep(0)
    assert seen == [1]


async def test_an_endless_timer_is_accepted() -> None:
    clock = ManualClock()
    timer = clock.call_later(math.inf, lambda: None)
    await clock.advance(3600)
    assert clock.pending == 1
    timer.cancel()
    assert clock.pending == 0


async def test_a_clock_does_not_move_back() -> None:
    clock = ManualClock()
    with pytest.raises(InvalidInput, match="cannot move back"):
        await clock.advance(-1)
    with pytest.raises(InvalidInput, match="cannot move back"):
        clock.shift(-1)


async def test_an_error_in_a_callback_comes_out_and_the_next_move_goes_on() -> None:
    clock = ManualClock()
    seen: list[int] = []
    clock.call_later(1, lambda: 1 // 0)
    clock.call_later(2, lambda: seen.append(1))
    with pytest.raises(ZeroDivisionError):
        await clock.advance(5)
    assert clock.monotonic() == 1.0
    await clock.advance(5)
    assert seen == [1]


def test_shift_moves_the_time_and_fires_without_a_loop() -> None:
    clock = ManualClock(now_ms=5)
    seen: list[int] = []
    clock.call_later(0, lambda: seen.append(clock.now_ms()))
    clock.call_later(1, lambda: seen.append(clock.now_ms()))
    clock.shift(0)
    assert seen == [5]
    clock.shift(2_000)
    assert seen == [5, 1_005]
    assert clock.now_ms() == 2_005


async def test_shift_inside_the_loop_fires_before_it_returns() -> None:
    clock = ManualClock()
    seen: list[int] = []
    clock.call_later(1, lambda: seen.append(1))
    clock.shift(1_000)
    assert seen == [1]


async def test_shift_from_another_thread_hands_the_timer_to_its_loop() -> None:
    clock = ManualClock()
    fired = new_future()
    clock.call_later(1, lambda: fired.set_result(threading.get_ident()))
    await asyncio.to_thread(clock.shift, 1_000)
    assert await asyncio.wait_for(fired, 5) == threading.get_ident()


def test_the_timer_of_a_closed_loop_is_dropped() -> None:
    clock = ManualClock()
    seen: list[int] = []

    async def set_timer() -> None:
        clock.call_later(1, lambda: seen.append(1))

    asyncio.run(set_timer())
    clock.shift(1_000)
    assert not seen


def test_timers_set_from_many_threads_all_fire() -> None:
    clock = ManualClock()
    seen: list[int] = []

    def set_timers() -> None:
        for number in range(200):
            clock.call_later(number / 100, lambda: seen.append(clock.now_ms()))

    threads = [threading.Thread(target=set_timers) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    clock.shift(10_000)
    assert len(seen) == 1_600
    assert seen == sorted(seen)


@given(st.lists(st.integers(0, 50), max_size=20), st.lists(st.integers(0, 30), max_size=8))
def test_timers_fire_once_and_in_stable_order(delays: list[int], steps: list[int]) -> None:
    clock = ManualClock()
    seen: list[tuple[int, int]] = []
    for number, delay in enumerate(delays):
        clock.call_later(delay / 1000, partial(seen.append, (delay, number)))
    for step in steps:
        clock.shift(step)
    due = [(delay, number) for number, delay in enumerate(delays) if delay <= sum(steps)]
    assert seen == (sorted(due) if steps else [])
    assert clock.pending == len(delays) - len(seen)


async def test_waiting_for_a_done_future_returns_at_once() -> None:
    future = new_future()
    future.set_exception(ValueError("kept"))
    assert await wait_future(ManualClock(), future, None)
    assert isinstance(future.exception(), ValueError)


async def test_waiting_ends_when_the_future_is_done_and_leaves_no_timer() -> None:
    clock = ManualClock()
    future = new_future()
    task = asyncio.create_task(wait_future(clock, future, 10))
    await clock.advance(1)
    assert clock.pending == 1
    future.set_result(7)
    assert await task
    assert clock.pending == 0


async def test_waiting_ends_when_the_time_has_passed_and_spares_the_future() -> None:
    clock = ManualClock()
    future = new_future()
    task = asyncio.create_task(wait_future(clock, future, 10))
    await clock.advance(10)
    assert task.done()
    assert not await task
    assert not future.done()


async def test_waiting_without_a_limit_sets_no_timer() -> None:
    clock = ManualClock()
    future = new_future()
    task = asyncio.create_task(wait_future(clock, future, None))
    await clock.advance(1_000)
    assert clock.pending == 0
    future.set_result(1)
    assert await task


@pytest.mark.parametrize("seconds", [0, -1])
async def test_waiting_for_no_time_lets_others_run_once(seconds: float) -> None:
    future = new_future()
    asyncio.get_running_loop().call_soon(future.set_result, 1)
    assert await wait_future(ManualClock(), future, seconds)


async def test_a_cancelled_wait_leaves_neither_timer_nor_callback() -> None:
    clock = ManualClock()
    future = new_future()
    task = asyncio.create_task(wait_future(clock, future, 10))
    await clock.settle()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert clock.pending == 0
    assert not future.cancelled()
    assert not getattr(future, "_callbacks", None)


async def test_a_future_that_is_cancelled_counts_as_done() -> None:
    clock = ManualClock()
    future = new_future()
    task = asyncio.create_task(wait_future(clock, future, 10))
    await clock.settle()
    future.cancel()
    assert await task


async def test_two_waits_on_one_future_do_not_disturb_each_other() -> None:
    clock = ManualClock()
    future = new_future()
    short = asyncio.create_task(wait_future(clock, future, 1))
    long = asyncio.create_task(wait_future(clock, future, 5))
    await clock.advance(1)
    future.set_result(1)
    assert (await short, await long) == (False, True)
