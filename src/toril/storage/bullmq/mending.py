"""Find values in a job's hash that make an official script die half way.

Such a script leaves the job in no container at all. We read these values as if they were not
there, and so they are put in order as soon as the job is in hand.
"""

from __future__ import annotations

from typing import Final

from toril.storage.bullmq.codec import Fields, number, read_options

_COUNTERS: Final = (b"atm", b"ats", b"stc")


def repairs_of(fields: Fields) -> list[str | int]:
    """The fields to put in order, each with its value; none for a sound job."""
    repairs: list[str | int] = []
    for name in _COUNTERS:
        raw = fields.get(name)
        if raw is not None and not raw.removeprefix(b"-").isdigit():
            repairs += (name.decode(), number(fields, name))
    if fields.get(b"opts", b"{}") != b"{}" and not read_options(fields):
        repairs += ("opts", "{}")
    return repairs
