"""`toril call`: run a task on a worker and print what it returns."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import click

from toril.cli.duration import SECONDS
from toril.cli.errors import looking_at
from toril.cli.options import At, overriding, speaking
from toril.cli.output import Output
from toril.errors import InvalidOption
from toril.text import printable, suggest


@click.command("call")
@click.argument("target")
@click.argument("task")
@click.argument("args", nargs=-1)
@click.option("--timeout", type=SECONDS, default="30", metavar="TIME", help="How long to wait.")
@click.option("--no-wait", is_flag=True, help="Hand the call in and print its id.")
@speaking
@overriding
def command(
    output: Output,
    target: str,
    task: str,
    args: tuple[str, ...],
    timeout: float,
    no_wait: bool,
    at: At | None,
) -> None:
    """Call TASK of the app TARGET on a worker.

    An argument is JSON where it can be, else text; name=value gives one by its name.

    \b
    toril call tasks add 2 3
    toril call tasks:app remind number=7 due=2026-01-31
    """
    from toril.cli.find import find_app
    from toril.cli.place import open_at

    app = find_app(target)
    if task not in app.tasks:
        raise InvalidOption(
            f"toril[E05] there is no task '{printable(task, 60)}'.{suggest(task, app.tasks)}"
            f" Known: {', '.join(app.tasks) or 'none'}"
        )
    if at is not None:
        app.use(open_at(at))
    chosen = app.tasks[task].options(wait=timeout)
    positional, named = chosen.signature.read(args)

    async def call() -> Any:
        async with app:
            if no_wait:
                return (await chosen.enqueue(*positional, **named)).id
            with looking_at(chosen.queue_name):
                return chosen.signature.dump_result(await chosen.call(*positional, **named))

    result = asyncio.run(call())
    key = "id" if no_wait else "result"
    text = result if no_wait else json.dumps(result, ensure_ascii=False)
    output.result(text, {key: result})
