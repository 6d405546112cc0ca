"""Keep an event loop alive in a thread of its own while Spark blocks the caller's."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import CancelledError, Future
from typing import Any, TypeVar

from toril.errors import StorageClosed

T = TypeVar("T")


class Background:
    """A running event loop; coroutines are sent to it from any thread."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._guard = threading.Lock()
        self._closed = False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    @property
    def inside(self) -> bool:
        """Whether the caller runs on this loop, and must not wait for it."""
        return threading.current_thread() is self._thread

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine there; its end comes by the future."""
        with self._guard:
            if self._closed:
                work.close()
                raise StorageClosed(f"{self._name} has ended")
            return asyncio.run_coroutine_threadsafe(work, self._loop)

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine there and wait; when the wait is interrupted, call it off."""
        future = self.submit(work)
        try:
            return future.result()
        except CancelledError:
            raise StorageClosed(f"{self._name} has ended") from None
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """Cancel what still runs there and end the thread."""
        with self._guard:
            if not self._closed:
                self._closed = True
                self._loop.call_soon_threadsafe(self._loop.stop)
        if not self.inside:
            self._thread.join()

    def _serve(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop):
            asyncio.set_event_loop(self._loop)
            self._loop.run_forever()
