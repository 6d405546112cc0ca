"""`toril enqueue`: hand in jobs from a shell."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import click

from toril.cli.duration import SECONDS
from toril.cli.errors import looking_at
from toril.cli.output import Output
from toril.cli.place import AnyQueue, at_queue
from toril.errors import InvalidPayload
from toril.ids import ulid
from toril.intake import NewJob
from toril.job import State
from toril.options import JobOptions
from toril.text import printable

_AT_ONCE = 1000


@click.command("enqueue")
@click.argument("queue")
@click.argument("data", default="null")
@click.option("--name", default="job", show_default=True, help="Which handler it is for.")
@click.option("--id", "id_", metavar="ID", help="One that is there already is not queued again.")
@click.option("--delay", type=SECONDS, default="0", metavar="TIME", help="Start no earlier.")
@click.option("--priority", type=int, default=0, help="1 is the most urgent; 0 goes before all.")
@click.option("--attempts", type=int, default=3, show_default=True)
@click.option("--lines", is_flag=True, help="Read one job per line from the standard input.")
@click.option("--wait", is_flag=True, help="Wait for the result and print it.")
@click.option(
    "--timeout", type=SECONDS, default="30", metavar="TIME", help="How long --wait waits."
)
@at_queue
async def command(
    output: Output,
    queue: AnyQueue,
    data: str,
    name: str,
    id_: str | None,
    delay: float,
    priority: int,
    attempts: int,
    lines: bool,
    wait: bool,
    timeout: float,
) -> None:
    """Hand in a job with DATA, which is JSON.

    \b
    toril enqueue emails '{"to": "ada@example.com"}' --delay 10m
    toril enqueue emails --lines < addresses.jsonl
    """
    options = JobOptions(delay=delay, priority=priority, attempts=attempts)
    if lines:
        await _hand_in_lines(output, queue, name, options)
        return
    value = parse(data, "DATA")
    job_id = ulid() if id_ is None else id_
    found = await queue.enqueue(
        job_id, value, name=name, delay=delay, priority=priority, attempts=attempts
    )
    if found.existing_state is not None:
        output.say(await _there_already(queue, found.id, found.existing_state))
    if not wait:
        known = f", it is {found.existing_state}" if found.existing_state else ""
        output.result(
            f"{found.status} {found.id}{known}",
            {"id": found.id, "status": found.status, "state": found.existing_state},
        )
        return
    with looking_at(queue.name):
        result = await queue.wait_until_finished(found.id, timeout)
    output.result(json.dumps(result, ensure_ascii=False), {"id": found.id, "result": result})


async def _there_already(queue: AnyQueue, id: str, state: State) -> str:
    job = await queue.get_job(id)
    since = None if job is None else job.finished_at or job.created_at
    age = "" if since is None else f" {(datetime.now(UTC) - since).total_seconds():.0f} s ago"
    told = state.value if job is None or job.finished_at else f"{state.value}, added"
    shown = printable(id, 80)
    return (
        f"toril[E11] job '{shown}' already exists ({told}{age}): not queued again\n"
        f"fix: take another --id, or first: toril job remove {queue.name} {shown}"
    )


async def _hand_in_lines(output: Output, queue: AnyQueue, name: str, options: JobOptions) -> None:
    done = 0
    with output.progress("enqueue", "jobs") as progress:
        for values in _groups():
            jobs = [NewJob(name=name, data=value, options=options) for value in values]
            await queue.add_bulk(jobs)
            done += len(values)
            progress(done)
    output.result(f"queued {done:,} jobs in {queue.name}", {"queue": queue.name, "queued": done})


def _groups() -> Iterator[list[Any]]:
    group: list[Any] = []
    for number, line in enumerate(sys.stdin, 1):
        if line.strip():
            group.append(parse(line, f"line {number}"))
        if len(group) == _AT_ONCE:
            yield group
            group = []
    if group:
        yield group


def parse(text: str, what: str) -> Any:
    """Read JSON; say where it is wrong, and how a text is written."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        shown = printable(text.strip(), 60)
        raise InvalidPayload(
            f"toril[E04] {what} is not JSON at character {error.pos}: {shown}."
            f" fix: a text needs quotes, as '\"{printable(text.strip(), 20)}\"'"
        ) from None
