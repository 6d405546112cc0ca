"""Give the names of a package from its modules, each loaded when it is first asked for."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from types import ModuleType


def lend(package: str, homes: Mapping[str, str]) -> Callable[[str], object]:
    """Make a package's `__getattr__` for names and the modules they live in.

    A loaded module becomes an attribute of its package. Where it has the name of a function in
    it, as `register`, the function would be hidden from then on; so such names are kept free.
    """

    class Package(ModuleType):
        def __setattr__(self, name: str, value: object) -> None:
            if not (name in homes and isinstance(value, ModuleType)):
                super().__setattr__(name, value)

    def give(name: str) -> object:
        home = homes.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{home}"), name)

    sys.modules[package].__class__ = Package
    return give
