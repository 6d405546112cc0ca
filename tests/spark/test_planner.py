"""The process that plans a stream leaves nothing behind when Spark ends it."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark.filled import until
from tests.spark.making import add_jobs
from toril.resp.embedded import EmbeddedServer
from toril.spark import register
from toril.spark.planner import end_in_order

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_the_last_stream_to_stop_stops_the_embedded_server(
    spark: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    register(spark)
    url = f"embedded:{tmp_path / 'home'}"
    server = EmbeddedServer(tmp_path / "home")
    server.start_blocking()
    process = Path("/proc") / str(server.pid)
    add_jobs(url, "q", 10)
    stream = spark.readStream.format("toril_events").options(url=url, queues="q").load()
    query = stream.writeStream.format("noop").start()
    try:
        query.processAllAvailable()
        server.stop_blocking()
        assert process.exists(), "the stream needs the server"
    finally:
        query.stop()
    until(lambda: not process.exists())
    assert "Traceback" not in capfd.readouterr().err


def test_a_process_that_has_its_own_way_with_the_signal_keeps_it() -> None:
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        end_in_order()
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, before)


def test_the_signal_ends_the_process_as_an_exit_does() -> None:
    program = (
        "import os, signal\n"
        "from toril.spark.planner import end_in_order\n"
        "end_in_order()\n"
        "try:\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "finally:\n"
        "    print('stopped')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (143, "stopped\n", "")
