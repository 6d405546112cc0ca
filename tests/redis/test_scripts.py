"""How scripts are put together."""

from __future__ import annotations

from importlib.resources import files

import pytest

from toril.storage.redis import scripts
from toril.storage.redis.scripts import script

NAMES = sorted(
    entry.name.removesuffix(".lua")
    for entry in (files("toril.storage.redis") / "lua").iterdir()
    if entry.name.removesuffix(".lua") not in ("prelude", "seldom", "claiming", "once")
)


@pytest.mark.parametrize("name", NAMES)
def test_a_script_holds_no_comment_and_no_named_number(name: str) -> None:
    text = script(name).text
    assert "--" not in text.replace("'--", "").replace("'-'", "")
    assert "[STATE]" not in text
    assert "TIE" not in text


def test_a_script_holds_only_what_it_needs() -> None:
    text = script("ring").text
    assert "local function ring()" in text
    assert text.count("function") == 1
    assert "redis.call" in text
    assert "cmsgpack" not in text


def test_what_is_seldom_needed_is_made_when_it_is_called() -> None:
    text = script("claim").text
    assert "seldom().promote()" in text
    assert "\nlocal function promote()" in text[text.index("local function seldom()") :]
    assert "condemn(id, 'delayed')" in text
    assert "seldom().condemn(id, 'delayed')" not in text


def test_what_is_needed_by_what_is_needed_comes_first() -> None:
    text = script("claim").text
    order = ["local call", "local now", "local function decode", "local function seldom"]
    places = [text.index(part) for part in order]
    assert places == sorted(places)


def test_shared_code_that_declares_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="declare something"):
        scripts._paragraph("redis.call('PING')")
