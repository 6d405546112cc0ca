"""Makers of frozen values."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, dataclass, field, fields, is_dataclass

import pytest

from toril.job import Dedup, JobSpec, Terms
from toril.outcome import Completed, Lease
from toril.quick import maker
from toril.storage.protocol import Claimed, Receipt

LEASE = Lease(job_id="a", token="t", attempt=1)
SPEC = JobSpec(id="a", payload=b"1", terms=Terms(priority=3))


@pytest.mark.parametrize(
    "value",
    [
        SPEC,
        LEASE,
        Completed(lease=LEASE, result=b"1"),
        Receipt(id="a", created=True, state=None),
        Claimed(spec=SPEC, lease=LEASE, created_ms=1, age_ms=2),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_maker_makes_what_the_class_makes(value: object) -> None:
    assert is_dataclass(value)
    assert not isinstance(value, type)
    given = {field.name: getattr(value, field.name) for field in fields(value)}
    made = maker(type(value))(**given)
    assert type(made) is type(value)
    assert made == value


def test_what_is_not_given_has_its_default() -> None:
    assert maker(JobSpec)(id="a") == JobSpec(id="a")


def test_what_a_maker_made_cannot_be_changed() -> None:
    made = maker(Lease)(job_id="a", token="t", attempt=1)
    with pytest.raises(FrozenInstanceError):
        made.token = "other"  # type: ignore[misc]


def test_a_field_without_a_default_must_be_given() -> None:
    with pytest.raises(TypeError, match="token"):
        maker(Lease)(job_id="a", attempt=1)  # type: ignore[call-arg]


def test_a_class_that_checks_its_fields_has_no_maker() -> None:
    with pytest.raises(TypeError, match="checks its fields"):
        maker(Dedup)


def test_a_class_that_makes_its_defaults_has_no_maker() -> None:
    @dataclass(frozen=True, slots=True, kw_only=True)
    class Shelf:
        books: list[str] = field(default_factory=list)

    with pytest.raises(TypeError, match="makes a default anew"):
        maker(Shelf)
