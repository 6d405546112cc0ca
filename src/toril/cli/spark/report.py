"""`toril spark report`."""

from __future__ import annotations

import click

from toril.cli.options import At
from toril.cli.output import Output
from toril.cli.spark.lake import Wish, analysing, show_totals, totals
from toril.cli.spark.session import Engine


@click.command("report")
@click.option(
    "--out", metavar="PATH", default="report.html", show_default=True, help="The page to write."
)
@analysing
def command(output: Output, wish: Wish, out: str, at: At, engine: Engine) -> None:
    """Write what queues did as one HTML page that needs no network.

    \b
    toril spark report emails orders --lake lake --out report.html
    """
    with wish.run(output, at, engine) as analysis:
        from toril.spark.report import write_report

        rows = totals(analysis)
        write_report(analysis.gold, out)
    show_totals(output, rows)
    output.result(f"wrote {out}", {"out": out, "totals": rows})
