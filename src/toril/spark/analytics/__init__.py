"""What a queue did, as tables: bronze (events), silver (jobs and attempts), gold (figures)."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toril.spark.analytics.gold import Gold, gold, write_gold

_HOMES = {
    "Gold": "gold",
    "gold": "gold",
    "write_gold": "gold",
}

__all__ = ["Gold", "gold", "write_gold"]


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{home}"), name)
