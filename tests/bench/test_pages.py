"""Tables, pictures and the page they go into."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from benchmarks.compare.field import NODE, entries
from benchmarks.compare.page import BEGIN, END, command, picture_name, publish
from benchmarks.compare.plot import Bar, draw
from benchmarks.compare.records import Record, Results, Spread
from benchmarks.compare.table import markdown, number, rows, text, with_range
from benchmarks.compare.targets import LEAN, Target, check

NODE_NAME = entries()[NODE].name
LEAN_NAME = entries()[LEAN].name
SVG = "{http://www.w3.org/2000/svg}"


def run(**rates: list[float]) -> Results:
    names = {"node": NODE_NAME, "lean": LEAN_NAME, "arq": "arq 0.28.0"}
    records = [
        Record(workload="W3", server="Valkey 9", peer=names[key], rep=rep, values={"jobs/s": rate})
        for key, found in rates.items()
        for rep, rate in enumerate(found)
    ]
    about = {"command": "python -m benchmarks.compare W1 W3 --reps 3 --out x --page", "toril": "1"}
    return Results(about, records)


def lines(results: Results) -> list[list[str]]:
    return rows(results, "W3", "Valkey 9", ["jobs/s", "peak MB"], NODE_NAME)


@pytest.mark.parametrize(
    ("value", "shown"), [(0.123, "0.12"), (12.34, "12.3"), (123.4, "123"), (45678.0, "45,678")]
)
def test_a_number_keeps_about_three_figures(value: float, shown: str) -> None:
    assert number(value) == shown


def test_a_single_value_has_no_range() -> None:
    assert with_range(Spread(2.0, 2.0, 2.0)) == "2.00"
    assert with_range(Spread(2.0, 1.0, 3.0)) == "2.00 (1.00–3.00)"
    assert with_range(None) == "–"


def test_a_row_compares_with_the_reference_within_each_repetition() -> None:
    found = lines(run(node=[100.0, 10.0], lean=[200.0, 30.0]))
    assert found[0] == ["", "jobs/s", "peak MB", f"jobs/s / {NODE_NAME}"]
    assert found[2] == [LEAN_NAME, "115 (30.0–200)", "–", "2.50 (2.00–3.00)"]


def test_without_the_reference_there_is_no_ratio() -> None:
    head, line = lines(run(lean=[200.0]))
    assert (head, line) == (["", "jobs/s", "peak MB"], [LEAN_NAME, "200", "–"])


def test_a_peer_without_figures_shows_why() -> None:
    results = run(node=[1.0])
    results.records.append(
        Record(workload="W3", server="Valkey 9", peer="rq", rep=0, note="failed: x", failed=True)
    )
    assert lines(results)[2] == ["rq", "failed", "", ""]


def test_columns_line_up_beside_a_long_note() -> None:
    table = text(
        [["", "jobs/s", "ratio"], ["a", "1,234", "2.00"], ["b", "failed: " + "x" * 80, ""]]
    )
    head, row, _ = table.splitlines()
    assert len(head) == len(row)


def test_a_table_for_a_page_has_a_header_and_marks() -> None:
    table = markdown([["", "jobs/s", "jobs/s / Node"], ["a", "1", "2"]])
    assert table == "|  | jobs/s | jobs/s / Node |\n| --- | --: | --: |\n| a | 1 | 2 |"


def bars() -> list[Bar]:
    return [
        Bar(name="toril <lean>", value=200.0, label="200", kind="toril"),
        Bar(name="arq", value=50.0, label="50", kind="python"),
        Bar(name="nobody", value=0.0, label="0", kind="python"),
    ]


def test_bars_are_as_long_as_their_values_and_named() -> None:
    drawn = ET.fromstring(draw("W3: drain & more", "Valkey", "jobs/s", bars()))
    ground, *found = drawn.iter(f"{SVG}rect")
    widths = [float(bar.attrib["width"]) for bar in found]
    assert widths[0] == pytest.approx(4 * widths[1], rel=0.01)
    assert widths[2] == 1.0
    assert widths[0] < float(ground.attrib["width"])
    said = [element.text for element in drawn.iter(f"{SVG}text")]
    assert {"W3: drain & more", "toril <lean>", "200", "jobs/s"} <= set(said)


def test_a_picture_of_nothing_is_a_picture() -> None:
    assert ET.fromstring(draw("t", "s", "u", [])).tag == f"{SVG}svg"


def test_only_what_is_between_the_markers_is_rewritten(tmp_path: Path) -> None:
    page = tmp_path / "performance.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n", encoding="utf-8")
    written = publish(run(node=[1.0], lean=[2.0]), page, tmp_path / "pictures")
    once = page.read_text(encoding="utf-8")
    assert once.startswith(f"before\n{BEGIN}\n")
    assert once.endswith(f"{END}\nafter\n")
    assert "old" not in once
    assert f"| {LEAN_NAME} | 2.00 |" in once
    assert "![W3 on Valkey 9](pictures/w3-valkey.svg)" in once
    assert [path.name for path in written] == ["performance.md", "w3-valkey.svg"]
    publish(run(node=[1.0], lean=[2.0]), page, tmp_path / "pictures")
    assert page.read_text(encoding="utf-8") == once


def test_a_page_without_markers_is_left_alone(tmp_path: Path) -> None:
    page = tmp_path / "performance.md"
    page.write_text("nothing\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"performance\.md: no lines"):
        publish(run(node=[1.0]), page, tmp_path)
    assert page.read_text(encoding="utf-8") == "nothing\n"


def test_the_real_page_has_the_markers() -> None:
    from benchmarks.compare.page import PAGE

    assert PAGE.read_text(encoding="utf-8").count(BEGIN) == 1


def test_each_table_names_the_command_of_its_workload_alone() -> None:
    assert command(run(node=[1.0]), "W3") == "python -m benchmarks.compare W3 --reps 3"


def test_a_later_run_replaces_the_picture_of_an_earlier_one() -> None:
    assert picture_name("W3", "Valkey 9.1.2") == picture_name("W3", "Valkey 9.2") == "w3-valkey.svg"


def test_a_target_is_judged_by_the_median_of_ratios() -> None:
    target = Target(workload="W3", metric="jobs/s", ours=LEAN, other=NODE, at_least=3)
    results = run(node=[10.0, 10.0, 10.0], lean=[20.0, 31.0, 90.0])
    (_, line) = check(results, [target])
    assert line[2:] == ["≥ 3", "3.10 (2.00–9.00)", "met"]


def test_a_target_that_is_missed_says_so() -> None:
    target = Target(workload="W3", metric="jobs/s", ours=LEAN, at_most=10)
    (_, line) = check(run(lean=[20.0]), [target])
    assert line[2:] == ["≤ 10", "20.0", "**missed**"]


def test_a_target_against_the_best_python_peer_leaves_node_out() -> None:
    target = Target(
        workload="W3", metric="jobs/s", ours=LEAN, other="the best Python peer", at_least=15
    )
    (_, line) = check(run(node=[100.0], arq=[10.0], lean=[200.0]), [target])
    assert line[3] == "20.0"


def test_a_target_without_figures_is_not_listed() -> None:
    target = Target(workload="W9", metric="x", ours=LEAN, at_most=1)
    assert len(check(run(lean=[1.0]), [target])) == 1
