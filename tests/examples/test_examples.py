"""Run every example as its reader would, and look at what it prints."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

EXAMPLES: Final = Path(__file__).resolve().parents[2] / "examples"

EXPECTED: Final = {
    "cached_result": ["answer: 144", "runs: 1", "handed in again: completed 144"],
    "cancel": ["next: cancelled", "long: requested", "told: job 'long' was cancelled"],
    "consumer_only": ["worker-1 sent welcome-ada to ada@example.com", "sent: 3"],
    "errors": [
        "failed: KeyError: 'weight'",
        "dead letter: order-1 {'item': 7}",
        "late, and still active",
        "a duplicate is no error: duplicate active",
    ],
    "graceful_shutdown": [
        "short: completed, attempts counted: 1",
        "long: waiting, attempts counted: 0",
        "later: waiting, attempts counted: 0",
    ],
    "msgpack_serde": ["same after a round trip: True"],
    "named_handlers": [
        "scan: bull.png is clean",
        "resize: bull.png is small, made in a thread: True",
    ],
    "offline_cli": [
        "queued: buy milk",
        "duplicate: buy milk",
        "waiting 2, done 0",
        "uploaded: call home",
        "waiting 0, done 2",
    ],
    "producer_only": ["first: queued", "again: duplicate of a job that is waiting"],
    "progress_and_events": ["progress  paella {'done': 2, 'of': 2}", "result: served"],
    "request_response": ["at once: 100 all right: True"],
    "retries_and_backoff": [
        "flaky: done in attempt 3 of 5",
        "busy: done in attempt 2 of 5",
        "closed: done in attempt 1 of 5",
        "unwanted: failed at once, Reject: nobody wants this",
    ],
    "sync_queue": ["weight: 6", "again: completed", "together: 19", "completed: 4"],
    "testing_on_memory": [
        "passed: test_a_reminder_is_sent_after_an_hour_and_once",
        "passed: test_a_reminder_survives_an_outage",
    ],
    "typed_tasks": [
        "please pay 7 by 31 January",
        "5",
        "toril[E08] add(): a must be int, not str",
    ],
}


def run(name: str, directory: Path) -> list[str]:
    """Run one example, away from the repository; return the lines it printed."""
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", str(EXAMPLES / f"{name}.py")],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout.splitlines()


def test_every_example_is_run_here() -> None:
    # Those on Spark are run by tests/spark/, which have a session.
    names = {path.stem for path in EXAMPLES.glob("*.py") if not path.stem.startswith("spark_")}
    assert names == {*EXPECTED}


@pytest.mark.parametrize("name", EXPECTED)
def test_an_example_works_and_says_so(name: str, tmp_path: Path) -> None:
    lines = run(name, tmp_path)
    assert [line for line in EXPECTED[name] if line not in lines] == [], lines


@pytest.mark.parametrize("name", EXPECTED)
def test_an_example_is_under_fifty_lines(name: str) -> None:
    assert len((EXAMPLES / f"{name}.py").read_text(encoding="utf-8").splitlines()) < 50
