"""Archive: what is written, what is deleted, and what a crash leaves."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cli.program import toril
from tests.servers import Server
from tests.spark.flow_jobs import counts, finish, peek, retry, states
from toril.errors import InvalidOption, StorageError
from toril.job import State
from toril.spark.flows.archive import MANIFESTS, PURGED, RUNS, archive, read_archive

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


ARCHIVING = sys.modules[archive.__module__]


@pytest.fixture(params=["redis", "bullmq"])
def url(request: pytest.FixtureRequest, server: Server) -> str:
    """A storage of each kind that servers hold."""
    return server.url if request.param == "redis" else f"bullmq+{server.url}"


def named(path: Path, folder: str) -> list[str]:
    """What a folder of an archive holds."""
    folder_path = path / folder
    if not folder_path.is_dir():
        return []
    return sorted(one.name for one in folder_path.iterdir() if not one.name.startswith("."))


def test_finished_jobs_move_to_parquet_and_out_of_the_store(
    spark: SparkSession, url: str, queue: str, tmp_path: Path
) -> None:
    done = {f"done-{number}": b'{"total":%d}' % number for number in range(300)}
    finish(url, queue, done, {"broken": "ValueError: no"})
    run = archive(spark, queue, str(tmp_path), url=url)
    assert (run.archived, run.purged, run.changed, run.resumed) == (301, 301, 0, 0)
    assert counts(url, queue).total == 0
    rows = {row["id"]: row for row in read_archive(spark, str(tmp_path)).collect()}
    assert {row["id"]: row["result"] for row in rows.values() if row["state"] == "completed"} == {
        one: result.decode() for one, result in done.items()
    }
    broken = rows["broken"]
    assert (broken["state"], broken["failure_reason"]) == ("failed", "ValueError: no")
    assert (broken["data"], broken["payload"]) == ('{"n":1}', None)
    assert archive(spark, queue, str(tmp_path), url=url).run is None
    assert len(named(tmp_path, RUNS)) == len(named(tmp_path, MANIFESTS)) == 1


def test_only_the_states_asked_for_and_old_enough_are_taken(
    spark: SparkSession, server: Server, queue: str, tmp_path: Path
) -> None:
    finish(server.url, queue, {"a": b"1"}, {"b": "no"})
    path = str(tmp_path)
    assert archive(spark, queue, path, older_than=3600, url=server.url).archived == 0
    run = archive(spark, queue, path, states=["failed"], purge=False, url=server.url)
    assert (run.archived, run.purged) == (1, 0)
    assert states(server.url, queue, ["a", "b"]) == [State.COMPLETED, State.FAILED]
    assert archive(spark, queue, path, states=["failed"], url=server.url).purged == 1
    assert states(server.url, queue, ["a", "b"]) == [State.COMPLETED, None]
    assert [row["id"] for row in read_archive(spark, path).collect()] == ["b"]


def test_bytes_that_are_no_text_are_kept_as_they_are(
    spark: SparkSession, server: Server, queue: str, tmp_path: Path
) -> None:
    finish(server.url, queue, {"a": b"\xff\x00"}, payload=b"\x81\xa1n\xcb\xff")
    assert archive(spark, queue, str(tmp_path), url=server.url).purged == 1
    (row,) = read_archive(spark, str(tmp_path)).collect()
    assert (row["data"], bytes(row["payload"])) == (None, b"\x81\xa1n\xcb\xff")
    assert (row["result"], bytes(row["result_bytes"])) == (None, b"\xff\x00")


def test_nothing_is_deleted_when_the_files_are_not_what_was_read(
    spark: SparkSession,
    server: Server,
    queue: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    finish(server.url, queue, {f"job-{number}": b"1" for number in range(20)})

    def spoil(point: str) -> None:
        if point == "archive_written":
            (run,) = (tmp_path / RUNS).iterdir()
            next(run.glob("*.parquet")).unlink()

    monkeypatch.setattr(ARCHIVING, "passing", spoil)
    with pytest.raises(StorageError, match="nothing was deleted from the store"):
        archive(spark, queue, str(tmp_path), url=server.url)
    monkeypatch.undo()
    assert counts(server.url, queue).completed == 20
    assert named(tmp_path, MANIFESTS) == []
    run = archive(spark, queue, str(tmp_path), clean=True, url=server.url)
    assert (run.archived, run.purged, len(run.unfinished)) == (20, 20, 1)
    assert named(tmp_path, RUNS) == [run.run]


class Crash(BaseException):
    """What no handler of ours catches."""


def check_going_on(spark: SparkSession, url: str, queue: str, path: Path, proven: bool) -> None:
    """Archive again: all 5,000 jobs are in the archive once, none in the store."""
    left = counts(url, queue).completed
    run = archive(spark, queue, str(path), url=url)
    assert counts(url, queue).total == 0
    assert (run.archived, run.resumed) == ((0, left) if proven else (left, 0))
    assert len(run.unfinished) == (not proven)
    found = [row["id"] for row in read_archive(spark, str(path)).select("id").collect()]
    assert len(found) == len(set(found)) == 5000


@pytest.mark.parametrize("where", ["archive_written", "archive_verified"])
def test_a_crash_before_the_purge_loses_nothing_and_the_next_run_goes_on(
    spark: SparkSession,
    server: Server,
    queue: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    where: str,
) -> None:
    finish(server.url, queue, {f"job-{number}": b"1" for number in range(5000)})

    def crash(point: str) -> None:
        if point == where:
            raise Crash

    monkeypatch.setattr(ARCHIVING, "passing", crash)
    with pytest.raises(Crash):
        archive(spark, queue, str(tmp_path), url=server.url)
    monkeypatch.undo()
    assert counts(server.url, queue).completed == 5000
    proven = where == "archive_verified"
    assert (len(named(tmp_path, MANIFESTS)), len(named(tmp_path, PURGED))) == (proven, 0)
    check_going_on(spark, server.url, queue, tmp_path, proven)


def test_a_process_killed_half_way_through_the_purge_is_followed_up(
    spark: SparkSession, server: Server, queue: str, tmp_path: Path
) -> None:
    finish(server.url, queue, {f"job-{number}": b"1" for number in range(5000)})
    done = toril(
        *("spark", "archive", queue, str(tmp_path), "--url", server.url, "--master", "local[2]"),
        *("--conf", "spark.driver.memory=512m"),
        timeout=280,
        TORIL_FAIL="archive_purging:kill",
    )
    assert done.code == -signal.SIGKILL, done.err
    assert [line for line in done.err.splitlines() if not line.startswith("archive  ")] == []
    assert counts(server.url, queue).completed == 1000
    assert (len(named(tmp_path, MANIFESTS)), len(named(tmp_path, PURGED))) == (1, 0)
    retry(server.url, queue, [one.spec.id for one in peek(server.url, queue, 1)])
    run = archive(spark, queue, str(tmp_path), url=server.url)
    assert (run.resumed, run.archived, run.purged) == (999, 0, 0)
    assert counts(server.url, queue).waiting == 1
    assert read_archive(spark, str(tmp_path)).count() == 5000


def test_jobs_that_changed_since_they_were_archived_stay(
    spark: SparkSession, url: str, queue: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    finish(url, queue, {"a": b"1", "b": b"2"}, {"c": "no"})

    def meanwhile(point: str) -> None:
        if point == "archive_verified":
            retry(url, queue, ["b", "c"])
            finish(url, queue, {"b": b"3", "c": b"4"})

    monkeypatch.setattr(ARCHIVING, "passing", meanwhile)
    run = archive(spark, queue, str(tmp_path), url=url)
    assert (run.archived, run.purged, run.changed) == (3, 1, 2)
    assert states(url, queue, ["a", "b", "c"]) == [None, State.COMPLETED, State.COMPLETED]
    (purged,) = named(tmp_path, PURGED)
    assert json.loads((tmp_path / PURGED / purged).read_text())["purged"] == 1


def test_what_cannot_be_archived_is_refused_before_anything_is_read(spark: SparkSession) -> None:
    with pytest.raises(InvalidOption, match="only finished jobs are taken"):
        archive(spark, "q", "p", states=["waiting"], url="redis://127.0.0.1:1")
    with pytest.raises(InvalidOption, match="the path is empty"):
        archive(spark, "q", " ", url="redis://127.0.0.1:1")
