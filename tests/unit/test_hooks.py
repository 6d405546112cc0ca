"""Hooks are called, may be plain or async, and cannot harm their worker."""

from __future__ import annotations

import asyncio

import pytest

from toril.errors import InvalidOption
from toril.hooks import HOOK_KINDS, HookKind, Hooks


class Reports:
    """Collect what hooks raised."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, BaseException]] = []

    def __call__(self, message: str, error: BaseException) -> None:
        self.seen.append((message, error))


class Stop(BaseException):
    """Not even an Exception."""


@pytest.fixture
def reports() -> Reports:
    return Reports()


@pytest.fixture
def hooks(reports: Reports) -> Hooks:
    return Hooks(reports)


def test_there_are_six_kinds() -> None:
    assert set(HOOK_KINDS) == {"completed", "failed", "retrying", "stalled", "cancelled", "error"}


@pytest.mark.parametrize("kind", HOOK_KINDS)
def test_a_plain_hook_is_called_at_once_with_what_happened(hooks: Hooks, kind: HookKind) -> None:
    seen: list[tuple[object, ...]] = []
    hooks.on(kind, lambda *args: seen.append(args))
    hooks.emit(kind, "job", 42)
    assert seen == [("job", 42)]


def test_hooks_are_called_in_the_order_they_came(hooks: Hooks) -> None:
    seen: list[str] = []
    hooks.on("failed", lambda: seen.append("first"))
    hooks.on("failed", lambda: seen.append("second"))
    hooks.emit("failed")
    assert seen == ["first", "second"]


def test_only_hooks_of_the_kind_are_called(hooks: Hooks) -> None:
    seen: list[str] = []
    hooks.on("failed", lambda: seen.append("failed"))
    hooks.emit("completed", "job", 1)
    assert seen == []
    assert "failed" in hooks
    assert "completed" not in hooks


def test_registering_gives_the_function_back_so_that_it_decorates(hooks: Hooks) -> None:
    def hook(_job: object) -> None: ...

    assert hooks.on("cancelled", hook) is hook


@pytest.mark.parametrize(
    ("kind", "hint"),
    [("complete", "Did you mean 'completed'?"), ("Failed", "Did you mean 'failed'?"), ("zzz", "")],
)
def test_an_unknown_kind_is_refused_with_a_suggestion(
    hooks: Hooks, kind: HookKind, hint: str
) -> None:
    with pytest.raises(InvalidOption, match=rf"^unknown hook '{kind}'.*Known: comp") as caught:
        hooks.on(kind, print)
    assert hint in str(caught.value)


async def test_an_async_hook_runs_as_a_task_and_drain_waits_for_it(hooks: Hooks) -> None:
    seen: list[str] = []
    gate = asyncio.Event()

    async def hook(job: str) -> None:
        await gate.wait()
        seen.append(job)

    hooks.on("completed", hook)
    hooks.emit("completed", "a")
    hooks.emit("completed", "b")
    draining = asyncio.ensure_future(hooks.drain())
    for _ in range(5):
        await asyncio.sleep(0)
    assert (seen, draining.done()) == ([], False)
    gate.set()
    await draining
    assert seen == ["a", "b"]


async def test_drain_waits_for_hooks_that_hooks_start(hooks: Hooks, reports: Reports) -> None:
    seen: list[object] = []

    async def fail() -> None:
        await asyncio.sleep(0)
        raise ValueError("late")

    async def on_error(error: object) -> None:
        for _ in range(9):
            await asyncio.sleep(0)
        seen.append(error)

    hooks.on("completed", fail)
    hooks.on("error", on_error)
    hooks.emit("completed")
    await hooks.drain()
    assert seen == [error for _, error in reports.seen]
    assert len(seen) == 1


async def test_drain_cancels_what_takes_too_long(hooks: Hooks, reports: Reports) -> None:
    ends: list[str] = []

    async def hang() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ends.append("cancelled")

    hooks.on("completed", hang)
    hooks.emit("completed")
    await asyncio.sleep(0)
    await hooks.drain(0)
    assert (ends, reports.seen) == (["cancelled"], [])


async def test_drain_gives_up_on_a_hook_that_cannot_be_cancelled(hooks: Hooks) -> None:
    gate = asyncio.Event()

    async def stubborn() -> None:
        while not gate.is_set():
            try:
                await gate.wait()
            except asyncio.CancelledError:
                continue

    hooks.on("completed", stubborn)
    hooks.emit("completed")
    await asyncio.sleep(0)
    await hooks.drain(0)
    gate.set()
    await hooks.drain()


async def test_drain_with_nothing_to_wait_for_returns(hooks: Hooks) -> None:
    await hooks.drain()


@pytest.mark.parametrize("error", [ValueError("x"), asyncio.CancelledError(), Stop()], ids=repr)
def test_an_error_in_a_plain_hook_is_reported_and_told_to_the_error_hooks(
    hooks: Hooks, reports: Reports, error: BaseException
) -> None:
    seen: list[object] = []

    def fail() -> None:
        raise error

    hooks.on("completed", fail)
    hooks.on("completed", lambda: seen.append("next"))
    hooks.on("error", seen.append)
    hooks.emit("completed")
    assert reports.seen == [("hook 'completed' raised", error)]
    assert seen == [error, "next"]


@pytest.mark.parametrize("error", [ValueError("x"), Stop()], ids=repr)
async def test_an_error_in_an_async_hook_is_reported_and_told_to_the_error_hooks(
    hooks: Hooks, reports: Reports, error: BaseException
) -> None:
    seen: list[object] = []

    async def fail() -> None:
        raise error

    hooks.on("failed", fail)
    hooks.on("error", seen.append)
    hooks.emit("failed")
    await hooks.drain()
    assert reports.seen == [("hook 'failed' raised", error)]
    assert seen == [error]


async def test_an_async_hook_that_is_cancelled_ends_quietly(hooks: Hooks, reports: Reports) -> None:
    async def give_up() -> None:
        raise asyncio.CancelledError

    hooks.on("failed", give_up)
    hooks.emit("failed")
    await hooks.drain()
    assert reports.seen == []


async def test_an_error_in_an_error_hook_is_reported_once_and_goes_no_further(
    hooks: Hooks, reports: Reports
) -> None:
    first, plain, later = ValueError("first"), ValueError("plain"), ValueError("later")

    def fail(_error: BaseException) -> None:
        raise plain

    async def fail_later(_error: BaseException) -> None:
        raise later

    hooks.on("error", fail)
    hooks.on("error", fail_later)
    hooks.emit("error", first)
    await hooks.drain()
    assert reports.seen == [("hook 'error' raised", plain), ("hook 'error' raised", later)]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3)], ids=repr)
def test_a_wish_to_end_the_process_is_not_held_back(
    hooks: Hooks, reports: Reports, error: BaseException
) -> None:
    def leave() -> None:
        raise error

    hooks.on("completed", leave)
    with pytest.raises(type(error)):
        hooks.emit("completed")
    assert reports.seen == []
