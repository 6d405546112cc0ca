"""`toril spark analyze`."""

from __future__ import annotations

import click

from toril.cli.options import At
from toril.cli.output import Output
from toril.cli.spark.lake import Wish, analysing, show_totals, totals
from toril.cli.spark.session import Engine


@click.command("analyze")
@click.option("--out", metavar="PATH", help="Write all tables there, each in a folder.")
@click.option(
    "--format", type=click.Choice(["parquet", "csv"]), default="parquet", show_default=True
)
@analysing
def command(
    output: Output, wish: Wish, out: str | None, format: str, at: At, engine: Engine
) -> None:
    """Compute what queues did, from their events: throughput, latency, failures, backlog.

    \b
    toril spark analyze emails orders --lake lake --out tables --format csv
    """
    with wish.run(output, at, engine) as analysis:
        from toril.spark.analytics.gold import write_gold

        rows = totals(analysis)
        if out is not None:
            write_gold(analysis.gold, out, "csv" if format == "csv" else "parquet")
        read = analysis.bronze.rows
    show_totals(output, rows)
    summary = f"read {read:,} new events of {len(wish.queues)} queues"
    if out is not None:
        summary += f", wrote the tables to {out}"
    output.result(summary, {"events": read, "out": out, "totals": rows})
