"""Bind calls to a typed function's parameters, and turn them into a job's data and back."""

from __future__ import annotations

import inspect
import json
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from toril.convert import Converter, converter_of
from toril.errors import InvalidOption, InvalidPayload, PermanentError
from toril.text import printable, suggest
from toril.whence import caller

_MANY: Final = inspect.Parameter.VAR_POSITIONAL
_MORE: Final = inspect.Parameter.VAR_KEYWORD


class Signature:
    """The parameters and the result of one task.

    A job's data is an object with one member per parameter, so that other programs can write and
    read it: `add(1, b=2)` becomes `{"a": 1, "b": 2}`.
    """

    def __init__(self, function: Callable[..., Any], name: str) -> None:
        self.name = name
        hints = _hints_of(function, name)
        self._signature = inspect.signature(function, eval_str=True)
        self._parts: dict[str, Converter] = {
            each.name: _converter(each, hints, name) for each in self._signature.parameters.values()
        }
        self._result = converter_of(hints.get("return", Any), f"result of task '{name}'")
        self._text = f"{name}{self._signature}"

    def __str__(self) -> str:
        return self._text

    def dump(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Check a call and make the job's data of it; wrong arguments raise `InvalidPayload`."""
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise self._wrong(str(error)) from None
        try:
            return {
                each: self._parts[each].dump(value, each) for each, value in bound.arguments.items()
            }
        except InvalidPayload as error:
            raise self._wrong(str(error), error.path) from None

    def load(self, data: Any, job_id: str) -> inspect.BoundArguments:
        """Make the call of a job's data; what does not fit fails the job for good."""
        if not isinstance(data, dict):
            raise self._misfit(
                job_id, f"data must be an object of parameters, not {type(data).__name__}"
            )
        for each in data:
            if each not in self._parts:
                hint = suggest(str(each), self._parts)
                raise self._misfit(job_id, f"there is no parameter '{printable(each, 60)}'.{hint}")
        bound = self._signature.bind_partial()
        try:
            for each, parameter in self._signature.parameters.items():
                if each in data:
                    bound.arguments[each] = self._parts[each].load(data[each], each)
                elif parameter.default is parameter.empty and parameter.kind not in (_MANY, _MORE):
                    raise self._misfit(job_id, f"parameter '{each}' is missing")
        except InvalidPayload as error:
            raise self._misfit(job_id, str(error)) from None
        return bound

    def read(self, words: Sequence[str]) -> tuple[list[Any], dict[str, Any]]:
        """Make a call of words from a shell: JSON where it fits, else text; or `name=value`."""
        names = list(self._signature.parameters)
        positional: list[Any] = []
        named: dict[str, Any] = {}
        for word in words:
            name, equals, value = word.partition("=")
            if equals and name in self._parts:
                named[name] = self._read(name, value)
            elif equals and name.isidentifier() and not self._may_be_text(len(positional)):
                hint = suggest(name, self._parts)
                raise self._wrong(f"there is no parameter '{printable(name, 60)}'.{hint}")
            elif len(positional) < len(names):
                positional.append(self._read(names[len(positional)], word))
            else:
                raise self._wrong(f"takes {len(names)} arguments, '{printable(word, 40)}' is more")
        return positional, named

    def _may_be_text(self, place: int) -> bool:
        """Whether a word in this place may hold a '=' that does not end a parameter's name."""
        fitting = [*self._signature.parameters.values()][place : place + 1]
        return any("text" in self._parts[each.name].forms for each in fitting)

    def _read(self, name: str, word: str) -> Any:
        part = self._parts[name]
        try:
            return part.load(json.loads(word), name)
        except (json.JSONDecodeError, InvalidPayload):
            pass
        try:
            return part.load(word, name)
        except InvalidPayload:
            shown = printable(word, 40)
            raise self._wrong(f"{name} must be {part.title}, not '{shown}'", name) from None

    def dump_result(self, value: Any) -> Any:
        """Make a result ready to store; one that breaks the annotation fails the job for good."""
        try:
            return self._result.dump(value, "result")
        except InvalidPayload as error:
            raise PermanentError(
                f"toril[E04] task '{self.name}': {error}; it is annotated as {self}"
            ) from None

    def load_result(self, value: Any) -> Any:
        """Give a stored result its type back."""
        return self._result.load(value, f"result of task '{self.name}'")

    def _wrong(self, fact: str, path: str = "") -> InvalidPayload:
        line = caller()
        where = f", called at {line}" if line else ""
        return InvalidPayload(
            f"toril[E08] {self.name}(): {fact} (signature: {self}){where}", path=path
        )

    def _misfit(self, job_id: str, fact: str) -> PermanentError:
        return PermanentError(
            f"toril[E08] data of job '{printable(job_id, 60)}' does not fit task {self}: {fact}."
            " fix: deploy producer and worker together, or keep the old parameters for a while"
        )


def _hints_of(function: Callable[..., Any], name: str) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function, include_extras=True)
    except NameError as error:
        raise InvalidOption(
            f"task '{name}': {error}; its annotations must be importable when the task is defined"
        ) from None


def _converter(parameter: inspect.Parameter, hints: Mapping[str, Any], name: str) -> Converter:
    annotation = hints.get(parameter.name, Any)
    if parameter.kind is _MANY:
        annotation = types.GenericAlias(tuple, (annotation, ...))
    elif parameter.kind is _MORE:
        annotation = types.GenericAlias(dict, (str, annotation))
    return converter_of(annotation, f"parameter '{parameter.name}' of task '{name}'")
