"""Metrics as a monitoring system reads them, from real workers over HTTP."""

from __future__ import annotations

import asyncio
import inspect
import json
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.servers import Server, valkey_binary
from toril import InvalidOption, JobContext, JobOptions, NewJob, NoMetrics, Queue, Reject, Worker
from toril.cli.lines import tally_of
from toril.exporter import Exporter
from toril.ids import ulid
from toril.metrics import JobMetrics
from toril.prometheus import OTHER, PrometheusMetrics

MONITORING: Final = Path(__file__).resolve().parents[2] / "docs" / "monitoring"
Labels = tuple[tuple[str, str], ...]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server(valkey_binary()) as running:
        yield running


async def fetch(url: str, path: str, method: str = "GET") -> tuple[int, str]:
    """Ask over HTTP; return the status and the body."""
    host, _, port = url.removeprefix("http://").rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(f"{method} {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    answer = (await reader.read()).decode()
    writer.close()
    head, _, body = answer.partition("\r\n\r\n")
    return int(head.split()[1]), body


async def until(url: str, status: int, body: str) -> None:
    """Ask for readiness until the answer is as expected; the test's own time limit ends it."""
    answer = await fetch(url, "/readyz")
    while answer != (status, body):
        await asyncio.sleep(0.02)
        answer = await fetch(url, "/readyz")


def samples(text: str) -> dict[tuple[str, Labels], float]:
    """Read Prometheus' text with its own parser."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def key(name: str, /, **labels: str) -> tuple[str, Labels]:
    return name, tuple(sorted(labels.items()))


SEED: Final = {
    "bullmq_jobs_processed_total": ("queue", "status"),
    "bullmq_job_duration_seconds": ("queue",),
    "bullmq_queue_length": ("queue", "state"),
    "bullmq_stalled_jobs_total": ("queue",),
    "bullmq_heartbeat_success_total": ("queue",),
    "bullmq_heartbeat_failure_total": ("queue",),
    "bullmq_active_workers": ("queue", "worker_id"),
    "bullmq_redis_connection_status": ("status",),
    "bullmq_redis_reconnect_attempts_total": (),
    "bullmq_stalled_checker_skipped_total": ("queue",),
    "bullmq_lock_extend_duration_seconds": ("queue",),
    "bullmq_jobs_failed_total": ("queue", "reason"),
    "bullmq_job_count": ("queue", "state"),
}
OURS: Final = {
    "toril_jobs_enqueued_total": ("queue", "name"),
    "toril_jobs_finished_total": ("queue", "name", "outcome"),
    "toril_job_retries_total": ("queue", "name"),
    "toril_jobs_stalled_total": ("queue",),
    "toril_job_duration_seconds": ("queue", "name"),
    "toril_job_wait_seconds": ("queue", "name"),
    "toril_queue_jobs": ("queue", "state"),
    "toril_queue_oldest_waiting_seconds": ("queue",),
    "toril_queue_paused": ("queue",),
    "toril_worker_active_jobs": ("queue", "worker_id"),
    "toril_worker_slots": ("queue", "worker_id"),
    "toril_storage_up": (),
    "toril_storage_reconnects_total": (),
    "toril_build_info": ("version", "protocol"),
}
"""Every metric by name, with its labels."""


@asynccontextmanager
async def exported(queue: Queue[Any, Any], handler: Any, **options: Any) -> AsyncIterator[str]:
    """Run a worker with an exporter on a free port."""
    metrics = queue.metrics if isinstance(queue.metrics, PrometheusMetrics) else None
    metrics = metrics or PrometheusMetrics()
    worker = Worker(queue, handler, metrics=metrics, worker_id="w-1", **options)
    async with queue, worker, Exporter(metrics, [worker], port=0) as exporter:
        yield exporter.url


async def test_counters_agree_with_the_store_after_many_mixed_jobs(server: Server) -> None:
    jobs = 10_000
    queue: Queue[int, int] = Queue(
        "mixed", f"{server.url}?prefix=m{ulid()}", metrics=PrometheusMetrics()
    )

    async def handle(job: JobContext[int]) -> int:
        if job.data % 10 == 1:
            raise Reject("never")
        if job.data % 10 == 2 and job.attempt == 1:
            raise ConnectionError("again")
        if job.data % 10 == 3:
            raise ConnectionError("always")
        return job.data

    async with exported(queue, handle, concurrency=200) as url:
        options = JobOptions(attempts=2, backoff=0.001)
        new = [NewJob(name=f"kind-{n % 3}", data=n, options=options) for n in range(jobs)]
        await queue.add_bulk(new)
        counts = await queue.get_job_counts()
        while counts.completed + counts.failed < jobs:
            await asyncio.sleep(0.05)
            counts = await queue.get_job_counts()
        status, text = await fetch(url, "/metrics")

    assert status == 200
    found = samples(text)
    assert (counts.completed, counts.failed) == (8000, 2000)
    processed = "bullmq_jobs_processed_total"
    assert found[key(processed, queue="mixed", status="completed")] == 8000
    assert found[key(processed, queue="mixed", status="failed")] == 2000
    assert found[key(processed, queue="mixed", status="retried")] == 2000
    assert found[key("bullmq_job_duration_seconds_count", queue="mixed")] == 12_000
    assert found[key("bullmq_queue_length", queue="mixed", state="completed")] == 8000
    assert found[key("bullmq_job_count", queue="mixed", state="failed")] == 2000
    assert found[key("toril_queue_jobs", queue="mixed", state="waiting")] == 0
    reasons = "bullmq_jobs_failed_total"
    assert found[key(reasons, queue="mixed", reason="permanent")] == 1000
    assert found[key(reasons, queue="mixed", reason="transient_exhausted")] == 1000
    finished = [value for (name, _), value in found.items() if name == "toril_jobs_finished_total"]
    assert sum(finished) == jobs
    enqueued = [value for (name, _), value in found.items() if name == "toril_jobs_enqueued_total"]
    assert sum(enqueued) == jobs
    waits = [value for (name, _), value in found.items() if name == "toril_job_wait_seconds_count"]
    assert sum(waits) == jobs
    assert found[key("bullmq_active_workers", queue="mixed", worker_id="w-1")] == 1
    assert found[key("toril_worker_slots", queue="mixed", worker_id="w-1")] == 200
    assert found[key("bullmq_redis_connection_status", status="connected")] == 1
    assert found[key("bullmq_redis_connection_status", status="disconnected")] == 0


async def test_renewals_pauses_and_waiting_jobs_are_told(server: Server) -> None:
    queue: Queue[int, None] = Queue("beats", f"{server.url}?prefix=m{ulid()}")
    release = asyncio.Event()

    async def handle(_job: JobContext[int]) -> None:
        await release.wait()

    async with exported(queue, handle, lease=0.3) as url:
        await queue.add("held", 1)
        await queue.add("next", 2)
        beats = key("bullmq_lock_extend_duration_seconds_count", queue="beats")
        found = samples((await fetch(url, "/metrics"))[1])
        while not found.get(beats):
            await asyncio.sleep(0.02)
            found = samples((await fetch(url, "/metrics"))[1])
        assert found[key("bullmq_heartbeat_success_total", queue="beats")] >= found[beats]
        assert found[key("toril_worker_active_jobs", queue="beats", worker_id="w-1")] == 1
        assert found[key("toril_queue_oldest_waiting_seconds", queue="beats")] > 0
        assert found[key("toril_queue_paused", queue="beats")] == 0
        await queue.pause()
        found = samples((await fetch(url, "/metrics"))[1])
        assert found[key("toril_queue_paused", queue="beats")] == 1
        release.set()


async def test_health_and_readiness_tell_a_dead_server_from_a_dead_process() -> None:
    with Server(valkey_binary()) as server:
        queue: Queue[int, int] = Queue("ready", server.url)
        async with exported(queue, lambda job: job.data) as url:
            await until(url, 200, "ready\n")
            assert await fetch(url, "/healthz") == (200, "ok\n")
            server.kill()
            await until(url, 503, "ready: disconnected\n")
            assert (await fetch(url, "/healthz"))[0] == 200
            status, text = await fetch(url, "/metrics")
            assert status == 200
            assert samples(text)[key("toril_storage_up")] == 0


async def test_other_paths_and_methods_are_refused_in_words() -> None:
    queue: Queue[int, int] = Queue("paths", "memory:")
    async with exported(queue, lambda job: job.data) as url:
        assert await fetch(url, "/") == (404, "try /metrics, /healthz or /readyz\n")
        assert await fetch(url, "/metrics", "POST") == (405, "GET only\n")
        assert await fetch(url, "/healthz", "HEAD") == (200, "")


async def test_a_port_that_is_taken_is_told_before_anything_runs() -> None:
    metrics = PrometheusMetrics()
    async with Exporter(metrics, [], port=0) as first:
        port = int(first.url.rpartition(":")[2])
        with pytest.raises(InvalidOption, match=rf"cannot listen on 127\.0\.0\.1:{port}"):
            async with Exporter(metrics, [], port=port):
                pass
    with pytest.raises(InvalidOption, match=r"allowed 0\.\.65535"):
        Exporter(metrics, [], port=70_000)


def test_names_beyond_the_first_hundred_share_a_series() -> None:
    metrics = PrometheusMetrics()
    for number in range(150):
        metrics.job_ended("q", f"n{number}", "completed", seconds=0.1, waited=None, reason=None)
    found = samples(metrics.render().decode())
    assert found[key("toril_jobs_finished_total", queue="q", name=OTHER, outcome="completed")] == 50
    assert found[key("toril_jobs_finished_total", queue="q", name="n7", outcome="completed")] == 1


async def test_a_worker_that_stopped_leaves_no_series_behind() -> None:
    queue: Queue[int, int] = Queue("gone", "memory:")
    metrics = PrometheusMetrics()
    async with queue, Worker(queue, lambda job: job.data, metrics=metrics, worker_id="w-9"):
        pass
    assert "w-9" not in metrics.render().decode()


def test_the_tally_of_the_command_line_hands_on_what_is_told_job_by_job() -> None:
    assert inspect.getattr_static(tally_of(PrometheusMetrics()), "job_ended", None) is not None
    assert isinstance(tally_of(PrometheusMetrics()), JobMetrics)
    assert not isinstance(tally_of(NoMetrics()), JobMetrics)


def exported_names() -> set[str]:
    metrics = PrometheusMetrics()
    names = set()
    for family in text_string_to_metric_families(metrics.render().decode()):
        ends = {"counter": ("_total",), "histogram": ("_bucket", "_count", "_sum")}
        names |= {family.name + end for end in ends.get(family.type, ("",))}
    return names


async def test_a_worker_exports_every_metric_with_its_labels(server: Server) -> None:
    queue: Queue[int, int] = Queue(
        "all", f"{server.url}?prefix=m{ulid()}", metrics=PrometheusMetrics()
    )
    async with exported(queue, lambda job: job.data) as url:
        await queue.enqueue_and_wait("one", 1)
        status, text = await fetch(url, "/metrics")
    assert status == 200
    families = {
        family.name: family
        for family in text_string_to_metric_families(text)
        if not family.name.endswith("_created")
    }
    wanted = {name.removesuffix("_total"): set(labels) for name, labels in (SEED | OURS).items()}
    assert families.keys() == wanted.keys()
    for name, family in families.items():
        labels = {frozenset(sample.labels) - {"le"} for sample in family.samples}
        assert labels <= {frozenset(wanted[name])}
    silent = {name for name, family in families.items() if not family.samples}
    assert silent == {
        *("bullmq_stalled_jobs", "bullmq_heartbeat_success", "bullmq_heartbeat_failure"),
        *("bullmq_lock_extend_duration_seconds", "bullmq_stalled_checker_skipped"),
        *("bullmq_jobs_failed", "toril_job_retries", "toril_jobs_stalled"),
    }, "nothing of that kind has happened"


@pytest.mark.parametrize("name", ["alerts.yml", "grafana.json"])
def test_what_alerts_and_panels_ask_for_is_exported(name: str) -> None:
    text = (MONITORING / name).read_text()
    asked = set(re.findall(r"\b(?:bullmq|toril)_[a-z_]+", text))
    assert len(asked) >= 5
    assert asked <= exported_names()


def test_the_six_panels_are_there() -> None:
    board = json.loads((MONITORING / "grafana.json").read_text())
    assert [panel["title"] for panel in board["panels"]] == [
        "Job throughput",
        "Error rate",
        "Job duration",
        "Queue length",
        "Active workers",
        "Heartbeat failure rate",
    ]


def test_no_label_holds_ids_or_error_texts() -> None:
    metrics = PrometheusMetrics()
    labels = {
        label
        for collector in metrics.registry._collector_to_names
        for label in getattr(collector, "_labelnames", ())
    }
    assert labels == {
        *("queue", "status", "state", "name", "outcome", "reason"),
        *("worker_id", "version", "protocol"),
    }
