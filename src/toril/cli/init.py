"""`toril init`: a small project that works."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import click

from toril.cli.options import speaking
from toril.cli.output import Output
from toril.errors import InvalidOption

TASKS: Final = '''\
"""Tasks of this project. Run them:

    toril worker tasks              in one terminal, Ctrl-C ends it
    toril call tasks add 2 3        in another one
"""

from toril import Toril

app = Toril()  # the embedded server; set TORIL_URL=redis://host:6379 for your own


@app.task(attempts=3)
async def add(a: int, b: int) -> int:
    """Add two numbers; async tasks share one event loop."""
    return a + b


@app.task
def greet(name: str, *, greeting: str = "Hello") -> str:
    """Greet somebody; plain functions run in threads."""
    return f"{greeting}, {name}!"
'''

PRODUCER: Final = '''\
"""Hand in jobs from a program: python main.py, while `toril worker tasks` runs."""

import asyncio

from tasks import add, app, greet


async def main() -> None:
    async with app:
        print(await greet.call("Ada"))
        jobs = [await add.enqueue(number, 1) for number in range(3)]
        print([await job.result() for job in jobs])


asyncio.run(main())
'''

_FILES: Final = {"tasks.py": TASKS, "main.py": PRODUCER}


@click.command("init")
@click.argument("directory", default=".", type=click.Path(file_okay=False, path_type=Path))
@speaking
def command(output: Output, directory: Path) -> None:
    """Make a small project in DIRECTORY: tasks.py with typed tasks, main.py that calls them.

    \b
    toril init
    toril init shop

    A file that is there already is never overwritten; then nothing is written at all.
    """
    there = [name for name in _FILES if os.path.lexists(directory / name)]
    if there:
        raise InvalidOption(
            f"'{directory / there[0]}' exists already; nothing was written."
            " fix: name another directory, as: toril init shop"
        )
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, text in _FILES.items():
            with (directory / name).open("x", encoding="utf-8") as file:
                file.write(text)
    except OSError as error:
        raise InvalidOption(
            f"'{directory}' cannot be written to ({error.strerror}). fix: name another directory"
        ) from error
    written = [str(directory / name) for name in _FILES]
    output.result(f"wrote {' and '.join(written)}", {"written": written, "next": _steps(directory)})
    for step in _steps(directory):
        output.say(f"next: {step}")


def _steps(directory: Path) -> list[str]:
    go = [] if directory.resolve() == Path.cwd() else [f"cd {directory}"]
    return [*go, "toril worker tasks", "toril call tasks add 2 3"]
