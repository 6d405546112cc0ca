"""`toril spark ingest`."""

from __future__ import annotations

from dataclasses import asdict

import click

from toril.cli.options import At
from toril.cli.output import Output
from toril.cli.spark.session import Engine, reach, sparked
from toril.text import printable


def _pairs(
    _context: click.Context, _option: click.Parameter, given: tuple[str, ...]
) -> dict[str, str]:
    pairs = {}
    for one in given:
        name, equals, value = one.partition("=")
        if not equals or not name.strip() or not value.strip():
            raise click.BadParameter(f"'{printable(one, 80)}': write name=value")
        pairs[name.strip()] = value.strip()
    return pairs


def _names(given: str | None) -> tuple[str, ...]:
    return tuple(one.strip() for one in (given or "").split(",") if one.strip())


@click.command("ingest")
@click.argument("source")
@click.argument("queue")
@click.option(
    "--format",
    type=click.Choice(["parquet", "csv", "json", "orc", "table"]),
    help="What SOURCE is.  [default: by its ending]",
)
@click.option("--schema", metavar="DDL", help="The columns of a CSV or JSON file.")
@click.option("--id-column", metavar="NAME", help="The job's id.")
@click.option(
    "--id-from", metavar="A,B", help="The columns whose content makes the id.  [default: all]"
)
@click.option("--id-prefix", metavar="TEXT", help="Put before each id, as 'order-'.")
@click.option("--name", metavar="TEXT", help="The name of all jobs.")
@click.option("--name-column", metavar="NAME", help="The job's name.")
@click.option("--data-column", metavar="NAME", help="The job's data, as JSON text.")
@click.option(
    "--data-columns", metavar="A,B", help="The columns that make the job's data.  [default: all]"
)
@click.option(
    "--option",
    "options",
    multiple=True,
    metavar="NAME=VALUE",
    callback=_pairs,
    help="An option of all jobs: attempts=, priority=, delay= (ms) ...; may be repeated.",
)
@click.option(
    "--option-column",
    "option_columns",
    multiple=True,
    metavar="NAME=COLUMN",
    callback=_pairs,
    help="An option by column; may be repeated.",
)
@sparked
def command(
    output: Output,
    source: str,
    queue: str,
    format: str | None,
    schema: str | None,
    id_column: str | None,
    id_from: str | None,
    id_prefix: str | None,
    name: str | None,
    name_column: str | None,
    data_column: str | None,
    data_columns: str | None,
    options: dict[str, str],
    option_columns: dict[str, str],
    at: At,
    engine: Engine,
) -> None:
    """Load SOURCE, a file, a directory or a table, into QUEUE: each row a job.

    Run again, also after a crash, it adds nothing twice, for as long as the jobs are kept.

    \b
    toril spark ingest orders.parquet orders --id-column order_no --id-prefix order-
    """
    place = reach("ingest", queue, at, engine)
    from toril.spark.flows.ingest import Shape, ingest

    shape = Shape(
        id_column=id_column,
        id_from=_names(id_from),
        id_prefix=id_prefix,
        name=name,
        name_column=name_column,
        data_column=data_column,
        data_columns=_names(data_columns),
        options=options,
        option_columns=option_columns,
    )
    with engine.session(output) as spark, output.progress("ingest", "rows") as progress:
        run = ingest(
            spark,
            source,
            queue,
            shape=shape,
            format=format,
            schema=schema,
            url=place.url,
            url_env=place.url_env,
            password_file=place.password_file,
            report=progress,
        )
    output.result(
        f"read {run.rows:,} rows: {run.created:,} jobs created, {run.duplicates:,} were there"
        f" already, {run.rate:,.0f} rows/s",
        {**asdict(run), "rate": round(run.rate, 1)},
    )
