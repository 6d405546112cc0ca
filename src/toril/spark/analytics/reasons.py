"""Put failures that differ only in their numbers, names and paths into one group."""

from __future__ import annotations

import re
from typing import Final

LONGEST: Final = 200
"""Characters of a group's name."""

_READ: Final = 2000
UNTOLD: Final = "(not told)"
"""The group of failures without a reason: the BullMQ wire tells none of a retry."""

_STEPS: Final = (
    (r"(?s)[\r\n].*", ""),
    (r"[A-Za-z][A-Za-z0-9+.-]*://[^\s\x22\x27<>]+", "<url>"),
    (r"(?<![A-Za-z0-9])\x27[^\x27]*\x27(?![A-Za-z0-9])", "<text>"),
    (r"(?<![A-Za-z0-9])\x22[^\x22]*\x22(?![A-Za-z0-9])", "<text>"),
    (r"(?<![A-Za-z0-9])`[^`]*`(?![A-Za-z0-9])", "<text>"),
    (r"(?<![A-Za-z0-9<])(?:[A-Za-z]:)?(?:[/\x5c][A-Za-z0-9_.@+-]+){2,}", "<path>"),
    (r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}", "<uuid>"),
    (r"(?<![A-Za-z0-9])[0-9A-HJKMNP-TV-Za-hjkmnp-tv-z]{26}(?![A-Za-z0-9])", "<id>"),
    (r"(?<![A-Za-z0-9])0[xX][0-9a-fA-F]+", "<hex>"),
    (
        r"(?<![A-Za-z0-9])(?=[0-9]*[a-fA-F])(?=[a-fA-F]*[0-9])[0-9a-fA-F]{8,}(?![A-Za-z0-9])",
        "<hex>",
    ),
    (r"[0-9]+(?:[.,:][0-9]+)*", "<n>"),
    (r"[ \t\f\x0b]+", " "),
)
"""Patterns that Java and Python read alike; no word boundaries, whose letters differ."""

_COMPILED: Final = tuple((re.compile(pattern, re.ASCII), word) for pattern, word in _STEPS)


def reason_group(reason: str | None) -> str:
    """Name the group of a reason."""
    text = (reason or "")[:_READ]
    for pattern, word in _COMPILED:
        text = pattern.sub(word, text)
    return text.strip(" ")[:LONGEST] or UNTOLD


def reason_group_sql(column: str) -> str:
    """Write `reason_group` of a column as an expression of Spark's SQL."""
    text = f"substring({column}, 1, {_READ})"
    for pattern, word in _STEPS:
        text = f"regexp_replace({text}, r'{pattern}', '{word}')"
    return f"coalesce(nullif(substring(trim({text}), 1, {LONGEST}), ''), '{UNTOLD}')"
