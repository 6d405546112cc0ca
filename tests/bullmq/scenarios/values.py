"""Carry every value both ways."""

from __future__ import annotations

from tests.bullmq.scenarios.registry import scenario
from tests.bullmq.sides import Side

VALUES = {
    "null": None,
    "false": False,
    "zero": 0,
    "number": -12.5,
    "text": "",
    "unicode": "naïve Σ 日本語",
    "emoji": "🐂👩‍🚀",
    "nul": "a\0b",
    "control": '\x01\x1f\x7f\u2028"\\/',
    "list": [1, [2, []], {}],
    "object": {"": 0, "k k": {"deep": [None, True]}},
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
