"""MessagePack as a serde: the same promises as JSON, and bytes are allowed."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from typing import Final, Generic, cast

from toril.errors import MissingExtra, SerdeError
from toril.serde import (
    MAX_BYTES,
    MAX_DEPTH,
    T,
    check_length,
    encoder_fault,
    text_fault,
    type_fault,
    unique,
    walk,
)


class MsgpackSerde(Generic[T]):
    """MessagePack: smaller, and bytes are allowed. Needs the msgpack package."""

    format = "msgpack"

    def __init__(self, *, max_bytes: int = MAX_BYTES) -> None:
        try:
            msgpack = importlib.import_module("msgpack")
        except ImportError:
            raise MissingExtra(
                "MsgpackSerde needs the msgpack package; fix: python -m pip install msgpack"
            ) from None
        self.max_bytes = max_bytes
        self._pack = cast("Callable[..., bytes]", msgpack.packb)
        self._unpack = cast("Callable[..., object]", msgpack.unpackb)
        self._ext_type = cast("type", msgpack.ExtType)

    def dumps(self, value: T) -> bytes:
        """Encode, or raise InvalidPayload with the path to the culprit."""
        # ExtType is a tuple, and would pass for a list.
        walk(value, _msgpack_scalar, _msgpack_scalar, self.max_bytes, self._ext_type)
        try:
            return self._pack(value, use_bin_type=True)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise encoder_fault(error) from None

    def loads(self, payload: bytes) -> T:
        """Decode, or raise SerdeError; the message never quotes the payload."""
        check_length(payload, self.max_bytes)
        _scan_msgpack(payload)
        try:
            value = self._unpack(payload, raw=False, strict_map_key=False, object_pairs_hook=unique)
            return cast("T", value)
        except SerdeError:
            raise
        except UnicodeDecodeError:
            raise SerdeError("payload holds text that is not UTF-8") from None
        except Exception as error:
            # msgpack has no common base class, and a list as a key is a TypeError.
            raise SerdeError(f"payload is not MessagePack: {type(error).__name__}") from None


def _msgpack_scalar(value: object) -> str:
    if isinstance(value, str):
        return text_fault(value)
    if isinstance(value, int):
        fits = -(2**63) <= value < 2**64
        return "" if fits else "an integer beyond 64 bits; pass it as str"
    if value is None or isinstance(value, (float, bytes, bytearray)):
        return ""
    return type_fault(value, "MessagePack")


def _scan_msgpack(payload: bytes) -> None:
    """Refuse depth, extension types and false lengths before the parser reserves memory.

    The parser believes an array's length, so a few bytes of nested headers could ask for
    gigabytes. Every element takes a byte, which bounds the sum of all lengths.
    """
    suspects = payload.translate(None, _NO_HEADERS)
    if len(payload) <= 65_536 and len(suspects) <= MAX_DEPTH and not _EXT_HEADER.search(suspects):
        return
    position, declared, pending = 0, 1, [1]
    while pending:
        if not pending[-1]:
            pending.pop()
            continue
        pending[-1] -= 1
        if position >= len(payload):
            raise SerdeError("payload is not MessagePack: cut off")
        width, count, children = _HEADERS[payload[position]]
        position += 1 + width
        if width:
            count = int.from_bytes(payload[position - width : position], "big")
        if children < 0:
            raise SerdeError("payload holds a MessagePack extension type")
        if not children:
            position += count
            continue
        declared += count * children
        pending.append(count * children)
        if len(pending) > MAX_DEPTH + 1:
            raise SerdeError(f"payload is nested deeper than {MAX_DEPTH} levels")
        if declared > len(payload):
            raise SerdeError("payload is not MessagePack: cut off")


def _msgpack_headers() -> list[tuple[int, int, int]]:
    """List, by first byte: width of the length, length if fixed, children per unit of length."""
    table = [(0, 0, 0)] * 256
    for size in range(16):
        table[0x80 + size] = (0, size, 2)
        table[0x90 + size] = (0, size, 1)
    for size in range(32):
        table[0xA0 + size] = (0, size, 0)
    for width, binary, text in (1, 0xC4, 0xD9), (2, 0xC5, 0xDA), (4, 0xC6, 0xDB):
        table[binary] = table[text] = (width, 0, 0)
    for size, *numbers in (1, 0xCC, 0xD0), (2, 0xCD, 0xD1), (4, 0xCE, 0xD2, 0xCA):
        for number in numbers:
            table[number] = (0, size, 0)
    table[0xCF] = table[0xD3] = table[0xCB] = (0, 8, 0)
    table[0xDC], table[0xDD], table[0xDE], table[0xDF] = (2, 0, 1), (4, 0, 1), (2, 0, 2), (4, 0, 2)
    for extension in (0xC7, 0xC8, 0xC9, 0xD4, 0xD5, 0xD6, 0xD7, 0xD8):
        table[extension] = (0, 0, -1)
    return table


_HEADERS: Final = _msgpack_headers()
_NO_HEADERS: Final = bytes(byte for byte in range(256) if not _HEADERS[byte][2])
_EXT_HEADER: Final = re.compile(rb"[\xc7-\xc9\xd4-\xd8]")
