"""Events have a total order, and cursors survive being written down."""

from __future__ import annotations

import dataclasses
import json
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toril.errors import InvalidOption
from toril.event import Cursor, Event, EventKind

numbers = st.integers(0, 2**64 - 1)
cursors = st.builds(Cursor, numbers, numbers, numbers)
NO_CURSORS = (
    *("", "-", "1", "1-2", "1-2-3-4", "a-b-c", "1-2-", "--", "-1-2-3", " 1-2-3", "1-2-3\n"),
    *("1_0-2-3", "+1-2-3", "0x1-2-3", "1.0-2-3", "٣-1-2", "²-1-2", "9" * 5000 + "-1-1"),
    *(None, 5, b"1-2-3"),
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


def event(**changes: object) -> Event:
    plain = Event(kind=EventKind.ADDED, cursor=Cursor(1), time_ms=0)
    return dataclasses.replace(plain, **changes)  # type: ignore[arg-type]


@given(cursors)
def test_a_cursor_survives_being_written_and_read(cursor: Cursor) -> None:
    assert Cursor.parse(str(cursor)) == cursor


@given(cursors, cursors)
def test_cursors_compare_like_their_numbers(one: Cursor, other: Cursor) -> None:
    left, right = (dataclasses.astuple(cursor) for cursor in (one, other))
    assert (one < other) == (left < right)
    assert (one == other) == (left == right)
    assert (hash(one) == hash(other)) or one != other


@given(st.lists(cursors, max_size=8))
def test_the_start_comes_before_every_cursor(some: list[Cursor]) -> None:
    assert sorted([*some, Cursor.START])[0] == Cursor.START == Cursor(0, 0, 0)


def test_numbers_are_compared_as_numbers_and_the_first_one_first() -> None:
    ordered = ["2-0-0", "10-0-0", "10-0-1", "10-1-0", "10-1-9", "11-0-0"]
    mixed = [Cursor.parse(text) for text in sorted(ordered)]
    assert [str(cursor) for cursor in sorted(mixed)] == ordered


@pytest.mark.parametrize(
    "text",
    NO_CURSORS,
)
def test_what_is_no_cursor_is_refused(text: str) -> None:
    with pytest.raises(InvalidOption, match=r"^cursor '.*' is not of the form '1-2-3'") as caught:
        Cursor.parse(text)
    assert len(str(caught.value)) < 200
    assert "\n" not in str(caught.value)


@given(st.text(max_size=20))
def test_parsing_refuses_or_reads_but_never_crashes(text: str) -> None:
    try:
        cursor = Cursor.parse(text)
    except InvalidOption:
        return
    assert [int(part) for part in text.split("-")] == list(dataclasses.astuple(cursor))


@given(st.integers(0, 4_102_444_800_000))
def test_an_events_time_is_its_millisecond_in_utc(ms: int) -> None:
    found = event(time_ms=ms).time
    assert found == datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)
    assert found.tzinfo is UTC


@given(json_values)
def test_an_events_value_is_its_decoded_progress(value: object) -> None:
    assert event(kind=EventKind.PROGRESS, progress=json.dumps(value)).value == value


def test_an_event_without_progress_has_no_value() -> None:
    assert event().value is None


def test_an_event_knows_only_what_it_was_told() -> None:
    told = {"kind", "cursor", "time_ms"}
    rest = [getattr(event(), f.name) for f in dataclasses.fields(Event) if f.name not in told]
    assert rest == [None] * len(rest)


@pytest.mark.parametrize("value", [Cursor(1), event()], ids=["cursor", "event"])
def test_events_and_cursors_cannot_be_changed(value: Cursor | Event) -> None:
    for field in dataclasses.fields(value):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(value, field.name, 5)


def test_the_kinds_are_bullmqs_and_our_two() -> None:
    assert {"retrying", "cancelled"} <= {str(kind) for kind in EventKind}
    assert EventKind("retries-exhausted") is EventKind.RETRIES_EXHAUSTED
    assert all(str(kind) == kind.value for kind in EventKind)
