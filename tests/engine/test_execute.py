"""How a worker runs handlers."""

from __future__ import annotations

import asyncio
import functools
import threading
from contextvars import ContextVar

import pytest

from tests.engine.conftest import Stage
from toril import (
    InvalidInput,
    InvalidOption,
    JobContext,
    JobFailed,
    State,
    TorilError,
    Worker,
    WorkerState,
    current_job,
)

Ctx = JobContext[object]


async def test_an_async_handler_runs_on_the_loop(stage: Stage) -> None:
    async def handler(job: Ctx) -> object:
        return [job.data, threading.get_ident()]

    async with Worker(stage.queue, handler):
        result = await stage.queue.enqueue_and_wait("j", {"n": 1})
    assert result == [{"n": 1}, threading.get_ident()]


async def test_a_plain_handler_runs_in_a_thread(stage: Stage) -> None:
    def handler(_job: Ctx) -> object:
        return threading.get_ident()

    async with Worker(stage.queue, handler):
        assert await stage.queue.enqueue_and_wait("j", None) != threading.get_ident()


async def test_a_plain_handler_may_return_an_awaitable(stage: Stage) -> None:
    async def later(job: Ctx) -> object:
        return job.id

    async with Worker(stage.queue, lambda job: later(job)):
        assert await stage.queue.enqueue_and_wait("j", None) == "j"


async def test_partials_and_callable_objects_are_recognised_as_async(stage: Stage) -> None:
    class Handler:
        async def __call__(self, job: Ctx) -> object:
            return threading.get_ident()

    async def two(_extra: int, job: Ctx) -> object:
        return threading.get_ident()

    async with Worker(stage.queue, Handler()):
        assert await stage.queue.enqueue_and_wait("a", None) == threading.get_ident()
    async with Worker(stage.queue, functools.partial(two, 1)):
        assert await stage.queue.enqueue_and_wait("b", None) == threading.get_ident()


async def test_handlers_are_found_by_job_name(stage: Stage) -> None:
    async def double(job: Ctx) -> object:
        return 2 * int(str(job.data))

    async def negate(job: Ctx) -> object:
        return -int(str(job.data))

    async with Worker(stage.queue, {"double": double, "negate": negate}):
        assert await stage.queue.enqueue_and_wait("a", 3, name="double") == 6
        assert await stage.queue.enqueue_and_wait("b", 3, name="negate") == -3


async def test_an_unknown_job_name_fails_at_once_with_a_suggestion(stage: Stage) -> None:
    async def send_email(_job: Ctx) -> object:
        return None

    async with Worker(stage.queue, {"send_email": send_email}):
        with pytest.raises(JobFailed, match=r"knows: send_email\. Did you mean 'send_email'"):
            await stage.queue.enqueue_and_wait("j", None, name="send_emial")
    job = await stage.queue.get_job("j")
    assert job is not None
    assert (job.state, job.attempts_made) == (State.FAILED, 1)


async def test_a_handler_sees_its_job(stage: Stage) -> None:
    seen: list[Ctx] = []

    async def handler(job: Ctx) -> object:
        seen.append(job)
        assert current_job.get() is job
        return None

    worker = Worker(stage.queue, handler, worker_id="w-1")
    async with worker:
        await stage.queue.enqueue_and_wait(
            "j", [1], name="greet", attempts=7, correlation_id="req-9", job_timeout=60
        )
    (job,) = seen
    assert (job.id, job.name, job.queue, job.data) == ("j", "greet", "stage", [1])
    assert (job.attempt, job.max_attempts, job.stalls) == (1, 7, 0)
    assert (job.worker_id, job.correlation_id) == ("w-1", "req-9")
    assert job.created_at.timestamp() * 1000 == 1_700_000_000_000
    assert job.deadline == 60
    assert (job.cancelled, job.lost) == (False, False)
    assert "attempt 1/7" in repr(job)


async def test_what_one_handler_binds_in_its_context_is_unseen_by_the_next(stage: Stage) -> None:
    tenant: ContextVar[str] = ContextVar("tenant", default="nobody")

    async def handler(job: Ctx) -> object:
        before = tenant.get()
        tenant.set(job.id)
        return before

    async with Worker(stage.queue, handler):
        assert await stage.queue.enqueue_and_wait("a", None) == "nobody"
        assert await stage.queue.enqueue_and_wait("b", None) == "nobody"


async def test_no_more_than_concurrency_jobs_are_in_hand(stage: Stage) -> None:
    running, most = 0, 0
    gate = asyncio.Event()

    async def handler(_job: Ctx) -> object:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await gate.wait()
        running -= 1
        return None

    for number in range(10):
        await stage.queue.enqueue(f"j{number}", None)
    async with Worker(stage.queue, handler, concurrency=3) as worker:
        await stage.clock.settle()
        assert (running, worker.active) == (3, 3)
        assert (await stage.queue.get_job_counts()).active == 3
        gate.set()
        await stage.clock.settle(300)
    assert most == 3
    assert (await stage.queue.get_job_counts()).completed == 10


async def test_one_at_a_time_jobs_start_in_the_order_they_came(stage: Stage) -> None:
    order: list[str] = []

    async def handler(job: Ctx) -> object:
        order.append(job.id)
        return None

    ids = [f"j{number}" for number in range(20)]
    for job_id in ids:
        await stage.queue.enqueue(job_id, None)
    async with Worker(stage.queue, handler):
        await stage.clock.settle(500)
    assert order == ids


async def test_a_worker_that_runs_cannot_be_run_again(stage: Stage) -> None:
    async def handler(_job: Ctx) -> object:
        return None

    worker = Worker(stage.queue, handler)
    states = [worker.state]
    async with worker:
        await stage.clock.settle()
        states.append(worker.state)
        with pytest.raises(TorilError, match="running already"):
            await worker.run()
    states.append(worker.state)
    assert states == [WorkerState.STOPPED, WorkerState.RUNNING, WorkerState.STOPPED]
    async with worker:  # but again after it stopped
        await stage.queue.enqueue_and_wait("again", None)


@pytest.mark.parametrize("handler", [None, 3, {}, {"a": 3}, {1: print}])
def test_what_is_not_a_handler_is_refused(handler: object) -> None:
    queue: Stage = Stage()
    with pytest.raises(InvalidOption, match="handler"):
        Worker(queue.queue, handler)  # type: ignore[arg-type]


async def test_an_unreadable_payload_fails_the_job_and_is_kept(stage: Stage) -> None:
    from toril.job import JobSpec

    ran: list[str] = []

    async def handler(job: Ctx) -> object:
        ran.append(job.id)
        return None

    await stage.storage.open()
    await stage.storage.enqueue("stage", [JobSpec(id="bad", payload=b"{not json", origin="o")])
    async with Worker(stage.queue, handler):
        await stage.clock.settle()
    (record,) = await stage.storage.get("stage", ["bad"])
    assert record is not None
    assert record.state is State.FAILED
    assert record.spec.payload == b"{not json"
    assert record.failure is not None
    assert record.failure.kind == "toril.errors.SerdeError"
    assert not ran
    await stage.storage.close()


async def test_an_unserialisable_result_fails_the_job_with_its_path(stage: Stage) -> None:
    async def handler(_job: Ctx) -> object:
        return {"answer": [1, object()]}

    async with Worker(stage.queue, handler):
        with pytest.raises(JobFailed, match=r"result of job 'j'.*\$\.answer\[1\]"):
            await stage.queue.enqueue_and_wait("j", None)
    job = await stage.queue.get_job("j")
    assert job is not None
    assert job.attempts_made == 1


async def test_a_result_over_ten_mebibytes_fails_the_job(stage: Stage) -> None:
    async def handler(_job: Ctx) -> object:
        return "x" * (10 * 1024 * 1024 + 1)

    async with Worker(stage.queue, handler):
        with pytest.raises(JobFailed, match="10,485,763 bytes"):
            await stage.queue.enqueue_and_wait("j", None)


async def test_a_job_not_started_in_time_expires_without_running(stage: Stage) -> None:
    ran: list[str] = []

    async def handler(job: Ctx) -> object:
        ran.append(job.id)
        return None

    await stage.queue.enqueue("late", None, expires_in=10)
    await stage.queue.enqueue("fresh", None, expires_in=100)
    await stage.advance(11)
    async with Worker(stage.queue, handler):
        await stage.clock.settle()
    status = await stage.queue.get_status("late")
    assert status is not None
    assert status.error is not None
    assert (status.state, status.error.kind) == (State.FAILED, "JobExpired")
    assert ran == ["fresh"]


async def test_progress_and_logs_reach_the_storage(stage: Stage) -> None:
    async def handler(job: Ctx) -> object:
        await job.progress({"done": 50})
        await job.log("half way")
        _ = job.log("a forgotten await still writes")
        await asyncio.sleep(0)
        return None

    async with Worker(stage.queue, handler):
        await stage.queue.enqueue_and_wait("j", None)
    job = await stage.queue.get_job("j")
    assert job is not None
    assert job.progress == {"done": 50}
    assert await stage.queue.logs("j") == ["half way", "a forgotten await still writes"]


async def test_a_plain_handler_reports_progress_by_a_blocking_call(stage: Stage) -> None:
    def handler(job: Ctx) -> object:
        job.progress(10)
        job.log("from a thread")
        return None

    async with Worker(stage.queue, handler):
        await stage.queue.enqueue_and_wait("j", None)
    assert await stage.queue.logs("j") == ["from a thread"]
    job = await stage.queue.get_job("j")
    assert job is not None
    assert job.progress == 10


@pytest.mark.parametrize("value", [-1, 101, 50.0, True, "50", {"done": 50}, None])
async def test_strict_progress_refuses_what_is_no_percentage(stage: Stage, value: object) -> None:
    async def handler(job: Ctx) -> object:
        await job.progress(0)
        await job.progress(100)
        with pytest.raises(InvalidInput, match=r"progress of job 'j' .* from 0 to 100"):
            job.progress(value)
        return "went on"

    async with Worker(stage.queue, handler, strict_progress=True):
        assert await stage.queue.enqueue_and_wait("j", None) == "went on"
    job = await stage.queue.get_job("j")
    assert job is not None
    assert job.progress == 100


async def test_ten_workers_share_a_hundred_jobs_and_run_each_once(stage: Stage) -> None:
    runs: list[str] = []

    async def handler(job: Ctx) -> object:
        runs.append(job.id)
        await asyncio.sleep(0)
        return job.worker_id

    ids = [f"j{number}" for number in range(100)]
    for job_id in ids:
        await stage.queue.enqueue(job_id, None)
    workers = [Worker(stage.queue, handler, concurrency=3) for _ in range(10)]
    for worker in workers:
        await worker.start()
    await stage.clock.settle(300)
    for worker in workers:
        await worker.stop()
    assert sorted(runs) == sorted(ids)
    assert (await stage.queue.get_job_counts()).completed == 100


async def test_a_thread_that_outlives_its_run_keeps_its_place(stage: Stage) -> None:
    """The jobs behind it must not be claimed into a pool that cannot run them."""
    release = threading.Event()
    ran: list[str] = []

    def handler(job: Ctx) -> object:
        ran.append(job.id)
        if job.id == "stuck":
            release.wait(10)
        return None

    await stage.queue.enqueue("stuck", None, timeout=1, attempts=1)
    for number in range(4):
        await stage.queue.enqueue(f"j{number}", None, timeout=1, attempts=1)
    worker = Worker(stage.queue, handler)
    async with worker:
        await stage.advance(30)
        assert await stage.state("stuck") is State.FAILED
        assert (await stage.queue.get_job_counts()).waiting == 4
        release.set()
        done = asyncio.Event()
        worker.on("completed")(lambda job, _result: done.set() if job.id == "j3" else None)
        await done.wait()
    assert ran == ["stuck", "j0", "j1", "j2", "j3"]


async def test_a_postponed_job_has_started_and_does_not_expire(stage: Stage) -> None:
    from toril import Postpone

    async def handler(job: Ctx) -> object:
        if stage.clock.monotonic() < 20:
            raise Postpone(20)
        return "done"

    await stage.queue.enqueue("j", None, expires_in=10)
    async with Worker(stage.queue, handler):
        await stage.advance(30)
    assert await stage.queue.get_result("j") == "done"


async def test_the_workers_attempts_are_what_the_handler_sees(stage: Stage) -> None:
    async def handler(job: Ctx) -> object:
        return job.max_attempts

    async with Worker(stage.queue, handler, attempts=2):
        assert await stage.queue.enqueue_and_wait("j", None, attempts=5) == 2


async def test_a_workers_name_is_seen_by_the_queue(stage: Stage) -> None:
    async def handler(_job: Ctx) -> object:
        return None

    async with Worker(stage.queue, handler, name="mailer", worker_id="w-1"):
        await stage.clock.settle()
        (worker,) = await stage.queue.get_workers()
        assert (worker.id, worker.name) == ("w-1", "mailer")


async def test_jobs_that_wait_to_be_handed_out_keep_their_places(stage: Stage) -> None:
    running, most = 0, 0

    async def handler(_job: Ctx) -> object:
        nonlocal running, most
        running += 1
        most = max(most, running)
        for _ in range(20):
            await asyncio.sleep(0)
        running -= 1
        return None

    for number in range(300):
        await stage.queue.enqueue(f"j{number}", None)
    async with Worker(stage.queue, handler, concurrency=20):
        await stage.clock.settle(5000)
    assert (await stage.queue.get_job_counts()).completed == 300
    assert most == 20
