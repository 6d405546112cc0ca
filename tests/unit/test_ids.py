"""Ids are unique and well formed; names that would hurt somebody are refused."""

from __future__ import annotations

import enum
import re
import socket
import unicodedata
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toril.errors import InvalidInput, InvalidName, InvalidPayload
from toril.ids import (
    RESERVED_IDS,
    check_ids,
    check_name,
    content_id,
    token,
    ulid,
    ulids,
    worker_id,
)

KINDS = ("queue", "job", "dedup", "worker", "handler")
CROCKFORD = "0123456789abcdefghjkmnpqrstvwxyz"

keys = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
json_data = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | keys,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=10,
)


def test_a_ulid_has_26_lower_case_crockford_characters() -> None:
    assert re.fullmatch(f"[{CROCKFORD}]{{26}}", ulid())


@given(st.integers(0, 2**48 - 1))
def test_a_ulid_starts_with_its_time(now_ms: int) -> None:
    value = 0
    for character in ulid(now_ms)[:10]:
        value = value * 32 + CROCKFORD.index(character)
    assert value == now_ms


def test_the_known_time_prefix_of_the_specification_is_reproduced() -> None:
    assert ulid(1469918176385).startswith("01aryz6s41")


def test_many_ulids_of_one_millisecond_differ() -> None:
    assert len({ulid(1) for _ in range(10_000)}) == 10_000


@pytest.mark.parametrize("count", [0, 1, 1023, 1024, 1025, 3000])
def test_ulids_made_together_differ_and_come_in_order(count: int) -> None:
    made = ulids(count)
    assert len(set(made)) == len(made) == count
    assert made == sorted(made)
    assert all(re.fullmatch(f"[{CROCKFORD}]{{26}}", one) for one in made)


def test_the_random_part_uses_all_its_characters() -> None:
    made = [ulid(0)[10:] for _ in range(2_000)]
    assert all({text[place] for text in made} == set(CROCKFORD) for place in range(16))


@pytest.mark.parametrize("now_ms", [-1, 2**48])
def test_a_time_a_ulid_cannot_hold_is_refused(now_ms: int) -> None:
    with pytest.raises(InvalidInput, match=str(now_ms)):
        ulid(now_ms)


def test_tokens_are_fresh_version_4_uuids() -> None:
    first, second = token(), token()
    assert re.fullmatch(
        r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", first
    )
    assert first != second


@pytest.mark.parametrize("host", ["box.local", "", "häst:{x}\n", "x" * 500])
def test_a_worker_id_is_a_valid_name_on_any_host(
    host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: host)
    made = worker_id()
    assert check_name("worker", made) == made
    assert check_name("job", made) == made
    assert re.fullmatch(r"[0-9A-Za-z._-]+-\d+-[0-9a-f]{6}", made)


@given(json_data)
def test_a_content_id_does_not_depend_on_key_order(data: object) -> None:
    def turned(value: object) -> object:
        if isinstance(value, dict):
            return {key: turned(value[key]) for key in reversed(value)}
        return [turned(item) for item in value] if isinstance(value, list) else value

    assert content_id(data) == content_id(turned(data))


def test_content_ids_of_different_data_differ() -> None:
    data = [None, False, 0, 1, 1.0, "1", [], {}, [1], {"a": 1}, {"a": [1]}, {"b": 1}]
    assert len({content_id(item) for item in data}) == len(data)


def test_a_content_id_is_stable_and_a_valid_job_id() -> None:
    made = content_id({"b": 1, "a": "ä"})
    # printf '%s' '{"a":"ä","b":1}' | sha256sum
    assert made == "c507aab815f2bdfce1c740c0b1ae7b1c8"
    assert check_name("job", made) == made


@pytest.mark.parametrize(
    "data", [{1, 2}, {1: "x"}, float("nan"), b"x", "\ud800", 2**60, {"a": object()}]
)
def test_a_content_id_of_data_that_is_not_json_is_refused(data: object) -> None:
    with pytest.raises(InvalidPayload, match="cannot encode"):
        content_id(data)


def test_a_content_id_of_a_cycle_is_refused() -> None:
    cycle: list[object] = []
    cycle.append(cycle)
    with pytest.raises(InvalidPayload, match="deeper than 64"):
        content_id(cycle)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "name", ["emails", "a", "007", "-0", "bestellung-ä", "注文", "a b", "~" * 255, "é" * 127, "👍"]
)
def test_an_ordinary_name_passes_unchanged(kind: str, name: str) -> None:
    assert check_name(kind, name) == name


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("name", "fact"),
    [
        ("", "empty"),
        ("x" * 256, "takes 256 bytes as UTF-8; the limit is 255"),
        ("é" * 128, "takes 256 bytes"),
        ("x" * 1_000_000, "1,000,000 bytes"),
        ("é" * 1_000, "at least 1,000 bytes"),
        ("a\nb", r"control character U\+000A at index 1"),
        ("a\x1b[31m", r"control character U\+001B"),
        ("a\x7f", r"U\+007F"),
        ("a\x85", r"U\+0085"),
        ("a\u202eb", r"bidi control U\+202E"),
        ("\u2066a", r"bidi control U\+2066"),
        ("a\u200f", r"bidi control U\+200F"),
        ("a\u061c", r"bidi control U\+061C"),
        ("a\u2028", r"line separator U\+2028"),
        ("a\u2029", r"line separator U\+2029"),
        ("e\u0301", "NFC"),
    ],
)
def test_a_name_that_would_hurt_somebody_is_refused(kind: str, name: str, fact: str) -> None:
    with pytest.raises(InvalidName, match=fact):
        check_name(kind, name)


@pytest.mark.parametrize("kind", KINDS)
def test_a_lone_surrogate_in_a_name_is_refused(kind: str) -> None:
    with pytest.raises(InvalidName, match=r"lone surrogate U\+D800 at index 1") as caught:
        check_name(kind, "a\ud800")
    str(caught.value).encode()


@pytest.mark.parametrize("name", ["a:b", "a{b", "a}b", "{a}", "ä:b"])
def test_a_queue_name_holds_no_key_separators(name: str) -> None:
    with pytest.raises(InvalidName, match=r"queue name .* separates keys"):
        check_name("queue", name)


@pytest.mark.parametrize("kind", ["job", "dedup"])
def test_job_and_dedup_ids_hold_no_colon_but_may_hold_braces(kind: str) -> None:
    assert check_name(kind, "{a}") == "{a}"
    with pytest.raises(InvalidName, match="':' at index 1"):
        check_name(kind, "a:b")


@pytest.mark.parametrize("kind", ["worker", "handler"])
def test_worker_and_job_names_may_hold_a_colon(kind: str) -> None:
    assert check_name(kind, "mail:send") == "mail:send"


@pytest.mark.parametrize("name", sorted(RESERVED_IDS))
def test_a_reserved_job_id_is_refused(name: str) -> None:
    with pytest.raises(InvalidName):
        check_name("job", name)


def test_the_refusal_of_a_reserved_id_tells_the_way_out() -> None:
    with pytest.raises(InvalidName) as caught:
        check_name("job", "wait")
    assert str(caught.value) == (
        "job id 'wait' is reserved by the storage layout; choose another, e.g. 'job-wait'"
    )


def test_reserved_words_are_compared_with_case() -> None:
    assert check_name("job", "Wait") == "Wait"


@pytest.mark.parametrize("kind", ["queue", "dedup", "worker", "handler"])
@pytest.mark.parametrize("name", ["wait", "17", "-3"])
def test_reserved_words_and_integers_bind_job_ids_only(kind: str, name: str) -> None:
    assert check_name(kind, name) == name


@pytest.mark.parametrize("name", ["0", "17", "-3", "9" * 200])
def test_a_canonical_integer_is_no_job_id(name: str) -> None:
    with pytest.raises(InvalidName, match=r"is an integer.*prefix, e\.g\. 'job-"):
        check_name("job", name)


@pytest.mark.parametrize("name", ["007", "-0", "+1", "1.5", "1e3", " 1", "1 ", "٣"])
def test_a_text_that_only_resembles_an_integer_is_a_job_id(name: str) -> None:
    assert check_name("job", name) == name


@pytest.mark.parametrize("kind", ["queue", "job", "dedup", "worker"])
@pytest.mark.parametrize("name", [".", ".."])
def test_a_path_step_is_no_name(kind: str, name: str) -> None:
    with pytest.raises(InvalidName, match="path step"):
        check_name(kind, name)
    assert check_name(kind, "...") == "..."


@pytest.mark.parametrize("value", [None, 1.5, b"x", True, ["a"], object()])
def test_a_name_that_is_no_text_is_refused(value: object) -> None:
    with pytest.raises(InvalidName, match="use str"):
        check_name("queue", value)


def test_an_int_as_job_id_gets_a_hint_that_works() -> None:
    with pytest.raises(InvalidName, match=r"job id 17 is of type int; use str .*'job-17'"):
        check_name("job", 17)


def test_an_enum_member_passes_as_the_plain_text_it_holds() -> None:
    class Name(str, enum.Enum):  # noqa: UP042  (the older kind prints as Name.A)
        A = "emails"

    checked = check_name("queue", Name.A)
    assert checked == "emails"
    assert type(checked) is str


def test_an_unknown_kind_of_name_is_refused() -> None:
    with pytest.raises(InvalidInput, match="unknown kind"):
        check_name("scheduler", "x")


@given(st.sampled_from(KINDS), st.text(st.characters(exclude_categories=[]), max_size=300))
def test_what_passes_is_short_normal_visible_text(kind: str, name: str) -> None:
    refused = ""
    try:
        assert check_name(kind, name) == name
    except InvalidName as error:
        refused = str(error)
    if refused:
        assert len(refused.splitlines()) == 1
        assert len(refused.encode()) < 1_000
        return
    assert 1 <= len(name.encode()) <= 255
    assert unicodedata.is_normalized("NFC", name)
    assert not any(unicodedata.category(character) in {"Cc", "Cs"} for character in name)


_AWKWARD = st.sampled_from(
    [*sorted(RESERVED_IDS)[:3], "", ".", "..", "0", "-7", "12", "a\nb", "\n", "a:b", "é", "x" * 256]
)


@given(st.lists(st.one_of(_AWKWARD, st.text("ab-.019 \n:é", max_size=4)), max_size=6))
def test_ids_that_are_checked_together_are_judged_as_one_by_one(ids: list[str]) -> None:
    def fault(check: Callable[[], object]) -> str:
        try:
            check()
        except InvalidName as error:
            return str(error)
        return ""

    def one_by_one() -> None:
        for job_id in ids:
            check_name("job", job_id)

    assert fault(lambda: check_ids(ids)) == fault(one_by_one)


@given(st.lists(st.text("ab-.019", min_size=1, max_size=4).map("job-".__add__), max_size=5))
def test_plain_ids_are_taken_together(ids: list[str]) -> None:
    check_ids(ids)


def test_an_id_that_is_no_text_is_refused_among_others() -> None:
    with pytest.raises(InvalidName, match="is of type int"):
        check_ids(["job-1", 7])  # type: ignore[list-item]
