"""What an application hands in is counted, where it gives a collector."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from toril import (
    InvalidOption,
    InvalidPayload,
    MemoryStorage,
    NewJob,
    NoMetrics,
    Queue,
    SyncQueue,
    Toril,
)
from toril.prometheus import OTHER, PrometheusMetrics

NAME = "toril_jobs_enqueued_total"


def enqueued(metrics: PrometheusMetrics) -> dict[tuple[str, str], float]:
    """Read the counter by queue and name."""
    return {
        (sample.labels["queue"], sample.labels["name"]): sample.value
        for family in text_string_to_metric_families(metrics.render().decode())
        for sample in family.samples
        if sample.name == NAME
    }


async def test_new_jobs_are_counted_by_name_and_duplicates_are_not() -> None:
    metrics = PrometheusMetrics()
    queue: Queue[int, int] = Queue("mail", "memory:", metrics=metrics)
    async with queue:
        await queue.enqueue("a", 1)
        await queue.enqueue("a", 1)
        await queue.add("welcome", 2, id="w-1")
        await queue.add_bulk([NewJob(name="welcome", data=n, id=f"w-{n}") for n in range(3)])
        await queue.add_bulk([NewJob(name="digest", data=n) for n in range(2500)])
        assert (await queue.get_job_counts()).waiting == 2504
    assert enqueued(metrics) == {
        ("mail", "job"): 1,
        ("mail", "welcome"): 3,
        ("mail", "digest"): 2500,
    }


async def test_a_job_that_could_not_be_stored_is_not_counted() -> None:
    metrics = PrometheusMetrics()
    queue: Queue[object, int] = Queue("mail", "memory:", metrics=metrics)
    async with queue:
        with pytest.raises(InvalidPayload):
            await queue.add("bad", float("nan"))
    assert enqueued(metrics) == {}


async def test_names_beyond_the_first_hundred_are_other() -> None:
    metrics = PrometheusMetrics()
    queue: Queue[int, int] = Queue("many", "memory:", metrics=metrics)
    async with queue:
        await queue.add_bulk([NewJob(name=f"n{n}", data=n) for n in range(150)])
    found = enqueued(metrics)
    assert len(found) == 101
    assert found["many", OTHER] == 50


async def test_an_app_counts_what_goes_to_any_of_its_queues() -> None:
    metrics = PrometheusMetrics()
    app = Toril("first", MemoryStorage(), metrics=metrics)

    @app.task
    async def start(n: int) -> int:
        await follow.enqueue(n)
        return n

    @app.task(queue="second")
    async def follow(n: int) -> int:
        return n

    async with app, app.worker():
        assert await (await start.enqueue(1)).result() == 1
    assert enqueued(metrics) == {("first", "start"): 1, ("second", "follow"): 1}
    finished = 'toril_jobs_finished_total{name="start",outcome="completed",queue="first"} 1.0'
    assert finished in metrics.render().decode()


async def test_a_collector_can_come_later() -> None:
    app = Toril("late", "memory:")

    @app.task
    async def run(n: int) -> int:
        return n

    metrics = PrometheusMetrics()
    async with app:
        await run.enqueue(1)
        app.measure(metrics)
        await run.enqueue(2)
    assert enqueued(metrics) == {("late", "run"): 1}


async def test_a_collector_of_workers_alone_is_fine_for_an_app() -> None:
    app = Toril("plain", "memory:", metrics=NoMetrics())
    async with app:
        await app.queue().enqueue("a", 1)


def test_scripts_count_too() -> None:
    metrics = PrometheusMetrics()
    with SyncQueue[int, int]("mail", "memory:", metrics=metrics) as queue:
        queue.add("welcome", 1)
    assert enqueued(metrics) == {("mail", "welcome"): 1}


def test_a_program_without_workers_does_not_say_that_the_storage_is_down() -> None:
    assert "toril_storage_up NaN" in PrometheusMetrics().render().decode()


def test_what_cannot_count_is_refused() -> None:
    with pytest.raises(InvalidOption, match="jobs_enqueued"):
        Queue("mail", "memory:", metrics=NoMetrics())  # type: ignore[arg-type]
