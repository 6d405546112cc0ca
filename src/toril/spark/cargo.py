"""Carry the user's code to executors: a function by value, or by the name of its module."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, cast

from toril.engine.execute import Handler
from toril.errors import InvalidOption
from toril.serde import Serde
from toril.text import printable, suggest
from toril.worker_options import WorkerOverrides

NamedHandler = Handler[Any, Any] | str
Handlers = NamedHandler | Mapping[str, NamedHandler]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cargo:
    """What a worker on an executor is made of; a handler may be the text `module:function`."""

    handler: Handlers
    options: WorkerOverrides
    serde: Serde[Any] | None = None
    result_serde: Serde[Any] | None = None

    def pack(self) -> bytes:
        """Turn it into bytes; raises `InvalidOption` for what cannot travel."""
        from pyspark import cloudpickle

        try:
            packed: bytes = cloudpickle.dumps(self)  # type: ignore[no-untyped-call]  # Spark's copy
        except Exception as error:
            raise InvalidOption(
                f"handler={printable(self.handler, 80)}: it, its options or what they refer to"
                f" cannot be sent to executors ({printable(error)}); make clients and connections"
                " inside the handler, or name it as 'module:function'"
            ) from None
        return packed

    @staticmethod
    def unpack(packed: bytes) -> Cargo:
        """Make it again, on an executor; raises `InvalidOption` where a module is missing there."""
        from pyspark import cloudpickle

        try:
            return cast("Cargo", cloudpickle.loads(packed))
        except Exception as error:
            raise InvalidOption(
                f"the handler cannot be loaded on an executor ({printable(error)}); install its"
                " module there, ship it with --py-files, or define the function in the script"
            ) from None

    def handlers(self) -> Handler[Any, Any] | Mapping[str, Handler[Any, Any]]:
        """The handler, or one per job name, with names looked up."""
        if isinstance(self.handler, Mapping):
            return {name: _find(one) for name, one in self.handler.items()}
        return _find(self.handler)


def _find(handler: NamedHandler) -> Handler[Any, Any]:
    if not isinstance(handler, str):
        return handler
    subject = f"handler='{printable(handler, 80)}'"
    module_name, colon, name = handler.partition(":")
    if not colon or not module_name or not name:
        raise InvalidOption(f"{subject}: write 'package.module:function'")
    try:
        found: object = import_module(module_name)
    except ImportError as error:
        raise InvalidOption(
            f"{subject}: {printable(error)}; the module must be importable on the driver and on"
            " all executors"
        ) from None
    for part in name.split("."):
        if not hasattr(found, part):
            raise InvalidOption(f"{subject}: no '{part}' there.{suggest(part, dir(found))}")
        found = getattr(found, part)
    if not callable(found):
        raise InvalidOption(f"{subject}: it is a {type(found).__name__}, not a function")
    return cast("Handler[Any, Any]", found)
