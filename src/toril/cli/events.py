"""`toril events`: what happens in a queue, as it happens."""

from __future__ import annotations

import dataclasses
import json
from datetime import UTC, datetime

import click

from toril.cli.output import Output
from toril.cli.place import AnyQueue, at_queue
from toril.errors import EventsTrimmed
from toril.event import Cursor, Event
from toril.text import printable

_BLOCK_MS = 1000


@click.command("events")
@click.argument("queue")
@click.option("-f", "--follow", is_flag=True, help="Go on with what happens from now on.")
@click.option("-n", "--last", type=click.IntRange(0), default=20, show_default=True, metavar="N")
@click.option("--kind", "kinds", multiple=True, help="Only these kinds; may be repeated.")
@at_queue
async def command(
    output: Output, queue: AnyQueue, follow: bool, last: int, kinds: tuple[str, ...]
) -> None:
    """Print the last events of QUEUE; with --json one document per line."""
    storage, name = queue.storage, queue.name
    kept: list[Event] = []
    cursor = Cursor.START
    while True:
        try:
            page = await storage.events(name, cursor)
        except EventsTrimmed as trimmed:
            cursor = trimmed.resume
            continue
        if not page:
            break
        cursor = page[-1].cursor
        kept = [*kept, *(event for event in page if not kinds or event.kind in kinds)][-last:]
    for event in kept if last else ():
        _print(output, event)
    while follow:
        try:
            page = await storage.events(name, cursor, block_ms=_BLOCK_MS)
        except EventsTrimmed as trimmed:
            output.say(f"{trimmed.count:,} events were deleted before they could be read")
            cursor = trimmed.resume
            continue
        for event in page:
            cursor = event.cursor
            if not kinds or event.kind in kinds:
                _print(output, event)


def _print(output: Output, event: Event) -> None:
    if output.json:
        fields = {
            name: value
            for name, value in dataclasses.asdict(event).items()
            if value is not None and name != "cursor"
        }
        output.line(json.dumps({**fields, "cursor": str(event.cursor)}, ensure_ascii=False))
        return
    when = datetime.fromtimestamp(event.time_ms / 1000, UTC)
    parts = [f"{when:%H:%M:%S}.{event.time_ms % 1000:03d}", f"{event.kind.value:<17}"]
    if event.job_id is not None:
        parts.append(printable(event.job_id, 60))
    if event.job_name is not None:
        parts.append(printable(event.job_name, 60))
    if event.attempt is not None:
        parts.append(f"attempt {event.attempt}")
    if event.duration_ms is not None:
        parts.append(f"{event.duration_ms:,} ms")
    if event.delay_ms is not None:
        parts.append(f"in {event.delay_ms / 1000:g} s")
    if event.reason is not None:
        parts.append(printable(event.reason, 200))
    output.line(" ".join(parts))
