"""`toril explain`: what a code in a message means, and what to do."""

from __future__ import annotations

import shutil
import textwrap
from typing import Final

import click

from toril.cli.options import speaking
from toril.cli.output import Output
from toril.text import printable

CODES: Final = {
    "E01": (
        "The storage does not answer",
        (
            "Nothing listens there, or the way to it is cut. Workers keep trying and lose"
            " nothing. Where the message says that the effect is unknown, the call may be"
            " repeated: it has no second effect."
        ),
        "Start the server, set TORIL_URL, or leave it out to use the embedded one.",
    ),
    "E02": (
        "The module cannot be imported",
        (
            "The name is wrong, or the module itself raises while it is imported; then the"
            " message names its line, and --traceback shows the way to it."
        ),
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
        (
            "The job asks for a task that this worker does not know. It is kept among the"
            " failed, and whoever waits for its result hears of it at once."
        ),
        "Deploy the task, then: toril job retry QUEUE ID",
    ),
    "E06": (
        "A call was never awaited",
        "task.enqueue(…) gives something to await; without it nothing is queued.",
        "Write: await task.enqueue(…)",
    ),
    "E07": (
        "A habit from another library",
        (
            "Celery's .delay(…), Dramatiq's .send(…) and taskiq's .kiq(…) are await"
            " task.enqueue(…); .apply_async(…, countdown=5) is await"
            " task.options(delay=5).enqueue(…); RQ's queue.enqueue(task, …) is await"
            " task.enqueue(…); Celery's group of .s(…) is await task.enqueue_many(task.bind(…)"
            " for …); .get() is await job.result()."
        ),
        "Write: await task.enqueue(…), with options before it: task.options(delay=5).enqueue(…)",
    ),
    "E08": (
        "The arguments do not fit the task",
        "They are checked where the call is, against the function's signature.",
        "Look at the signature in the message.",
    ),
    "E09": (
        "No result in time",
        (
            "The message says why. Nobody serves the queue: start a worker. It waits at a"
            " position: the workers are busy. It failed: toril job show tells with what. It is"
            " not there: it was never added, or it is over and past its result_ttl. A job that"
            " was waited for in vain goes on."
        ),
        "Start a worker, wait longer (timeout=), or keep results longer (result_ttl=).",
    ),
    "E10": (
        "The event loop was blocked",
        (
            "A handler kept the event loop for seconds, at the line that is named: the worker's"
            " other jobs stood still meanwhile. On a server and on files a thread renews their"
            " leases, in memory nothing does."
        ),
        "Write it as plain def, which runs in a thread, or use asyncio.to_thread.",
    ),
    "E11": (
        "The id is there already",
        "Not an error: a job of that id exists, and nothing was queued.",
        "Take another id, or remove the old job.",
    ),
    "E12": (
        "An option is out of range",
        (
            "Durations are seconds or timedelta, not milliseconds; priority 1 is the most"
            " urgent, 0 is none; a datetime needs a time zone. What is only unlikely is a"
            " TorilWarning, and the job is queued."
        ),
        "See the range in the message; write a long duration as timedelta(…).",
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
        (
            "It is too old (Redis 7.0, Valkey 7.2), a read-only replica, asks for a login, may"
            " delete jobs (maxmemory-policy other than noeviction), spreads a queue over a"
            " cluster, or lives where others cannot see it: memory: in one process, a socket or"
            " a file on one machine."
        ),
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
    width = min(100, shutil.get_terminal_size().columns)
    lines = [textwrap.fill(text, width) for text in (title, meaning, f"fix: {fix}")]
    output.result("\n".join(lines), {"title": title, "meaning": meaning, "fix": fix})
