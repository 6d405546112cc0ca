"""Check what a type checker knows about `Queue[In, Out]`, and what it refuses.

The programs below are read by mypy, never run. A comment behind a line says what mypy must say
about it: the revealed type without its module names, or the code of the error. A line without
such a comment must pass.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[2]

OPENING: Final = """
from datetime import timedelta
from toril import Backoff, Dedup, JobContext, JobOptions, Keep, Limiter, NewJob, Queue
from toril import Toril, Worker

Order = dict[str, int]
queue = Queue[Order, str]("orders", storage="memory:")
order: Order = {"items": 3}

async def ship(job: JobContext[Order]) -> str:
    return "shipped"

def weigh(job: JobContext[Order]) -> str:
    return "heavy"

app = Toril("sums", "memory:")

@app.task
def add(a: int, b: int = 0) -> int:
    return a + b

@app.task(attempts=3)
async def fetch(url: str) -> bytes:
    return b""
"""

REVEALS: Final = """
async def handler(job: JobContext[Order]) -> str:
    reveal_type(job)  # JobContext[dict[str, int]]
    reveal_type(job.data)  # dict[str, int]
    reveal_type(job.attempt)  # int
    reveal_type(job.correlation_id)  # str | None
    return "done"

async def program() -> None:
    reveal_type(add(1, 2))  # int
    reveal_type(await fetch("u"))  # bytes
    reveal_type(await add.enqueue(1, 2))  # TaskJob[int]
    reveal_type(await (await fetch.enqueue("u")).result())  # bytes
    reveal_type(add.bind(1, b=2))  # Call[int]
    reveal_type(await fetch.enqueue_many([fetch.bind("u")]))  # Sequence[TaskJob[bytes]]
    reveal_type(await add.options(delay=5, id="a").call(1))  # int
    reveal_type(queue)  # Queue[dict[str, int], str]
    reveal_type(await queue.enqueue("a", order))  # EnqueueResult[str]
    reveal_type((await queue.enqueue("a", order)).result)  # str | None
    reveal_type(await queue.enqueue_many([]))  # Sequence[EnqueueResult[str]]
    reveal_type(await queue.enqueue_and_wait("a", order))  # str
    reveal_type(await queue.wait_until_finished("a"))  # str
    reveal_type(await queue.add("pack", order))  # Job[dict[str, int], str]
    reveal_type((await queue.add("pack", order)).data)  # dict[str, int]
    reveal_type(await queue.add_bulk([]))  # Sequence[Job[dict[str, int], str]]
    reveal_type(await queue.add_many("pack", []))  # Sequence[Job[dict[str, int], str]]
    reveal_type(await queue.get_job("a"))  # Job[dict[str, int], str] | None
    reveal_type(await queue.get_jobs("waiting"))  # Sequence[Job[dict[str, int], str]]
    reveal_type(await queue.get_result("a"))  # str | None
    reveal_type(await queue.get_status("a"))  # JobStatus[str] | None
    reveal_type((await queue.cancel("a")).status)  # Cancellation
    reveal_type(queue.execute(handler))  # Worker[dict[str, int], str]
    reveal_type(Worker(queue, {"pack": handler, "weigh": weigh}))  # Worker[dict[str, int], str]
    async for event in queue.events():
        reveal_type(event)  # Event
    async with queue as opened:
        reveal_type(opened)  # Queue[dict[str, int], str]
    async with Worker(queue, handler) as worker:
        reveal_type(worker)  # Worker[dict[str, int], str]
"""

ACCEPTED: Final = """
queue.execute(ship, concurrency=5, lease=timedelta(minutes=1), limiter=Limiter(10, 1))
queue.execute(weigh, backoff=Backoff("fixed", 1), on_lease_lost="cancel")
queue.execute({"ship": ship, "weigh": weigh})
queue.execute(lambda job: f"{job.data['items']} shipped")

@queue.on("failed")
async def failed(job: JobContext[Order], error: Exception) -> None: ...

async def program() -> None:
    await queue.enqueue("a", {"items": 1}, delay=1, attempts=5, backoff=2.5, timeout=9)
    await queue.enqueue("a", order, dedup=Dedup("key", ttl=timedelta(hours=1)), on_failed="keep")
    await queue.enqueue_and_wait("a", order, timeout=None, job_timeout=2, keep_failed=Keep(10))
    await queue.enqueue_many((NewJob(name="a", data=order, id="a") for _ in "ab"), on_failed="keep")
    await queue.add_bulk([NewJob(name="a", data=order, options=JobOptions(priority=1))])
    await queue.add_many("a", (one for one in (order, order)), priority=1)
"""

REFUSED: Final = """
async def wrong_result(job: JobContext[Order]) -> int:
    return 1

def wrong_data(job: JobContext[list[str]]) -> str:
    return ""

queue.execute(wrong_result)  # arg-type
queue.execute(wrong_data)  # arg-type
queue.execute({"pack": wrong_result})  # dict-item
queue.execute(lambda job: 1)  # arg-type, return-value
queue.execute(ship, concurency=2)  # call-arg
queue.execute(ship, concurrency="2")  # arg-type
queue.execute(ship, on_lease_lost="ignore")  # arg-type
queue.on("finished")  # arg-type
Worker(queue, wrong_result)  # arg-type

async def program() -> None:
    await queue.enqueue("a", ["items"])  # arg-type
    await queue.enqueue("a", {"items": "three"})  # dict-item
    await queue.enqueue(1, order)  # arg-type
    await queue.enqueue("a", order, delay="1 s")  # arg-type
    await queue.enqueue("a", order, priority=1.5)  # arg-type
    await queue.enqueue("a", order, dely=1)  # call-arg
    await queue.enqueue("a", order, on_failed="ignore")  # arg-type
    await queue.add("pack", "order")  # arg-type
    await queue.add_bulk([NewJob(name="pack", data="order")])  # arg-type
    await queue.add_many("pack", ["order"])  # list-item
    await queue.add_many("pack", [order], dely=1)  # call-arg
    await add.enqueue("x", 2)  # arg-type
    await add.enqueue(1, 2, 3)  # call-arg
    await add.enqueue(1, c=2)  # call-arg
    add.bind("x", b=2)  # arg-type
    await fetch.enqueue_many([add.bind(1)])  # list-item
    await queue.enqueue_many([order])  # list-item
    await add.options(delai=5).enqueue(1)  # call-arg
    text: str = await add.call(1, 2)  # assignment
    number: int = await queue.enqueue_and_wait("a", order)  # assignment
"""


def expected(program: str) -> dict[str, str]:
    """Collect the comments of a program by line; lines without one must pass."""
    lines = (line.strip().partition("  # ") for line in program.splitlines())
    return {code: comment for code, mark, comment in lines if mark}


def said(program: str, pattern: str, directory: Path) -> dict[str, str]:
    """Let mypy read a program; collect what it says, by line."""
    source = OPENING + program
    path = directory / "program.py"
    path.write_text(source, encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml")]
    done = subprocess.run(
        [*command, "--cache-dir", str(directory / "cache"), str(path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    found: dict[str, set[str]] = {}
    for number, text in re.findall(rf"^.+?:(\d+): {pattern}$", done.stdout, re.MULTILINE):
        line = source.splitlines()[int(number) - 1].strip().partition("  # ")[0]
        found.setdefault(line, set()).add(re.sub(r"\b(?:\w+\.)+", "", text))
    return {line: ", ".join(sorted(texts)) for line, texts in found.items()}


NOTE: Final = r'note: Revealed type is "(.+)"'
ERROR: Final = r"error: .+\[([\w-]+)\]"


def test_the_types_of_a_queue_reach_its_jobs_handlers_and_results(tmp_path: Path) -> None:
    assert said(REVEALS, NOTE, tmp_path) == expected(REVEALS)


@pytest.mark.parametrize("program", [REVEALS, ACCEPTED], ids=["reveals", "accepted"])
def test_a_right_program_passes(program: str, tmp_path: Path) -> None:
    assert said(program, ERROR, tmp_path) == {}


def test_wrong_data_options_handlers_and_results_are_refused(tmp_path: Path) -> None:
    assert said(REFUSED, ERROR, tmp_path) == expected(REFUSED)
