"""Progress and logs."""

from __future__ import annotations

from tests.bullmq.scenarios.registry import scenario
from tests.bullmq.sides import Side


@scenario
async def progress_as_a_number(q: Side) -> None:
    await q.add("a")
    await q.claim()
    await q.progress("a", 10)
    await q.progress("a", 55)


@scenario
async def progress_as_an_object(q: Side) -> None:
    await q.add("a")
    await q.claim()
    await q.progress("a", {"done": 1, "of": [1, 2], "what": "naïve"})
    await q.complete("a")


@scenario
async def lines_in_a_log(q: Side) -> None:
    await q.add("a")
    await q.claim()
    await q.log("a", "one")
    await q.log("a", "zwölf 🐂")


@scenario
async def a_log_keeps_its_newest_lines(q: Side) -> None:
    await q.add("a", keep_logs=2)
    await q.claim()
    for line in ("one", "two", "three"):
        await q.log("a", line)


@scenario
async def a_log_goes_with_its_job(q: Side) -> None:
    await q.add("a")
    await q.claim()
    await q.log("a", "one")
    await q.complete("a")
    await q.remove("a")
