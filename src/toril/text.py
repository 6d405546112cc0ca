"""Make any text safe to show: log lines, error messages, stored reasons.

What jobs carry was written by somebody else. A newline forges a log record, an escape
sequence repaints a terminal, a bidi control makes a name read as another one, and a lone
surrogate breaks the first `encode`. Everything that is shown goes through here.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterable
from typing import Final

REASON_LIMIT: Final = 1024 * 1024
TRACEBACK_LIMIT: Final = 64 * 1024

_TYPE_NAME_LIMIT: Final = 255
_BIDI_AND_BREAKS: Final = "\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069"
_SURROGATES: Final = "\ud800-\udfff"
_UNSAFE: Final = re.compile(f"[\x00-\x1f\x7f-\x9f{_BIDI_AND_BREAKS}{_SURROGATES}]")
_UNSAFE_IN_TEXT: Final = re.compile(f"[\x00-\x08\x0b-\x1f\x7f-\x9f{_BIDI_AND_BREAKS}{_SURROGATES}]")


def printable(value: object, limit: int = 200) -> str:
    """Give one line of at most `limit` characters that is safe in logs and messages.

    Backslashes stay as they are, so the text is for reading and cannot be decoded again.
    Never raises, whatever `str(value)` does.
    """
    text = _text_of(value)
    limit = max(limit, 1)
    head = text[: limit + 1]
    safe = _UNSAFE.sub(_escape, head)
    return safe if len(safe) <= limit else _cut(head, limit)


def describe_error(error: BaseException, limit: int = REASON_LIMIT) -> tuple[str, str, str]:
    """Give an error's type name, reason and traceback as text that can be stored.

    `limit` caps the reason in UTF-8 bytes; the traceback is capped at 64 KiB. Newlines and
    tabs stay. An error without a message has an empty reason. Never raises.
    """
    reason = _UNSAFE_IN_TEXT.sub(_escape, _text_of(error)[: limit + 1])
    return type_name(type(error)), _cut_bytes(reason, limit), _traceback_of(error)


def type_name(kind: type) -> str:
    """Give `ValueError`, or `package.module.CustomError` for what is not built in. Never raises."""
    try:
        module, name = kind.__module__, kind.__qualname__
        text = name if module == "builtins" else f"{module}.{name}"
    except KeyboardInterrupt:
        raise
    except BaseException:
        text = _class_name(kind)
    return printable(text, _TYPE_NAME_LIMIT)


def suggest(word: str, known: Iterable[str]) -> str:
    """Give ` Did you mean 'x'?` for the nearest known word, or an empty text."""
    by_fold = {name.casefold(): name for name in known if name != word}
    # Matching is quadratic, and nobody mistypes a hundred characters by accident.
    import difflib  # for mistakes only

    nearest = difflib.get_close_matches(word[:100].casefold(), by_fold, n=1)
    return f" Did you mean '{printable(by_fold[nearest[0]], 60)}'?" if nearest else ""


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def _cut(text: str, limit: int) -> str:
    """Escape as many characters as fit, so that no escape sequence is cut in two."""
    kept: list[str] = []
    room = limit - 1
    for character in text:
        piece = _UNSAFE.sub(_escape, character)
        room -= len(piece)
        if room < 0:
            break
        kept.append(piece)
    return "".join(kept) + "…"


def _cut_bytes(text: str, limit: int) -> str:
    data = text.encode()
    if len(data) <= limit:
        return text
    return data[: max(limit - len("…".encode()), 0)].decode(errors="ignore") + "…"


def _text_of(value: object) -> str:
    try:
        # A subclass of str may lie about its length and slices; str.__str__ gives the plain text.
        return str.__str__(str(value))
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return f"<{_class_name(type(value))}: str() raised {_class_name(type(error))}>"


def _class_name(kind: type) -> str:
    """Give the bare name even when a metaclass hides or breaks `__name__`."""
    return str(type.__dict__["__name__"].__get__(kind))


def _traceback_of(error: BaseException) -> str:
    try:
        text = "".join(traceback.format_exception(error))
    except KeyboardInterrupt:
        raise
    except BaseException as trouble:
        # The formatter trusts attributes of the error (SyntaxError.text, __notes__, __dir__).
        frames = "".join(traceback.format_tb(error.__traceback__))
        text = f"{frames}<{type_name(type(error))}: format raised {type_name(type(trouble))}>\n"
    return _cut_middle(_UNSAFE_IN_TEXT.sub(_escape, text), TRACEBACK_LIMIT)


def _cut_middle(text: str, limit: int) -> str:
    """Keep the start and, three times as much, the end: the innermost frames come last."""
    data = text.encode()
    if len(data) <= limit:
        return text
    room = limit - 64
    head, tail = data[: room // 4], data[len(data) - room * 3 // 4 :]
    gone = f"\n… {len(data) - len(head) - len(tail):,} bytes cut …\n"
    return head.decode(errors="ignore") + gone + tail.decode(errors="ignore")
