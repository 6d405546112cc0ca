"""The jobs of the demo, and what they do."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from typing import Final

from toril.context import JobContext
from toril.engine.execute import Handler
from toril.intake import NewJob
from toril.options import JobOptions

Data = dict[str, int]

QUEUE: Final = "demo"
REPORTS_QUEUE: Final = "demo-reports"
DOOMED: Final = "doomed"
HELD: Final = 50
"""How many jobs the doomed worker holds when it is killed."""

EMAILS: Final = 3000
FLAKY: Final = 200
REMINDERS: Final = 100
REPORTS: Final = 60
THUMBNAILS: Final = 300
TOTAL: Final = EMAILS + FLAKY + REMINDERS + THUMBNAILS + 1
LEASE_S: Final = 1.0

_BEFORE_IT_HANGS: Final = 300
_begun = 0


async def email(job: JobContext[Data]) -> None:
    """Send; in the doomed process, hang after a while with all hands full."""
    global _begun
    _begun += 1
    if job.worker_id == DOOMED and _begun > _BEFORE_IT_HANGS:
        if _begun == _BEFORE_IT_HANGS + HELD:
            os.write(1, b"full\n")
        await asyncio.Event().wait()
    await asyncio.sleep(0.02)


async def thumbnail(job: JobContext[Data]) -> int:
    """Answer somebody who waits."""
    await asyncio.sleep(0.005)
    return job.data["width"] // 2


async def flaky(job: JobContext[Data]) -> None:
    """Work at the third attempt."""
    if job.attempt < 3:
        raise ConnectionError("the peer hung up")


async def poison(_job: JobContext[Data]) -> None:
    """Never work."""
    raise ZeroDivisionError("this job can never work")


HANDLERS: Final[Mapping[str, Handler[Data, int | None]]] = {
    "email": email,
    "thumbnail": thumbnail,
    "flaky": flaky,
    "poison": poison,
}


def new_jobs() -> list[NewJob[Data]]:
    """The jobs of the main queue, but for those that somebody waits for."""
    later, soon_again = JobOptions(delay=1), JobOptions(backoff=0.2)
    return [
        *(NewJob(name="email", data={"number": n}) for n in range(EMAILS)),
        *(NewJob(name="flaky", data={"number": n}, options=soon_again) for n in range(FLAKY)),
        *(NewJob(name="email", data={"number": n}, options=later) for n in range(REMINDERS)),
        NewJob(name="poison", data={}, id="poison", options=soon_again),
    ]


def reports() -> list[NewJob[Data]]:
    """Jobs by priority, handed in out of order; 1 is the most urgent."""
    return [
        NewJob(name="report", data={"priority": one}, options=JobOptions(priority=one))
        for one in (3, 1, 2)
        for _ in range(REPORTS // 3)
    ]
