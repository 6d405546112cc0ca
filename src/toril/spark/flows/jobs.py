"""Read and check the jobs of a queue as the flows need them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from toril.errors import InvalidOption
from toril.job import FINISHED, State
from toril.spark.flows.place import Place
from toril.spark.flows.trouble import sql_error
from toril.spark.register import register
from toril.spark.schema import JOBS, JOBS_ON_REQUEST, ddl
from toril.text import printable, suggest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMAT: Final = "toril_jobs"


def read_jobs(
    spark: SparkSession,
    place: Place,
    states: Sequence[str],
    columns: Sequence[str],
    *,
    until_ms: int | None = None,
) -> DataFrame:
    """Read chosen columns of the jobs in some states, finished ones up to a time."""
    register(spark)
    known = {**JOBS, **JOBS_ON_REQUEST}
    reader = spark.read.format(FORMAT).schema(ddl({name: known[name] for name in columns}))
    if until_ms is not None:
        reader = reader.option("until", until_ms + 1)  # it names the first ms that is too late
    return reader.options(**place.options(), states=",".join(states)).load()


def finished_states(states: Sequence[str]) -> tuple[str, ...]:
    """Check names of states in which jobs are finished."""
    known = sorted(state.value for state in FINISHED)
    for state in states:
        if state not in known:
            raise InvalidOption(
                f"state '{printable(state, 40)}': only finished jobs are taken,"
                f" {' or '.join(known)}.{suggest(state, known)}"
            )
    if not states:
        raise InvalidOption(f"no states given; choose from {', '.join(known)}")
    return tuple(dict.fromkeys(State(state).value for state in states))


def check_where(spark: SparkSession, what: str, where: str) -> None:
    """Refuse a condition that Spark cannot read, before any job is."""
    from pyspark.errors import AnalysisException, ParseException

    empty = spark.createDataFrame([], ddl(JOBS))
    try:
        empty.where(where).schema  # noqa: B018 (asking for the schema makes Spark read the text)
    except (AnalysisException, ParseException) as error:
        raise sql_error(f"{what}: where '{printable(where, 200)}'", error) from None
