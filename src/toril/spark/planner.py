"""The process beside the driver in which Spark plans the batches of a stream.

Spark ends it by a signal, sends that a second time a moment later, and closes its line.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


def end_in_order() -> None:
    """Take the signal by which Spark ends this process as an exit, so that readers are stopped.

    Python would die of it where it stands: an embedded server that this process holds would run
    on without a user. Whoever decided what the signal does is left alone.
    """
    if _alone() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _leave)


@contextmanager
def put_off() -> Iterator[None]:
    """Let that exit wait for the end of what is inside.

    Cut short while it joins or leaves an embedded server, a process lets go of it as one that was
    killed does, and the last one out stops nothing.
    """
    if not _alone() or signal.getsignal(signal.SIGTERM) is not _leave:
        yield
        return
    came: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, _leave)
        if came:
            signal.raise_signal(came[0])


def _alone() -> bool:
    return threading.current_thread() is threading.main_thread()


def _leave(number: int, frame: FrameType | None) -> None:
    # The second signal comes while readers are being stopped, and must not cut that short.
    # Not SIG_IGN: of one that has come already, Python would complain that nobody handles it.
    signal.signal(number, _go_on)
    sys.exit(128 + number)


def _go_on(number: int, frame: FrameType | None) -> None:
    """Do nothing: this process is on its way out."""
