"""What is shown is one safe line; what is stored can be encoded; nothing here raises."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toril.text import REASON_LIMIT, TRACEBACK_LIMIT, describe_error, printable, suggest, type_name

any_text = st.text(st.characters(exclude_categories=[]))


class Broken:
    def __str__(self) -> str:
        raise ValueError("no text today")


class Nonsense:
    def __str__(self) -> str:
        return 17  # type: ignore[return-value]


class BrokenError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no")

    def __repr__(self) -> str:
        raise RuntimeError("neither")


@pytest.mark.parametrize("text", ["order-42", "größe", "注文", "👍", r"C:\new", ""])
def test_harmless_text_stays_as_it_is(text: str) -> None:
    assert printable(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\nb", r"a\x0ab"),
        ("\x1b[31mred", r"\x1b[31mred"),
        ("\x00\x7f\x85", r"\x00\x7f\x85"),
        ("a\u2028b\u2029", r"a\u2028b\u2029"),
        ("\u202egpj.exe", r"\u202egpj.exe"),
        ("\u2066\u2069\u200e\u200f\u061c", r"\u2066\u2069\u200e\u200f\u061c"),
        ("\ud800x", r"\ud800x"),
    ],
)
def test_what_could_deceive_is_escaped(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_a_long_text_is_cut_with_an_ellipsis() -> None:
    assert printable("x" * 200) == "x" * 200
    assert printable("x" * 201) == "x" * 199 + "…"
    assert printable("x" * 10, 0) == "…"


def test_no_escape_is_cut_in_two() -> None:
    assert printable("abc\n\n", 8) == r"abc\x0a…"


@given(any_text, st.integers(1, 50))
def test_a_printable_text_is_short_one_line_and_encodable(text: str, limit: int) -> None:
    shown = printable(text, limit)
    assert len(shown) <= limit
    assert len(shown.splitlines()) <= 1
    assert not any(unicodedata.category(character) in {"Cc", "Cs"} for character in shown)
    shown.encode()


def test_objects_whose_str_fails_are_named_instead() -> None:
    assert printable(Broken()) == "<Broken: str() raised ValueError>"
    assert printable(Nonsense()) == "<Nonsense: str() raised TypeError>"
    assert printable(10**5_000) == "<int: str() raised ValueError>"


def test_a_text_that_lies_about_itself_is_shown_as_it_is() -> None:
    class Liar(str):
        def __str__(self) -> str:
            return self

        def __len__(self) -> int:
            raise ValueError("no length")

        def __getitem__(self, _key: object) -> str:
            return "\n"

    assert printable(Liar("a\nb")) == r"a\x0ab"


def test_a_key_interrupt_is_not_swallowed() -> None:
    class Interrupted:
        def __str__(self) -> str:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        printable(Interrupted())


def test_a_built_in_error_is_described_by_its_bare_name() -> None:
    try:
        raise ValueError("port 70000\n\tis too large\x1b")
    except ValueError as error:
        name, reason, trace = describe_error(error)
    assert (name, reason) == ("ValueError", "port 70000\n\tis too large\\x1b")
    assert trace.startswith("Traceback (most recent call last):\n")
    assert "test_a_built_in_error_is_described_by_its_bare_name" in trace


def test_other_errors_are_described_by_their_full_name() -> None:
    name, reason, _ = describe_error(BrokenError())
    assert name.endswith("test_text.BrokenError")
    assert reason == "<BrokenError: str() raised RuntimeError>"


def test_an_error_without_message_has_an_empty_reason() -> None:
    assert describe_error(TimeoutError())[:2] == ("TimeoutError", "")


def test_a_lone_surrogate_in_a_reason_can_be_stored() -> None:
    _, reason, trace = describe_error(ValueError("bad \udcff\u202e"))
    assert reason == r"bad \udcff\u202e"
    trace.encode()


def test_exception_groups_and_base_exceptions_are_described() -> None:
    group = ExceptionGroup("two", [ValueError("first"), BrokenError()])
    name, reason, trace = describe_error(group)
    assert (name, reason) == ("ExceptionGroup", "two (2 sub-exceptions)")
    assert "first" in trace
    assert describe_error(SystemExit(3))[:2] == ("SystemExit", "3")
    assert describe_error(KeyboardInterrupt())[0] == "KeyboardInterrupt"


def test_a_group_nested_thousands_deep_is_described() -> None:
    error: Exception = ValueError("core")
    for _ in range(3_000):
        error = ExceptionGroup("shell", [error])
    name, _, trace = describe_error(error)
    assert name == "ExceptionGroup"
    assert len(trace.encode()) <= TRACEBACK_LIMIT


def test_a_long_chain_of_errors_is_described_within_the_limit() -> None:
    error = ValueError("start")
    for number in range(3_000):
        following = ValueError(f"number {number}")
        following.__cause__ = error
        error = following
    trace = describe_error(error)[2]
    assert len(trace.encode()) <= TRACEBACK_LIMIT
    assert trace.endswith("ValueError: number 2999\n")
    assert "bytes cut" in trace


def test_an_error_the_formatter_cannot_handle_is_described() -> None:
    class Hostile(SyntaxError):
        def __getattribute__(self, name: str) -> object:
            if name == "__traceback__":
                return object.__getattribute__(self, name)
            raise SystemExit(name)

        def __str__(self) -> str:
            raise SystemExit("str")

    name, reason, trace = describe_error(Hostile())
    assert name.endswith("Hostile")
    assert reason == "<Hostile: str() raised SystemExit>"
    assert trace


def test_reason_and_traceback_are_cut_to_their_limits_in_bytes() -> None:
    _, reason, trace = describe_error(ValueError("é" * 2_000_000))
    assert REASON_LIMIT - 4 <= len(reason.encode()) <= REASON_LIMIT
    assert reason.endswith("…")
    assert len(trace.encode()) <= TRACEBACK_LIMIT
    assert describe_error(ValueError("é" * 100), limit=10)[1] == "ééé…"


@given(any_text)
def test_any_description_can_be_encoded(text: str) -> None:
    for part in describe_error(ValueError(text)):
        part.encode()
        assert not {unicodedata.category(c) for c in part if c not in "\n\t"} & {"Cc", "Cs"}


def test_a_class_whose_name_misbehaves_still_has_a_name() -> None:
    class Meta(type):
        def __getattribute__(cls, name: str) -> object:
            raise ValueError(name)

    made = Meta("Odd\nName", (), {})
    assert type_name(made) == r"Odd\x0aName"
    assert type_name(int) == "int"


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("atempts", " Did you mean 'attempts'?"),
        ("ATTEMPTS", " Did you mean 'attempts'?"),
        ("delay", ""),
        ("zzz", ""),
        ("", ""),
    ],
)
def test_the_nearest_known_word_is_suggested(word: str, hint: str) -> None:
    assert suggest(word, ["attempts", "backoff", "delay"]) == hint


def test_a_huge_word_is_compared_quickly() -> None:
    assert suggest("x" * 10_000_000, ["attempts"]) == ""
