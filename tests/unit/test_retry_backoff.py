"""How long the wait before the next attempt is, and which backoffs are refused."""

from __future__ import annotations

import random
import warnings
from collections import Counter
from collections.abc import Callable
from datetime import timedelta

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from toril.errors import InvalidOption, TorilWarning
from toril.retry import DEFAULT_BACKOFF, HOUR, Backoff, Seconds

HOUR_MS = 3_600_000

spreads = st.floats(0, 1, exclude_max=True)


@pytest.mark.parametrize("delay", [0, 0.0, timedelta(0), -1])
@pytest.mark.parametrize("kind", ["fixed", "exponential"])
def test_a_backoff_delay_must_be_more_than_zero(kind: str, delay: Seconds) -> None:
    with pytest.raises(InvalidOption, match=r"^backoff delay=.*must be (more than|at least) 0 s"):
        Backoff(kind, delay)


@pytest.mark.parametrize("max_delay", [0, -1])
def test_a_backoff_cap_must_be_more_than_zero(max_delay: int) -> None:
    with pytest.raises(InvalidOption, match=r"^backoff max_delay=.*0 s"):
        Backoff("fixed", 1, max_delay=max_delay)


@pytest.mark.parametrize(
    ("kind", "hint"),
    [
        ("exponentail", "Did you mean 'exponential'?"),
        ("Fixed", "Did you mean 'fixed'?"),
        ("linear", ""),
        ("", ""),
        (3, ""),
        (None, ""),
    ],
)
def test_an_unknown_backoff_is_refused_with_a_suggestion(kind: str, hint: str) -> None:
    with pytest.raises(InvalidOption, match=r"use 'fixed', 'exponential'") as caught:
        Backoff(kind)
    assert repr(kind) in str(caught.value)
    assert ("Did you mean" in str(caught.value)) == bool(hint)
    assert hint in str(caught.value)


@pytest.mark.parametrize("jitter", [-0.1, 1.1, float("nan"), "0.2", None, True])
def test_jitter_is_a_share(jitter: object) -> None:
    with pytest.raises(InvalidOption, match=r"^backoff jitter=.*between 0 and 1"):
        Backoff(jitter=jitter)  # type: ignore[arg-type]


def test_a_delay_beyond_its_cap_is_refused() -> None:
    with pytest.raises(InvalidOption, match=r"delay of 20 s exceeds max_delay of 10 s"):
        Backoff("fixed", 20, max_delay=10)


@pytest.mark.parametrize("make", [Backoff, Backoff.custom], ids=["built-in", "custom"])
def test_a_delay_over_one_hour_is_warned_of(make: Callable[..., Backoff]) -> None:
    with pytest.warns(TorilWarning, match=r"delay of 3601 s is over one hour") as caught:
        make("fixed" if make is Backoff else "mine", 3601, max_delay=4000)
    if make is Backoff:
        assert caught[0].filename == __file__


def test_a_delay_of_one_hour_is_not_warned_of() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Backoff("fixed", HOUR)


@pytest.mark.parametrize("name", ["", "fixed", "exponential", None, 3])
def test_a_custom_backoff_needs_a_name_of_its_own(name: str) -> None:
    with pytest.raises(InvalidOption, match=r"custom backoff .*name of its own"):
        Backoff.custom(name)


def test_backoffs_of_the_same_meaning_are_equal() -> None:
    assert Backoff("fixed", 60) == Backoff("fixed", timedelta(minutes=1))
    assert Backoff() == DEFAULT_BACKOFF == Backoff("exponential", 1, 3600, 0.2)
    assert Backoff("fixed", 0.5).delay_ms == 500
    assert Backoff("fixed", 1, max_delay=timedelta(minutes=1)).max_delay_ms == 60_000


@pytest.mark.parametrize(
    ("attempt", "seconds"),
    [*enumerate((1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 3600, 3600), 1), (99, 3600)],
)
def test_exponential_doubles_from_one_second_up_to_one_hour(attempt: int, seconds: int) -> None:
    assert Backoff("exponential", 1, jitter=0).wait_ms(attempt) == seconds * 1000


@pytest.mark.parametrize("attempt", range(1, 12))
def test_the_middle_of_the_jitter_is_the_bare_delay(attempt: int) -> None:
    assert Backoff().wait_ms(attempt) == Backoff(jitter=0).wait_ms(attempt)


@pytest.mark.parametrize("attempt", [1, 2, 50, 10**6])
def test_fixed_waits_the_same_each_time(attempt: int) -> None:
    assert Backoff("fixed", 5, jitter=0).wait_ms(attempt) == 5000


@pytest.mark.parametrize("attempt", [63, 1024, 10**9, 10**30])
def test_huge_attempt_numbers_end_at_the_cap(attempt: int) -> None:
    assert Backoff("exponential", 0.001, jitter=0).wait_ms(attempt) == HOUR_MS


@pytest.mark.parametrize("attempt", [0, -5])
def test_an_attempt_before_the_first_waits_like_the_first(attempt: int) -> None:
    assert Backoff(jitter=0).wait_ms(attempt) == 1000


@given(
    kind=st.sampled_from(["fixed", "exponential"]),
    delay_ms=st.integers(1, HOUR_MS),
    cap_ms=st.integers(1, HOUR_MS),
    worker_cap_ms=st.none() | st.integers(1, HOUR_MS),
    jitter=st.floats(0, 1),
    attempt=st.integers(1, 10_000),
    spread=spreads,
)
def test_the_wait_stays_in_the_jitter_and_under_every_cap(
    kind: str,
    delay_ms: int,
    cap_ms: int,
    worker_cap_ms: int | None,
    jitter: float,
    attempt: int,
    spread: float,
) -> None:
    assume(delay_ms <= cap_ms)
    backoff = Backoff(kind, delay_ms / 1000, cap_ms / 1000, jitter)
    cap = min(cap_ms, worker_cap_ms or cap_ms)
    bare = delay_ms * 2 ** (attempt - 1) if kind == "exponential" else delay_ms
    base = min(bare, cap)
    wait = backoff.wait_ms(attempt, spread, worker_cap_ms)
    assert base * (1 - jitter) - 0.51 <= wait <= base * (1 + jitter) + 0.51
    assert 0 <= wait <= cap


@given(attempt=st.integers(1, 40), spread=spreads)
def test_the_default_jitter_is_a_fifth_to_both_sides(attempt: int, spread: float) -> None:
    base = Backoff(jitter=0).wait_ms(attempt)
    assert 0.8 * base - 1 <= Backoff().wait_ms(attempt, spread) <= min(1.2 * base + 1, HOUR_MS)


@given(attempt=st.integers(1, 40), one=spreads, other=spreads)
def test_a_larger_spread_never_waits_shorter(attempt: int, one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert Backoff().wait_ms(attempt, low) <= Backoff().wait_ms(attempt, high)


@pytest.mark.parametrize(
    ("backoff", "attempt"),
    [(Backoff(), 1), (Backoff(), 5), (Backoff(), 13), (Backoff(), 50), (Backoff("fixed", 10), 1)],
    ids=["first", "fifth", "just-capped", "long-capped", "fixed"],
)
def test_a_thousand_failing_jobs_do_not_come_back_together(backoff: Backoff, attempt: int) -> None:
    dice = random.Random(7)
    waits = [backoff.wait_ms(attempt, dice.random()) for _ in range(1000)]
    low, high = min(waits), max(waits)
    tenths = Counter(min(9, (wait - low) * 10 // (high - low)) for wait in waits)
    assert len(tenths) == 10
    assert max(tenths.values()) < 200  # 100 expected
    assert Counter(waits).most_common(1)[0][1] < 20  # no single millisecond stands out


def test_a_delay_over_an_hour_raises_its_own_cap_and_warns() -> None:
    with pytest.warns(TorilWarning, match="over one hour"):
        backoff = Backoff("fixed", 7200)
    assert backoff.max_delay_ms == 7_200_000


def test_a_duration_of_centuries_is_refused() -> None:
    with pytest.raises(InvalidOption, match="hundred years"):
        Backoff("fixed", 1e12)
