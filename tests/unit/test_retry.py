"""Durations, what handlers wish for, and the verdict on a failed attempt."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta, timezone, tzinfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from toril.errors import InvalidOption, PermanentError
from toril.retry import (
    Again,
    Backoff,
    ErrorCategory,
    GiveUp,
    Postpone,
    Reject,
    Retry,
    RetryPolicy,
    Seconds,
    to_ms,
    to_seconds,
)

TRANSIENT, PERMANENT = ErrorCategory.TRANSIENT, ErrorCategory.PERMANENT


@pytest.mark.parametrize(
    ("value", "seconds"),
    [(0, 0.0), (3, 3.0), (0.25, 0.25), (timedelta(minutes=2), 120.0), (timedelta(0), 0.0)],
)
def test_a_duration_is_seconds_or_a_timedelta(value: Seconds, seconds: float) -> None:
    assert to_seconds("delay", value) == seconds


@pytest.mark.parametrize("value", ["1", None, True, [1], 1j, datetime.now(UTC)])
def test_what_is_no_duration_is_refused_with_its_type(value: object) -> None:
    with pytest.raises(InvalidOption, match=r"^delay=.*not a duration; give seconds or a timed"):
        to_seconds("delay", value)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 10**400])
def test_an_endless_duration_is_refused(value: float) -> None:
    with pytest.raises(InvalidOption, match=r"^delay=.*must be finite"):
        to_seconds("delay", value)


@pytest.mark.parametrize("value", [-1, -0.001, float("-inf"), timedelta(seconds=-1)])
def test_a_negative_duration_is_refused(value: Seconds) -> None:
    with pytest.raises(InvalidOption, match=r"^delay=.*must be at least 0 s"):
        to_seconds("delay", value)


def test_a_duration_can_be_bound_to_more_than_its_least() -> None:
    with pytest.raises(InvalidOption, match=r"^lease=0: must be more than 0 s"):
        to_seconds("lease", 0, above=True)
    assert to_seconds("lease", 5, least=5) == 5


@pytest.mark.parametrize(
    ("seconds", "ms"), [(0.0, 0), (0.0001, 1), (0.001, 1), (0.0014, 1), (1.5, 1500)]
)
def test_milliseconds_never_round_a_wait_down_to_none(seconds: float, ms: int) -> None:
    assert to_ms(seconds) == ms


@pytest.mark.parametrize(
    ("after", "ms"), [(None, None), (0, 0), (5, 5000), (timedelta(seconds=2), 2000)]
)
def test_retry_carries_its_wait(after: Seconds | None, ms: int | None) -> None:
    assert Retry(after).after_ms == ms


def test_wishes_say_why() -> None:
    assert str(Retry(reason="busy")) == Retry(reason="busy").reason == "busy"
    assert str(Reject("no such user")) == Reject("no such user").reason == "no such user"


@pytest.mark.parametrize("after", [-1, float("nan"), "soon", True])
def test_a_bad_wait_in_retry_is_refused(after: object) -> None:
    with pytest.raises(InvalidOption, match=r"^Retry\(after\)="):
        Retry(after)  # type: ignore[arg-type]


@pytest.mark.parametrize(("until", "ms"), [(1.5, 1500), (timedelta(minutes=1), 60_000), (0, 0)])
def test_postpone_takes_a_duration(until: Seconds, ms: int) -> None:
    wish = Postpone(until)
    assert (wish.delay_ms, wish.until_ms) == (ms, None)


@given(st.integers(0, 4_102_444_800_000), st.integers(-14, 14))
@example(1001, 0)
@example(1_700_000_000_555, 2)
def test_postpone_keeps_a_point_in_time_to_the_millisecond(ms: int, hours: int) -> None:
    zone = timezone(timedelta(hours=hours))
    until = (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)).astimezone(zone)
    wish = Postpone(until)
    assert (wish.delay_ms, wish.until_ms) == (None, ms)


class NoOffset(tzinfo):
    def utcoffset(self, _when: datetime | None) -> None:
        return None

    def dst(self, _when: datetime | None) -> None:
        return None

    def tzname(self, _when: datetime | None) -> None:
        return None


@pytest.mark.parametrize(
    "naive",
    [datetime(2030, 1, 1), datetime(2030, 1, 1, tzinfo=NoOffset())],  # noqa: DTZ001
    ids=["no-zone", "zone-without-offset"],
)
def test_postpone_refuses_a_naive_datetime(naive: datetime) -> None:
    with pytest.raises(
        InvalidOption, match=r"^toril\[E12\] Postpone\(until=.*naive datetime; add a time zone"
    ):
        Postpone(naive)


@pytest.mark.parametrize("until", [-1, "tomorrow", None, False])
def test_postpone_refuses_what_is_no_time(until: object) -> None:
    with pytest.raises(InvalidOption, match=r"^Postpone\(until\)="):
        Postpone(until)  # type: ignore[arg-type]


@pytest.mark.parametrize("wish", [Retry(5, "busy"), Reject("no"), Postpone(3)], ids=repr)
def test_a_wish_survives_a_copy_as_process_pools_make_it(wish: Exception) -> None:
    twin = copy.copy(wish)
    assert (type(twin), str(twin), vars(twin)) == (type(wish), str(wish), vars(wish))


def judge(
    error: BaseException,
    policy: RetryPolicy | None = None,
    *,
    attempt: int = 1,
    attempts: int = 3,
    backoff: Backoff | None = None,
    spread: float = 0.5,
) -> Again | GiveUp:
    return (policy or RetryPolicy()).judge(
        error, attempt=attempt, attempts=attempts, backoff=backoff, spread=spread
    )


OVER = GiveUp(exhausted=True, category=TRANSIENT)
NEVER = GiveUp(exhausted=False, category=PERMANENT)
FIXED = Backoff("fixed", 5, jitter=0)


@pytest.mark.parametrize("attempt", [1, 2])
def test_unknown_trouble_is_tried_again_while_attempts_remain(attempt: int) -> None:
    assert judge(ValueError(), attempt=attempt, backoff=FIXED) == Again(delay_ms=5000)


@pytest.mark.parametrize("attempt", [3, 4, 100])
def test_the_last_attempt_exhausts_the_job(attempt: int) -> None:
    assert judge(ValueError(), attempt=attempt, backoff=FIXED) == OVER


@pytest.mark.parametrize("attempt", [1, 3])
def test_permanent_trouble_ends_the_job_at_any_attempt(attempt: int) -> None:
    assert judge(PermanentError(), attempt=attempt, backoff=FIXED) == NEVER


def test_without_a_backoff_the_next_attempt_is_due_at_once() -> None:
    assert judge(ValueError()) == Again(delay_ms=0)


def test_the_backoff_grows_with_the_attempt_and_takes_the_spread() -> None:
    waits = [judge(OSError(), attempt=n, attempts=9, backoff=Backoff()) for n in (1, 2, 3)]
    assert waits == [Again(delay_ms=1000), Again(delay_ms=2000), Again(delay_ms=4000)]
    assert judge(OSError(), backoff=Backoff(), spread=0) == Again(delay_ms=800)


def test_the_worker_overrides_attempts_and_backoff_of_the_job() -> None:
    policy = RetryPolicy(attempts=5, backoff=FIXED)
    assert judge(OSError(), policy, attempt=4, backoff=Backoff()) == Again(delay_ms=5000)
    assert judge(OSError(), policy, attempt=5, attempts=99) == OVER
    assert judge(OSError(), RetryPolicy(attempts=1)) == OVER


def test_the_workers_cap_holds_for_the_jobs_backoff() -> None:
    policy = RetryPolicy(max_backoff_ms=1500)
    assert judge(OSError(), policy, backoff=FIXED) == Again(delay_ms=1500)


def test_retry_chooses_its_own_wait_and_counts_as_an_attempt() -> None:
    assert judge(Retry(7), backoff=FIXED) == Again(delay_ms=7000)
    assert judge(Retry(0), backoff=FIXED) == Again(delay_ms=0)
    assert judge(Retry(), backoff=FIXED) == Again(delay_ms=5000)
    assert judge(Retry(7), attempt=3) == OVER


@pytest.mark.parametrize("answer", list(ErrorCategory))
def test_wishes_are_beyond_the_classifier(answer: ErrorCategory) -> None:
    policy = RetryPolicy(classify=lambda _error: answer)
    assert judge(Retry(7), policy) == Again(delay_ms=7000)
    assert judge(Reject("no"), policy) == NEVER


def test_a_classifier_replaces_the_categories() -> None:
    def classify(error: BaseException) -> ErrorCategory:
        return PERMANENT if isinstance(error, OSError) else TRANSIENT

    policy = RetryPolicy(classify=classify)
    assert judge(ConnectionError(), policy) == NEVER
    assert judge(PermanentError(), policy) == Again(delay_ms=0)


def test_a_classifier_may_answer_in_plain_text() -> None:
    policy = RetryPolicy(classify=lambda _error: "permanent")  # type: ignore[arg-type, return-value]
    assert judge(OSError(), policy) == NEVER


@pytest.mark.parametrize("answer", [None, True, "never"])
def test_a_classifier_that_answers_nonsense_is_refused(answer: object) -> None:
    policy = RetryPolicy(classify=lambda _error: answer)  # type: ignore[arg-type, return-value]
    with pytest.raises(InvalidOption, match=r"classify returned .*return an ErrorCategory"):
        judge(OSError(), policy)


def test_a_custom_strategy_gets_attempt_and_error_and_chooses_the_wait() -> None:
    asked: list[tuple[int, BaseException]] = []

    def mine(attempt: int, error: BaseException) -> Seconds:
        asked.append((attempt, error))
        return timedelta(seconds=attempt * 3)

    error = OSError()
    policy = RetryPolicy(strategies={"mine": mine})
    verdict = judge(error, policy, attempt=2, backoff=Backoff.custom("mine"))
    assert verdict == Again(delay_ms=6000)
    assert asked == [(2, error)]


def test_a_custom_strategy_gives_up_with_none() -> None:
    policy = RetryPolicy(strategies={"mine": lambda _attempt, _error: None})
    verdict = judge(OSError(), policy, backoff=Backoff.custom("mine"))
    assert verdict == GiveUp(exhausted=False, category=TRANSIENT)


@pytest.mark.parametrize(
    ("own_cap", "worker_cap_ms", "ms"), [(3600, 2000, 2000), (1, 2000, 1000), (3600, 9000, 5000)]
)
def test_a_custom_wait_is_held_by_both_caps(own_cap: int, worker_cap_ms: int, ms: int) -> None:
    policy = RetryPolicy(max_backoff_ms=worker_cap_ms, strategies={"mine": lambda _n, _error: 5})
    verdict = judge(OSError(), policy, backoff=Backoff.custom("mine", max_delay=own_cap))
    assert verdict == Again(delay_ms=ms)


@pytest.mark.parametrize("answer", [-1, float("nan"), "soon", True])
def test_a_custom_wait_is_checked(answer: object) -> None:
    policy = RetryPolicy(strategies={"mine": lambda _n, _error: answer})  # type: ignore[dict-item, return-value]
    with pytest.raises(InvalidOption, match=r"^backoff strategy 'mine'="):
        judge(OSError(), policy, backoff=Backoff.custom("mine"))


@pytest.mark.parametrize(
    ("strategies", "said"),
    [
        (None, "known: none"),
        ({"mine": lambda _n, _error: 1}, "known: mine). Did you mean 'mine'?"),
    ],
)
def test_an_unknown_strategy_is_refused_with_the_known_ones(
    strategies: Mapping[str, Callable[[int, BaseException], Seconds]] | None, said: str
) -> None:
    with pytest.raises(InvalidOption, match=r"strategy 'mien' is not known") as caught:
        judge(OSError(), RetryPolicy(strategies=strategies), backoff=Backoff.custom("mien"))
    assert said in str(caught.value)
    assert "strategies={'mien': …}" in str(caught.value)


def test_no_strategy_is_asked_about_a_job_that_is_over() -> None:
    unknown = Backoff.custom("nobody knows")
    assert judge(OSError(), attempt=3, backoff=unknown) == OVER
    assert judge(PermanentError(), backoff=unknown) == NEVER
