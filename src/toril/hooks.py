"""Call the user back, in this process, when something happens to a job."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Final, Literal, TypeVar, cast, get_args

from toril.errors import InvalidOption
from toril.text import suggest

HookKind = Literal["completed", "failed", "retrying", "stalled", "cancelled", "error"]
HOOK_KINDS: Final[tuple[str, ...]] = get_args(HookKind)

Hook = Callable[..., object]
H = TypeVar("H", bound=Hook)


class Hooks:
    """Callbacks by kind; plain or `async def`, none can harm the worker.

    completed(job, result) · failed(job, error) · retrying(job, error, delay) ·
    cancelled(job) · stalled(job_id) · error(error)
    """

    def __init__(self, report: Callable[[str, BaseException], None]) -> None:
        self._report = report
        self.patience_s = 5.0
        self._hooks: dict[str, list[Hook]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def __contains__(self, kind: HookKind) -> bool:
        return kind in self._hooks

    def on(self, kind: HookKind, hook: H) -> H:
        """Call `hook` whenever `kind` happens; returns it, so that it can decorate."""
        if kind not in HOOK_KINDS:
            raise InvalidOption(
                f"unknown hook {kind!r}.{suggest(kind, HOOK_KINDS)} Known: {', '.join(HOOK_KINDS)}"
            )
        self._hooks.setdefault(kind, []).append(hook)
        return hook

    def emit(self, kind: HookKind, *args: object) -> None:
        """Call the hooks of a kind; coroutines run on as tasks until `drain`."""
        for hook in self._hooks.get(kind, ()):
            try:
                answer = hook(*args)
            except (KeyboardInterrupt, SystemExit):
                raise
            except BaseException as error:  # a CancelledError would look like the worker's own
                self._complain(kind, error)
                continue
            if inspect.isawaitable(answer):
                task = asyncio.ensure_future(self._finish(kind, answer))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def _finish(self, kind: HookKind, answer: object) -> None:
        try:
            await cast("Awaitable[object]", answer)
        except (KeyboardInterrupt, SystemExit, asyncio.CancelledError):
            raise
        except BaseException as error:
            self._complain(kind, error)

    def _complain(self, kind: HookKind, error: BaseException) -> None:
        self._report(f"hook {kind!r} raised", error)
        if kind != "error":
            self.emit("error", error)

    async def drain(self, seconds: float = 5.0) -> None:
        """Wait for the hooks that still run; cancel those that take longer than `seconds`."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while self._tasks and (left := end - loop.time()) > 0:  # a hook may start another one
            await asyncio.wait(self._tasks, timeout=left)
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=0)
