"""The commands of the flows, on the session the tests share."""

from __future__ import annotations

import io
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.servers import Server
from tests.spark.flow_jobs import counts, finish, take_all
from toril.cli.main import run
from toril.cli.output import Output

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def call(*args: str, code: int = 0) -> tuple[str, str]:
    """Run a command here; give what it printed."""
    out, err = io.StringIO(), io.StringIO()
    found = run(["spark", *args], Output(out=out, err=err, environment={}))
    assert found == code, err.getvalue()
    return out.getvalue(), err.getvalue()


def document(*args: str, code: int = 0) -> Any:
    """Run a command with --json; give its document."""
    return json.loads(call(*args, "--json", "-q", code=code)[0])


def test_a_queue_is_loaded_worked_replayed_exported_and_archived(
    spark: SparkSession, server: Server, queue: str, tmp_path: Path
) -> None:
    at = ("--url", server.url)
    mails = tmp_path / "mails.csv"
    mails.write_text("to,n\n" + "".join(f"ada-{n},{n}\n" for n in range(20)))
    out, err = call("ingest", str(mails), queue, "--id-column", "to", "-q", *at)
    assert out.startswith("read 20 rows: 20 jobs created, 0 were there already, ")
    assert err == ""
    assert document("ingest", str(mails), queue, "--id-column", "to", *at)["duplicates"] == 20

    take_all(server.url, queue, lambda job: None if job.endswith("3") else b'{"n":1}')
    where = ("--where", "failure_reason like '%no%'")
    out, _ = call("replay", queue, *where, "--dry-run", *at)
    assert out.splitlines()[0].split() == ["id", "name", "failed", "at", "attempts", "reason"]
    assert out.splitlines()[-1] == "2 failed jobs match; nothing was changed"
    found = document("replay", queue, *where, "--limit", "1", *at)
    assert (found["matched"], found["retried"], found["dry_run"]) == (1, 1, False)
    assert counts(server.url, queue).waiting == 1

    table = str(tmp_path / "table")
    out, _ = call("export", queue, table, "--schema", "n int", *at)
    assert out == f"wrote 18 results to {table}\n"
    out, err = call("export", queue, table, *at, code=2)
    assert (out, len(err.splitlines())) == ("", 1)

    found = document("archive", queue, str(tmp_path / "archive"), *at)
    assert (found["archived"], found["purged"]) == (19, 19)
    out, _ = call("archive", queue, str(tmp_path / "archive"), *at)
    assert out.startswith("archived 0 jobs to file:")
    assert counts(server.url, queue).total == 1
    assert spark.range(1).count() == 1, "a session that was there before is not stopped"


def test_a_wrong_condition_is_misuse(spark: SparkSession, server: Server, queue: str) -> None:
    _, err = call("replay", queue, "--where", "reasn = 1", "--url", server.url, code=2)
    assert err.startswith("toril: replay: where 'reasn = 1': ")
    assert len(err.splitlines()) <= 6


def test_a_fleet_works_a_queue_by_a_named_function(
    spark: SparkSession, server: Server, queue: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
    at, handler = ("--url", server.url), "tests.spark.flow_jobs:greet"
    names = tmp_path / "names.csv"
    names.write_text("name\nada\nbob\n")
    call("ingest", str(names), queue, "--id-column", "name", "-q", *at)
    found = document("fleet", queue, handler, "--tasks", "1", "--until-drained", *at, code=1)
    assert (found["completed"], found["failed"]) == (1, 1)


@pytest.mark.slow  # `make demo` goes the same way, in CI too
def test_a_report_and_tables_tell_what_a_queue_did(
    spark: SparkSession, server: Server, queue: str, tmp_path: Path
) -> None:
    at = ("--url", server.url)
    finish(server.url, queue, {"ada": b"1"}, {"bob": "no"})
    lake, page, gold = str(tmp_path / "lake"), tmp_path / "report.html", tmp_path / "gold"
    out, _ = call("report", queue, "--lake", lake, "--out", str(page), *at)
    assert out.splitlines()[-1] == f"wrote {page}"
    assert queue in page.read_text(encoding="utf-8")
    found = document("analyze", queue, "--lake", lake, "--out", str(gold), "--format", "csv", *at)
    (totals,) = found["totals"]
    assert (totals["added"], totals["completed"], totals["failed"]) == (2, 1, 1)
    assert (found["events"], (gold / "totals").is_dir()) == (0, True)
