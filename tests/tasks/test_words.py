"""Calls made of words from a shell."""

from __future__ import annotations

import pytest

from toril.errors import InvalidPayload
from toril.signature import Signature


def greet(name: str, times: int = 1, *, polite: bool = True) -> str:
    return f"{name} {times} {polite}"


SIGNATURE = Signature(greet, "greet")


@pytest.mark.parametrize(
    ("words", "positional", "named"),
    [
        (["Ada", "2"], ["Ada", 2], {}),
        (["Ada", "polite=false"], ["Ada"], {"polite": False}),
        (["a=b"], ["a=b"], {}),
        (["name=a=b", "times=3"], [], {"name": "a=b", "times": 3}),
    ],
)
def test_words_are_read_as_the_parameters_say(
    words: list[str], positional: list[object], named: dict[str, object]
) -> None:
    assert SIGNATURE.read(words) == (positional, named)


@pytest.mark.parametrize("words", [["Ada", "polit=true"], ["Ada", "1", "polit=true"]])
def test_a_name_that_is_no_parameter_is_told_as_such(words: list[str]) -> None:
    with pytest.raises(InvalidPayload, match=r"no parameter 'polit'\. Did you mean 'polite'\?"):
        SIGNATURE.read(words)


def test_more_words_than_parameters_are_refused() -> None:
    with pytest.raises(InvalidPayload, match="'four' is more"):
        SIGNATURE.read(["Ada", "1", "true", "four"])
