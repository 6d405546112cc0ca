"""`toril top`: all queues, drawn anew every second."""

from __future__ import annotations

import asyncio
import shutil
import time
from typing import Final

import click

from toril.cli.output import Output
from toril.cli.place import at_storage
from toril.cli.queues import SHOWN
from toril.cli.width import cut
from toril.job import State
from toril.storage.protocol import Storage
from toril.text import printable

_HEADS: Final = (
    "queue",
    "waiting",
    "prio",
    "delayed",
    "active",
    "done",
    "failed",
    "done/s",
    "workers",
)
_NARROWEST: Final = 12


@click.command("top")
@click.option("--interval", type=click.FloatRange(0.2, 60), default=1.0, show_default=True)
@click.option("--once", is_flag=True, help="Print the table once and end.")
@at_storage
async def command(output: Output, storage: Storage, interval: float, once: bool) -> None:
    """Show all queues live: jobs by state, pace, workers. Ctrl-C ends it."""
    before: dict[str, tuple[float, int]] = {}
    live = output.out.isatty() and not once
    while True:
        rows = await _look(storage, before)
        if output.json:
            output.result("", {"queues": [dict(zip(_HEADS, row, strict=True)) for row in rows]})
            return
        width = shutil.get_terminal_size().columns
        table = "\n".join(lines(rows, width))
        if live:
            output.out.write("\x1b[H\x1b[2J")
        output.line(cut(f"toril top · {time.strftime('%H:%M:%S')} · {storage.url}", width))
        output.line(table)
        if not live:
            return
        await asyncio.sleep(interval)


async def _look(storage: Storage, before: dict[str, tuple[float, int]]) -> list[tuple[object, ...]]:
    rows: list[tuple[object, ...]] = []
    for name in sorted(await storage.queues()):
        counts = await storage.counts(name)
        workers = await storage.workers(name)
        done = counts.of(State.COMPLETED) + counts.of(State.FAILED)
        now = time.monotonic()
        then, last = before.get(name, (now, done))
        pace = max(0, done - last) / (now - then) if now > then else 0.0
        before[name] = (now, done)
        rows.append((name, *(counts.of(state) for state in SHOWN), round(pace), len(workers)))
    return rows


def lines(rows: list[tuple[object, ...]], width: int) -> list[str]:
    """Write a table that is no wider than the terminal; names give way to numbers."""
    numbers = [[f"{cell:,}" for cell in row[1:]] for row in rows]
    widths = [max(map(len, column)) for column in zip(_HEADS[1:], *numbers, strict=True)]
    room = max(_NARROWEST, width - sum(widths) - 2 * len(widths))
    names = [printable(str(row[0]), room) for row in rows]
    first = min(room, max(map(len, (_HEADS[0], *names))))
    table = []
    for name, cells in zip((_HEADS[0], *names), (_HEADS[1:], *numbers), strict=True):
        shown = "  ".join(cell.rjust(size) for cell, size in zip(cells, widths, strict=True))
        table.append(f"{name.ljust(first)}  {shown}"[:width])
    return table
