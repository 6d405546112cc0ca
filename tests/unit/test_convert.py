"""Annotated values through JSON and back."""

from __future__ import annotations

import enum
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Annotated, Any, Literal, NewType, Optional, TypedDict
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toril.convert import converter_of
from toril.errors import InvalidOption, InvalidPayload


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True)
class Line:
    article: UUID
    count: int = 1


@dataclass(frozen=True)
class Order:
    at: datetime
    lines: list[Line]
    note: str | None = None
    tags: frozenset[str] = field(default_factory=frozenset)


class Loose(TypedDict):
    a: int


UserId = NewType("UserId", int)
NOW = datetime(2026, 1, 31, 12, 30, tzinfo=UTC)
ARTICLE = UUID(int=7)

CASES: list[tuple[Any, Any, Any]] = [
    (int, 5, 5),
    (float, 5, 5.0),
    (float, 1.5, 1.5),
    (bool, True, True),
    (None, None, None),
    (Any, {"x": [1]}, {"x": [1]}),
    (datetime, NOW, "2026-01-31T12:30:00+00:00"),
    (date, date(2026, 1, 31), "2026-01-31"),
    (time, time(12, 30), "12:30:00"),
    (timedelta, timedelta(minutes=1.5), 90.0),
    (UUID, ARTICLE, str(ARTICLE)),
    (Decimal, Decimal("1.10"), "1.10"),
    (bytes, b"\x00\xff", "AP8="),
    (Colour, Colour.BLUE, "blue"),
    (Literal["a", 1, None], 1, 1),
    (UserId, 5, 5),
    (Annotated[int, "positive"], 5, 5),
    (Optional[datetime], None, None),  # noqa: UP045 -- both spellings must work
    (datetime | None, NOW, "2026-01-31T12:30:00+00:00"),
    (int | float, 1.5, 1.5),
    (int | str | list[int], [1], [1]),
    (list[Decimal], [Decimal("1.1")], ["1.1"]),
    (Sequence[int], [1, 2], [1, 2]),
    (tuple[int, ...], (1, 2), [1, 2]),
    (tuple[int, str], (1, "a"), [1, "a"]),
    (dict[str, date], {"a": date(2026, 1, 1)}, {"a": "2026-01-01"}),
    (dict[UUID, int], {ARTICLE: 1}, {str(ARTICLE): 1}),
    (set[int], {3}, [3]),
    (list, [1, "a"], [1, "a"]),
    (Loose, {"a": 1}, {"a": 1}),
    (
        Order,
        Order(NOW, [Line(ARTICLE)], tags=frozenset({"x"})),
        {
            "at": "2026-01-31T12:30:00+00:00",
            "lines": [{"article": str(ARTICLE), "count": 1}],
            "note": None,
            "tags": ["x"],
        },
    ),
]


@pytest.mark.parametrize(("annotation", "value", "stored"), CASES)
def test_a_value_goes_to_json_and_comes_back(annotation: Any, value: Any, stored: Any) -> None:
    converter = converter_of(annotation, "x")
    dumped = converter.dump(value, "x")
    assert json.loads(json.dumps(dumped)) == stored
    assert converter.load(stored, "x") == value


@pytest.mark.parametrize(
    ("annotation", "value", "message"),
    [
        (int, "x", "x must be int, not str"),
        (int, True, "x must be int, not bool"),
        (int, 1.0, "x must be int, not float"),
        (str, None, "x must be str, not None"),
        (date, NOW, "x must be date, not datetime.datetime"),
        (list[int], [1, "a"], "x[1] must be int, not str"),
        (tuple[int, str], (1,), "x must be tuple of 2, not of 1"),
        (dict[str, int], {"a": "b"}, "x['a'] must be int, not str"),
        (int | None, "a", "x must be int or None, not str"),
        (list[int] | None, ["a"], "x[0] must be int, not str"),
        (Literal["a", "b"], "c", "x must be one of 'a', 'b', not 'c'"),
        (Order, Order("now", []), "x.at must be datetime, not str"),  # type: ignore[arg-type]
    ],
)
def test_a_value_the_annotation_does_not_allow_is_refused(
    annotation: Any, value: Any, message: str
) -> None:
    with pytest.raises(InvalidPayload) as caught:
        converter_of(annotation, "x").dump(value, "x")
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("annotation", "stored", "message"),
    [
        (datetime, 5, "x must be datetime as text, not int"),
        (datetime | None, "noon", "x: 'noon' is not a datetime"),
        (Decimal, "much", "x: 'much' is not a Decimal"),
        (bytes, "?", "x: '?' is not a bytes"),
        (Colour, "green", "x: 'green' is no Colour"),
        (Line, {"article": str(ARTICLE), "size": 1}, "x: Line has no field 'size'"),
        (list[date], "a", "x must be list of date, not str"),
    ],
)
def test_stored_values_that_do_not_fit_are_refused(
    annotation: Any, stored: Any, message: str
) -> None:
    with pytest.raises(InvalidPayload) as caught:
        converter_of(annotation, "x").load(stored, "x")
    assert str(caught.value) == message


def test_a_missing_field_of_a_dataclass_is_named() -> None:
    with pytest.raises(InvalidPayload, match="article"):
        converter_of(Line, "x").load({"count": 1}, "x")


@pytest.mark.parametrize(
    ("annotation", "message"),
    [
        (object.__class__, "task add(a): type has no JSON form"),
        (dict[int, str], "keys of a dict must be text in JSON, not int"),
        (datetime | str, "datetime and str look alike in JSON (text)"),
        (list[int] | tuple[int, int], "look alike in JSON (list)"),
    ],
)
def test_an_annotation_without_a_json_form_is_refused_at_once(
    annotation: Any, message: str
) -> None:
    with pytest.raises(InvalidOption) as caught:
        converter_of(annotation, "task add(a)")
    assert message in str(caught.value)


def test_a_model_that_validates_itself_is_used_as_it_is() -> None:
    class Model:
        def __init__(self, size: int) -> None:
            self.size = size

        @classmethod
        def model_validate(cls, value: dict[str, int]) -> Model:
            if value["size"] < 0:
                raise ValueError("size below 0")
            return cls(value["size"])

        def model_dump(self, mode: str) -> dict[str, int]:
            assert mode == "json"
            return {"size": self.size}

    converter = converter_of(Model, "x")
    assert converter.dump(Model(3), "x") == {"size": 3}
    assert converter.load({"size": 4}, "x").size == 4
    with pytest.raises(InvalidPayload, match="x: size below 0"):
        converter.load({"size": -1}, "x")


@given(
    st.lists(
        st.builds(
            Order,
            at=st.datetimes(timezones=st.just(UTC)),
            lines=st.lists(st.builds(Line, article=st.uuids(), count=st.integers())),
            note=st.none() | st.text(),
            tags=st.frozensets(st.text()),
        )
    )
)
def test_any_order_survives_the_way_there_and_back(orders: list[Order]) -> None:
    converter = converter_of(list[Order], "orders")
    stored = json.loads(json.dumps(converter.dump(orders, "orders")))
    assert converter.load(stored, "orders") == orders
