"""What `analyze` and `report` share: their options and the analysis itself."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from toril.cli.duration import SECONDS
from toril.cli.options import At, Callback
from toril.cli.output import Output
from toril.cli.spark.session import Engine, reach, sparked

if TYPE_CHECKING:
    from toril.spark.analytics.pipeline import Analysis


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What to analyse, and where its tables are kept between runs."""

    queues: tuple[str, ...]
    lake: str | None
    sla: float | None
    allow_data_loss: bool
    rebuild: bool

    @contextmanager
    def run(self, output: Output, at: At, engine: Engine) -> Iterator[Analysis]:
        """Bring the tables up to date and give them, while Spark is there to read them."""
        for queue in self.queues:
            reach("analyze", queue, at, engine)
        with engine.session(output) as spark, self._folder() as lake:
            from toril.spark.analytics.pipeline import analyze

            output.detail(f"reading the events of {', '.join(self.queues)}")
            yield analyze(
                spark,
                lake,
                queues=self.queues,
                url=at.url,
                url_env=at.url_env,
                password_file=at.password_file,
                sla_ms=None if self.sla is None else round(self.sla * 1000),
                fail_on_data_loss=not self.allow_data_loss,
                rebuild=self.rebuild,
            )

    @contextmanager
    def _folder(self) -> Iterator[str]:
        if self.lake is not None:
            yield self.lake
            return
        with tempfile.TemporaryDirectory(prefix="toril-lake-") as lake:
            yield lake


def analysing(command: Callable[..., int | None]) -> Callback:
    """Give a command its `wish`, beside what `sparked` gives."""

    @click.argument("queues", nargs=-1, required=True, metavar="QUEUE...")
    @click.option(
        "--lake",
        metavar="PATH",
        help="Where the tables are kept, so that the next run reads only what is new."
        "  [default: a directory for this run]",
    )
    @click.option("--sla", type=SECONDS, metavar="TIME", help="Count jobs that waited longer.")
    @click.option("--allow-data-loss", is_flag=True, help="Go on where events were trimmed.")
    @click.option("--rebuild", is_flag=True, help="Make the tables of the lake anew.")
    @functools.wraps(command)
    def call(
        *args: Any,
        queues: tuple[str, ...],
        lake: str | None,
        sla: float | None,
        allow_data_loss: bool,
        rebuild: bool,
        **kwargs: Any,
    ) -> int | None:
        wish = Wish(
            queues=queues, lake=lake, sla=sla, allow_data_loss=allow_data_loss, rebuild=rebuild
        )
        return command(*args, wish=wish, **kwargs)

    return sparked(call)


def totals(analysis: Analysis) -> list[dict[str, Any]]:
    """The totals of each queue as plain rows."""
    return [row.asDict() for row in analysis.gold.totals.collect()]


def show_totals(output: Output, rows: list[dict[str, Any]]) -> None:
    """Show the totals that fit a terminal."""
    names = ("queue", "added", "completed", "failed", "retried", "unfinished", "lost")
    heads = (*names, "wait p95", "run p95")
    output.table(
        heads,
        [
            (
                *(row[name] for name in names),
                *(_ms(row[f"{one}_p95_ms"]) for one in ("wait", "run")),
            )
            for row in rows
        ],
    )


def _ms(value: float | None) -> str | None:
    return None if value is None else f"{value:,.0f} ms"
