"""Which events a batch reads and who reads them: on real storages, without Spark."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.servers import Server
from tests.spark.making import add_jobs, forget, stored, trim
from toril.errors import InvalidOption, StorageError
from toril.ids import ulid
from toril.spark.events_offsets import Mark, read_marks, write_marks
from toril.spark.events_options import EventsOptions
from toril.spark.events_plan import Piece, Planner
from toril.spark.events_read import Reading
from toril.spark.schema import EVENTS, GAP
from toril.storage import open_bulk

Row = dict[str, Any]


@pytest.fixture(params=["redis", "bullmq", "file"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "file":
        return f"file:{tmp_path / 'store'}"
    server: Server = request.getfixturevalue("server")
    layout = "bullmq+" if request.param == "bullmq" else ""
    return f"{layout}{server.url}?prefix=p{ulid()}"


@pytest.fixture
def on_server(url: str) -> str:
    """Servers only: their streams can be deleted."""
    if url.startswith("file:"):
        pytest.skip("a file storage keeps its numbers")
    return url


class Reader:
    """What Spark does with the source, in this process."""

    def __init__(self, url: str, **given: str) -> None:
        self.options = EventsOptions.read({"url": url, "queue": "q", **given})
        self.bulk = open_bulk(url)
        self.planner = Planner(self.options, self.bulk, slots=2)

    def plan(self, start: dict[str, Mark], limit: int | None = None) -> dict[str, Mark]:
        """Plan as if offsets had gone through a checkpoint."""
        return read_marks(write_marks(self.planner.plan(start, limit)))

    def rows(self, start: dict[str, Mark], end: dict[str, Mark]) -> list[Row]:
        """Read a batch, task by task."""
        return [row for piece in self.planner.pieces(start, end) for row in self.read(piece)]

    def read(self, piece: Piece) -> list[Row]:
        reading = Reading(
            target=self.options.target,
            columns=tuple(EVENTS),
            fetch_size=self.options.fetch_size,
            fail_on_loss=self.options.fail_on_loss,
        )
        return [row for batch in reading.read(piece) for row in batch.to_pylist()]


@pytest.fixture
def readers(url: str) -> Iterator[Any]:
    """Make readers that are closed in the end."""
    made: list[Reader] = []

    def make(**given: str) -> Reader:
        made.append(Reader(url, **given))
        return made[-1]

    yield make
    for reader in made:
        reader.bulk.close()


def numbers(rows: list[Row]) -> list[int]:
    return [row["number"] for row in rows if row["kind"] != GAP]


def gaps(rows: list[Row]) -> list[tuple[int, int | None, str]]:
    return [(row["number"], row["count"], row["reason"]) for row in rows if row["kind"] == GAP]


def test_rows_are_the_events_of_the_store(url: str, readers: Any) -> None:
    add_jobs(url, "q", 100)
    reader = readers()
    rows = reader.rows({}, reader.plan({}))
    found = [
        (row["number"], row["kind"], row["job_id"], round(row["time"].timestamp() * 1000))
        for row in rows
    ]
    assert found == stored(url, "q")
    assert {row["queue"] for row in rows} == {"q"}


@pytest.mark.parametrize("partitions", ["1", "2", "7", "500"])
def test_pieces_neither_lose_nor_double_an_event(url: str, readers: Any, partitions: str) -> None:
    add_jobs(url, "q", 200)
    reader = readers(partitions=partitions, fetchSize="30")
    pieces = reader.planner.pieces({}, reader.plan({}))
    assert len(pieces) == min(int(partitions), 400)
    assert [n for piece in pieces for n in numbers(reader.read(piece))] == list(range(1, 401))


def test_a_small_batch_is_not_divided_unless_asked(url: str, readers: Any) -> None:
    add_jobs(url, "q", 200)
    reader = readers()
    assert len(reader.planner.pieces({}, reader.plan({}))) == 1


def test_batches_of_a_limit_follow_each_other(url: str, readers: Any) -> None:
    add_jobs(url, "q", 100)
    reader, start, found, sizes = readers(), dict[str, Mark](), list[int](), list[int]()
    while (end := reader.plan(start, 70)) != start:
        rows = numbers(reader.rows(start, end))
        found, sizes, start = found + rows, [*sizes, len(rows)], end
    assert found == list(range(1, 201))
    assert sizes == [70, 70, 60]


def test_with_nothing_new_offsets_stay_as_they_are(url: str, readers: Any) -> None:
    add_jobs(url, "q", 5)
    reader = readers()
    end = reader.plan({})
    assert reader.plan(end) == end
    assert readers(queue="unknown").plan({}) == {}


def test_a_batch_is_the_same_when_it_is_read_again(url: str, readers: Any) -> None:
    add_jobs(url, "q", 10)
    reader = readers()
    end = reader.plan({})
    add_jobs(url, "q", 10, first=10)
    assert numbers(reader.rows({}, end)) == list(range(1, 21))
    assert numbers(reader.rows(end, reader.plan(end))) == list(range(21, 41))


def test_a_stream_from_the_latest_starts_there_also_when_its_first_batch_is_read_again(
    url: str, readers: Any
) -> None:
    add_jobs(url, "q", 10)
    reader = readers(startingOffsets="latest")
    start = reader.planner.initial()
    assert reader.plan(start) == start
    add_jobs(url, "q", 5, first=10)
    end = reader.plan(start)
    assert numbers(reader.rows(reader.planner.initial(), end)) == list(range(21, 31))


def test_offsets_of_ones_own_are_where_reading_starts_and_ends(url: str, readers: Any) -> None:
    add_jobs(url, "q", 50)
    whole = readers()
    edge = {"q": whole.plan({}, 30)["q"].place.json()}
    late = readers(startingOffsets=json.dumps(edge))
    start = late.planner.initial()
    assert numbers(late.rows(start, late.plan(start))) == list(range(31, 101))
    early = readers(endingOffsets=json.dumps(edge))
    end = early.planner.plan({}, caps=early.planner.last())
    assert numbers(early.rows({}, end)) == list(range(1, 31))
    edge["q"]["n"] += 1
    with pytest.raises(InvalidOption, match="copy offsets whole"):
        readers(startingOffsets=json.dumps(edge)).planner.initial()


def test_events_lost_before_a_batch_are_an_error_or_a_row(url: str, readers: Any) -> None:
    add_jobs(url, "q", 300)
    strict, lax = readers(), readers(failOnDataLoss="false")
    start = strict.plan({}, 10)
    trim(url, "q", 1 if url.startswith("redis") else 20)
    with pytest.raises(StorageError, match=r"has lost [\d,]+ events after number 10 to trimming"):
        strict.plan(start)
    end = lax.plan(start)
    rows = lax.rows(start, end)
    ((number, count, reason),) = gaps(rows)
    assert numbers(rows) == list(range(number + 1, 601))
    assert (count, reason) == (number - 10, "trimmed")
    assert lax.plan(end) == end
    assert lax.rows(start, end) == rows


def test_events_that_were_never_to_be_read_are_not_lost(url: str, readers: Any) -> None:
    add_jobs(url, "q", 300)
    trim(url, "q", 1)
    reader = readers()
    rows = reader.rows({}, reader.plan({}))
    assert rows[-1]["number"] == 600
    assert not gaps(rows)


def test_events_lost_between_planning_and_reading_are_an_error_or_a_row(
    url: str, readers: Any
) -> None:
    add_jobs(url, "q", 300)
    strict, lax = readers(), readers(failOnDataLoss="false")
    end = strict.plan({})
    trim(url, "q", 1 if url.startswith("redis") else 20)
    with pytest.raises(StorageError, match=r"of 600 planned events after number 0 were gone"):
        strict.rows({}, end)
    rows = lax.rows({}, end)
    ((number, count, _),) = gaps(rows)
    assert numbers(rows) == list(range(number + 1, 601))
    assert count == number > 0


def test_a_stream_that_vanished_between_planning_and_reading_is_counted(
    on_server: str, readers: Any
) -> None:
    add_jobs(on_server, "q", 30)
    strict, lax = readers(), readers(failOnDataLoss="false")
    end = strict.plan({})
    forget(on_server, "q")
    with pytest.raises(StorageError, match="60 of 60 planned"):
        strict.rows({}, end)
    assert gaps(lax.rows({}, end)) == [(60, 60, "trimmed")]


@pytest.mark.parametrize("again", [0, 2, 100])
def test_a_stream_that_began_anew_is_an_error_or_a_row_without_a_count(
    on_server: str, readers: Any, again: int
) -> None:
    add_jobs(on_server, "q", 30)
    strict, lax = readers(), readers(failOnDataLoss="false")
    start = strict.plan({})
    forget(on_server, "q")
    if again:
        add_jobs(on_server, "q", again, first=1000)
    if again == 100 and not on_server.startswith("bullmq"):
        return  # its numbers alone do not tell: a limit that the documentation names
    with pytest.raises(StorageError, match="was deleted or began anew after event 60"):
        strict.plan(start)
    end = lax.plan(start)
    rows = lax.rows(start, end)
    assert gaps(rows) == [(60, None, "reset")]
    assert numbers(rows) == list(range(1, 2 * again + 1))
    assert lax.plan(end) == end


def test_a_pattern_finds_queues_and_new_ones_from_their_first_event(url: str, readers: Any) -> None:
    for queue in ("mail-a", "mail-b", "other"):
        add_jobs(url, queue, 10)
    options = EventsOptions.read({"url": url, "queuePattern": "mail-*"})
    planner = Planner(options, readers().bulk, 2)
    first = planner.plan({}, 20)
    assert sorted(first) == ["mail-a", "mail-b"]
    assert sum(piece.planned for piece in planner.pieces({}, first)) == 20
    add_jobs(url, "mail-c", 3)
    planner = Planner(options, readers().bulk, 2)  # one that runs lists queues now and then
    second = planner.plan(first)
    planned = {piece.queue: piece.planned for piece in planner.pieces(first, second)}
    assert planned == {"mail-a": 10, "mail-b": 10, "mail-c": 6}


def test_a_queue_that_is_no_longer_read_keeps_its_place(url: str, readers: Any) -> None:
    add_jobs(url, "q", 10)
    add_jobs(url, "r", 10)
    both = Planner(EventsOptions.read({"url": url, "queues": "q,r"}), readers().bulk, 2)
    start = both.plan({})
    add_jobs(url, "q", 1, first=10)
    end = readers().plan(start)
    assert end["r"].place == start["r"].place
    assert [piece.queue for piece in readers().planner.pieces(start, end)] == ["q"]
