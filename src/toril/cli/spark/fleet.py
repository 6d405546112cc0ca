"""`toril spark fleet`."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import click

from toril.cli.duration import SECONDS
from toril.cli.errors import FAILED, FINE
from toril.cli.options import At
from toril.cli.output import Output
from toril.cli.spark.session import Engine, reach, sparked

if TYPE_CHECKING:
    from toril.spark.fleet_count import FleetProgress, FleetResult
    from toril.spark.fleet_handle import FleetHandle


@click.command("fleet")
@click.argument("queue")
@click.argument("handler", metavar="MODULE:FUNCTION")
@click.option("--tasks", type=click.IntRange(min=1), help="Workers.  [default: Spark's slots]")
@click.option(
    "--concurrency",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Jobs at once in each worker.",
)
@click.option("--until-drained", is_flag=True, help="End when the queue has no work left.")
@click.option("--lease", type=SECONDS, default="30s", show_default=True, metavar="TIME")
@sparked
def command(
    output: Output,
    queue: str,
    handler: str,
    tasks: int | None,
    concurrency: int,
    until_drained: bool,
    lease: float,
    at: At,
    engine: Engine,
) -> int:
    """Work the jobs of QUEUE on Spark's executors, each by MODULE:FUNCTION.

    Ctrl-C once: finish running jobs; twice: stop now. Ends with 1 if jobs failed.

    \b
    toril spark fleet images shop.images:resize --concurrency 8 --until-drained
    """
    reach("fleet", queue, at, engine)
    _find_modules_here()
    with engine.session(output) as spark, output.progress("fleet", "jobs") as progress:
        from toril.spark.fleet import SparkWorkerFleet

        def tell(now: FleetProgress) -> None:
            done, counts = now.completed + now.failed, now.counts
            left = counts.ready + counts.delayed + counts.active
            progress(done, done + left, f"{now.failed:,} failed, {now.running} workers")

        fleet = SparkWorkerFleet(
            spark,
            queue,
            handler,
            tasks=tasks,
            concurrency=concurrency,
            stop_when="drained" if until_drained else None,
            url=at.url,
            url_env=at.url_env,
            password_file=at.password_file,
            on_progress=tell,
            lease=lease,
        )
        with _interruptible():
            result = _work(fleet.start(), output)
    values = asdict(result) | {"completed": result.completed, "failed": result.failed}
    output.result(str(result), values)
    return FAILED if result.failed else FINE


def _work(handle: FleetHandle, output: Output) -> FleetResult:
    try:
        return handle.result()
    except KeyboardInterrupt:
        output.say("finishing the running jobs; Ctrl-C again stops now")
    try:
        handle.stop()
    except KeyboardInterrupt:
        handle.stop(drain=False)
        raise
    return handle.result()


def _find_modules_here() -> None:
    """Let the driver and the executors of this machine import from the working directory."""
    here = str(Path.cwd())
    sys.path.insert(0, here)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (here, os.environ.get("PYTHONPATH"))))


@contextmanager
def _interruptible() -> Iterator[None]:
    """Take a SIGTERM for a Ctrl-C, as those who stop containers mean it."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
