"""The frame of the command line: help, errors, exit codes, output, as real processes see them."""

from __future__ import annotations

import io
import json
import subprocess
import sys

import click
import pytest

from tests.cli.program import Done, toril
from toril.cli.duration import SECONDS
from toril.cli.errors import LINES, trouble_of
from toril.cli.output import Output
from toril.cli.progress import Progress
from toril.errors import InvalidOption, MissingExtra, QueueBusy, StorageDenied, StorageUnavailable
from toril.spark.flows.trouble import ours_in

NOWHERE = "redis://127.0.0.1:1?timeout=0.2"


def test_help_names_the_commands_and_imports_none_of_them() -> None:
    code = (
        "import sys; from toril.cli.main import run; from toril.cli.output import Output;"
        "run(['--help'], Output()); run(['spark', '--help'], Output());"
        "heavy = {'pyspark', 'pyarrow', 'pandas', 'asyncio', 'ssl', 'logging', 'redis', 'rich',"
        " 'hiredis', 'msgpack', 'uvloop', 'toril.queue', 'toril.spark.session'};"
        "sys.exit(str(heavy & set(sys.modules)) if heavy & set(sys.modules) else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for name in ("spark", "ingest", "archive", "replay", "export", "analyze", "report", "fleet"):
        assert f"  {name} " in done.stdout


@pytest.mark.parametrize(
    "name", ["ingest", "archive", "replay", "export", "analyze", "report", "fleet"]
)
def test_every_command_has_help_with_the_shared_options(name: str) -> None:
    done = toril("spark", name, "--help")
    assert done.code == 0
    for option in ("--json", "--quiet", "--verbose", "--master", "--url-env", "--password-file"):
        assert option in done.out


def test_the_version_is_told() -> None:
    assert toril("--version").out.startswith("toril ")


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["sprak"], "no command 'sprak'. Did you mean 'spark'?"),
        (["spark", "archvie"], "no command 'archvie'. Did you mean 'archive'?"),
        (["spark", "archive"], "Missing argument 'QUEUE'"),
        (["spark", "archive", "q", "p", "--older-than", "soon"], "write a number and its unit"),
        (["spark", "archive", "q", "p", "-q", "-v"], "give -q or -v, not both"),
        (["spark", "archive", "q", "p", "--conf", "memory"], "write name=value"),
        (["spark", "archive", "q:1", "p"], "queue name 'q:1' holds ':'"),
        (["spark", "archive", "q", "p", "--url", "redos://h"], "unknown scheme 'redos'"),
        (["spark", "archive", "q", "p", "--url", "redis://:geheim@h"], "holds a password"),
        (["spark", "replay", "q"], "Missing option '--where'"),
        (["spark", "export", "q", "p", "--format", "xml"], "'xml' is not one of"),
    ],
)
def test_misuse_ends_with_two_and_says_why(args: list[str], said: str) -> None:
    done = toril(*args)
    assert done.code == 2
    assert said in done.err
    assert "geheim" not in done.err
    done.check_brief()


def test_a_server_that_is_not_there_ends_with_three_and_the_way_out() -> None:
    done = toril("spark", "archive", "q", "p", "--url", NOWHERE)
    assert done.code == 3
    assert done.err.startswith("toril[E01] ")
    assert "\nfix: " in done.err
    done.check_brief()


def test_with_json_an_error_is_a_document() -> None:
    done = toril("spark", "archive", "q", "p", "--url", NOWHERE, "--json")
    found = json.loads(done.out)
    assert (found["exit"], found["error"]["code"]) == (3, "E01")
    assert found["error"]["kind"] == "StorageUnavailable"
    assert toril("sprak", "--json").json()["exit"] == 2


def test_a_missing_java_ends_with_two_and_the_way_out() -> None:
    done = toril("spark", "archive", "q", "p", "--url", NOWHERE, JAVA_HOME="/nowhere")
    assert done.code == 2
    assert "toril[E14] Spark needs Java 17 or newer, none was found\nfix: " in done.err
    done.check_brief()


@pytest.mark.parametrize("args", [["--traceback"], []])
def test_a_traceback_is_shown_only_when_asked_for(args: list[str]) -> None:
    done = toril("spark", "archive", "q:1", "p", *args)
    assert ("Traceback" in done.err) == bool(args)
    debug = "0" if args else "1"
    done = toril("spark", "archive", "q:1", "p", TORIL_DEBUG=debug)
    assert ("Traceback" in done.err) == (debug == "1")


@pytest.mark.parametrize(
    ("error", "exit", "text"),
    [
        (InvalidOption("no. fix: yes"), 2, "toril: no\nfix: yes"),
        (MissingExtra("toril[E14] more"), 2, "toril[E14] more"),
        (StorageUnavailable("away"), 3, "toril[E01] away"),
        (StorageDenied("no entry"), 3, "toril: no entry"),
        (QueueBusy("busy"), 1, "toril: busy"),
        (KeyboardInterrupt(), 130, "toril: stopped"),
        (click.Abort(), 130, "toril: stopped"),
        (ZeroDivisionError("oh\nmy"), 1, "toril: ZeroDivisionError: oh\n"),
        (InvalidOption("\n".join("abcdefghij")), 2, "toril: a\nb\nc"),
        (InvalidOption("red \x1b[31m"), 2, "toril: red \\x1b[31m"),
    ],
)
def test_an_error_is_a_few_lines_and_a_code(error: BaseException, exit: int, text: str) -> None:
    trouble = trouble_of(error)
    assert trouble.exit == exit
    assert trouble.text.startswith(text)
    assert len(trouble.text.splitlines()) <= LINES


def test_an_error_of_ours_is_read_out_of_sparks() -> None:
    class SparkError(Exception):
        __module__ = "pyspark.errors"

    told = "[PYTHON_ERROR] Traceback:\n  File x\ntoril.errors.StorageUnavailable: server away\n at"
    found = ours_in(SparkError(told))
    assert type(found) is StorageUnavailable
    assert str(found) == "server away"
    assert ours_in(SparkError("toril.errors.EventsTrimmed: 3 events")) is not None
    assert ours_in(SparkError("toril.errors.Nothing: x")) is None
    assert ours_in(ValueError(told)) is None


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("250ms", 0.25), ("1.5h", 5400), ("7d", 604_800), ("2 m", 120)],
)
def test_a_duration_is_a_number_and_its_unit(text: str, seconds: float) -> None:
    assert SECONDS.convert(text, None, None) == seconds


class Terminal(io.StringIO):
    """A text that says it is a terminal."""

    def isatty(self) -> bool:
        return True


class Watch:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize("stream", [Terminal(), io.StringIO()], ids=["terminal", "log"])
def test_progress_is_a_bar_on_a_terminal_and_a_few_lines_in_a_log(stream: io.StringIO) -> None:
    watch = Watch()
    with Progress("ingest", "jobs", stream, watch) as progress:
        for done in range(0, 1001, 10):
            progress(done, 1000, "2 duplicates")
            watch.now += 0.11
    text = stream.getvalue()
    if stream.isatty():
        assert "\n" not in text
        assert text.count("\r") > 50
        assert text.endswith("\r" + " " * len(text.split("\r")[-3].rstrip()) + "\r")
    else:
        assert "\r" not in text
        assert len(text.splitlines()) == 2
        assert "ingest  [###########.............]  46%  460 of 1,000 jobs  91/s  0:06 left" in text


def test_without_a_total_there_is_a_count_and_a_rate() -> None:
    assert Progress("x", "rows", None, lambda: 0.0).text(5000, None, "", 10.0) == (
        "x  5,000 rows  500/s"
    )


def test_quiet_is_quiet_and_a_table_is_plain_text() -> None:
    out, err = io.StringIO(), io.StringIO()
    output = Output(out=out, err=err, environment={})
    output.table(("id", "tries"), [("a", 1000), ("long one", None)])
    assert out.getvalue() == "id        tries\na         1,000\nlong one  -\n"
    output.level = -1
    output.say("not heard")
    output.detail("nor this")
    output.result("done", {"n": 1})
    assert err.getvalue() == ""
    assert out.getvalue().endswith("done\n")


@pytest.mark.parametrize(
    ("environment", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)]
)
def test_colour_is_for_terminals_that_want_it(environment: dict[str, str], coloured: bool) -> None:
    err = Terminal()
    Output(out=io.StringIO(), err=err, environment=environment).trouble(
        trouble_of(InvalidOption("no"))
    )
    assert ("\x1b[" in err.getvalue()) == coloured
    plain = io.StringIO()
    Output(out=io.StringIO(), err=plain, environment={}).trouble(trouble_of(InvalidOption("no")))
    assert plain.getvalue() == "toril: no\n"


def test_a_run_is_a_value() -> None:
    assert Done(code=0, out="{}", err="").json() == {}
