"""`toril spark export`."""

from __future__ import annotations

from dataclasses import asdict

import click

from toril.cli.options import At
from toril.cli.output import Output
from toril.cli.spark.session import Engine, reach, sparked


@click.command("export")
@click.argument("queue")
@click.argument("path")
@click.option(
    "--schema",
    metavar="DDL",
    help="What results hold: 'total double, items array<string>', or one type.",
)
@click.option("--where", metavar="SQL", help="Which completed jobs.  [default: all]")
@click.option(
    "--format",
    type=click.Choice(["parquet", "csv", "json"]),
    default="parquet",
    show_default=True,
)
@click.option("--overwrite", is_flag=True, help="Replace what is at PATH.")
@sparked
def command(
    output: Output,
    queue: str,
    path: str,
    schema: str | None,
    where: str | None,
    format: str,
    overwrite: bool,
    at: At,
    engine: Engine,
) -> None:
    """Write the results of QUEUE's completed jobs as a table to PATH.

    \b
    toril spark export orders results --schema 'total double, currency string'
    """
    reach("export", queue, at, engine)
    with engine.session(output) as spark:
        from toril.spark.flows.export import export

        run = export(
            spark,
            queue,
            path,
            schema=schema,
            where=where,
            format=format,
            overwrite=overwrite,
            url=at.url,
            url_env=at.url_env,
            password_file=at.password_file,
        )
    summary = f"wrote {run.rows:,} results to {run.path}"
    if run.unparsed:
        summary += f", {run.unparsed:,} of them as text: they do not fit the schema"
    output.result(summary, asdict(run))
