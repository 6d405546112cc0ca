"""Disorder in a queue is found, and mended where that loses nothing."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.doctor.conftest import Case, bad, found
from toril import Dedup, JobContext, Worker
from toril.doctor.finding import Level
from toril.ids import token
from toril.job import State
from toril.storage.protocol import Claim


def plain(case: Case) -> str:
    """The line of jobs without priority."""
    return case.key("wait" if case.url.startswith("bullmq") else "queue")


def forget_record(case: Case, job_id: str) -> None:
    """Delete a job's record and nothing else, as a crash of another program might."""
    if case.url.startswith("bullmq"):
        case.raw.delete(case.key(job_id))
    else:
        for part in ("jobs", "ended"):
            case.raw.hdel(case.key(part), job_id)


def wish(count: int = 1, lease_ms: int = 60_000) -> Claim:
    return Claim(token=token(), worker_id="w", count=count, lease_ms=lease_ms)


async def test_a_healthy_queue_gives_no_problem_and_no_warning(case: Case) -> None:
    async with case.queue as queue:
        for number in range(20):
            await queue.add("send", number, delay=number % 2 * 3600, priority=number % 3)
        async with Worker(queue, lambda job: job.data):
            assert await queue.enqueue_and_wait("last", 21) == 21
            report = await case.look()
    assert bad(report) == []
    assert found(report, "workers").text.startswith("1 worker, ")


async def test_a_queue_under_work_gives_no_problem(case: Case) -> None:
    async def handle(job: JobContext[int]) -> int:
        if job.data % 7 == 0 and job.attempt == 1:
            raise RuntimeError("again")
        await asyncio.sleep(0)
        return job.data

    queue = case.queue
    options: dict[str, Any] = {"attempts": 2, "backoff": 0.01, "keep_completed": 50}

    async def produce() -> None:
        for number in range(500):
            await queue.add("n", number, priority=number % 2, **options)

    async with queue, Worker(queue, handle, concurrency=20):
        producer = asyncio.create_task(produce())
        looks = 0
        while not producer.done():
            report = await case.look()
            assert bad(report) == [], [one for one in report.findings if one.level != "ok"]
            looks += 1
        await producer
        assert looks > 3


async def test_entries_without_a_record_are_found_and_taken_out(case: Case) -> None:
    async with case.queue as queue:
        for number in range(5):
            await queue.add("n", number, id=f"w{number}")
            await queue.add("n", number, id=f"p{number}", priority=3)
            await queue.add("n", number, id=f"d{number}", delay=3600)
    for name in ("w1", "w3", "p2", "d4"):
        forget_record(case, name)
    report = await case.look()
    ghosts = [one for one in report.findings if one.check == "ghosts"]
    assert [(one.level, one.count) for one in ghosts] == [
        (Level.PROBLEM, count) for count in (2, 1, 1)
    ]
    assert "2 entries of '" in ghosts[0].text
    assert "have no record: " in ghosts[0].text
    assert await case.mend(report) == [
        f"mail: took 2 out of '{plain(case).rpartition(':')[2]}'",
        "mail: took 1 out of 'prioritized'",
        "mail: took 1 out of 'delayed'",
    ]
    again = await case.look()
    assert found(again, "ghosts").level is Level.OK
    async with case.queue as queue:
        counts = await queue.get_job_counts()
        assert [
            counts.of(state) for state in (State.WAITING, State.PRIORITIZED, State.DELAYED)
        ] == [
            3,
            4,
            4,
        ]


async def test_a_finished_or_running_ghost_is_found_and_taken_out(case: Case) -> None:
    async with case.queue as queue:
        async with Worker(queue, lambda job: job.data):
            await queue.enqueue_and_wait("done", 1)
        await queue.add("n", 2, id="runs")
        await queue.storage.claim("mail", wish())
        await queue.storage.leave("mail", "w")
    forget_record(case, "done")
    forget_record(case, "runs")
    report = await case.look()
    assert [one.count for one in report.findings if one.check == "ghosts"] == [1, 1]
    await case.mend(report)
    left = bad(await case.look())
    assert set(left) <= {"broken"}  # toril's own layout keeps what is left of a damaged job
    assert case.raw.exists(case.key("runs:lock")) == 0


async def test_a_record_in_no_line_is_found_and_left_alone(case: Case) -> None:
    async with case.queue as queue:
        for number in range(4):
            await queue.add("n", number, id=f"w{number}")
            await queue.add("n", number, id=f"d{number}", delay=3600)
    entry = next(one for one in case.raw.lrange(plain(case), 0, -1) if one.endswith(b"w2"))
    assert case.raw.lrem(plain(case), 0, entry) == 1
    assert case.raw.zrem(case.key("delayed"), "d1") == 1
    report = await case.look()
    records = found(report, "records")
    assert (records.level, records.count, records.remedy) == (Level.PROBLEM, 2, None)
    assert "2 records are in no line" in records.text
    assert "d1" in records.text
    assert "w2" in records.text
    assert "toril job remove mail ID" in str(records.fix)


async def test_a_job_nobody_holds_is_put_back_in_line(case: Case) -> None:
    async with case.queue as queue:
        for number in range(3):
            await queue.add("n", number, id=f"j{number}")
        await queue.storage.claim("mail", wish(2, 1))
        await queue.storage.leave("mail", "w")
        case.raw.delete(case.key("j0:lock"), case.key("j1:lock"))
        report = await case.look()
        leases = found(report, "leases")
        assert (leases.level, leases.count) == (Level.PROBLEM, 2)
        assert leases.text.startswith("2 jobs in active have no owner, their leases are over: ")
        assert leases.fix == "toril worker APP, or toril doctor --fix, which puts them back"
        assert await case.mend(report) == ["mail: put 2 jobs back in line"]
        counts = await queue.get_job_counts()
        assert (counts.of(State.WAITING), counts.of(State.ACTIVE)) == (3, 0)
    assert bad(await case.look()) == ["workers"]


async def test_where_workers_are_they_recover_such_a_job(case: Case) -> None:
    async with case.queue as queue:
        await queue.add("n", 1, id="j0")
        await queue.storage.claim("mail", wish(1, 1))
        case.raw.delete(case.key("j0:lock"))
        leases = found(await case.look(), "leases")
    assert (leases.level, leases.count) == (Level.WARNING, 1)
    assert leases.text.endswith("j0; its workers look for such jobs every 30 s")


async def test_dedup_keys_of_jobs_that_are_gone_are_found_and_freed(case: Case) -> None:
    async with case.queue as queue:
        for name in ("a", "b"):
            await queue.add("n", 1, id=f"job-{name}", delay=3600, dedup=name)
        await queue.add("n", 1, id="brief", delay=3600, dedup=Dedup("brief", ttl=60))
    for name in ("job-a", "brief"):
        case.raw.zrem(case.key("delayed"), name)
        forget_record(case, name)
    report = await case.look()
    dedup = found(report, "dedup")
    assert (dedup.level, dedup.count) == (Level.PROBLEM, 1)
    assert dedup.text.startswith("1 dedup key is held by jobs that are gone")
    assert await case.mend(report) == ["mail: freed 1 dedup keys"]
    assert bad(await case.look()) == []
    async with case.queue as queue:
        await queue.add("n", 2, id="job-c", delay=3600, dedup="a")
        assert (await queue.get_job_counts()).of(State.DELAYED) == 2


async def test_a_paused_queue_with_a_backlog_is_a_warning(case: Case) -> None:
    async with case.queue as queue:
        await queue.pause()
        assert found(await case.look(), "paused").level is Level.OK
        await queue.add("n", 1)
        await queue.add("n", 2)
    paused = found(await case.look(), "paused")
    assert (paused.level, paused.count) == (Level.WARNING, 2)
    assert paused.text.startswith("it is paused, and 2 jobs wait, the first for ")
    assert paused.fix == "toril queue resume mail"
    async with case.queue as queue:
        await queue.resume()
    assert "paused" not in bad(await case.look())


async def test_waiting_jobs_without_a_worker_are_a_warning(case: Case) -> None:
    async with case.queue as queue:
        await queue.add("n", 1)
    workers = found(await case.look(), "workers")
    assert (workers.level, workers.count) == (Level.WARNING, 1)
    assert "1 job waits, the first for" in workers.text
    assert "no worker serves it" in workers.text


async def test_no_check_goes_beyond_its_limit_and_it_says_so(case: Case) -> None:
    async with case.queue as queue:
        for number in range(120):
            await queue.add("n", number, id=f"w{number}")
            await queue.add("n", number, id=f"d{number}", delay=3600)
    forget_record(case, "d119")
    report = await case.look(limit=50)
    assert "(looked at 100 of 240)" in found(report, "ghosts").text
    text = "records were not looked for: 120 entries in line are too many to search"
    assert found(report, "records").text == text
    assert found(await case.look(limit=120), "ghosts").count == 1


async def test_damaged_records_are_told(lean: Case) -> None:
    async with lean.queue as queue:
        await queue.add("n", 1, id="j0")
        lean.raw.hset(lean.key("jobs"), "j0", b"\xc1 no record")
        broken = found(await lean.look(), "broken")
        assert (broken.level, broken.count) == (Level.WARNING, 1)
        assert "1 record cannot be read: j0" in broken.text
        await queue.storage.claim("mail", wish())
    assert "what was left is in" in found(await lean.look(), "broken").text


async def test_a_newer_layout_is_not_touched(lean: Case) -> None:
    async with lean.queue as queue:
        await queue.add("n", 1, id="j0")
    lean.raw.hset(lean.key("meta"), "layout", 9)
    report = await lean.look()
    assert bad(report) == ["layout"]
    assert found(report, "layout").text.startswith("it has layout 9, this toril knows 1")
