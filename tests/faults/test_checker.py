"""The checker must be able to fail: a bad history for every rule, and a good one for none."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.faults.checker import Case, check
from tests.faults.dump import Dump, JobView, Step
from tests.faults.history import Happening, History, Phase, Reader
from tests.faults.nemesis import Harm, Nemesis
from toril.errors import InvalidOption
from toril.failpoints import Failpoint, passing

_clock = count(1)


def line(op: str, phase: Phase, job: str = "j", token: str | None = None, **data: Any) -> Happening:
    now = next(_clock)
    proc = str(data.pop("proc", "w1"))
    return Happening(
        seq=now, t_mono=now, t_wall=now, proc=proc, op=op, phase=phase, job=job, token=token,
        data=data,
    )  # fmt: skip


def run(token: str, job: str = "j") -> list[Happening]:
    return [line("run", "invoke", job, token), line("run", "ok", job, token)]


def commit(token: str, kind: str = "completed", job: str = "j") -> Happening:
    return line("commit", "ok", job, token, kind=kind)


def view(job: str = "j", state: str = "completed", **facts: Any) -> JobView:
    facts.setdefault("places", [state])
    return JobView(**{"id": job, "label": job, "state": state, **facts})


def trail(*kinds: str, job: str = "j") -> list[Step]:
    """Steps as `kind`, `kind/worker` or `kind<prev`."""
    steps = []
    for seq, word in enumerate(kinds, 1):
        rest, _, prev = word.partition("<")
        kind, _, worker = rest.partition("/")
        steps.append(Step(seq=seq, kind=kind, job=job, worker=worker or None, prev=prev or None))
    return steps


def verdict(
    history: Sequence[Happening], jobs: Sequence[JobView] = (), steps: Sequence[Step] = (),
    orphans: Sequence[str] = (), terse: bool = False, **rules: Any,
) -> list[str]:  # fmt: skip
    told = not terse
    dump = Dump(jobs=jobs, orphans=orphans, trail=steps, names_workers=told, tells_retries=told)
    return [found.rule for found in check(Case(history=history, dump=dump, **rules))]


ACK = line("enqueue", "ok", proc="p1")
LIFE = ("added", "waiting", "active/w1", "completed/w1")


def test_a_good_history_breaks_no_rule() -> None:
    history = [line("enqueue", "invoke", proc="p1"), ACK, *run("t1"), commit("t1")]
    jobs = [view(result={"token": "t1"}, started=1, made=1)]
    assert verdict(history, jobs, trail(*LIFE), ordered=True) == []


def test_a_crash_a_retry_and_a_release_break_no_rule() -> None:
    history = [
        ACK,
        line("run", "invoke", token="t1"),
        *run("t2"),
        commit("t2", "retried"),
        *run("t3"),
        *run("t4"),
        commit("t4"),
    ]
    steps = trail(
        *("added", "waiting", "active/w1", "stalled/w1", "waiting/w1<active", "active/w2"),
        *("retrying/w2", "waiting/w2<active", "active/w2", "waiting/w2<active"),
        *("active/w1", "completed/w1"),
    )
    jobs = [view(result={"token": "t4"}, attempts=2, stalls=1, started=4, made=2)]
    assert verdict(history, jobs, steps) == []


STALL = ("waiting<active", "stalled")


def test_a_trail_that_names_nobody_and_no_retries_can_be_good() -> None:
    starts = [line("run", "invoke", token=f"t{number}") for number in range(4)]
    steps = trail(
        *("added", "waiting", "active", *STALL, "active", "delayed<active", "waiting<delayed"),
        *("active", "waiting<active", "active", "completed<active"),
    )
    jobs = [view(attempts=2, stalls=1, started=4, made=2)]
    assert verdict([ACK, *starts], jobs, steps, terse=True) == []


@pytest.mark.parametrize(
    ("rule", "facts", "steps"),
    [
        ("I3", {}, ("active", "completed<active", "completed<active")),
        ("I3", {}, ("active", *STALL, "completed<active")),
        ("I3", {"state": "failed"}, ("failed",)),
        ("I5", {"attempts": 2, "made": 3}, ("active", "completed<active")),
        ("I5", {"stalls": 3}, (*("active", *STALL) * 3, "active", "completed<active")),
        ("I8", {}, ("active", "active", "completed<active")),
    ],
)
def test_a_trail_that_names_nobody_still_tells_of_broken_rules(
    rule: str, facts: dict[str, Any], steps: tuple[str, ...]
) -> None:
    found = verdict([ACK], [view(**facts)], trail("added", *steps), terse=True)
    assert found == [rule]


def test_i5_more_runs_than_a_terse_trail_allows() -> None:
    starts = [line("run", "invoke", token=f"t{number}") for number in range(4)]
    steps = trail("added", "active", *STALL, "active", "completed<active")
    jobs = [view(attempts=1, stalls=1, started=2, made=1)]
    assert verdict([ACK, *starts], jobs, steps, terse=True) == ["I5"]


def test_i1_an_acked_job_that_is_nowhere() -> None:
    assert verdict([ACK]) == ["I1"]
    assert verdict([ACK], lossy=True) == []


def test_i1_an_acked_job_that_never_ended() -> None:
    assert verdict([ACK], [view(state="active")]) == ["I1"]
    assert verdict([ACK], [view(state="active")], drained=False) == []


def test_i1_a_cancelled_job_may_be_gone() -> None:
    assert verdict([ACK, line("cancel", "ok")]) == []


def test_i2_two_jobs_of_one_enqueue() -> None:
    twins = [view("1", label="j"), view("2", label="j")]
    assert verdict([ACK], twins) == ["I2"]
    assert verdict([line("enqueue", "info")], twins) == ["I2"]


def test_i2_a_refused_enqueue_that_took_effect() -> None:
    assert verdict([line("enqueue", "fail")], [view()]) == ["I2"]
    assert verdict([line("enqueue", "fail")]) == []


@pytest.mark.parametrize("jobs", [[], [view()]])
def test_i2_an_unknown_enqueue_may_have_worked_or_not(jobs: list[JobView]) -> None:
    assert verdict([line("enqueue", "info")], jobs) == []


def test_i3_two_commits_under_one_token() -> None:
    assert verdict([ACK, commit("t1", "retried"), commit("t1")], [view()]) == ["I3"]


def test_i3_two_owners_complete_one_job() -> None:
    assert verdict([ACK, commit("t1"), commit("t2")], [view()]) == ["I3"]


def test_i3_a_result_of_another_than_the_one_who_committed() -> None:
    assert verdict([ACK, commit("t2")], [view(result={"token": "t1"})]) == ["I3"]


def test_i3_a_commit_by_an_old_owner() -> None:
    steps = trail(
        *("added", "active/w1", "stalled/w1", "waiting/w1<active", "active/w2", "completed/w1")
    )
    assert verdict([ACK], [view(stalls=1)], steps) == ["I3"]


def test_i3_a_commit_without_a_lease() -> None:
    steps = trail("added", "active/w1", "stalled/w1", "waiting/w1<active", "completed/w1")
    assert verdict([ACK], [view(stalls=1)], steps) == ["I3"]


def test_i3_a_second_end() -> None:
    assert verdict([ACK], [view()], trail(*LIFE, "failed/w1")) == ["I3"]


def test_i4_a_commit_after_the_lease_was_lost() -> None:
    history = [ACK, line("lost", "info", token="t1"), commit("t1")]
    assert verdict(history, [view()]) == ["I4"]


def test_i4_progress_after_the_lease_was_lost() -> None:
    before, after = line("progress", "ok", token="t1"), line("lost", "info", token="t1")
    assert verdict([ACK, before, after], [view()]) == []
    assert verdict([ACK, after, line("progress", "ok", token="t1")], [view()]) == ["I4"]


def test_i4_a_result_of_a_lost_run() -> None:
    history = [ACK, line("lost", "info", token="t1")]
    assert verdict(history, [view(result={"token": "t1"})]) == ["I4"]


def test_i5_more_failures_than_attempts() -> None:
    again = ("active/w1", "retrying/w1", "waiting/w1<active")
    steps = trail("added", *again, *again, "active/w1", "failed/w1")
    assert verdict([ACK], [view(state="failed", attempts=2)], steps) == ["I5"]
    assert verdict([ACK], [view(state="failed", attempts=3)], steps) == []


def test_i5_more_stalls_than_allowed() -> None:
    again = ("active/w1", "stalled/w1", "waiting/w1<active")
    steps = trail("added", *again, *again, "active/w1", "stalled/w1", "failed/w1")
    assert verdict([ACK], [view(state="failed", stalls=3)], steps) == ["I5"]
    assert verdict([ACK], [view(state="failed", stalls=3)], steps, max_stalls=2) == []


def test_i5_more_stalls_than_allowed_where_the_server_keeps_no_trail() -> None:
    assert verdict([ACK], [view(state="active", stalls=9)], drained=False) == ["I5"]


def test_i5_more_executions_than_attempts_and_stalls() -> None:
    history = [ACK, *run("t1"), *run("t2"), *run("t3")]
    assert verdict(history, [view(attempts=1)], trail(*LIFE)) == ["I5"]
    assert verdict(history[:5], [view(attempts=1)], trail(*LIFE)) == []


@pytest.mark.parametrize("places", [[], ["failed"], ["completed", "waiting"]])
def test_i6_a_job_in_the_wrong_number_of_places(places: list[str]) -> None:
    assert verdict([ACK], [view(places=places)]) == ["I6"]


def test_i6_an_entry_without_a_record() -> None:
    assert verdict([], orphans=["j: in active, without a record"]) == ["I6"]


def test_i7_a_job_that_overtakes() -> None:
    acks = [line("enqueue", "ok", job, proc="p1") for job in "ab"]
    starts = [*run("t1", "b"), *run("t2", "a")]
    jobs = [view("a"), view("b")]
    assert verdict([*acks, *starts], jobs, ordered=True) == ["I7"]
    assert verdict([*acks, *starts], jobs) == []
    stalled = [view("a", stalls=1), view("b")]
    assert verdict([*acks, *starts], stalled, ordered=True) == []


def test_i8_a_job_granted_while_it_is_held() -> None:
    steps = trail("added", "active/w1", "active/w2", "completed/w2")
    assert verdict([ACK], [view()], steps) == ["I8"]


def test_i8_runs_that_overlap_without_a_lapsed_lease() -> None:
    first, second = run("t1"), run("t2")
    history = [ACK, first[0], *second, first[1]]
    assert verdict([ACK, *first, *second], [view()]) == []
    # The second run began before the first one ended.
    late = [line("run", "invoke", token="x"), line("run", "invoke", token="y")]
    ends = [line("run", "ok", token="x"), line("run", "ok", token="y")]
    assert verdict([ACK, *late, *ends], [view()]) == ["I8"]
    lapsed = trail(
        *("added", "active/w1", "stalled/w1", "waiting/w1<active", "active/w2", "completed/w2")
    )
    assert verdict([ACK, *late, *ends], [view(stalls=1)], lapsed) == []
    assert history


def test_a_history_survives_a_line_cut_short(tmp_path: Path) -> None:
    path = tmp_path / "h"
    history = History(path, "p")
    history.write("enqueue", "invoke", "a", size=3)
    with path.open("ab") as file:
        file.write(b'{"seq": 2, "t_m')
    reader = Reader(path)
    assert [one.job for one in reader.read()] == ["a"]
    assert reader.read()[0].data == {"size": 3}
    history.close()


def test_a_seed_brings_back_its_schedule(tmp_path: Path) -> None:
    history = History(tmp_path / "h", "p")

    def plan(seed: int) -> list[tuple[float, str]]:
        harms: dict[str, Harm] = {name: lambda _: None for name in ("kill", "stop", "flush")}
        return Nemesis(history, seed, harms).schedule(20, (0.1, 0.5))

    assert plan(7) == plan(7)
    assert plan(7) != plan(8)
    history.close()


def test_a_failpoint_is_off_unless_armed_and_typos_are_refused() -> None:
    passing("before_commit")
    point = Failpoint.parse("after_send:stop:3")
    point.passed("before_commit")
    point.passed("after_send")
    for text in ("nowhere:kill", "before_commit:explode", "before_commit", "after_send:kill:x"):
        with pytest.raises(InvalidOption, match="TORIL_FAIL"):
            Failpoint.parse(text)
