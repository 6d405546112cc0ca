"""Many producers, one id; `reliability.md` B5."""

from __future__ import annotations

from collections import Counter

from tests.faults.stage import Stage


async def test_b5_fifty_producers_of_one_id_make_one_job_and_one_run(stage: Stage) -> None:
    programs = [
        stage.producer(f"p{number}", count=10, at_once=10, id="same", gate=stage.gate("go"))
        for number in range(5)
    ]
    await stage.until(lambda: len(stage.of("producer", "invoke")) == len(programs), 20)
    stage.gate("go").touch()
    for program in programs:
        assert await stage.ended(program, 20) == 0
    answers = Counter(one.data["status"] for one in stage.of("enqueue", "ok"))
    assert answers == {"queued": 1, "duplicate": 49}
    stage.worker("w", concurrency=4)
    await stage.drained(1)
    async with stage.queue() as queue:
        result = await queue.enqueue("same", {})
    assert result.status == "completed"
    dump = stage.check()
    assert len(stage.of("run", "invoke")) == 1
    assert [job.started for job in dump.jobs] == [1]


async def test_i7_one_worker_starts_jobs_in_the_order_they_were_handed_in(stage: Stage) -> None:
    stage.worker("w")
    producer = stage.producer("p", count=300)
    await stage.ended(producer, 20)
    await stage.drained(300)
    stage.check(ordered=True)
