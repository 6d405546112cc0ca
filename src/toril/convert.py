"""Carry annotated Python values through JSON: what a typed task takes and returns.

A converter is made once per annotation. It refuses what the annotation does not allow, on the way
out and on the way in, so a worker never meets a value the caller's type checker would refuse.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import enum
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from functools import partial
from typing import Any, Final, Literal, NewType, TypeVar, Union, get_args, get_origin
from uuid import UUID

from toril.errors import InvalidOption, InvalidPayload
from toril.text import printable, type_name

Form = Literal["null", "bool", "number", "text", "list", "object"]
_ALL: Final[frozenset[Form]] = frozenset(("null", "bool", "number", "text", "list", "object"))


@dataclass(frozen=True, slots=True)
class Converter:
    """How values of one annotation look in JSON; both ways raise `InvalidPayload`."""

    title: str
    forms: frozenset[Form]
    dump: Callable[[Any, str], Any]
    load: Callable[[Any, str], Any]


def converter_of(annotation: Any, subject: str) -> Converter:
    """Make the converter of an annotation; `subject` names it where it has no JSON form."""
    if isinstance(annotation, NewType):
        return converter_of(annotation.__supertype__, subject)
    if annotation is Any or annotation is object or isinstance(annotation, TypeVar):
        return Converter("any JSON value", _ALL, _as_is, _as_is)
    if annotation in _PLAIN:
        return _PLAIN[annotation]
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is typing.Annotated:
        return converter_of(inner[0], subject)
    if origin is Literal:
        return _choice(inner)
    if origin in (Union, types.UnionType):
        return _union([converter_of(one, subject) for one in inner], subject)
    kind = origin or annotation
    if hasattr(kind, "__value__"):  # type Name = …
        return converter_of(kind.__value__, subject)
    if kind in _LISTS:
        return _list(kind, inner, subject)
    if kind is tuple and inner and inner[-1] is not Ellipsis:
        return _tuple([converter_of(one, subject) for one in inner])
    if kind is tuple:
        return _list(tuple, inner[:1], subject)
    if kind in (dict, Mapping):
        return _dict(inner, subject)
    if isinstance(kind, type):
        made = _of_class(kind, subject)
        if made is not None:
            return made
    raise InvalidOption(
        f"{subject}: {_name_of(annotation)} has no JSON form; take text, numbers, lists, dicts,"
        " datetime, UUID, Decimal, Enum, a dataclass or a pydantic model instead"
    )


def mismatch(where: str, title: str, value: object) -> InvalidPayload:
    """Make the error for a value an annotation does not allow."""
    shown = "None" if value is None else type_name(type(value))
    return InvalidPayload(f"{where} must be {title}, not {shown}", path=where)


def _as_is(value: Any, where: str) -> Any:
    return value


def _exactly(title: str, kinds: tuple[type, ...]) -> Callable[[Any, str], Any]:
    def check(value: Any, where: str) -> Any:
        # A bool is an int to Python, but to nobody who annotates.
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            raise mismatch(where, title, value)
        return value

    return check


def _plain(title: str, form: Form, *kinds: type) -> Converter:
    check = _exactly(title, kinds)
    return Converter(title, frozenset((form,)), check, check)


def _float(value: Any, where: str) -> float:
    return float(_exactly("float", (float, int))(value, where))


def _text(kind: type, dump: Callable[[Any], str], load: Callable[[str], Any]) -> Converter:
    title = kind.__name__
    check, check_text = _exactly(title, (kind,)), _exactly(f"{title} as text", (str,))

    def give(value: Any, where: str) -> str:
        try:
            return dump(check(value, where))
        except ValueError:
            raise mismatch(where, title, value) from None

    def take(value: Any, where: str) -> Any:
        text: str = check_text(value, where)
        try:
            return load(text)
        except (ValueError, InvalidOperation, binascii.Error):
            shown = printable(text, 40)
            raise InvalidPayload(f"{where}: '{shown}' is not a {title}", path=where) from None

    return Converter(title, frozenset(("text",)), give, take)


def _day(value: date) -> str:
    if isinstance(value, datetime):  # a subclass, but its text is another
        raise ValueError
    return value.isoformat()


def _span(value: Any, where: str) -> float:
    found: timedelta = _exactly("timedelta", (timedelta,))(value, where)
    return found.total_seconds()


_PLAIN: Final[dict[Any, Converter]] = {
    int: _plain("int", "number", int),
    float: Converter("float", frozenset(("number",)), _float, _float),
    str: _plain("str", "text", str),
    bool: _plain("bool", "bool", bool),
    None: _plain("None", "null", type(None)),
    type(None): _plain("None", "null", type(None)),
    datetime: _text(datetime, datetime.isoformat, datetime.fromisoformat),
    date: _text(date, _day, date.fromisoformat),
    time: _text(time, time.isoformat, time.fromisoformat),
    timedelta: Converter(
        "timedelta",
        frozenset(("number",)),
        _span,
        lambda value, where: timedelta(seconds=_float(value, where)),
    ),
    UUID: _text(UUID, str, UUID),
    Decimal: _text(Decimal, str, Decimal),
    bytes: _text(
        bytes,
        lambda value: base64.b64encode(value).decode(),
        partial(base64.b64decode, validate=True),
    ),
}
_LISTS: Final[tuple[Any, ...]] = (list, set, frozenset, Sequence)


def _list(kind: Any, inner: Sequence[Any], subject: str) -> Converter:
    one = converter_of(inner[0] if inner else Any, subject)
    made = list if kind is Sequence else kind
    title = f"{made.__name__} of {one.title}"
    kinds = (list, tuple) if kind is Sequence else (made,)
    check, check_list = _exactly(title, kinds), _exactly(f"list of {one.title}", (list,))

    def dump(value: Any, where: str) -> Any:
        return [one.dump(v, f"{where}[{n}]") for n, v in enumerate(check(value, where))]

    def load(value: Any, where: str) -> Any:
        return made(one.load(v, f"{where}[{n}]") for n, v in enumerate(check_list(value, where)))

    return Converter(title, frozenset(("list",)), dump, load)


def _tuple(parts: Sequence[Converter]) -> Converter:
    title = f"tuple of {len(parts)}"

    def walk(values: Any, where: str, way: str, kind: type[Sequence[Any]]) -> list[Any]:
        if not isinstance(values, kind):
            raise mismatch(where, title, values)
        if len(values) != len(parts):
            raise InvalidPayload(f"{where} must be {title}, not of {len(values)}", path=where)
        return [
            getattr(part, way)(one, f"{where}[{n}]")
            for n, (part, one) in enumerate(zip(parts, values, strict=True))
        ]

    return Converter(
        title,
        frozenset(("list",)),
        lambda value, where: walk(value, where, "dump", tuple),
        lambda value, where: tuple(walk(value, where, "load", list)),
    )


def _dict(inner: Sequence[Any], subject: str) -> Converter:
    key = converter_of(inner[0] if inner else str, subject)
    one = converter_of(inner[1] if inner else Any, subject)
    if key.forms != frozenset(("text",)) and key.forms != _ALL:
        raise InvalidOption(f"{subject}: keys of a dict must be text in JSON, not {key.title}")
    title = f"dict of {one.title}"
    check = _exactly(title, (dict,))

    def dump(value: Any, where: str) -> Any:
        found = check(value, where).items()
        return {key.dump(k, f"{where} key"): one.dump(v, f"{where}[{k!r}]") for k, v in found}

    def load(value: Any, where: str) -> Any:
        found = check(value, where).items()
        return {key.load(k, f"{where} key"): one.load(v, f"{where}[{k!r}]") for k, v in found}

    return Converter(title, frozenset(("object",)), dump, load)


def _choice(values: Sequence[Any]) -> Converter:
    title = "one of " + ", ".join(repr(value) for value in values)

    def check(value: Any, where: str) -> Any:
        if not any(value == one and type(value) is type(one) for one in values):
            raise InvalidPayload(
                f"{where} must be {title}, not {printable(repr(value), 40)}", path=where
            )
        return value

    forms = frozenset(_form_of(value) for value in values)
    return Converter(title, forms, check, check)


def _form_of(value: Any) -> Form:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "text"
    return "object" if isinstance(value, dict) else "list"


def _union(members: Sequence[Converter], subject: str) -> Converter:
    seen: dict[Form, Converter] = {}
    for member in members:
        for form in member.forms:
            other = seen.setdefault(form, member)
            same = {other.title, member.title} <= {"int", "float"}
            if other is not member and not same:
                raise InvalidOption(
                    f"{subject}: {other.title} and {member.title} look alike in JSON ({form}), so"
                    " a worker could not tell them apart; take one of them"
                )
    title = " or ".join(member.title for member in members)

    def dump(value: Any, where: str) -> Any:
        for member in members:
            try:
                return member.dump(value, where)
            except InvalidPayload as error:
                if error.path != where:  # the right member, with a mistake inside
                    raise
        raise mismatch(where, title, value)

    def load(value: Any, where: str) -> Any:
        form = _form_of(value)
        fitting = [member for member in members if form in member.forms]
        if not fitting or (form == "number" and len(fitting) > 1):
            return dump(value, where)  # int or float: both are as they are
        return fitting[0].load(value, where)

    return Converter(title, frozenset(seen), dump, load)


def _of_class(kind: type, subject: str) -> Converter | None:
    if issubclass(kind, enum.Enum):
        return _enum(kind)
    if dataclasses.is_dataclass(kind):
        return _dataclass(kind, subject)
    if typing.is_typeddict(kind):
        return Converter(kind.__name__, frozenset(("object",)), *(_exactly("dict", (dict,)),) * 2)
    if callable(getattr(kind, "model_validate", None)):
        return _pydantic(kind)
    return None


def _enum(kind: type[enum.Enum]) -> Converter:
    check = _exactly(kind.__name__, (kind,))

    def load(value: Any, where: str) -> Any:
        try:
            return kind(value)
        except ValueError:
            shown = printable(repr(value), 40)
            raise InvalidPayload(f"{where}: {shown} is no {kind.__name__}", path=where) from None

    forms = frozenset(_form_of(member.value) for member in kind)
    return Converter(kind.__name__, forms, lambda value, where: check(value, where).value, load)


def _dataclass(kind: type, subject: str) -> Converter:
    hints = typing.get_type_hints(kind, include_extras=True)
    parts = {
        field.name: converter_of(hints[field.name], f"{subject}.{field.name}")
        for field in dataclasses.fields(kind)
        if field.init
    }
    title = kind.__name__
    check, check_dict = _exactly(title, (kind,)), _exactly(f"{title} as an object", (dict,))

    def dump(value: Any, where: str) -> Any:
        found = check(value, where)
        return {
            name: part.dump(getattr(found, name), f"{where}.{name}") for name, part in parts.items()
        }

    def load(value: Any, where: str) -> Any:
        found = check_dict(value, where)
        strange = sorted(found.keys() - parts.keys())
        if strange:
            raise InvalidPayload(
                f"{where}: {title} has no field '{printable(strange[0], 60)}'",
                path=f"{where}.{strange[0]}",
            )
        try:
            return kind(
                **{
                    name: part.load(found[name], f"{where}.{name}")
                    for name, part in parts.items()
                    if name in found
                }
            )
        except TypeError as error:
            raise InvalidPayload(f"{where}: {error}", path=where) from None

    return Converter(title, frozenset(("object",)), dump, load)


def _pydantic(kind: Any) -> Converter:
    check = _exactly(kind.__name__, (kind,))

    def load(value: Any, where: str) -> Any:
        try:
            return kind.model_validate(value)
        except ValueError as error:
            raise InvalidPayload(f"{where}: {printable(error, 200)}", path=where) from None

    return Converter(
        kind.__name__,
        frozenset(("object",)),
        lambda value, where: check(value, where).model_dump(mode="json"),
        load,
    )


def _name_of(annotation: Any) -> str:
    return annotation.__name__ if isinstance(annotation, type) else printable(annotation, 60)
