"""`toril job …`: look at one job and decide on it."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import click

from toril.cli.confirm import confirm, yes_option
from toril.cli.errors import FAILED
from toril.cli.output import Output
from toril.cli.place import AnyQueue, at_queue
from toril.errors import JobNotFound, TorilError
from toril.job import Job, State
from toril.text import printable


@click.group("job")
def job() -> None:
    """Look at one job and decide on it."""


async def find(queue: AnyQueue, id: str) -> Job[Any, Any]:
    """Read a job, or say that it is not there."""
    found = await queue.get_job(id)
    if found is None:
        raise JobNotFound(
            f"job '{printable(id, 80)}' is not in queue '{queue.name}' at {queue.storage.url}:"
            " never added, removed, or past its result_ttl",
            job_id=id,
        )
    return found


def described(job: Job[Any, Any]) -> dict[str, Any]:
    """A job as a document."""
    return {
        "id": job.id,
        "name": job.name,
        "queue": job.queue,
        "state": job.state.value,
        "data": job.data,
        "attempts": job.attempts_made,
        "max_attempts": job.max_attempts,
        "stalls": job.stalls,
        "priority": job.priority,
        "created_at": job.created_at,
        "due_at": job.due_at,
        "processed_at": job.processed_at,
        "finished_at": job.finished_at,
        "worker_id": job.worker_id,
        "progress": job.progress,
        "result": job.result,
        "error": None if job.error is None else str(job.error),
    }


@job.command("show")
@click.argument("queue")
@click.argument("id")
@at_queue
async def show(output: Output, queue: AnyQueue, id: str) -> None:
    """Show a job: state, data, times, result or error."""
    found = described(await find(queue, id))
    shown = [[name, _text(value)] for name, value in found.items() if value is not None]
    if output.json:
        output.result("", found)
        return
    width = max(len(name) for name, _ in shown)
    output.result("\n".join(f"{name.ljust(width)}  {value}" for name, value in shown), found)


def _text(value: Any) -> str:
    if isinstance(value, str):
        return printable(value, 500)
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M:%S} UTC"
    return printable(json.dumps(value, ensure_ascii=False, default=str), 500)


@job.command("retry")
@click.argument("queue")
@click.argument("ids", nargs=-1, metavar="[ID]...")
@click.option("--all", "all_", is_flag=True, help="All failed jobs of the queue.")
@at_queue
async def retry(output: Output, queue: AnyQueue, ids: tuple[str, ...], all_: bool) -> int | None:
    """Let failed jobs run again, with all their attempts."""
    if all_ == bool(ids):
        raise click.UsageError("name jobs, or say --all", click.get_current_context())
    if all_:
        count = await queue.retry_jobs(State.FAILED)
        output.result(f"retrying {count:,} jobs of {queue.name}", {"retried": count})
        return None
    left = []
    for id in ids:
        state = (await find(queue, id)).state
        if state is not State.FAILED or not await queue.retry_job(id):
            left.append(id)
            output.say(f"job '{printable(id, 80)}' is {state.value}, not failed: left as it is")
    done = len(ids) - len(left)
    output.result(f"retrying {done} of {len(ids)} jobs", {"retried": done, "left": left})
    return FAILED if left else None


@job.command("cancel")
@click.argument("queue")
@click.argument("id")
@click.option("--running", is_flag=True, help="Ask the worker to stop it, if it runs.")
@at_queue
async def cancel(output: Output, queue: AnyQueue, id: str, running: bool) -> int | None:
    """Take back a job that has not started."""
    await find(queue, id)
    status = (await queue.cancel(id, running=running)).status
    output.result(f"job {id}: {status}", {"id": id, "status": str(status)})
    return None if status in ("cancelled", "requested") else FAILED


@job.command("remove")
@click.argument("queue")
@click.argument("id")
@yes_option
@at_queue
async def remove(output: Output, queue: AnyQueue, id: str, yes: bool) -> None:
    """Delete a job with its result and its log; one that runs is left alone."""
    found = await find(queue, id)
    confirm(output, f"Delete job '{printable(id, 80)}' ({found.state.value})?", yes)
    if not await queue.remove_job(id):
        raise TorilError(f"job '{printable(id, 80)}' is {found.state.value} and was not deleted")
    output.result(f"deleted job {id}", {"id": id, "deleted": True})


@job.command("logs")
@click.argument("queue")
@click.argument("id")
@at_queue
async def logs(output: Output, queue: AnyQueue, id: str) -> None:
    """Print the lines a job's handler has logged with `job.log`."""
    await find(queue, id)
    lines = list(await queue.logs(id))
    output.result(
        "\n".join(printable(line, 2000) for line in lines) or "no lines",
        {"id": id, "lines": lines},
    )
