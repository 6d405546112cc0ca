"""Tell other processes of news by touching files, and hear their touches.

One empty file per queue and kind of news, in the directory `notify`, named by a hash. The kernel
tells who watches that directory; where it cannot, a thread looks at the times of the files. A
slow look at everything stands behind both.
"""

from __future__ import annotations

import os
import select
import threading
import time
from collections import OrderedDict
from contextlib import suppress
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Final

from toril.storage.file.bells import Bells, News
from toril.storage.file.inotify import Inotify

_OPEN: Final = 128
_GLANCE_S: Final = 0.02
"""How often the times of the files are looked at where the kernel does not tell."""


@lru_cache(maxsize=4096)
def file_of(queue: str, news: News) -> str:
    """Name the file that is touched for this news."""
    return f"{blake2b(queue.encode(), digest_size=12).hexdigest()}.{news}"


class Toucher:
    """Touches files; used from one thread."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._open: OrderedDict[str, int] = OrderedDict()

    def touch(self, queue: str, news: News) -> None:
        """Tell other processes; trouble here costs them a slow look, and is not worth more."""
        name = file_of(queue, news)
        with suppress(OSError):
            fd = self._open.get(name)
            if fd is None:
                flags = os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
                fd = self._open[name] = os.open(self._directory / name, flags, 0o600)
                if len(self._open) > _OPEN:
                    os.close(self._open.popitem(last=False)[1])
            # The time in full: the kernel's own steps in milliseconds, and two touches within
            # one step would look like one.
            now = time.time_ns()
            os.utime(fd, ns=(now, now))

    def close(self) -> None:
        """Close the files."""
        while self._open:
            os.close(self._open.popitem()[1])


class Listener:
    """A thread that hears touches while somebody waits."""

    def __init__(
        self, directory: Path, bells: Bells, poll_s: float, *, inotify: bool = True
    ) -> None:
        self._directory = directory
        self._bells = bells
        self._poll_s = poll_s
        self._guard = threading.Lock()
        self._armed = False
        self._stopping = False
        self._inotify: Inotify | None = None
        if inotify:
            with suppress(OSError):
                self._inotify = Inotify(directory)
        self._waiting = threading.Event()
        self._out, self._in = os.pipe()
        run = self._glance if self._inotify is None else self._listen
        self._thread = threading.Thread(target=run, name="toril-file-listener", daemon=True)
        self._thread.start()

    @property
    def told_by_kernel(self) -> bool:
        """Whether touches are heard at once, not seen at the next look."""
        return self._inotify is not None

    def arm(self) -> None:
        """Begin to hear; called by who waits, after it entered the bells and before it looks."""
        self._waiting.set()
        with self._guard:
            if not self._armed and self._inotify is not None and not self._stopping:
                # Out of watches: the slow look is left.
                with suppress(OSError):
                    self._inotify.arm()
                    self._armed = True

    def stop(self) -> None:
        """End the thread."""
        self._stopping = True
        self._waiting.set()
        os.write(self._in, b"x")
        self._thread.join()
        if self._inotify is not None:
            self._inotify.close()
        os.close(self._in)
        os.close(self._out)

    def _listen(self) -> None:
        inotify = self._inotify
        assert inotify is not None
        poller = select.poll()
        poller.register(inotify.fd, select.POLLIN)
        poller.register(self._out, select.POLLIN)
        while not self._stopping:
            ready = poller.poll(self._poll_s * 1000)
            if self._stopping:
                return
            touched = inotify.read() if ready else None
            if self._rest(inotify):
                continue
            if touched is None:
                self._bells.ring_all()
                continue
            for queue, news in self._bells.watched():
                if file_of(queue, news) in touched:
                    self._bells.ring(queue, news)

    def _rest(self, inotify: Inotify) -> bool:
        """Stop hearing if nobody waits: a busy worker need not wake for each touch."""
        if not self._bells.quiet:
            return False
        with self._guard:
            if self._bells.quiet and self._armed:
                inotify.disarm()
                self._armed = False
        return True

    def _glance(self) -> None:
        seen: dict[str, int] = {}
        looked = time.monotonic()
        while not self._stopping:
            if self._bells.quiet:
                self._waiting.clear()
                if self._bells.quiet:
                    self._waiting.wait()
                looked = time.monotonic()
            time.sleep(_GLANCE_S)
            if time.monotonic() - looked >= self._poll_s:
                looked = time.monotonic()
                self._bells.ring_all()
                continue
            for queue, news in self._bells.watched():
                name = file_of(queue, news)
                with suppress(OSError):
                    touched = (self._directory / name).stat().st_mtime_ns
                    if seen.get(name) != touched:
                        seen[name] = touched
                        self._bells.ring(queue, news)
