"""`toril spark replay`."""

from __future__ import annotations

from dataclasses import asdict

import click

from toril.cli.options import At
from toril.cli.output import Output
from toril.cli.spark.session import Engine, reach, sparked


@click.command("replay")
@click.argument("queue")
@click.option(
    "--where",
    required=True,
    metavar="SQL",
    help="Which failed jobs; columns as `toril_jobs` has them. 'true' is all.",
)
@click.option("--limit", type=click.IntRange(min=1), help="At most so many, oldest failure first.")
@click.option("--dry-run", is_flag=True, help="Count and show some; change nothing.")
@sparked
def command(
    output: Output,
    queue: str,
    where: str,
    limit: int | None,
    dry_run: bool,
    at: At,
    engine: Engine,
) -> None:
    """Retry failed jobs of QUEUE that a condition in Spark SQL chooses.

    A job that is no longer failed as it was when it was read is left alone and counted.

    \b
    toril spark replay emails --dry-run --where "failure_reason like '%timeout%'"
    """
    reach("replay", queue, at, engine)
    with engine.session(output) as spark, output.progress("replay", "jobs") as progress:
        from toril.spark.flows.replay import replay

        run = replay(
            spark,
            queue,
            where,
            limit=limit,
            dry_run=dry_run,
            url=at.url,
            url_env=at.url_env,
            password_file=at.password_file,
            report=progress,
        )
    if dry_run and run.sample:
        heads = ("id", "name", "failed at", "attempts", "reason")
        output.table(
            heads,
            [
                (one.id, one.name, f"{one.finished_at:%Y-%m-%d %H:%M:%S}", one.attempts, one.reason)
                for one in run.sample
            ],
        )
    if dry_run:
        summary = f"{run.matched:,} failed jobs match; nothing was changed"
    else:
        summary = f"retried {run.retried:,} of {run.matched:,} jobs"
    if run.changed:
        now = ", ".join(f"{count:,} {state}" for state, count in sorted(run.changed_to.items()))
        summary += f", left {run.changed:,} that changed meanwhile ({now})"
    output.result(summary, {**asdict(run), "dry_run": dry_run})
