"""`toril explain`: what a code in a message means, and what to do."""

from __future__ import annotations

from typing import Final

import click

from toril.cli.options import speaking
from toril.cli.output import Output
from toril.text import printable

CODES: Final = {
    "E01": (
        "The storage does not answer",
        "Nothing listens there, or the way to it is cut. Workers keep trying and lose nothing.",
        "Start the server, set TORIL_URL, or leave it out to use the embedded one.",
    ),
    "E02": (
        "The module cannot be imported",
        "The name is wrong, or the module itself raises while it is imported.",
        "Name it as Python does, from its root: toril worker shop.jobs:app",
    ),
    "E03": (
        "The module has no such app or worker",
        "A worker runs a Toril app, a Worker, or a Queue that has a handler.",
        "Name it after a colon: toril worker tasks:app",
    ),
    "E04": (
        "A value cannot be stored",
        "Data and results are JSON, unless the queue has another serde.",
        "Pass plain values, or annotate the task's parameter so that toril converts it.",
    ),
    "E05": (
        "No handler for this name",
        "The job asks for a task that this worker does not know. It is kept among the failed.",
        "Deploy the task, then: toril job retry QUEUE ID",
    ),
    "E06": (
        "A call was never awaited",
        "task.enqueue(…) gives something to await; without it nothing is queued.",
        "Write: await task.enqueue(…)",
    ),
    "E07": (
        "A habit from another library",
        "There is no .delay(), .apply_async() or .send().",
        "Write: await task.enqueue(…), with options before it: task.options(delay=5).enqueue(…)",
    ),
    "E08": (
        "The arguments do not fit the task",
        "They are checked where the call is, against the function's signature.",
        "Look at the signature in the message.",
    ),
    "E09": (
        "No result in time",
        "The job goes on. The message says whether it waits, runs, or nobody serves the queue.",
        "Start a worker, or wait longer.",
    ),
    "E10": (
        "The event loop was blocked",
        "A handler kept the loop for longer than a lease, so others could not be renewed.",
        "Write it as plain def, which runs in a thread, or use asyncio.to_thread.",
    ),
    "E11": (
        "The id is there already",
        "Not an error: a job of that id exists, and nothing was queued.",
        "Take another id, or remove the old job.",
    ),
    "E12": (
        "An option is out of range",
        "Durations are seconds or timedelta; priority 1 is the most urgent, 0 is none.",
        "See the range in the message.",
    ),
    "E13": (
        "Node and Python do not see each other",
        "Prefix, braces around the queue's name, and the database number must be the same.",
        "toril doctor shows what is on the server.",
    ),
    "E14": (
        "An extra is missing",
        "Spark, BullMQ and metrics need packages that toril does not need by itself.",
        'Install it: python -m pip install "toril[NAME]"',
    ),
    "E15": (
        "The wrong server or storage",
        "It is too old, read-only, may delete jobs, or lives in another process.",
        "See the message; toril doctor checks a server.",
    ),
}


@click.command("explain")
@click.argument("code")
@speaking
def command(output: Output, code: str) -> None:
    """Explain a CODE, such as E04."""
    known = CODES.get(code.strip("[]").removeprefix("toril").strip("[]").upper())
    if known is None:
        raise click.UsageError(
            f"no code '{printable(code, 40)}'. Known: {', '.join(CODES)}",
            click.get_current_context(),
        )
    title, meaning, fix = known
    output.result(
        f"{title}\n{meaning}\nfix: {fix}", {"title": title, "meaning": meaning, "fix": fix}
    )
