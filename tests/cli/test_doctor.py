"""`toril doctor` as its users run it: on a terminal, in a pipe, as a document."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from redis import Redis

from tests.cli.program import Done, toril
from tests.cli.terminal import on_terminal
from tests.faults.test_clock import skewed
from tests.servers import SAFE, Server, valkey_binary
from toril import SyncQueue
from toril.cli.doctor import lines
from toril.doctor.finding import Finding, Level

GOLDEN: Final = Path(__file__).parent / "golden"
NOWHERE: Final = "redis://127.0.0.1:1?timeout=0.3"


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(valkey_binary(), *SAFE) as running:
        yield running


@pytest.fixture
def raw(server: Server) -> Iterator[Any]:
    with Redis(port=server.port) as client:
        yield client


def run(server: Server, *args: str, code: int) -> Done:
    done = toril("doctor", *args, TORIL_URL=f"bullmq+{server.url}")
    assert done.code == code, done.err + done.out
    return done


def disorder(server: Server, raw: Any) -> None:
    """Make one trouble of each kind that a terminal should show."""
    with SyncQueue[int, int]("mail", f"bullmq+{server.url}") as mail:
        for number in range(3):
            mail.add("send", number, id=f"order-2026-11-16-{number}")
        mail.add("send", 4, id="later", delay=3600)
    raw.delete("bull:{mail}:order-2026-11-16-1")
    raw.zrem("bull:{mail}:delayed", "later")
    raw.lmove("bull:{mail}:wait", "bull:{mail}:active", "RIGHT", "LEFT")
    raw.hset("bull:sums:meta", "version", "bullmq:5.62.0")
    raw.hset("bull:{sums}:meta", "opts.maxLenEvents", 10000)
    raw.config_set("maxmemory-policy", "allkeys-lru")


def plain(text: str) -> str:
    """Write what differs from run to run as one and the same."""
    text = re.sub(r"127\.0\.0\.1:\d{5}", "127.0.0.1:PORT0", text)
    text = re.sub(r"\d+ ms (ahead of|behind) ours", "N ms behind ours", text)
    text = re.sub(r"in \d+\.\d ms", "in N ms", text)
    text = re.sub(r"\d+ of [\d,]+ connections", "N of N connections", text)
    text = re.sub(r"valkey \d+\.\d+\.\d+", "valkey X.Y.Z", text)
    return re.sub(r"for \d+ s\b", "for N s", text)


@pytest.mark.parametrize("columns", [80, 140])
def test_on_a_terminal_no_line_is_wider_than_it(server: Server, raw: Any, columns: int) -> None:
    disorder(server, raw)
    shown = on_terminal(columns, "doctor", TORIL_URL=f"bullmq+{server.url}")
    assert shown.code == 1
    assert max(len(line) for line in shown.lines) <= columns
    golden = GOLDEN / f"doctor_{columns}.txt"
    assert plain(shown.text) == golden.read_text(encoding="utf-8")


def test_in_a_pipe_a_finding_is_one_line_and_its_fix_another(server: Server, raw: Any) -> None:
    disorder(server, raw)
    done = run(server, "mail", code=1)
    eviction = next(line for line in done.out.splitlines() if " eviction " in line)
    assert eviction == (
        "problem  eviction     toril[E15] maxmemory-policy is allkeys-lru:"
        " the server may delete jobs; needs noeviction"
    )
    assert "sums" not in done.out
    assert done.err == ""


def test_quiet_shows_only_what_is_wrong(server: Server, raw: Any) -> None:
    assert run(server, "-q", code=0).out == (
        f"0 problems, 0 warnings, 9 ok at bullmq+{server.url}\n"
    )
    disorder(server, raw)
    heads = {line.split()[0] for line in run(server, "-q", code=1).out.splitlines()}
    assert "ok" not in heads
    assert {"problem", "warning"} <= heads


def test_warnings_alone_end_with_zero(server: Server) -> None:
    with SyncQueue[int, int]("mail", f"bullmq+{server.url}") as mail:
        mail.add("send", 1)
    done = run(server, code=0)
    assert done.out.splitlines()[-1].startswith("0 problems, 1 warning, ")


def test_fix_asks_does_what_is_safe_and_looks_again(server: Server, raw: Any) -> None:
    disorder(server, raw)
    raw.config_set("maxmemory-policy", "noeviction")
    refused = run(server, "mail", "--fix", code=2)
    assert "Mend 2 of these findings?" in refused.err
    assert "--yes" in refused.err
    refused.check_brief()
    no = on_terminal(100, "doctor", "mail", "--fix", typed="n\n", TORIL_URL=f"bullmq+{server.url}")
    assert no.code == 130
    assert raw.lrange("bull:{mail}:active", 0, -1) == [b"order-2026-11-16-0"]
    done = run(server, "mail", "--fix", "--yes", code=1)
    assert done.err.splitlines() == [
        "fixed    mail: put 1 job back in line",
        "fixed    mail: took 1 out of 'wait'",
    ]
    left = [line.split()[:2] for line in done.out.splitlines() if line.startswith("problem")]
    assert left == [["problem", "records"]]
    assert raw.lrange("bull:{mail}:wait", 0, -1) == [b"order-2026-11-16-2", b"order-2026-11-16-0"]
    again = run(server, "mail", "--fix", "--yes", code=1)
    assert again.err == "nothing that --fix could mend\n"


def test_a_record_in_no_line_is_removed_as_the_report_says(server: Server, raw: Any) -> None:
    disorder(server, raw)
    raw.config_set("maxmemory-policy", "noeviction")
    url = f"bullmq+{server.url}"
    assert toril("job", "remove", "mail", "later", "--yes", TORIL_URL=url).code == 0
    assert " records " not in run(server, "mail", "-q", code=1).out


def test_with_json_the_findings_are_a_document(server: Server, raw: Any) -> None:
    disorder(server, raw)
    document = run(server, "mail", "--fix", "--yes", "--json", code=1).json()
    assert document["url"] == f"bullmq+{server.url}"
    assert len(document["fixed"]) == 2
    problems = [one for one in document["findings"] if one["level"] == "problem"]
    assert document["problems"] == len(problems) == 2
    assert [(one["check"], one["code"], one["queue"], one["fixable"]) for one in problems] == [
        ("eviction", "E15", None, False),
        ("records", None, "mail", False),
    ]


def test_e13_is_told_in_two_lines(server: Server, raw: Any) -> None:
    raw.hset("bull2:mail:meta", "version", "bullmq:5.62.0")
    raw.rpush("bull2:mail:wait", *range(1204))
    done = toril("doctor", "mail", "-q", TORIL_URL=f"bullmq+{server.url}?hash_tag=off")
    assert done.code == 1
    told = (
        "queue 'mail' has no keys under prefix 'bull'; found 'bull2:mail' (1,204 waiting),"
        " written by a Node client"
    )
    assert [line.strip() for line in done.out.splitlines()] == [
        f"problem  place        toril[E13] {told}",
        'fix: prefix="bull2"',
        f"1 problem, 0 warnings, 8 ok at bullmq+{server.url}?hash_tag=off",
    ]


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (["--url", NOWHERE], 3, "toril[E01] "),
        (["a:b", "--url", NOWHERE], 2, "queue name 'a:b' holds ':'"),
        (["--url", "memory:"], 2, "toril[E15] MemoryStorage lives in one process"),
        (["--url", "redos://h"], 2, "unknown scheme 'redos'"),
        (["--limit", "0"], 2, "0 is not in the range"),
    ],
)
def test_a_mistake_is_answered_in_a_few_lines(args: list[str], code: int, said: str) -> None:
    done = toril("doctor", *args)
    assert done.code == code, done.out
    assert said in done.err
    done.check_brief()


def test_a_name_that_would_paint_the_terminal_is_shown_as_text() -> None:
    finding = Finding(level=Level.WARNING, check="x", text="red \x1b[31m", queue="q", fix="\x07")
    assert list(lines(finding, 80)) == [
        "warning  x            q: red \\x1b[31m",
        "                      fix: \\x07",
    ]


@pytest.mark.parametrize(("seconds", "level", "code"), [(-5, "warning", 0), (3600, "problem", 1)])
def test_a_clock_that_is_off_is_told(server: Server, seconds: int, level: str, code: int) -> None:
    wrong = skewed("libfaketime", seconds)
    done = toril("doctor", "-q", cwd=None, timeout=60, TORIL_URL=server.url, **wrong)
    assert done.code == code, done.err
    way = "ahead of" if seconds < 0 else "behind"
    first = done.out.splitlines()[0]
    assert re.fullmatch(rf"{level} +clock +its clock is [\d,.]+ s {way} ours", first)


def test_the_embedded_server_is_sound(tmp_path: Path) -> None:
    done = toril("doctor", "-q", TORIL_HOME=str(tmp_path / "home"))
    assert done.code == 0
    assert done.out.startswith("0 problems, 0 warnings, ")
    bullmq = toril("doctor", "-q", "--url", f"bullmq+embedded:{tmp_path / 'home'}")
    assert bullmq.out.startswith("0 problems, 0 warnings, ")
