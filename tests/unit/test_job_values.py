"""Jobs, outcomes and their parts are values: checked once, compared by content, unchangeable."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta
from enum import StrEnum

import pytest

from toril import job as job_module
from toril import outcome as outcome_module
from toril.errors import InvalidName, InvalidOption
from toril.job import (
    FINISHED,
    KEEP_ALL,
    KEEP_NONE,
    PENDING,
    Dedup,
    Job,
    JobRecord,
    JobSpec,
    JobStatus,
    Keep,
    State,
    Terms,
)
from toril.outcome import (
    DONE,
    GONE,
    LOST,
    Answer,
    AnswerKind,
    Completed,
    Failed,
    Failure,
    Lease,
    Postponed,
    Released,
    Retried,
)
from toril.retry import Seconds

NOW = datetime(2030, 1, 1, tzinfo=UTC)
LEASE = Lease(job_id="a", token="t", attempt=1)
FAILURE = Failure(kind="ValueError", reason="no")
SPEC = JobSpec(id="a")

VALUES: list[object] = [
    Keep(count=5),
    Dedup("k"),
    Terms(),
    SPEC,
    JobRecord(spec=SPEC, state=State.WAITING, created_ms=1),
    Job(id="a", name="n", queue="q", data=1, state=State.ACTIVE, terms=Terms(), created_at=NOW),
    JobStatus(id="a", state=State.FAILED, created_at=NOW, attempts=2),
    FAILURE,
    LEASE,
    Completed(lease=LEASE, result=b"1"),
    Failed(lease=LEASE, failure=FAILURE),
    Retried(lease=LEASE, failure=FAILURE, delay_ms=5),
    Postponed(lease=LEASE, delay_ms=5),
    Released(lease=LEASE),
    DONE,
]


def test_every_value_of_these_modules_is_tried_here() -> None:
    declared = {
        kind
        for module in (job_module, outcome_module)
        for kind in vars(module).values()
        if isinstance(kind, type)
        and dataclasses.is_dataclass(kind)
        and kind.__module__ == module.__name__
    }
    assert {type(value) for value in VALUES} == declared


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_a_value_is_frozen_and_slotted(value: object) -> None:
    assert dataclasses.is_dataclass(value)
    assert not isinstance(value, type)
    for field in dataclasses.fields(value):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(value, field.name, None)
    assert not hasattr(value, "__dict__")
    twin = dataclasses.replace(value)
    assert twin == value
    assert twin is not value


@pytest.mark.parametrize("count", [-1, 1.5, True, "5"])
def test_a_bad_count_to_keep_is_refused(count: object) -> None:
    with pytest.raises(InvalidOption, match=r"^Keep\(count=.*whole number, 0 or more"):
        Keep(count=count)  # type: ignore[arg-type]


@pytest.mark.parametrize("age", [0, -1, float("nan"), float("inf"), "1h", True])
def test_a_bad_age_to_keep_is_refused(age: object) -> None:
    with pytest.raises(InvalidOption, match=r"^Keep\(age\)="):
        Keep(age=age)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("keep", "count", "age_ms"),
    [
        (KEEP_ALL, None, None),
        (KEEP_NONE, 0, None),
        (Keep(7, 1.5), 7, 1500),
        (Keep(age=timedelta(days=1)), None, 86_400_000),
        (Keep(age=0.0001), None, 1),
    ],
)
def test_a_keep_rule_has_a_count_an_age_or_both(
    keep: Keep, count: int | None, age_ms: int | None
) -> None:
    assert (keep.count, keep.age_ms) == (count, age_ms)


def test_ages_of_the_same_length_are_equal() -> None:
    assert Keep(age=60) == Keep(age=timedelta(minutes=1))
    assert Dedup("k", ttl=60) == Dedup("k", ttl=timedelta(minutes=1))


@pytest.mark.parametrize(("ttl", "ms"), [(None, None), (2, 2000), (timedelta(hours=1), 3_600_000)])
def test_a_dedup_key_may_have_a_time_to_live(ttl: Seconds | None, ms: int | None) -> None:
    assert Dedup("k", ttl=ttl).ttl_ms == ms


@pytest.mark.parametrize("ttl", [0, -1, float("nan"), "5", True])
def test_a_bad_time_to_live_is_refused(ttl: object) -> None:
    with pytest.raises(InvalidOption, match=r"^Dedup\(ttl\)="):
        Dedup("k", ttl=ttl)  # type: ignore[arg-type]


def test_extending_needs_a_time_to_extend() -> None:
    with pytest.raises(InvalidOption, match=r"^Dedup\('k', extend=True\): extending needs ttl="):
        Dedup("k", extend=True)
    assert Dedup("k", ttl=5, extend=True).extend


@pytest.mark.parametrize("flag", ["extend", "replace"])
@pytest.mark.parametrize("value", [1, 0, "yes", None])
def test_a_dedup_flag_is_true_or_false(flag: str, value: object) -> None:
    with pytest.raises(InvalidOption, match=rf"^Dedup\({flag}=.*True or False"):
        Dedup("k", ttl=5, **{flag: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("key", ["", "a:b", "a\nb", "..", "x" * 256, 5, None])
def test_a_bad_dedup_key_is_refused(key: object) -> None:
    with pytest.raises(InvalidName, match=r"^dedup id "):
        Dedup(key)  # type: ignore[arg-type]


def test_a_dedup_key_is_plain_text_even_from_an_enum() -> None:
    class Key(StrEnum):
        DAILY = "daily"

    assert type(Dedup(Key.DAILY).key) is str


def test_the_states_are_those_of_the_wire() -> None:
    assert {str(state) for state in State} == {
        "waiting",
        "prioritized",
        "delayed",
        "active",
        "completed",
        "failed",
        "waiting-children",
    }
    assert not PENDING & FINISHED
    assert {State.ACTIVE, State.WAITING_CHILDREN} == set(State) - PENDING - FINISHED


def test_a_job_starts_without_attempts_stalls_or_results() -> None:
    job: Job[int, str] = Job(
        id="a",
        name="n",
        queue="q",
        data=1,
        state=State.WAITING,
        terms=Terms(attempts=5, priority=3, correlation_id="r-1"),
        created_at=NOW,
    )
    assert (job.attempts_made, job.attempts_started, job.stalls) == (0, 0, 0)
    assert (job.progress, job.result, job.error, job.stacktrace) == (None, None, None, ())
    assert (job.processed_at, job.finished_at, job.worker_id, job.due_at) == (None,) * 4
    assert (job.max_attempts, job.priority, job.correlation_id) == (5, 3, "r-1")


def test_a_jobs_traceback_is_not_in_its_repr() -> None:
    job: Job[int, str] = Job(
        id="a",
        name="n",
        queue="q",
        data=1,
        state=State.FAILED,
        terms=Terms(),
        created_at=NOW,
        stacktrace=("SECRET FRAME",),
    )
    assert "SECRET FRAME" not in repr(job)


@pytest.mark.parametrize(
    ("failure", "text"),
    [(FAILURE, "ValueError: no"), (Failure(kind="KeyError", reason=""), "KeyError")],
)
def test_a_failure_reads_like_the_error_it_was(failure: Failure, text: str) -> None:
    assert str(failure) == text


def test_the_ready_answers_are_of_their_kind() -> None:
    assert [answer.kind for answer in (DONE, LOST, GONE)] == [
        AnswerKind.DONE,
        AnswerKind.LOST,
        AnswerKind.GONE,
    ]
    assert Answer(kind=AnswerKind.REFUSED, reason="too big") != Answer(kind=AnswerKind.REFUSED)
