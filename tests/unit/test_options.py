"""Options of a job are checked when they are made, before anything is sent."""

from __future__ import annotations

import re
from dataclasses import FrozenInstanceError, fields
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toril.errors import InvalidName, InvalidOption
from toril.job import KEEP_ALL, KEEP_NONE, Dedup, Keep, Terms
from toril.options import (
    MAX_PRIORITY,
    OPTION_NAMES,
    UNSET,
    JobOptions,
    JobOverrides,
    WaitOverrides,
    options_size,
    whole,
)
from toril.retry import DEFAULT_BACKOFF, Backoff

NAN, INF = float("nan"), float("inf")


def options(**given: object) -> JobOptions:
    """Make options past the type checker, as a caller without one would."""
    return JobOptions().override(given)


def test_the_defaults_are_the_documented_ones() -> None:
    assert JobOptions().terms() == Terms(
        delay_ms=0,
        priority=0,
        lifo=False,
        attempts=3,
        backoff=Backoff("exponential", 1, max_delay=3600, jitter=0.2),
        keep_completed=KEEP_ALL,
        keep_failed=KEEP_ALL,
        result_ttl_ms=None,
        timeout_ms=None,
        expires_ms=None,
        dedup=None,
        keep_logs=1000,
        correlation_id=None,
    )
    assert JobOptions().size_limit == 10 * 1024 * 1024


REFUSED: list[tuple[str, object, str]] = [
    ("delay", -1, "at least 0 s"),
    ("delay", -0.001, "at least 0 s"),
    ("delay", timedelta(seconds=-1), "at least 0 s"),
    ("delay", NAN, "finite"),
    ("delay", INF, "finite"),
    ("delay", -INF, "at least 0 s"),
    ("delay", 10**400, "finite"),
    ("delay", "x", "not a duration"),
    ("delay", None, "not a duration"),
    ("delay", True, "not a duration"),
    ("priority", -1, "0..2097151"),
    ("priority", 2_097_152, "0..2097151"),
    ("priority", 1.0, "whole number, not float"),
    ("priority", True, "whole number, not bool"),
    ("priority", "1", "whole number, not str"),
    ("priority", None, "whole number, not NoneType"),
    ("lifo", 1, "True or False, not int"),
    ("lifo", "yes", "True or False, not str"),
    ("lifo", None, "True or False, not NoneType"),
    ("attempts", 0, "1 or more"),
    ("attempts", -3, "1 or more"),
    ("attempts", "x", "whole number, not str"),
    ("attempts", 2.5, "whole number, not float"),
    ("attempts", True, "whole number, not bool"),
    ("attempts", NAN, "whole number, not float"),
    ("backoff", 0, "more than 0 s"),
    ("backoff", 0.0, "more than 0 s"),
    ("backoff", -1, "more than 0 s"),
    ("backoff", NAN, "finite"),
    ("backoff", True, "give Backoff(kind, delay), seconds, or None"),
    ("backoff", "exponential", "give Backoff(kind, delay), seconds, or None"),
    ("backoff", {"type": "fixed", "delay": 5}, "give Backoff(kind, delay), seconds, or None"),
    ("keep_completed", -1, "0 or more"),
    ("keep_completed", 1.5, "give True, False, a number of jobs"),
    ("keep_completed", "all", "give True, False, a number of jobs"),
    ("keep_completed", None, "give True, False, a number of jobs"),
    ("keep_completed", timedelta(0), "more than 0 s"),
    ("keep_failed", -1, "0 or more"),
    ("keep_failed", timedelta(seconds=-1), "more than 0 s"),
    ("keep_failed", NAN, "give True, False, a number of jobs"),
    ("result_ttl", 0, "more than 0 s"),
    ("result_ttl", -1, "more than 0 s"),
    ("result_ttl", INF, "finite"),
    ("result_ttl", "1h", "not a duration"),
    ("timeout", 0, "more than 0 s"),
    ("timeout", NAN, "finite"),
    ("expires_in", 0, "more than 0 s"),
    ("expires_in", -5, "more than 0 s"),
    ("dedup", 42, "give a key or Dedup"),
    ("dedup", {"id": "a"}, "give a key or Dedup"),
    ("keep_logs", -1, "0 or more"),
    ("keep_logs", 1.5, "whole number, not float"),
    ("size_limit", 0, "1 or more"),
    ("size_limit", -1, "1 or more"),
    ("size_limit", 1e6, "whole number, not float"),
    ("size_limit", None, "whole number, not NoneType"),
]


@pytest.mark.parametrize(
    ("name", "value", "bound"),
    REFUSED,
    ids=[f"{name}={str(value)[:20]}" for name, value, _ in REFUSED],
)
def test_a_bad_option_is_refused_with_its_name_and_its_bound(
    name: str, value: object, bound: str
) -> None:
    with pytest.raises(InvalidOption) as caught:
        options(**{name: value})
    assert type(caught.value) is InvalidOption
    assert str(caught.value).startswith(f"toril[E12] {name}")
    assert bound in str(caught.value)


@pytest.mark.parametrize("made", [lambda: JobOptions(delay=-1), lambda: options(delay=-1)])
def test_options_are_checked_however_they_are_made(made: object) -> None:
    assert callable(made)
    with pytest.raises(InvalidOption, match=r"^toril\[E12\] delay=-1: must be at least 0 s"):
        made()


TAKEN: list[tuple[str, object, str, object]] = [
    ("delay", 0, "delay_ms", 0),
    ("delay", 1.5, "delay_ms", 1500),
    ("delay", 0.0001, "delay_ms", 1),
    ("delay", timedelta(minutes=1), "delay_ms", 60_000),
    ("priority", 0, "priority", 0),
    ("priority", 1, "priority", 1),
    ("priority", MAX_PRIORITY, "priority", 2_097_151),
    ("lifo", True, "lifo", True),
    ("attempts", 1, "attempts", 1),
    ("attempts", 10**6, "attempts", 10**6),
    ("backoff", None, "backoff", None),
    ("backoff", 5, "backoff", Backoff("fixed", 5)),
    ("backoff", 0.5, "backoff", Backoff("fixed", 0.5)),
    ("backoff", timedelta(seconds=5), "backoff", Backoff("fixed", 5)),
    ("backoff", DEFAULT_BACKOFF, "backoff", DEFAULT_BACKOFF),
    ("backoff", Backoff.custom("mine"), "backoff", Backoff.custom("mine")),
    ("keep_completed", True, "keep_completed", KEEP_ALL),
    ("keep_completed", False, "keep_completed", KEEP_NONE),
    ("keep_completed", 0, "keep_completed", KEEP_NONE),
    ("keep_completed", 1, "keep_completed", Keep(count=1)),
    ("keep_completed", 100, "keep_completed", Keep(count=100)),
    ("keep_completed", timedelta(hours=1), "keep_completed", Keep(age=3600)),
    ("keep_failed", Keep(count=5, age=60), "keep_failed", Keep(count=5, age=60)),
    ("keep_failed", False, "keep_failed", KEEP_NONE),
    ("result_ttl", None, "result_ttl_ms", None),
    ("result_ttl", 60, "result_ttl_ms", 60_000),
    ("timeout", 2.5, "timeout_ms", 2500),
    ("expires_in", timedelta(days=1), "expires_ms", 86_400_000),
    ("dedup", "user-7", "dedup", Dedup("user-7")),
    ("dedup", Dedup("user-7", ttl=5), "dedup", Dedup("user-7", ttl=5)),
    ("keep_logs", 0, "keep_logs", 0),
    ("correlation_id", "req:7.{a}", "correlation_id", "req:7.{a}"),
]


@pytest.mark.parametrize(
    ("name", "value", "term", "expected"),
    TAKEN,
    ids=[f"{name}={value}" for name, value, _, _ in TAKEN],
)
def test_a_good_option_becomes_what_storages_understand(
    name: str, value: object, term: str, expected: object
) -> None:
    found = getattr(options(**{name: value}).terms(), term)
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize("bad", ["", "x" * 256, "a\nb", "\x1b[31m", "\ud800", 7, b"x"])
def test_a_bad_correlation_id_is_refused(bad: object) -> None:
    with pytest.raises(InvalidName, match=r"^correlation id "):
        options(correlation_id=bad)


@pytest.mark.parametrize("bad", ["", "a:b", "x" * 256, "a\nb"])
def test_a_bad_dedup_key_is_refused(bad: str) -> None:
    with pytest.raises(InvalidName, match=r"^dedup id "):
        options(dedup=bad)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("prioritty", "Did you mean 'priority'?"),
        ("Delay", "Did you mean 'delay'?"),
        ("attempt", "Did you mean 'attempts'?"),
        ("removeOnComplete", ""),
        ("__class__", ""),
    ],
)
def test_an_unknown_option_is_refused_with_a_suggestion(name: str, hint: str) -> None:
    with pytest.raises(InvalidOption, match=rf"^unknown job option '{name}'") as caught:
        options(**{name: 1})
    assert hint in str(caught.value)
    assert "Known: delay, priority, lifo, attempts" in str(caught.value)


def test_overriding_leaves_the_defaults_as_they_are() -> None:
    defaults = JobOptions(attempts=7)
    changed = defaults.override({"delay": 5})
    assert (changed.attempts, changed.delay, defaults.delay) == (7, 5, 0)
    assert defaults.override({}) is defaults


def test_options_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        JobOptions().delay = 3  # type: ignore[misc]


@pytest.mark.parametrize(
    ("own", "fallback", "ms"),
    [(UNSET, None, None), (UNSET, 3600, 3_600_000), (None, 3600, None), (5, 3600, 5000)],
)
def test_a_result_ttl_that_is_given_beats_the_one_of_the_verb(
    own: object, fallback: float | None, ms: int | None
) -> None:
    assert options(result_ttl=own).terms(result_ttl=fallback).result_ttl_ms == ms


def test_the_keyword_arguments_are_the_options() -> None:
    assert set(JobOverrides.__annotations__) == set(OPTION_NAMES)
    assert set(WaitOverrides.__annotations__) == set(OPTION_NAMES) - {"timeout"}
    assert {field.name for field in fields(JobOptions)} == set(OPTION_NAMES)


@given(st.integers())
def test_a_priority_is_taken_exactly_inside_its_bounds(priority: int) -> None:
    if 0 <= priority <= MAX_PRIORITY:
        assert JobOptions(priority=priority).terms().priority == priority
    else:
        with pytest.raises(InvalidOption, match=re.escape(f"={priority}: allowed 0..2097151")):
            JobOptions(priority=priority)


@given(st.floats(0, 1e9))
def test_a_delay_is_kept_to_the_millisecond(delay: float) -> None:
    found = JobOptions(delay=delay).terms().delay_ms
    assert abs(found - delay * 1000) <= (1 if delay < 0.001 else 0.5)


@given(
    st.one_of(st.none(), st.booleans(), st.floats(), st.text(), st.binary(), st.lists(st.none()))
)
def test_only_integers_are_whole_numbers(value: object) -> None:
    with pytest.raises(InvalidOption, match=r"^limit=.*whole number, not"):
        whole("limit", value, 0)


def test_the_size_of_options_counts_what_they_carry() -> None:
    bare = options_size(Terms())
    assert options_size(Terms(correlation_id="x" * 100)) >= bare + 100 - len("null")
    assert options_size(Terms(dedup=Dedup("y" * 50, ttl=5), backoff=Backoff())) > bare + 50
    assert options_size(Terms(correlation_id="ä")) > bare
