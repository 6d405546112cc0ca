"""Bronze in processes of its own: killed, restarted, on a cluster of executors."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.servers import Server
from tests.spark.making import add_jobs, keep_all, stored
from toril.ids import ulid
from toril.spark.analytics import bronze, read_bronze

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
LONG = int(os.environ.get("TORIL_SPARK_EVENTS", "1000000"))


def run(
    given: dict[str, Any], strict: bool = True, **environment: str
) -> tuple[int, dict[str, int]]:
    """Run bronze in a process of its own; give its exit code and what it told."""
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    known = {**os.environ, "PYTHONPATH": paths, "SPARK_LOCAL_IP": "127.0.0.1", **environment}
    command = [sys.executable, "-m", "tests.spark.run_bronze", json.dumps(given)]
    done = subprocess.run(command, env=known, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        assert done.returncode < 0 or not strict, done.stderr[-4000:]
        return done.returncode, {}
    told: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
    return 0, told


def check(spark: SparkSession, url: str, lake: Path, events: int) -> None:
    """The lake must hold exactly the events of the store."""
    rows = read_bronze(spark, str(lake)).select("number", "kind", "job_id").toLocalIterator()
    found = Counter((row.number, row.kind, row.job_id) for row in rows)
    expected = Counter((number, kind, job) for number, kind, job, _ in stored(url, "q"))
    assert found.total() == expected.total() == events
    assert found == expected


def test_a_driver_killed_between_writing_and_noting_loses_and_doubles_nothing(
    spark: SparkSession, server: Server, tmp_path: Path
) -> None:
    url = f"{server.url}?prefix=k{ulid()}"
    add_jobs(url, "q", 15_000)
    lake = tmp_path / "lake"
    given = {"lake": str(lake), "queues": ["q"], "url": url, "max_rows": 8000}
    assert run(given, TORIL_FAIL="bronze_written:kill:2")[0] == -9
    assert read_bronze(spark, str(lake)).count() == 8000
    assert run(given, TORIL_FAIL="bronze_recorded:kill:1")[0] == -9
    assert read_bronze(spark, str(lake)).count() == 16_000
    assert bronze(spark, str(lake), queues=["q"], url=url).rows == 14_000
    check(spark, url, lake, 30_000)


@pytest.mark.skipif(not os.environ.get("TORIL_SLOW"), reason="long form; run with TORIL_SLOW=1")
@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("layout", ["", "bullmq+"])
def test_a_million_events_survive_many_kills(
    spark: SparkSession, server: Server, tmp_path: Path, layout: str
) -> None:
    url = f"{layout}{server.url}?prefix=k{ulid()}"
    add_jobs(url, "q", 1)
    keep_all(url, "q")
    add_jobs(url, "q", LONG // 2 - 1, first=1)
    lake = tmp_path / "lake"
    given = {"lake": str(lake), "queues": ["q"], "url": url, "max_rows": LONG // 10}
    kills = 0
    for point in ("bronze_written:kill:3", "bronze_recorded:kill:2", "bronze_written:kill:1"):
        # On a busy machine Spark may fail by itself as well, which must do no harm either.
        kills += run(given, strict=False, TORIL_FAIL=point)[0] == -9
    assert kills >= 2
    assert run(given)[0] == 0
    check(spark, url, lake, LONG)


@pytest.mark.timeout(600)
def test_executors_of_a_cluster_read_each_event_once_though_tasks_run_twice(
    server: Server, tmp_path: Path
) -> None:
    url = f"{server.url}?prefix=k{ulid()}"
    add_jobs(url, "q", 20_000)
    settings = {
        "spark.speculation": "true",
        "spark.speculation.interval": "20ms",
        "spark.speculation.multiplier": "1.01",
        "spark.speculation.quantile": "0.1",
        "spark.speculation.minTaskRuntime": "0ms",
        "spark.executor.memory": "512m",
    }
    given = {
        "master": "local-cluster[2,1,1024]",
        "settings": settings,
        "lake": str(tmp_path / "lake"),
        "queues": ["q"],
        "url_env": "QUEUE_URL",
    }
    _, told = run(given, QUEUE_URL=url)
    assert (told["rows"], told["held"], told["once"]) == (40_000, 40_000, 40_000)
