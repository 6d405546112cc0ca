"""Queues as tables and streams of Spark: read, write, analyse, and work jobs on executors."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toril.spark.session import open_session

_HOMES = {
    "open_session": "session",
}

__all__ = ["open_session"]


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{home}"), name)
