"""Turn values into bytes and back, trusting neither side.

Only plain data crosses: no class is ever looked up or built from stored bytes. What `dumps`
accepts, every peer (Python, Node, Lua) reads back without losing a digit; what it refuses is
named by its path. Bytes are measured and scanned before a parser sees them.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, Generic, NoReturn, Protocol, cast

from toril.errors import InvalidPayload, SerdeError
from toril.text import printable, type_name

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    T = TypeVar("T", default=Any)
else:
    from typing import TypeVar

    T = TypeVar("T")
K = TypeVar("K")

try:  # the extra `fast`
    import orjson
except ImportError:
    orjson = None  # type: ignore[assignment]  # a module, or none

MAX_BYTES: Final = 10 * 1024 * 1024
MAX_DEPTH: Final = 64
MAX_SAFE_INTEGER: Final = 2**53 - 1


class Serde(Protocol[T]):
    """How a queue's values become bytes."""

    @property
    def format(self) -> str:
        """Name the encoding, so that a reader can tell which serde it needs."""
        ...

    def dumps(self, value: T) -> bytes:
        """Encode a value, or raise InvalidPayload."""
        ...

    def loads(self, payload: bytes) -> T:
        """Decode a payload, or raise SerdeError."""
        ...


def check_size(what: str, size: int, limit: int) -> None:
    """Refuse what is larger than the limit, with the numbers."""
    if size > limit:
        raise InvalidPayload(
            f"{what} take {size:,} bytes; the limit is {limit:,} (size_limit=):"
            " store it elsewhere and pass a reference"
        )


class JsonSerde(Generic[T]):
    """JSON that JavaScript and Lua read without loss: the default.

    The type is the caller's word; nothing is converted.
    """

    format = "json"

    def __init__(self, *, max_bytes: int = MAX_BYTES) -> None:
        self.max_bytes = max_bytes

    def dumps(self, value: T) -> bytes:
        """Encode compactly as UTF-8, or raise InvalidPayload with the path to the culprit."""
        return encode_json(value, max_values=self.max_bytes)

    def loads(self, payload: bytes) -> T:
        """Decode, or raise SerdeError; the message never quotes the payload."""
        if not 0 < len(payload) <= self.max_bytes:
            check_length(payload, self.max_bytes)
        if payload.count(b"[") + payload.count(b"{") > MAX_DEPTH:
            _check_json_depth(payload)
        if orjson is not None:
            try:
                quick: T = orjson.loads(payload)
                # What comes back byte by byte held no key twice and lost no digit.
                if orjson.dumps(quick) == payload:
                    return quick
            except ValueError:
                pass  # also what it cannot encode; the careful way finds the words
        try:
            value: object = _DECODER.decode(payload.decode())
            if _SURROGATE_ESCAPE.search(payload):
                # Pairs are fine; only encoding tells a lone one from a pair.
                _ENCODERS[0].encode(value).encode()
        except SerdeError:
            raise
        except UnicodeDecodeError as error:
            raise SerdeError(f"payload is not UTF-8 at byte {error.start}") from None
        except UnicodeEncodeError:
            raise SerdeError("payload holds a lone surrogate escape") from None
        except json.JSONDecodeError as error:
            reason = error.msg.removesuffix(": ").removesuffix(" at")
            raise SerdeError(f"payload is not JSON: {reason} at character {error.pos}") from None
        except ValueError:
            raise SerdeError("payload holds an integer with too many digits") from None
        except RecursionError:
            raise SerdeError("no stack left to decode the payload; call from less deep") from None
        return cast("T", value)


def dumps_all(serde: Serde[T], values: Sequence[T]) -> list[bytes]:
    """Encode values as the serde does one by one, or raise InvalidPayload for the first it refuses.

    Whether they are plain is asked once for all of them, which takes half the time.
    """
    # Not of a class of its own, which may write something else.
    known = isinstance(serde, JsonSerde) and serde.__class__ is JsonSerde
    if orjson is not None and known and _are_plain(values, cast("JsonSerde", serde).max_bytes):
        try:
            return [orjson.dumps(value, None, orjson.OPT_STRICT_INTEGER) for value in values]
        except TypeError:
            pass  # the careful way finds the words
    return [serde.dumps(value) for value in values]


def encode_json(value: object, *, sort_keys: bool = False, max_values: int = MAX_BYTES) -> bytes:
    """Encode as compact UTF-8 JSON, or raise InvalidPayload with the path to the culprit.

    `max_values` bounds the work on data that contains itself many times over.
    """
    if not _is_plain(value, max_values):
        walk(value, _json_scalar, _json_key, max_values)
    elif orjson is not None and not sort_keys:
        try:
            return orjson.dumps(value)
        except TypeError:
            pass  # a lone surrogate, most likely; the careful way finds the words
    try:
        return _ENCODERS[sort_keys].encode(value).encode()
    except (TypeError, ValueError, RecursionError) as error:
        # Cheaper to learn of a surrogate from the encoder than to look for it.
        walk(value, _json_scalar, _json_key, max_values)
        raise encoder_fault(error) from None


def _is_plain(value: object, budget: int) -> bool:
    """Tell quickly that a value needs no closer look, except for lone surrogates."""
    if type(value) in _PLAIN_TYPES:
        return budget > 0
    if type(value) is int:
        return budget > 0 and -MAX_SAFE_INTEGER <= value <= MAX_SAFE_INTEGER
    if type(value) is float:
        return budget > 0 and math.isfinite(value)
    if type(value) is not dict and type(value) is not list and type(value) is not tuple:
        return False
    budget -= 1
    stack: list[tuple[dict[object, object] | list[object] | tuple[object, ...], int]]
    stack = [(value, 1)]
    while stack:
        container, depth = stack.pop()
        budget -= len(container)
        if depth > MAX_DEPTH or budget < 0:
            return False
        if type(container) is dict:
            for key in container:
                if type(key) is not str:
                    return False
            children = iter(container.values())
        else:
            children = iter(container)
        for child in children:
            if type(child) in _PLAIN_TYPES:
                continue
            if type(child) is int:
                if not -MAX_SAFE_INTEGER <= child <= MAX_SAFE_INTEGER:
                    return False
            elif type(child) is float:
                if not math.isfinite(child):
                    return False
            elif type(child) is dict or type(child) is list or type(child) is tuple:
                stack.append((child, depth + 1))
            else:
                return False
    return True


def _are_plain(values: Sequence[object], budget: int) -> bool:
    """Tell quickly that values are plain but for what orjson refuses itself.

    That are integers beyond the safe ones, keys that are not str, and lone surrogates.
    """
    budget -= len(values)
    for _ in range(MAX_DEPTH + 1):
        rest: list[Any] = [value for value in values if type(value) not in _SURE_TYPES]
        kinds = set(map(type, rest))
        if float in kinds:
            # A sum that overflows means a closer look, nothing worse.
            if not math.isfinite(sum([value for value in rest if type(value) is float])):
                return False
            kinds.remove(float)
        if not kinds:
            return True
        if not kinds <= _CONTAINER_TYPES:
            return False
        inside = [
            value.values() if type(value) is dict else value
            for value in rest
            if type(value) is not float
        ]
        budget -= sum(map(len, inside))
        if budget < 0:
            return False
        values = list(chain.from_iterable(inside))
    return False


def walk(
    value: object,
    scalar_fault: Callable[[object], str],
    key_fault: Callable[[object], str],
    budget: int,
    never: type | tuple[type, ...] = (),
) -> None:
    """Look at everything in document order; raise InvalidPayload at the first fault.

    A stack of iterators instead of recursion: cycles end at the depth limit.
    """
    steps: list[object] = [None]
    stack: list[Iterator[tuple[object, object]]] = [iter(((None, value),))]
    while stack:
        entry = next(stack[-1], None)
        if entry is None:
            stack.pop()
            steps.pop()
            continue
        steps[-1], item = entry
        budget -= 1
        if budget < 0:
            _refuse([None], "too many values; store it elsewhere and pass a reference")
        children: Iterator[tuple[object, object]]
        if isinstance(item, dict) and not isinstance(item, never):
            for key in item:
                if fault := key_fault(key):
                    _refuse(steps, f"key {printable(key, 60)}: {fault}")
            children = iter(item.items())
        elif isinstance(item, (list, tuple)) and not isinstance(item, never):
            children = iter(enumerate(item))
        elif fault := scalar_fault(item):
            _refuse(steps, fault)
        else:
            continue
        if len(stack) > MAX_DEPTH:
            _refuse(steps, f"nested deeper than {MAX_DEPTH} levels; flatten it or break the cycle")
        stack.append(children)
        steps.append(None)


def _refuse(steps: list[object], fault: str) -> NoReturn:
    path = "$" + "".join(map(_step, steps[1:]))
    raise InvalidPayload(f"cannot encode {printable(path)}: {fault}", path=path)


def encoder_fault(error: Exception) -> InvalidPayload:
    """Cover what a walk cannot see: data changed by another thread, or a full stack."""
    return InvalidPayload(f"cannot encode $: the encoder raised {type(error).__name__}", path="$")


def _step(step: object) -> str:
    if isinstance(step, int):
        return f"[{int(step)}]"
    text = printable(step, 60)
    return f".{text}" if text.isidentifier() else f"['{text}']"


def _json_scalar(value: object) -> str:
    if isinstance(value, str):
        return text_fault(value)
    if isinstance(value, int):
        if -MAX_SAFE_INTEGER <= value <= MAX_SAFE_INTEGER:
            return ""
        bits = int(value).bit_length()
        return f"an integer of {bits} bits loses digits above 2^53 - 1; pass it as str"
    if isinstance(value, float):
        return "" if math.isfinite(value) else f"{float(value)} is not JSON; pass None or a str"
    return "" if value is None else type_fault(value, "JSON")


def _json_key(key: object) -> str:
    if isinstance(key, str):
        return text_fault(key)
    return f"{type_name(type(key))} cannot be a key in JSON; use str"


def text_fault(text: str) -> str:
    try:
        str.encode(text)
    except UnicodeEncodeError as error:
        return f"lone surrogate at index {error.start} is not Unicode text; remove it"
    return ""


def type_fault(value: object, language: str) -> str:
    name = type_name(type(value))
    if hasattr(type(value), "__dataclass_fields__"):
        way_out = "pass dataclasses.asdict() of it"
    elif hasattr(type(value), "__members__"):
        way_out = "pass .value"
    else:
        way_out = _WAYS_OUT.get(name, "pass a dict, list, str, number, bool or None")
    return f"{name} is not {language}; {way_out}, or set serde="


def check_length(payload: bytes, limit: int) -> None:
    if not payload:
        raise SerdeError("payload is empty")
    if len(payload) > limit:
        raise SerdeError(f"payload takes {len(payload):,} bytes; the limit is {limit:,}")


def _check_json_depth(payload: bytes) -> None:
    """Refuse deep nesting before the recursive parser sees it."""
    depth = 0
    for bracket in _STRING.sub(b"", payload).translate(None, _NO_BRACKETS):
        depth += 1 if bracket in b"[{" else -1
        if depth > MAX_DEPTH:
            raise SerdeError(f"payload is nested deeper than {MAX_DEPTH} levels")


def unique(pairs: list[tuple[K, object]]) -> dict[K, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise SerdeError("payload holds the same key twice in one object")
    return found


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise SerdeError("payload holds a number beyond the range of a double")
    return number


def _no_constant(_name: str) -> NoReturn:
    raise SerdeError("payload holds NaN or Infinity")


_PLAIN_TYPES: Final = frozenset({str, bool, type(None)})
_SURE_TYPES: Final = _PLAIN_TYPES | {int}
_CONTAINER_TYPES: Final = frozenset({dict, list, tuple})
_WAYS_OUT: Final = {
    "bytes": "pass .hex() or base64 text",
    "datetime.timedelta": "pass .total_seconds()",
    **dict.fromkeys(("set", "frozenset"), "pass a list"),
    **dict.fromkeys(("decimal.Decimal", "uuid.UUID"), "pass str() of it"),
    **dict.fromkeys(("datetime.datetime", "datetime.date", "datetime.time"), "pass .isoformat()"),
}
_ENCODERS: Final = tuple(
    # The depth limit ends cycles already.
    json.JSONEncoder(
        ensure_ascii=False,
        allow_nan=False,
        check_circular=False,
        sort_keys=sort,
        separators=(",", ":"),
    )
    for sort in (False, True)
)
_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=unique, parse_float=_finite, parse_constant=_no_constant
)
_SURROGATE_ESCAPE: Final = re.compile(rb"\\u[dD][89a-fA-F]")
# Possessive, and the closing quote optional: linear even on hostile input.
_STRING: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
_NO_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))
