"""The process that plans a stream leaves nothing behind when Spark ends it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark.filled import until
from tests.spark.making import add_jobs
from toril.resp.embedded import EmbeddedServer
from toril.resp.embedded_look import look
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
    assert ended("os.kill(os.getpid(), signal.SIGTERM)") == (143, "stopped\n", "")


def test_the_second_signal_does_not_cut_short_what_the_first_began() -> None:
    again = "os.kill(os.getpid(), signal.SIGTERM)"
    assert ended(again, last=again) == (143, "stopped\n", "")


def test_a_signal_that_is_put_off_ends_the_process_later() -> None:
    doing = (
        "with put_off():\n"
        "        os.kill(os.getpid(), signal.SIGTERM)\n"
        "        print('done')\n"
        "    print('never')"
    )
    assert ended(doing) == (143, "done\nstopped\n", "")


def ended(doing: str, last: str = "pass") -> tuple[int, str, str]:
    """How a process ends that does this, and `last` before it says that it was stopped."""
    program = (
        "import os, signal\n"
        "from toril.spark.planner import end_in_order, put_off\n"
        "end_in_order()\n"
        "try:\n"
        f"    {doing}\n"
        "finally:\n"
        f"    {last}\n"
        "    print('stopped')\n"
    )
    return run(program)


@pytest.mark.parametrize("connection", [1, 2])
@pytest.mark.parametrize("call", ["initialOffset", "stop"])
def test_signals_leave_no_embedded_server(tmp_path: Path, call: str, connection: int) -> None:
    """A call connects to look for a server and to ask the one it started; to ask it and to end it.

    The signals come at that connection and at each one after.
    """
    program = f"""
import os, signal, sys
from pyspark.sql.types import StructType
from toril.spark.events_source import EventsSource

seen = None

def connecting(event, args):
    if event == "socket.connect" and seen is not None:
        seen.append(args)
        if len(seen) >= {connection}:
            os.kill(os.getpid(), signal.SIGTERM)

sys.addaudithook(connecting)
reader = EventsSource({{"url": "embedded:{tmp_path}", "queues": "q"}}).streamReader(StructType())
try:
    seen = [] if "{call}" == "initialOffset" else None
    reader.initialOffset()
finally:
    seen = [] if "{call}" == "stop" else seen
    reader.stop()
"""
    status, _, errors = run(program)
    left = look(tmp_path)
    if left is not None:
        os.kill(left.pid, signal.SIGTERM)
    assert (status, errors, left) == (143, "", None)


def run(program: str) -> tuple[int, str, str]:
    """Its exit code, and what it printed."""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    return done.returncode, done.stdout, done.stderr
