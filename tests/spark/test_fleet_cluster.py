"""A fleet on executors that are processes of their own, one of which is killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.servers import Server
from tests.spark.filled import by_number, filled
from toril import JobOptions
from toril.spark.session import java_version

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
@pytest.mark.skipif(java_version() is None and not os.environ.get("CI"), reason="no Java")
def test_k7_the_jobs_of_a_killed_executor_are_worked_by_others(
    server: Server, queue: str, tmp_path: Path
) -> None:
    with filled(queue, server.url, 400, JobOptions(attempts=1)) as held:
        done = subprocess.run(
            [
                *(sys.executable, "-m", "tests.spark.cluster_fleet"),
                *(server.url, queue, str(tmp_path / "once")),
            ],
            cwd=ROOT,
            env={
                **os.environ,
                "SPARK_LOCAL_IP": "127.0.0.1",
                "SPARK_LOCAL_DIRS": str(tmp_path),
                "SPARK_WORKER_DIR": str(tmp_path),
            },
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-4000:]
        jobs = by_number(held)
    assert sorted(jobs) == list(range(400))
    assert jobs[100].result == "survived"
    assert {job.attempts_made for job in jobs.values()} == {1}
    told = json.loads(done.stdout.splitlines()[-1])
    assert max(told["attempts"]) >= 1
    assert told["died"] >= 1
