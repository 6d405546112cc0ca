"""`toril spark archive`."""

from __future__ import annotations

from dataclasses import asdict

import click

from toril.cli.duration import SECONDS
from toril.cli.options import At
from toril.cli.output import Output
from toril.cli.spark.session import Engine, reach, sparked


@click.command("archive")
@click.argument("queue")
@click.argument("path")
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice(["completed", "failed"]),
    help="Which jobs; may be repeated.  [default: both]",
)
@click.option(
    "--older-than",
    type=SECONDS,
    default="0",
    metavar="TIME",
    help="Only jobs that finished so long ago: 30s, 10m, 12h, 7d.",
)
@click.option("--keep", is_flag=True, help="Copy only; delete nothing from the store.")
@click.option("--clean", is_flag=True, help="Delete files of runs that never came to their end.")
@sparked
def command(
    output: Output,
    queue: str,
    path: str,
    states: tuple[str, ...],
    older_than: float,
    keep: bool,
    clean: bool,
    at: At,
    engine: Engine,
) -> None:
    """Move finished jobs of QUEUE to Parquet files under PATH.

    The files are read again and compared before a job is deleted, and a job is deleted only if it
    is still as the archive has it. After a crash, run the same command again.

    \b
    toril spark archive emails archive/emails --older-than 7d
    """
    reach("archive", queue, at, engine)
    with engine.session(output) as spark, output.progress("archive", "jobs") as progress:
        from toril.spark.flows.archive import archive

        run = archive(
            spark,
            queue,
            path,
            states=states or ("completed", "failed"),
            older_than=older_than,
            purge=not keep,
            clean=clean,
            url=at.url,
            url_env=at.url_env,
            password_file=at.password_file,
            report=progress,
        )
    for name in run.unfinished:
        gone = "was deleted" if clean else "is not read; --clean deletes it"
        output.say(f"run {name} never came to its end: all its jobs are in the store; it {gone}")
    parts = [f"archived {run.archived:,} jobs to {run.path}"]
    if not keep:
        parts.append(f"deleted {run.purged:,} from the store")
    if run.changed:
        parts.append(f"left {run.changed:,} that changed meanwhile")
    if run.resumed:
        parts.append(f"deleted {run.resumed:,} of earlier runs")
    output.result(", ".join(parts), asdict(run))
