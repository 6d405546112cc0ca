"""Gauges from the command line, read by Prometheus' own parser."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.cli.program import toril
from tests.servers import Server, valkey_binary
from toril import Queue
from toril.ids import ulid


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server(valkey_binary()) as running:
        yield running


@pytest.fixture(params=["redis", "bullmq", "file"])
def url(request: pytest.FixtureRequest, server: Server, tmp_path: Path) -> str:
    kinds = {
        "redis": f"{server.url}?prefix=m{ulid()}",
        "bullmq": f"bullmq+{server.url}?prefix=m{ulid()}",
        "file": f"file:{tmp_path / 'queues'}",
    }
    return kinds[str(request.param)]


async def test_the_gauges_say_what_the_queues_hold(url: str) -> None:
    async with Queue[int, int]("mail", url) as mail, Queue[int, int]("sums", url) as sums:
        for number in range(3):
            await mail.add("send", number)
        await mail.add("send", 4, delay=60)
        await mail.pause()
        await sums.add("add", 1)
    done = toril("metrics", TORIL_URL=url)
    assert done.code == 0, done.err
    found = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(done.out)
        for sample in family.samples
    }
    assert found["toril_queue_jobs", "mail", "waiting"] == 3
    assert found["bullmq_job_count", "mail", "delayed"] == 1
    assert found["bullmq_queue_length", "mail", "wait"] == 3
    assert found["toril_queue_paused", "mail"] == 1
    assert found["toril_queue_paused", "sums"] == 0
    assert found["toril_queue_oldest_waiting_seconds", "sums"] >= 0
    assert found[("toril_storage_up",)] == 1
    assert not any("_total" in name for name, *_ in found)


async def test_some_queues_can_be_chosen_and_json_has_the_same_values(url: str) -> None:
    async with Queue[int, int]("mail", url) as mail, Queue[int, int]("sums", url) as sums:
        await mail.add("send", 1)
        await sums.add("add", 1)
    done = toril("metrics", "sums", "--json", TORIL_URL=url)
    metrics = done.json()["metrics"]
    assert {"mail", "sums"} & {one["labels"].get("queue") for one in metrics} == {"sums"}
    waiting = {"queue": "sums", "state": "waiting"}
    assert {"name": "toril_queue_jobs", "labels": waiting, "value": 1.0} in metrics


def test_without_the_extra_the_way_out_is_told() -> None:
    code = (
        "import sys; sys.modules['prometheus_client'] = None;"
        "from toril.cli.main import main; main(['metrics', '--url', 'redis://127.0.0.1:1'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        "toril[E14] metrics need the 'metrics' extra",
        'fix: python -m pip install "toril[metrics]"',
    ]


def test_a_wrong_name_and_a_server_that_is_away_are_told_in_a_few_lines() -> None:
    wrong = toril("metrics", "a:b", "--url", "redis://127.0.0.1:1")
    assert wrong.code == 2
    assert "queue name 'a:b' holds ':'" in wrong.err
    away = toril("metrics", "--url", "redis://127.0.0.1:1?timeout=0.3")
    assert away.code == 3
    for done in (wrong, away):
        done.check_brief()
