"""Specs that are made when they are looked at."""

from __future__ import annotations

from toril.drafts import Drafts
from toril.job import DEFAULT_TERMS, JobSpec


def drafts(count: int) -> Drafts:
    ids = [f"id-{number}" for number in range(count)]
    payloads = [str(number).encode() for number in range(count)]
    columns = (["job"] * count, payloads, [DEFAULT_TERMS] * count, ["here"] * count)
    return Drafts(ids, *columns, [True] * count)


def spec(number: int) -> JobSpec:
    payload = str(number).encode()
    return JobSpec(id=f"id-{number}", name="job", payload=payload, origin="here")


def test_drafts_are_the_specs_of_their_columns() -> None:
    assert list(drafts(3)) == [spec(0), spec(1), spec(2)]
    assert drafts(3)[-1] == spec(2)
    assert drafts(3)[-1].fresh
    assert len(drafts(3)) == 3
    assert spec(1) in drafts(3)


def test_a_slice_of_drafts_is_of_drafts() -> None:
    part = drafts(10)[2:5]
    assert isinstance(part, Drafts)
    assert list(part) == [spec(2), spec(3), spec(4)]
    assert list(part[1:]) == [spec(3), spec(4)]


def test_specs_are_made_once_when_all_are_looked_at() -> None:
    made = drafts(2)
    assert made[-1] == spec(1)
    assert next(iter(made)) is made[0]
    assert made[-1] is list(made)[1]


def test_drafts_know_whether_only_ids_and_payloads_differ() -> None:
    same = drafts(3)
    assert same.alike
    names = ["job", "other", "job"]
    rest = [DEFAULT_TERMS] * 3, ["here"] * 3, [True] * 3
    other = Drafts(same.ids, names, same.payloads, *rest)
    assert not other.alike
    assert other[:1].alike


def test_drafts_do_not_show_what_is_in_them() -> None:
    assert repr(drafts(2)) == "<Drafts of 2 jobs>"
