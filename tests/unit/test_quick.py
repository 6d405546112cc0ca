"""Frozen values made quickly."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import FrozenInstanceError, fields
from datetime import UTC, datetime
from typing import Any

import pytest

from toril.job import DEFAULT_TERMS, Dedup, Job, JobSpec, State, Terms
from toril.outcome import Completed, Failure, Lease
from toril.quick import blank_of, new_completed, new_job, new_lease, new_spec
from toril.storage.protocol import Claimed, Receipt
from toril.storage.quick import new_claimed, new_receipt

LEASE = Lease(job_id="a", token="t", attempt=1, note="n")
SPEC = JobSpec(
    id="a",
    name="n",
    payload=b"1",
    terms=Terms(priority=3),
    origin="o",
    reply=True,
    requeue_failed=True,
)
CLAIMED = Claimed(
    spec=SPEC,
    lease=LEASE,
    created_ms=1,
    age_ms=2,
    started=3,
    attempts_made=4,
    stalls=5,
    doom=Failure(kind="E", reason="r"),
)


@pytest.mark.parametrize(
    ("make", "value"),
    [
        (new_spec, SPEC),
        (new_lease, LEASE),
        (new_completed, Completed(lease=LEASE, result=b"1")),
        (new_claimed, CLAIMED),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_is_made_quickly_is_what_the_class_makes(make: Callable[..., Any], value: Any) -> None:
    made = make(**{field.name: getattr(value, field.name) for field in fields(value)})
    assert type(made) is type(value)
    assert made == value
    assert hash(made) == hash(value)


def test_what_is_not_given_has_its_default() -> None:
    given: dict[str, Any] = {"id": "a", "name": "n", "payload": b"1", "origin": "o"}
    assert new_spec(**given, terms=DEFAULT_TERMS) == JobSpec(**given)
    state = State.WAITING
    assert new_receipt(id="a", created=True, state=state) == Receipt(
        id="a", created=True, state=state
    )
    now = datetime.fromtimestamp(1, UTC)
    told: dict[str, Any] = {"id": "a", "name": "n", "queue": "q", "data": 1, "state": state}
    told |= {"terms": DEFAULT_TERMS, "created_at": now, "due_at": now}
    assert new_job(**told) == Job(**told)
    assert type(new_job(**told)) is Job


def test_what_was_made_quickly_cannot_be_changed() -> None:
    made = new_lease(job_id="a", token="t", attempt=1, note="")
    with pytest.raises(FrozenInstanceError):
        made.token = "other"  # type: ignore[misc]


def test_a_class_that_checks_its_fields_has_no_blank() -> None:
    with pytest.raises(TypeError, match="checks its fields"):
        blank_of(Dedup)
