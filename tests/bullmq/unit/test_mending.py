"""What is put in order before an official script dies of it."""

from __future__ import annotations

import pytest

from toril.storage.bullmq.mending import repairs_of

SOUND = {b"opts": b'{"attempts":3}', b"atm": b"1", b"ats": b"2", b"stc": b"0", b"data": b"{"}


@pytest.mark.parametrize("fields", [SOUND, {}, {b"opts": b"{}"}, {b"atm": b"-1"}])
def test_a_sound_job_is_left_alone(fields: dict[bytes, bytes]) -> None:
    assert repairs_of(fields) == []


@pytest.mark.parametrize("raw", [b"{not json", b"null", b"[1]", b"5", b"", b"\xff"])
def test_options_that_are_no_object_become_none(raw: bytes) -> None:
    assert repairs_of({**SOUND, b"opts": raw}) == ["opts", "{}"]


@pytest.mark.parametrize("name", ["atm", "ats", "stc"])
@pytest.mark.parametrize(("raw", "value"), [(b"many", 0), (b"2.0", 2), (b"", 0), (b"-", 0)])
def test_a_counter_that_is_no_whole_number_becomes_what_is_read_from_it(
    name: str, raw: bytes, value: int
) -> None:
    assert repairs_of({**SOUND, name.encode(): raw}) == [name, value]
