"""`toril queue …`: look at queues and tend them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import click

from toril.cli.confirm import confirm, yes_option
from toril.cli.duration import SECONDS
from toril.cli.output import Output
from toril.cli.place import AnyQueue, at_queue, at_storage
from toril.errors import JobNotFound
from toril.job import State
from toril.storage.protocol import Counts, Storage

SHOWN = (
    *(State.WAITING, State.PRIORITIZED, State.DELAYED, State.ACTIVE),
    *(State.COMPLETED, State.FAILED),
)

_AT_ONCE = 1000


@click.group("queue")
def queue() -> None:
    """Look at queues and tend them."""


def counted(counts: Counts) -> dict[str, int]:
    """The counts of all states, by name."""
    return {state.value: counts.of(state) for state in State}


@queue.command("list")
@at_storage
async def list_(output: Output, storage: Storage) -> None:
    """List the queues with their jobs by state."""
    rows: list[dict[str, Any]] = []
    for name in sorted(await storage.queues()):
        workers = await storage.workers(name)
        rows.append({"queue": name, **counted(await storage.counts(name)), "workers": len(workers)})
    heads = ["queue", *(state.value for state in SHOWN), "workers"]
    output.table(heads, [[row[head] for head in heads] for row in rows])
    queues = "1 queue" if len(rows) == 1 else f"{len(rows)} queues"
    output.result(f"{queues} at {storage.url}", {"queues": rows})


@queue.command("show")
@click.argument("queue")
@at_queue
async def show(output: Output, queue: AnyQueue) -> None:
    """Show one queue: its jobs by state, its workers, its oldest job in line."""
    counts = counted(await queue.get_job_counts())
    workers = await queue.get_workers()
    paused = await queue.is_paused()
    first = await queue.get_jobs(State.WAITING, 0, 1)
    if not any(counts.values()) and not workers and queue.name not in await queue.storage.queues():
        raise JobNotFound(
            f"queue '{queue.name}' holds nothing at {queue.storage.url}."
            " fix: toril queue list shows those that do",
            job_id="",
        )
    oldest = (datetime.now(UTC) - first[0].created_at).total_seconds() if first else None
    output.table(["state", "jobs"], list(counts.items()))
    output.table(
        ["worker", "active", "seen"],
        [[w.id, w.active, f"{w.seen_ms_ago / 1000:.0f} s ago"] for w in workers],
    )
    parts = [f"queue {queue.name}", "paused" if paused else "open", f"{len(workers)} workers"]
    if oldest is not None:
        parts.append(f"first in line since {oldest:.0f} s")
    output.result(
        ", ".join(parts),
        {
            "queue": queue.name,
            "paused": paused,
            "counts": counts,
            "workers": [worker.id for worker in workers],
            "oldest_waiting_s": oldest,
        },
    )


@queue.command("pause")
@click.argument("queue")
@at_queue
async def pause(output: Output, queue: AnyQueue) -> None:
    """Hand out no more jobs; those that run go on."""
    await queue.pause()
    output.result(f"paused {queue.name}", {"queue": queue.name, "paused": True})


@queue.command("resume")
@click.argument("queue")
@at_queue
async def resume(output: Output, queue: AnyQueue) -> None:
    """Hand out jobs again."""
    await queue.resume()
    output.result(f"resumed {queue.name}", {"queue": queue.name, "paused": False})


@queue.command("drain")
@click.argument("queue")
@click.option("--delayed", is_flag=True, help="Delete delayed jobs, too.")
@yes_option
@at_queue
async def drain(output: Output, queue: AnyQueue, delayed: bool, yes: bool) -> None:
    """Delete all jobs that wait; those that run or have finished stay."""
    counts = await queue.get_job_counts()
    waiting = counts.of(State.WAITING) + counts.of(State.PRIORITIZED)
    doomed = waiting + (counts.of(State.DELAYED) if delayed else 0)
    confirm(output, f"Delete {doomed:,} jobs that wait in '{queue.name}'?", yes)
    gone = await queue.drain(delayed=delayed)
    output.result(f"deleted {gone:,} jobs of {queue.name}", {"queue": queue.name, "deleted": gone})


@queue.command("clean")
@click.argument("queue")
@click.option(
    "--state",
    type=click.Choice([state.value for state in State if state is not State.ACTIVE]),
    default="completed",
    show_default=True,
    help="Which jobs.",
)
@click.option(
    "--older-than",
    type=SECONDS,
    default="0",
    metavar="TIME",
    help="Only those in that state for so long: 30s, 10m, 12h, 7d.",
)
@click.option("--limit", type=click.IntRange(1), help="No more than so many.")
@yes_option
@at_queue
async def clean(
    output: Output,
    queue: AnyQueue,
    state: str,
    older_than: float,
    limit: int | None,
    yes: bool,
) -> None:
    """Delete jobs of one state, oldest first."""
    age = f" for {older_than:g} s or longer" if older_than else ""
    confirm(output, f"Delete jobs of '{queue.name}' that are {state}{age}?", yes)
    gone = 0
    with output.progress("clean", "jobs") as progress:
        while limit is None or gone < limit:
            room = _AT_ONCE if limit is None else min(_AT_ONCE, limit - gone)
            some = await queue.clean(older_than, room, state)
            gone += len(some)
            progress(gone, limit)
            if len(some) < room:
                break
    output.result(
        f"deleted {gone:,} {state} jobs of {queue.name}",
        {"queue": queue.name, "state": state, "deleted": gone},
    )


@queue.command("obliterate")
@click.argument("queue")
@click.option("--force", is_flag=True, help="Even while jobs run.")
@yes_option
@at_queue
async def obliterate(output: Output, queue: AnyQueue, force: bool, yes: bool) -> None:
    """Delete a queue with everything in it: jobs, results, events."""
    counts = counted(await queue.get_job_counts())
    question = f"Delete queue '{queue.name}' with all of its {sum(counts.values()):,} jobs?"
    confirm(output, question, yes)
    await queue.obliterate(force=force)
    output.result(f"deleted queue {queue.name}", {"queue": queue.name, "counts": counts})
