"""Queues and jobs from the command line, on a real server and on files."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.program import Done, toril
from tests.servers import Server, valkey_binary
from toril import JobContext, Queue, Reject
from toril.ids import ulid


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server(valkey_binary()) as running:
        yield running


@pytest.fixture(params=["redis", "bullmq", "file"])
def url(request: pytest.FixtureRequest, server: Server, tmp_path: Path) -> str:
    kinds = {
        "redis": f"{server.url}?prefix=c{ulid()}",
        "bullmq": f"bullmq+{server.url}?prefix=c{ulid()}",
        "file": f"file:{tmp_path / 'queues'}",
    }
    return kinds[str(request.param)]


def run(url: str, *args: str, code: int = 0) -> Done:
    """Run a command on the storage and expect an exit code."""
    done = toril(*args, TORIL_URL=url)
    assert done.code == code, done.err + done.out
    return done


def test_a_job_is_handed_in_shown_cancelled_and_removed(url: str) -> None:
    queued = run(url, "enqueue", "mail", '{"to": "ada"}', "--id", "m-1", "--json").json()
    assert queued == {"id": "m-1", "status": "queued", "state": None}
    assert run(url, "enqueue", "mail", "1", "--id", "m-1").out == "duplicate m-1, it is waiting\n"
    shown = run(url, "job", "show", "mail", "m-1", "--json").json()
    assert (shown["state"], shown["data"], shown["name"]) == ("waiting", {"to": "ada"}, "job")
    assert 'data          {"to": "ada"}' in run(url, "job", "show", "mail", "m-1").out
    assert run(url, "job", "cancel", "mail", "m-1").out == "job m-1: cancelled\n"
    gone = run(url, "job", "show", "mail", "m-1", code=1)
    assert "job 'm-1' is not in queue 'mail'" in gone.err
    gone.check_brief()
    run(url, "enqueue", "mail", "2", "--id", "m-2", "--delay", "1h", "--priority", "5")
    assert run(url, "job", "show", "mail", "m-2", "--json").json()["state"] == "delayed"
    assert run(url, "job", "remove", "mail", "m-2", "--yes").out == "deleted job m-2\n"


def test_queues_are_listed_paused_drained_and_deleted(url: str) -> None:
    lines = "".join(f"{json.dumps({'n': n})}\n" for n in range(25))
    done = subprocess.run(
        [sys.executable, "-m", "toril.cli", "enqueue", "bulk", "--lines", "--url", url],
        input=lines,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "queued 25 jobs in bulk\n"
    run(url, "enqueue", "bulk", "{}", "--delay", "10m")
    listed = run(url, "queue", "list", "--json").json()["queues"]
    assert [(one["queue"], one["waiting"], one["delayed"]) for one in listed] == [("bulk", 25, 1)]
    text = run(url, "queue", "list").out.splitlines()
    assert text[0].split()[:3] == ["queue", "waiting", "prioritized"]
    assert text[1].split()[:2] == ["bulk", "25"]
    assert run(url, "queue", "pause", "bulk").out == "paused bulk\n"
    shown = run(url, "queue", "show", "bulk", "--json").json()
    assert shown["paused"] is True
    assert shown["oldest_waiting_s"] >= 0
    assert run(url, "queue", "resume", "bulk").out == "resumed bulk\n"
    assert "queue bulk, open, 0 workers, first in line" in run(url, "queue", "show", "bulk").out
    refused = run(url, "queue", "drain", "bulk", code=2)
    assert "Delete 25 jobs that wait in 'bulk'?" in refused.err
    assert "--yes" in refused.err
    refused.check_brief()
    assert run(url, "queue", "drain", "bulk", "--yes").out == "deleted 25 jobs of bulk\n"
    cleaned = run(url, "queue", "clean", "bulk", "--state", "delayed", "--yes")
    assert cleaned.out == "deleted 1 delayed jobs of bulk\n"
    assert run(url, "queue", "obliterate", "bulk", "--yes").out == "deleted queue bulk\n"
    assert run(url, "queue", "list", "--json").json() == {"queues": []}
    nothing = run(url, "queue", "show", "bulk", code=1)
    assert "queue 'bulk' holds nothing" in nothing.err
    assert "fix: toril queue list" in nothing.err


async def test_failed_jobs_are_retried_and_their_logs_and_events_printed(url: str) -> None:
    def handle(job: JobContext[int]) -> int:
        job.log("one \x1b[31mred line")
        if job.data < 0:
            raise Reject("no debts")
        return job.data * 2

    queue = Queue[int, int]("sums", url)
    queue.execute(handle)
    async with queue:
        await queue.add("double", -1, id="bad")
        await queue.add("double", 4, id="good")
        waited = await asyncio.to_thread(run, url, "enqueue", "sums", "21", "--wait")
        assert waited.out == "42\n"
    logs = run(url, "job", "logs", "sums", "good").out
    assert logs == "one \\x1b[31mred line\n"
    shown = run(url, "job", "show", "sums", "bad", "--json").json()
    assert (shown["state"], shown["error"]) == ("failed", "Reject: no debts")
    mixed = run(url, "job", "retry", "sums", "bad", "good", code=1)
    assert "job 'good' is completed, not failed: left as it is" in mixed.err
    assert mixed.out == "retrying 1 of 2 jobs\n"
    assert run(url, "job", "show", "sums", "bad", "--json").json()["state"] == "waiting"
    assert run(url, "job", "retry", "sums", "--all").out == "retrying 0 jobs of sums\n"
    events = run(url, "events", "sums", "--kind", "completed", "--kind", "failed").out
    assert events.count(" completed ") == 2
    assert "no debts" in events
    documents = run(url, "events", "sums", "-n", "3", "--json").out.splitlines()
    assert len(documents) == 3
    assert all(json.loads(line)["kind"] for line in documents)


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["enqueue", "q", "{to: ada}"], "toril[E04] DATA is not JSON at character 1"),
        (["enqueue", "q", "1", "--priority", "-1"], "=-1: allowed 0..2097151"),
        (["enqueue", "a:b", "1"], "queue name 'a:b' holds ':'"),
        (["job", "retry", "q"], "name jobs, or say --all"),
        (["queue", "lost"], "No such command 'lost'"),
        (["queue", "show", "q", "--url", "redis://:geheim@h"], "holds a password"),
        (["queue", "list", "--url", "memory:"], "toril[E15] MemoryStorage lives in one process"),
    ],
)
def test_a_mistake_is_answered_in_a_few_lines(args: list[str], said: str, server: Server) -> None:
    done = run(server.url, *args, code=2)
    assert said in done.err
    assert "geheim" not in done.err
    done.check_brief()


def test_a_server_that_is_not_there_is_told_in_a_few_lines() -> None:
    done = run("redis://127.0.0.1:1?timeout=0.3", "queue", "list", code=3)
    assert done.err.startswith("toril[E01] ")
    assert "fix: start the server" in done.err
    done.check_brief()
