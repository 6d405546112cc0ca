"""Disorder that only BullMQ queues can have."""

from __future__ import annotations

from tests.doctor.conftest import Case, bad, found
from toril.doctor.finding import Level

HOUR_MS = 3_600_000
LATER_MS = 4_102_444_800_000


def schedule(case: Case, name: str, **fields: object) -> str:
    """Write a scheduler and its next job, as Node does."""
    job = f"repeat:{name}:{LATER_MS}"
    case.raw.zadd(case.key("repeat"), {name: LATER_MS})
    case.raw.hset(
        case.key(f"repeat:{name}"), mapping={"name": "tick", "every": HOUR_MS, "ic": 1, **fields}
    )
    values = {"name": "tick", "data": "{}", "opts": "{}", "timestamp": 1, "delay": HOUR_MS}
    case.raw.hset(case.key(job), mapping={**values, "rjk": name})
    case.raw.zadd(case.key("delayed"), {job: LATER_MS * 4096})
    return job


async def begin(case: Case) -> None:
    """Make the queue known."""
    async with case.queue as queue:
        await queue.add("n", 1, id="later", delay=3600)


async def test_jobs_beside_the_line_are_found_and_put_into_it(bull: Case) -> None:
    await begin(bull)
    async with bull.queue as queue:
        await queue.pause()
        for number in range(3):
            await queue.add("n", number, id=f"j{number}")
    bull.raw.hdel(bull.key("meta"), "paused")  # as clients of another generation resume
    report = await bull.look()
    sidings = found(report, "sidings")
    assert (sidings.level, sidings.count) == (Level.PROBLEM, 3)
    assert sidings.text.startswith("3 jobs in 'paused', though the queue is not paused")
    assert await bull.mend(report) == ["mail: put its waiting jobs into one line"]
    assert bull.raw.lrange(bull.key("wait"), 0, -1) == [b"j2", b"j1", b"j0"]
    assert bad(await bull.look()) == ["workers"]


async def test_a_look_for_stalled_jobs_that_others_just_made_is_waited_out(bull: Case) -> None:
    async with bull.queue as queue:
        await queue.add("n", 1, id="j0")
    bull.raw.lmove(bull.key("wait"), bull.key("active"), "RIGHT", "LEFT")
    report = await bull.look()
    bull.raw.set(bull.key("stalled-check"), "1", px=200)
    assert await bull.mend(report) == ["mail: put 1 job back in line"]
    assert bull.raw.lrange(bull.key("wait"), 0, -1) == [b"j0"]


async def test_a_scheduler_without_a_next_job_is_found(bull: Case) -> None:
    await begin(bull)
    schedule(bull, "sound")
    job = schedule(bull, "stopped")
    assert found(await bull.look(), "schedulers").text.startswith("2 schedulers have a next job")
    bull.raw.zrem(bull.key("delayed"), job)
    bull.raw.delete(bull.key(job))
    schedulers = found(await bull.look(), "schedulers")
    assert (schedulers.level, schedulers.count) == (Level.PROBLEM, 1)
    text = "1 scheduler has no next job, and will never run again: stopped"
    assert schedulers.text == text
    assert "upsertJobScheduler" in str(schedulers.fix)


async def test_a_scheduler_whose_last_job_finished_without_a_next_is_found(bull: Case) -> None:
    await begin(bull)
    job = schedule(bull, "stopped")
    bull.raw.zrem(bull.key("delayed"), job)
    bull.raw.zadd(bull.key("completed"), {job: 1})
    assert found(await bull.look(), "schedulers").count == 1


async def test_a_scheduler_at_its_limit_or_end_is_no_problem(bull: Case) -> None:
    await begin(bull)
    for name, fields in (("limited", {"limit": 1}), ("ended", {"endDate": 1000})):
        job = schedule(bull, name, **fields)
        bull.raw.zrem(bull.key("delayed"), job)
        bull.raw.delete(bull.key(job))
    assert found(await bull.look(), "schedulers").level is Level.OK


async def test_an_older_repeatable_is_judged_only_where_all_lines_were_read(bull: Case) -> None:
    await begin(bull)
    bull.raw.zadd(bull.key("repeat"), {"old::::50": LATER_MS})
    assert found(await bull.look(), "schedulers").level is Level.PROBLEM
    async with bull.queue as queue:
        await queue.add("n", 1, delay=3600)
    cut = await bull.look(limit=1)
    assert [one.level for one in cut.findings if one.check == "schedulers"] == [Level.OK]


async def test_a_job_whose_scheduler_is_gone_is_a_warning(bull: Case) -> None:
    await begin(bull)
    schedule(bull, "gone")
    bull.raw.zrem(bull.key("repeat"), "gone")
    bull.raw.delete(bull.key("repeat:gone"))
    schedulers = found(await bull.look(), "schedulers")
    assert (schedulers.level, schedulers.count) == (Level.WARNING, 1)
    assert "1 job of schedulers that are gone: repeat:gone:" in schedulers.text


async def test_a_search_among_too_many_keys_is_cut_and_says_so(bull: Case) -> None:
    await begin(bull)
    stem = bull.base.partition(":")[0]
    bull.raw.mset({f"{stem}-x{number}": 1 for number in range(3000)})
    report = await bull.look(limit=1)
    cut = "(looked at 10 keys, there are more)"
    assert found(report, "dedup").text.endswith(cut)
    assert found(report, "records").text.endswith("there are more)")


async def test_a_queue_without_schedulers_gets_no_line_about_them(bull: Case) -> None:
    await begin(bull)
    assert [one for one in (await bull.look()).findings if one.check == "schedulers"] == []
