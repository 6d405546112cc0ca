"""Say in one line why Spark gave up."""

from __future__ import annotations

import logging
import re
from typing import Final

from toril.errors import TorilError
from toril.text import printable

_LOG: Final = logging.getLogger("toril.spark.fleet")

_REASONS: Final = (
    re.compile(r"^((?:\w+\.)*\w+(?:Error|Exception): .+)$", re.M),  # raised in Python
    re.compile(r"^Caused by: [\w.$]+: (.+?)(?:\. Consider.*)?$", re.M),
    re.compile(r"^: [\w.$]+: (.+)$", re.M),
)
"""Where Spark's wall of text holds the reason, the best place first."""


def one_line(queue: str, error: BaseException) -> TorilError:
    """Make one line of Spark's wall of text; the wall goes to the log."""
    _LOG.debug("fleet on '%s' failed", queue, exc_info=error)
    wall = str(error)
    found = next((lines for one in _REASONS if (lines := one.findall(wall))), [wall])
    reason = printable(found[-1], 300)
    return TorilError(
        f"fleet on '{queue}': Spark gave up: {reason}. Unfinished jobs come back when their leases"
        " lapse; set the logger 'toril.spark.fleet' to DEBUG for Spark's own account"
    )
