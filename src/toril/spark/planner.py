"""The process beside the driver in which Spark plans the batches of a stream."""

from __future__ import annotations

import signal
import sys
import threading
from types import FrameType


def end_in_order() -> None:
    """Take the signal by which Spark ends this process as an exit, so that readers are stopped.

    Python would die of it where it stands: an embedded server that this process holds would run
    on without a user. Whoever decided what the signal does is left alone.
    """
    alone = threading.current_thread() is threading.main_thread()
    if alone and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _leave)


def _leave(number: int, frame: FrameType | None) -> None:
    sys.exit(128 + number)
