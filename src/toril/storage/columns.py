"""The facet `Bulk`: many events and jobs as columns, for programs without an event loop."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypedDict, TypeVar, cast

from toril.errors import InvalidInput, InvalidOption
from toril.event import Cursor
from toril.job import DEFAULT_TERMS, FINISHED, JobRecord, State, Terms

T = TypeVar("T", str, Terms)

Columns = dict[str, list[object]]
"""Some of the columns of jobs, under the names of `JobColumns`."""


class EventColumns(TypedDict):
    """Events as columns of equal length; see `Event` for their meaning."""

    number: list[int]
    kind: list[str]
    time_ms: list[int]
    job_id: list[str | None]
    job_name: list[str | None]
    attempt: list[int | None]
    worker_id: list[str | None]
    prev: list[str | None]
    reason: list[str | None]
    delay_ms: list[int | None]
    duration_ms: list[int | None]
    result_size: list[int | None]
    progress: list[str | None]
    dedup_id: list[str | None]
    other_id: list[str | None]
    count: list[int | None]


SELDOM: Final = (
    "reason",
    "delay_ms",
    "duration_ms",
    "result_size",
    "progress",
    "dedup_id",
    "other_id",
    "count",
)
"""Columns of events that only some kinds have."""


class JobColumns(TypedDict):
    """Jobs as columns of equal length; see `JobRecord` for their meaning."""

    id: list[str]
    name: list[str]
    state: list[str]
    payload: list[bytes]
    priority: list[int]
    max_attempts: list[int]
    created_ms: list[int]
    due_ms: list[int | None]
    attempts_made: list[int]
    attempts_started: list[int]
    stalls: list[int]
    processed_ms: list[int | None]
    finished_ms: list[int | None]
    worker_id: list[str | None]
    progress: list[bytes | None]
    result: list[bytes | None]
    failure_kind: list[str | None]
    failure_reason: list[str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """The events that can be read now: those after `first`, up to and including `last`."""

    first: Cursor
    last: Cursor


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """A share of the jobs of a state, to be read by one reader.

    `low` and `high` are places private to the storage, '' for no bound; of a line that has no
    lasting places, it is the jobs that fall to `part` of `parts` by their ids. `count` is how many
    there were, about, when the state was cut.
    """

    state: State
    low: str = ""
    high: str = ""
    part: int = 0
    parts: int = 1
    count: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class EventPage:
    """Events, the place after them, and how many numbers lie between it and the place before.

    Where `seen` is 0 there is nothing more. On the BullMQ wire a number may have no event that
    toril knows, or two.
    """

    columns: EventColumns
    reached: Cursor
    seen: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """How many of the jobs written were new, and how many were there already.

    `first_duplicate` is the id of the first of the latter.
    """

    created: int
    duplicates: int
    first_duplicate: str | None = None


class Bulk(Protocol):
    """Columns in and out, blocking, for programs without an event loop; one thread at a time."""

    def queues(self) -> Sequence[str]:
        """Name the queues that hold anything."""
        ...

    def span(self, queue: str) -> Span:
        """Tell which events there are."""
        ...

    def number(self, cursor: Cursor) -> int:
        """The running number of the last event before a place that this storage gave."""
        ...

    def advance(self, queue: str, after: Cursor, count: int) -> Cursor:
        """Find the place `count` numbers further, or the last one there is.

        Raises `EventsTrimmed` where events after the first place are gone.
        """
        ...

    def read_page(
        self, queue: str, after: Cursor, until: Cursor | None = None, limit: int = 2000
    ) -> EventPage:
        """Read about `limit` events and the place to go on from."""
        ...

    def read_events(
        self, queue: str, after: Cursor, until: Cursor | None = None, limit: int = 2000
    ) -> EventColumns:
        """Read up to `limit` events; raises `EventsTrimmed` like `Storage.events`."""
        ...

    def read_jobs(self, queue: str, state: State, start: int, stop: int) -> JobColumns:
        """Read jobs start <= n < stop of a state, in the order of `Storage.peek`."""
        ...

    def counts(self, queue: str) -> Mapping[State, int]:
        """Count the jobs by state."""
        ...

    def cut_jobs(
        self,
        queue: str,
        state: State,
        parts: int,
        since_ms: int | None = None,
        until_ms: int | None = None,
    ) -> Sequence[Slice]:
        """Cut the jobs of a state into at most `parts` slices of about the same size.

        Finished jobs can be bounded by their end: since_ms <= end < until_ms. Raises
        `InvalidOption` for bounds on other states.
        """
        ...

    def scan_jobs(
        self, queue: str, cut: Slice, columns: Collection[str], limit: int = 2000
    ) -> Iterator[Columns]:
        """Read a slice, only the columns asked for, `limit` jobs at a time.

        A job that stays in its state and place from the first page to the last comes exactly once,
        whatever is added, claimed or removed meanwhile. One that moves may be missing.
        """
        ...

    def write_jobs(
        self,
        queue: str,
        ids: Sequence[str],
        payloads: Sequence[bytes],
        names: Sequence[str] | str = "job",
        terms: Sequence[Terms] | Terms = DEFAULT_TERMS,
        origin: str = "",
    ) -> Written:
        """Store jobs; an id that is there already is left alone, so a replay adds nothing.

        A job that came under the same `origin`, unless that is empty, counts as created again.
        """
        ...

    def close(self) -> None:
        """Let the connection go."""
        ...


def no_events() -> EventColumns:
    """Make empty columns for events."""
    return cast("EventColumns", {name: [] for name in EventColumns.__annotations__})


def no_jobs() -> JobColumns:
    """Make empty columns for jobs."""
    return cast("JobColumns", {name: [] for name in JobColumns.__annotations__})


def check_columns(columns: Collection[str]) -> None:
    """Refuse columns that jobs do not have."""
    unknown = sorted(set(columns) - set(JobColumns.__annotations__))
    if unknown:
        known = ", ".join(JobColumns.__annotations__)
        raise InvalidOption(f"jobs have no column {unknown[0]!r}; known: {known}")


def check_bounds(state: State, since_ms: int | None, until_ms: int | None) -> None:
    """Refuse bounds of time on jobs that have no end."""
    if state not in FINISHED and not (since_ms is None and until_ms is None):
        raise InvalidOption(
            f"jobs {state.value} have no end to bound them by; bound completed and failed ones,"
            " and compare created_ms of the others"
        )


def gather(pages: Iterator[Columns], columns: Collection[str], limit: int) -> Iterator[Columns]:
    """Join pages of columns until they hold `limit` rows, or there are no more."""
    whole: Columns = {name: [] for name in columns}
    rows = 0
    for page in pages:
        for name, values in page.items():
            whole[name] += values
            rows = len(whole[name])
        if rows >= limit:
            yield whole
            whole, rows = {name: [] for name in columns}, 0
    if rows:
        yield whole


def append_job(columns: JobColumns, record: JobRecord) -> None:
    """Append a job to its columns."""
    spec, failure = record.spec, record.failure
    columns["id"].append(spec.id)
    columns["name"].append(spec.name)
    columns["state"].append(record.state.value)
    columns["payload"].append(spec.payload)
    columns["priority"].append(spec.terms.priority)
    columns["max_attempts"].append(spec.terms.attempts)
    columns["created_ms"].append(record.created_ms)
    columns["due_ms"].append(record.due_ms)
    columns["attempts_made"].append(record.attempts_made)
    columns["attempts_started"].append(record.attempts_started)
    columns["stalls"].append(record.stalls)
    columns["processed_ms"].append(record.processed_ms)
    columns["finished_ms"].append(record.finished_ms)
    columns["worker_id"].append(record.worker_id)
    columns["progress"].append(record.progress)
    columns["result"].append(record.result)
    columns["failure_kind"].append(None if failure is None else failure.kind)
    columns["failure_reason"].append(None if failure is None else failure.reason)


def check_rows(ids: Sequence[str], **columns: object) -> None:
    """Refuse columns that do not have a value for each id, before anything is written."""
    for name, column in columns.items():
        if isinstance(column, Sequence) and not isinstance(column, str) and len(column) != len(ids):
            raise InvalidInput(
                f"{len(ids):,} ids but {len(column):,} {name}: give one for each id"
                f"{'' if name == 'payloads' else ', or a single one for all'}"
            )


def spread(values: Sequence[T] | T, count: int) -> Sequence[T]:
    """Give each of `count` rows its value, or all of them the same."""
    return [values] * count if isinstance(values, str | Terms) else values
