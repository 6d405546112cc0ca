"""Carry every value both ways."""

from __future__ import annotations

from tests.bullmq.scenarios.registry import scenario
from tests.bullmq.sides import Side

# Numbered, because what completes within one millisecond is listed by its id.
VALUES = {
    "00-null": None,
    "01-false": False,
    "02-zero": 0,
    "03-number": -12.5,
    "04-text": "",
    "05-unicode": "naïve Σ 日本語",
    "06-emoji": "🐂👩‍🚀",
    "07-nul": "a\0b",
    "08-control": '\x01\x1f\x7f\u2028"\\/',
    "09-list": [1, [2, []], {}],
    "10-object": {"": 0, "k k": {"deep": [None, True]}},
}


@scenario
async def data_of_every_kind(q: Side) -> None:
    for job_id, value in VALUES.items():
        await q.add(job_id, value)


@scenario
async def results_of_every_kind(q: Side) -> None:
    for job_id, value in VALUES.items():
        await q.add(job_id)
        await q.claim()
        await q.complete(job_id, value)


@scenario
async def a_large_value(q: Side) -> None:
    text = "ñ🐂x" * 50_000
    await q.add("a", {"text": text})
    await q.claim()
    await q.complete("a", {"text": text})


@scenario
async def reasons_with_strange_signs(q: Side) -> None:
    for job_id, reason in (("a", "naïve 🐂"), ("b", 'quote " and \\'), ("c", "two\nlines")):
        await q.add(job_id)
        await q.claim()
        await q.fail(job_id, reason)


@scenario
async def names_with_strange_signs(q: Side) -> None:
    await q.add("naïve-🐂", name="mail/é:v2")
    await q.add("with space", {"a": 1}, name="job name")
