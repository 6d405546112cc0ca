"""Statistics over repetitions, and the file they are kept in."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.compare.records import Book, Record, Results, Spread, percentile, ratios, read


def record(
    peer: str, rep: int, rate: float | None, server: str = "Valkey 9", **more: str
) -> Record:
    values = {} if rate is None else {"jobs/s": rate}
    return Record(workload="W3", server=server, peer=peer, rep=rep, values=values, **more)  # type: ignore[arg-type]


def results(*records: Record) -> Results:
    return Results({}, records)


def test_a_spread_is_the_median_with_the_smallest_and_the_largest() -> None:
    assert Spread.of([3.0, 1.0, 2.0]) == Spread(2.0, 1.0, 3.0)


def test_there_is_no_spread_over_nothing() -> None:
    assert Spread.of([]) is None


@pytest.mark.parametrize(("share", "value"), [(50, 51.0), (99, 100.0)])
def test_a_percentile_is_the_value_that_so_many_do_not_exceed(share: int, value: float) -> None:
    assert percentile([float(n) for n in range(1, 102)], share) == value


def test_the_percentile_of_one_value_is_that_value() -> None:
    assert percentile([7.0], 99) == 7.0


def test_ratios_are_made_within_a_repetition_only() -> None:
    assert ratios({0: 10.0, 1: 30.0, 2: 5.0}, {0: 5.0, 1: 10.0}) == [2.0, 3.0]


def test_a_repetition_in_which_the_other_reached_nothing_has_no_ratio() -> None:
    assert ratios({0: 10.0}, {0: 0.0}) == []


def test_the_best_is_chosen_in_each_repetition() -> None:
    run = results(
        *(record("a", rep, rate) for rep, rate in enumerate([1.0, 9.0])),
        *(record("b", rep, rate) for rep, rate in enumerate([5.0, 2.0])),
    )
    best = run.best("W3", "Valkey 9", "jobs/s", ["a", "b", "c"], least=False)
    assert best == {0: 5.0, 1: 9.0}
    assert run.best("W3", "Valkey 9", "jobs/s", ["a", "b"], least=True) == {0: 1.0, 1: 2.0}


def test_the_median_of_its_turns_is_what_a_peer_reached_in_a_repetition() -> None:
    run = results(*(record("a", 0, rate) for rate in (1.0, 9.0, 5.0)), record("a", 1, 4.0))
    assert run.values("W3", "Valkey 9", "a", "jobs/s") == {0: 5.0, 1: 4.0}
    assert run.conditions("W3", "Valkey 9").startswith("Valkey 9, 2 repetitions, ")


def test_who_has_no_server_is_compared_with_the_first_server() -> None:
    run = results(record("node", 0, 4.0), record("memory", 0, 8.0, server="no server"))
    assert run.reference("W3", "no server", "node", "jobs/s") == {0: 4.0}


def test_the_reference_of_the_same_server_comes_first() -> None:
    run = results(record("node", 0, 4.0), record("node", 0, 6.0, server="Redis 7"))
    assert run.reference("W3", "Redis 7", "node", "jobs/s") == {0: 6.0}


def test_a_peer_without_values_keeps_its_reason() -> None:
    run = results(record("rq", 0, None, note="one job at a time"))
    assert run.values("W3", "Valkey 9", "rq", "jobs/s") == {}
    assert run.note("W3", "Valkey 9", "rq") == "one job at a time"


def test_records_come_back_from_their_file(tmp_path: Path) -> None:
    book = Book(tmp_path / "new" / "run.jsonl", {"toril": "1"})
    book.add(record("a", 0, 1.5))
    book.add(record("b", 0, None, note="µ"))
    again = read([tmp_path / "new" / "run.jsonl"])
    assert again.about == {"toril": "1"}
    assert again.records == book.results.records


def test_each_workload_keeps_the_command_of_its_own_file(tmp_path: Path) -> None:
    other = Record(workload="W9", server="Valkey 9", peer="a", rep=0)
    Book(tmp_path / "one", {"command": "first"}).add(record("a", 0, 1.0))
    second = Book(tmp_path / "two", {"command": "second"})
    second.add(record("a", 0, 1.0))
    second.add(other)
    both = read([tmp_path / "one", tmp_path / "two"])
    assert (both.command("W3"), both.command("W9")) == ("first", "second")


def test_the_conditions_name_repetitions_and_load() -> None:
    run = results(record("a", 0, 1.0), record("a", 1, 1.0))
    assert run.conditions("W3", "Valkey 9") == "Valkey 9, 2 repetitions, load average 0.0 to 0.0"


def test_the_repetitions_of_a_second_file_are_numbered_on(tmp_path: Path) -> None:
    for name in ("one", "two"):
        Book(tmp_path / name, {"file": name}).add(record("a", 0, 1.0))
    both = read([tmp_path / "one", tmp_path / "two"])
    assert [one.rep for one in both.records] == [0, 1]
    assert both.about == {"file": "one"}
