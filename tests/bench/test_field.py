"""Who takes part, and how a process that goes wrong is reported."""

from __future__ import annotations

import re
import sys
from typing import cast

import pytest

from benchmarks.compare.__main__ import in_turn, measure, parse, runs, takes_part
from benchmarks.compare.adapters.measure import Given, Tally, payload, warm_up
from benchmarks.compare.adapters.replay import sent_again, words
from benchmarks.compare.field import NODE, entries
from benchmarks.compare.stage import Sizes
from benchmarks.compare.targets import TARGETS
from benchmarks.compare.workloads import WORKLOADS
from benchmarks.install import PINS, ROOT, pins
from benchmarks.machine import Bench
from benchmarks.peers import Peer, PeerFailed

EXACT = re.compile(r"[A-Za-z0-9._-]+==[0-9][\w.]*|(?:@[\w-]+/)?[\w-]+@[0-9][\w.]*")


class Nowhere:
    """Stands where a server would: the programs of these tests need none."""

    port = 0
    url = "redis://nowhere"
    name = "nowhere"

    def clear(self) -> None:
        """Have nothing to delete."""

    def reset(self) -> None:
        """Have nothing to count."""


def program(code: str) -> Peer:
    return Peer("a peer", (sys.executable, "-c", code))


def nowhere() -> Bench:
    return cast("Bench", Nowhere())


@pytest.mark.parametrize("pin", pins().values(), ids=lambda pin: pin.key)
def test_a_pin_is_exact_and_has_an_adapter(pin: object) -> None:
    from benchmarks.install import Pin

    assert isinstance(pin, Pin)
    assert [package for package in pin.packages if not EXACT.fullmatch(package)] == []
    folder = ROOT / "benchmarks"
    adapters = folder / "node" if pin.is_node else folder / "compare" / "adapters"
    assert (adapters / (pin.adapter if pin.is_node else f"{pin.adapter}.py")).is_file()


def test_everybody_runs_and_both_layouts_right_beside_node() -> None:
    order = in_turn()
    assert sorted(order) == sorted(entries())
    at = order.index(NODE)
    assert {order[at - 1], order[at + 1]} == {"toril-lean", "toril-wire"}


def test_the_pins_name_no_registry() -> None:
    assert "://" not in PINS.read_text(encoding="utf-8")


def test_every_target_names_one_who_takes_part_and_a_figure_there_is() -> None:
    known = entries()
    for target in TARGETS:
        assert takes_part(WORKLOADS[target.workload], known[target.ours]), target
        assert target.metric in WORKLOADS[target.workload].metrics, target


def test_every_other_repetition_runs_backwards() -> None:
    field = [(entry, program("")) for entry in entries().values() if entry.kind == "python"]
    chosen = [WORKLOADS["W1"], WORKLOADS["W8"]]
    there = [(work.key, entry.key) for work, entry, _ in runs(chosen, field, True, 0)]
    back = [(work.key, entry.key) for work, entry, _ in runs(chosen, field, True, 1)]
    half = len(field)
    assert back == there[:half][::-1] + there[half:][::-1]


def test_the_turns_of_a_workload_follow_each_other_there_and_back() -> None:
    field = [(entry, program("")) for entry in entries().values() if entry.kind == "python"]
    chosen = [WORKLOADS["W1"], WORKLOADS["W8"]]
    once = [(work.key, entry.key) for work, entry, _ in runs(chosen[:1], field, True, 0)]
    thrice = [(work.key, entry.key) for work, entry, _ in runs(chosen, field, True, 0, 3)]
    assert thrice[: 3 * len(field)] == once + once[::-1] + once


def test_who_needs_no_server_runs_on_the_first_one_only() -> None:
    entry = entries()["toril-memory"]
    chosen = [WORKLOADS["W3"]]
    field = [(entry, program(""))]
    assert len(list(runs(chosen, field, True, 0))) == 1
    assert list(runs(chosen, field, False, 0)) == []


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["W99"], "no workload 'W99'"),
        (["--peers", "arq,arc"], "no peer 'arc'"),
        (["--jobs", "30"], "--jobs: 400 or more"),
    ],
)
def test_a_wrong_word_is_refused(
    argv: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        parse(argv)
    assert said in capsys.readouterr().err


def test_a_slow_peer_gets_fewer_jobs_but_some() -> None:
    paced = Sizes.of(20_000).paced(0.1)
    assert (paced.jobs, paced.calls, paced.lone_calls) == (2_000, 500, 200)
    assert Sizes.of(400).paced(0.1).jobs == 100


def test_the_last_line_of_json_is_the_answer() -> None:
    peer = program("print('{\"jobs\": 1}'); print('banner'); print('{\"jobs\": 2}'); print('bye')")
    assert peer.run("add", nowhere(), "q", 1, 1) == {"jobs": 2}


def test_a_peer_that_fails_is_reported_with_what_it_said() -> None:
    with pytest.raises(PeerFailed, match=r"a peer: ended with 1: .*ValueError: no luck"):
        program("raise ValueError('no luck')").run("add", nowhere(), "q", 1, 1)


def test_a_peer_that_says_nothing_has_failed() -> None:
    with pytest.raises(PeerFailed, match="a peer: ended with 0"):
        program("").run("add", nowhere(), "q", 1, 1)


def test_a_peer_that_does_not_end_is_ended_with_all_it_started() -> None:
    peer = program("import subprocess; subprocess.run(['sleep', '600'])")
    with pytest.raises(PeerFailed, match=r"a peer: not done in 0.5 s"):
        peer.run("add", nowhere(), "q", 1, 1, limit_s=0.5)


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("raise ValueError('no luck')", "failed: a peer: ended with 1: ValueError: no luck"),
        ("print('{}')", "failed: KeyError: 'jobs'"),
    ],
)
def test_whatever_a_peer_does_becomes_a_record(code: str, said: str) -> None:
    entry, work = entries()["arq"], WORKLOADS["W1"]
    record = measure(work, entry, program(code), nowhere(), 2, Sizes.of(400), 30)
    assert (record.peer, record.rep, record.failed, record.values) == (entry.name, 2, True, {})
    assert record.note == said


def test_what_a_peer_cannot_do_is_no_failure() -> None:
    peer = program("""print('{"unsupported": "no delayed jobs"}')""")
    entry, work = entries()["arq"], WORKLOADS["W1"]
    record = measure(work, entry, peer, nowhere(), 0, Sizes.of(400), 30)
    assert (record.note, record.failed) == ("no delayed jobs", False)


def test_a_worker_that_does_not_start_is_reported() -> None:
    with (
        pytest.raises(PeerFailed, match=r"the worker did not start: .*no luck"),
        program("raise ValueError('no luck')").serve(nowhere(), "q", 1, 1),
    ):
        pass


def test_a_worker_tells_its_figures_when_its_input_ends() -> None:
    code = "import sys; print('{\"ready\": 1}', flush=True); sys.stdin.read(); print('{\"n\": 3}')"
    with program(code).serve(nowhere(), "q", 1, 1) as figures:
        assert figures["pid"] > 0
    assert figures["n"] == 3


def test_a_job_that_runs_twice_counts_once_and_shows() -> None:
    over: list[int] = []
    given = Given("drain", "", "q", 4, 1)
    tally = Tally(given, lambda: over.append(1))
    for number in (0, 1, 1, 2):
        tally.saw(payload(number))
    assert over == []
    tally.saw(payload(3))
    figures = tally.figures()
    assert (over, figures["ran"], figures["again"]) == ([1], 4, 1)
    assert figures["jobs"] == 4 - warm_up(4)


def test_the_monitor_of_a_server_is_read_byte_by_byte() -> None:
    line = rb'"EVALSHA" "ab" "1" "{jq:q}:" "\x82\"\\\n\r\t\a\bx41" ""'
    assert words(line) == [b"EVALSHA", b"ab", b"1", b"{jq:q}:", b'\x82"\\\n\r\t\a\bx41', b""]


def test_only_commands_of_clients_that_touch_jobs_are_sent_again() -> None:
    lines = [
        b'1.0 [0 127.0.0.1:1] "HELLO" "3"',
        b'1.0 [0 127.0.0.1:1] "EVALSHA" "ab" "1" "k" "a] b"',
        b'1.0 [0 lua] "HSET" "k" "f" "v"',
        b'1.0 [0 127.0.0.1:1] "blmove" "a" "b" "LEFT" "LEFT" "1"',
        b'1.0 [0 unix:/tmp/x] "SADD" "s" "m"',
    ]
    assert list(sent_again(lines)) == [
        [b"EVALSHA", b"ab", b"1", b"k", b"a] b"],
        [b"SADD", b"s", b"m"],
    ]
