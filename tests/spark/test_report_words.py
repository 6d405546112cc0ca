"""Numbers, times and names as people read them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toril.spark.report import words


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (None, "–"),
        (0, "0 ms"),
        (0.04, "<0.1 ms"),
        (0.44, "0.4 ms"),
        (5.5, "5.5 ms"),
        (9.96, "10 ms"),
        (12.4, "12 ms"),
        (999.4, "999 ms"),
        (999.6, "1 s"),
        (1234, "1.2 s"),
        (59_940, "59.9 s"),
        (59_960, "1 min"),
        (200_000, "3 min 20 s"),
        (3_599_700, "1 h"),
        (7_500_000, "2 h 5 min"),
        (86_399_999, "1 d"),
        (273_600_000, "3 d 4 h"),
        (-1500, "-1.5 s"),
    ],
)
def test_a_duration_has_the_unit_that_suits_it(ms: float | None, text: str) -> None:
    assert words.duration(ms).replace("\u00a0", " ") == text


@given(st.floats(0, 1e12), st.floats(0, 1e12))
def test_no_duration_has_sixty_seconds_or_a_thousand_milliseconds(one: float, two: float) -> None:
    for ms in (one, two):
        text = words.duration(ms).replace("\u00a0", " ")
        assert not {"1,000 ms", "60 s", "60 min", "24 h"} & {text, " ".join(text.split()[-2:])}


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (None, "–"),
        (0, "0 %"),
        (0.0004, "<0.1 %"),
        (0.034, "3.4 %"),
        (0.5, "50 %"),
        (0.99961, ">99.9 %"),
        (1, "100 %"),
        (1.5, "150 %"),
    ],
)
def test_a_share_never_looks_like_none_or_all_unless_it_is(share: float | None, text: str) -> None:
    assert words.percent(share).replace("\u00a0", " ") == text


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0"), (0.25, "0.25"), (950, "950"), (1500, "1.5k"), (25_000, "25k"), (3e6, "3M")],
)
def test_an_axis_has_short_numbers(number: float, text: str) -> None:
    assert words.compact(number) == text


def test_a_time_names_its_zone() -> None:
    assert words.plain_instant(0) == "1970-01-01 00:00 UTC"
    assert words.instant(1_500, seconds=True) == (
        '<time datetime="1970-01-01T00:00:01Z">1970-01-01 00:00:01 UTC</time>'
    )
    assert words.instant(None) == "–"


def test_counts_and_their_nouns_agree() -> None:
    assert words.plural(1, "job") == "1\u00a0job"
    assert words.plural(12_345, "job") == "12,345\u00a0jobs"
    assert words.count(12_345) == "12,345"
    assert words.count(None) == "–"
