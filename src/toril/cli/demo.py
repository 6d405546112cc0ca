"""`toril demo`: see it work, on a server of its own."""

from __future__ import annotations

import asyncio
import logging
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click

from toril.cli.errors import FAILED
from toril.cli.options import At, speaking
from toril.cli.output import Output
from toril.errors import MissingExtra

if TYPE_CHECKING:
    from toril.demo.run import Outcome


@click.command("demo")
@click.option("--no-spark", is_flag=True, help="Leave the report out.")
@click.option(
    "--out", metavar="PATH", default="toril-demo.html", show_default=True, help="The report."
)
@speaking
def command(output: Output, no_spark: bool, out: str) -> int | None:
    """Run thousands of jobs with trouble on purpose, and show what became of them.

    Emails, thumbnails that somebody waits for, a peer that fails before it answers, a job nobody
    can do, reminders for later, reports by priority, a cancellation, and a worker process that
    is killed with its hands full. Then Spark writes a report of it.
    """
    from toril.demo.run import run
    from toril.storage.local import hold_embedded

    before = logging.root.manager.disable
    with tempfile.TemporaryDirectory(prefix="toril-demo-") as folder:
        url = f"embedded:{Path(folder) / 'server'}"
        with hold_embedded(url):
            logging.disable(logging.CRITICAL)  # the trouble is on purpose
            try:
                with output.progress("demo", "jobs") as progress:
                    outcome = asyncio.run(run(url, progress))
            finally:
                logging.disable(before)
            _show(output, outcome)
            report = None if no_spark else _report(output, url, out)
    fine = all(outcome.checks.values())
    output.result(
        "all is well" if fine else "something is wrong",
        {
            "jobs": outcome.counts.total,
            "seconds": round(outcome.seconds, 3),
            "recovered": outcome.recovered,
            "checks": dict(outcome.checks),
            "report": report,
        },
    )
    return None if fine else FAILED


def _show(output: Output, outcome: Outcome) -> None:
    counts = outcome.counts
    states = ("waiting", "prioritized", "delayed", "active", "completed", "failed", "total")
    output.table(["state", "jobs"], [(name, getattr(counts, name)) for name in states])
    if output.json:
        return
    rate = counts.total / outcome.seconds
    for name, text in {
        "handed in": f"in {outcome.handed_in_s * 1000:.0f} ms",
        "worked": f"{counts.total:,} jobs in {outcome.seconds:.1f} s, {rate:,.0f} a second",
        "asked": f"p50 {outcome.wait_p50_s * 1000:.0f} ms, p99 {outcome.wait_p99_s * 1000:.0f} ms",
        "recovered": f"{outcome.recovered} jobs of the worker that was killed",
        "poison": outcome.complaint,
    }.items():
        output.line(f"{name:<10}  {text}")
    for what, holds in outcome.checks.items():
        output.line(f"{'ok ' if holds else 'BAD'} {what}")


def _report(output: Output, url: str, out: str) -> str | None:
    """Let Spark say what just happened; where it is not installed, say so in one line."""
    from toril.cli.spark.lake import Wish, show_totals, totals
    from toril.cli.spark.session import LOCAL, Engine
    from toril.demo.jobs import QUEUE, REPORTS_QUEUE
    from toril.spark.session import check_installed

    try:
        check_installed()
    except MissingExtra as missing:
        output.say(f"no report: {missing}")
        return None
    output.say("writing the report with Spark (--no-spark leaves it out)")
    wish = Wish(
        queues=(QUEUE, REPORTS_QUEUE), lake=None, sla=5.0, allow_data_loss=False, rebuild=False
    )
    at = At(url=url, url_env=None, password_file=None)
    with wish.run(output, at, Engine(master=LOCAL, settings=())) as analysis:
        from toril.spark.report import write_report

        rows = totals(analysis)
        write_report(analysis.gold, out)
    show_totals(output, rows)
    if not output.json:
        output.line(f"report: {out}")
    return out
