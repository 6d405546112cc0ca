"""Die or freeze at a named point of our own code, so that tests can see what survives it.

The environment variable `TORIL_FAIL=<point>:<action>[:<n>]`, read once when the process starts,
arms one point: at its n-th passing (default: the first) the process gets a signal, once.

    points   before_commit   outcomes are about to be sent to the storage
             after_send      they were sent and recorded; nobody here knows it yet
             bronze_written  a batch of events lies in the lake, and is not yet recorded
             bronze_recorded it is recorded; Spark does not know it yet
    actions  kill            SIGKILL: die without a word
             stop            SIGSTOP: freeze until somebody sends SIGCONT

Without the variable a point costs one comparison. It is the one thing in toril that is read
from the environment at import: a point armed later would miss what the test is about.
"""

from __future__ import annotations

import os
import signal
from typing import Final

from toril.errors import InvalidOption

POINTS: Final = ("before_commit", "after_send", "bronze_written", "bronze_recorded")
ACTIONS: Final = ("kill", "stop")


class Failpoint:
    """One armed point."""

    def __init__(self, point: str, action: str, passing: int) -> None:
        self.point = point
        self.action = action
        self._left = passing

    @classmethod
    def parse(cls, text: str) -> Failpoint:
        """Read `point:action` or `point:action:n`."""
        point, _, rest = text.partition(":")
        action, _, number = rest.partition(":")
        if point not in POINTS or action not in ACTIONS or not (number or "1").isdecimal():
            raise InvalidOption(
                f"TORIL_FAIL={text!r}: write point:action or point:action:n; "
                f"points: {', '.join(POINTS)}; actions: {', '.join(ACTIONS)}"
            )
        return cls(point, action, int(number or "1"))

    def passed(self, point: str) -> None:
        """Count a passing; do what was asked at the last one that counts."""
        if point != self.point:
            return
        self._left -= 1
        if self._left == 0:
            # Windows has neither; there the point ends in an AttributeError, as loud as a kill.
            number: int = signal.SIGKILL if self.action == "kill" else signal.SIGSTOP
            os.kill(os.getpid(), number)


_text = os.environ.get("TORIL_FAIL")
_armed: Final = Failpoint.parse(_text) if _text else None


def passing(point: str) -> None:
    """Mark a point; does nothing unless `TORIL_FAIL` armed it."""
    if _armed is not None:
        _armed.passed(point)
