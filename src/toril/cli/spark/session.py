"""Open Spark for one command: quietly, and only once everything else is known to be fine."""

from __future__ import annotations

import functools
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, Final

import click

from toril.cli.options import At, Callback, placed, speaking
from toril.cli.output import NORMAL, Output
from toril.errors import InvalidOption, TorilError
from toril.text import printable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from toril.spark.flows.place import Place

LOCAL: Final = "local[*]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """Where Spark runs, and with what settings."""

    master: str
    settings: tuple[tuple[str, str], ...]

    @contextmanager
    def session(self, output: Output) -> Iterator[SparkSession]:
        """Start Spark and stop it at the end; what it writes itself is shown with -v only.

        A session that is there already is used, and left as it is.
        """
        from pyspark.sql import SparkSession

        from toril.spark.flows.trouble import plain_errors
        from toril.spark.session import open_session

        found = SparkSession.getActiveSession()
        if self.master.startswith("local"):
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        output.detail(f"starting Spark on {self.master}")
        with tempfile.TemporaryFile("w+") as log:
            try:
                with _stderr_to(None if output.level > NORMAL else log):
                    spark = open_session(self.master, settings=dict(self.settings))
            except TorilError:
                raise
            except Exception as error:
                raise InvalidOption(
                    f"Spark did not start on '{printable(self.master, 100)}': {_cause(error, log)}."
                    " fix: run it again with -v to see what Spark says"
                ) from error
            try:
                with plain_errors():
                    yield spark
            finally:
                if found is None:
                    spark.stop()


@contextmanager
def _stderr_to(log: IO[str] | None) -> Iterator[None]:
    """Let what is started meanwhile write to a file instead of our standard error."""
    if log is None:
        yield
        return
    sys.stderr.flush()
    own = os.dup(2)
    try:
        os.dup2(log.fileno(), 2)
        yield
    finally:
        os.dup2(own, 2)
        os.close(own)


def _cause(error: Exception, log: IO[str]) -> str:
    log.seek(0)
    said = [line for line in log.read().splitlines() if "Exception" in line or "ERROR" in line]
    return printable(said[-1] if said else str(error).strip().splitlines()[0], 300)


def _settings(
    _context: click.Context, _option: click.Parameter, given: tuple[str, ...]
) -> tuple[tuple[str, str], ...]:
    pairs = []
    for one in given:
        name, equals, value = one.partition("=")
        if not equals or not name.strip():
            raise click.BadParameter(f"'{printable(one, 80)}': write name=value")
        pairs.append((name.strip(), value))
    return tuple(pairs)


def sparked(command: Callable[..., int | None]) -> Callback:
    """Give a command its `output`, its `at` and its `engine`."""

    @click.option("--master", default=LOCAL, show_default=True, help="Where Spark runs.")
    @click.option(
        "--conf",
        "settings",
        multiple=True,
        metavar="NAME=VALUE",
        callback=_settings,
        help="A setting of Spark; may be repeated.",
    )
    @functools.wraps(command)
    def call(
        *args: Any, master: str, settings: tuple[tuple[str, str], ...], **kwargs: Any
    ) -> int | None:
        return command(*args, engine=Engine(master=master, settings=settings), **kwargs)

    return placed(speaking(call))


def reach(flow: str, queue: str, at: At, engine: Engine) -> Place:
    """Check the queue's name, Spark, Java and the storage, before Spark takes its ten seconds."""
    from toril.spark.session import check_installed

    check_installed()
    from toril.spark.flows.place import Place

    place = Place(
        flow=flow, queue=queue, url=at.url, url_env=at.url_env, password_file=at.password_file
    )
    place.target().check_reach(engine.master)
    with place.open() as desk:
        desk.call(lambda storage: storage.counts(queue))
    return place
