"""Find jobs in the line that nobody takes from: clients of two generations paused the queue."""

from __future__ import annotations

from toril.doctor.census import Spot
from toril.doctor.finding import Finding, Merge, jobs, ok, problem
from toril.doctor.visit import Visit


async def check_sidings(visit: Visit, spot: Spot, queue: str) -> Finding:
    """Compare where waiting jobs of a BullMQ queue are with whether it is paused."""
    commands = [
        ("MULTI",),
        ("HEXISTS", f"{spot.base}meta", "paused"),
        ("LLEN", f"{spot.base}paused"),
        ("EXEC",),
    ]
    paused, aside = (await visit.pipe(spot, commands))[-1]
    if paused or not aside:
        return ok("sidings", "waiting jobs are in the line that workers take from", queue)
    return problem(
        "sidings",
        f"{jobs(aside)} in 'paused', though the queue is not paused; no worker looks there",
        "toril doctor --fix puts them in line",
        queue=queue,
        count=aside,
        remedy=Merge(queue=queue, paused=False),
    )
