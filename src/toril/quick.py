"""Make frozen values quickly, for the few places that make one per job."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field, fields, make_dataclass
from typing import Any, ParamSpec, TypeVar, cast

P = ParamSpec("P")
T = TypeVar("T")


def maker(kind: Callable[P, T]) -> Callable[P, T]:
    """Return what makes the same as a frozen, slotted, keyword-only dataclass in half the time.

    Such a class sets each field through `object.__setattr__`, to get past its own guard. So a twin
    with the same slots and no guard is filled, and then becomes one of its kind.
    """
    if hasattr(kind, "__post_init__"):
        raise TypeError(f"{kind!r} checks its fields, which a maker would leave out")

    def become(made: Any) -> None:
        made.__class__ = kind

    like = cast("Any", kind)
    twin = make_dataclass(
        like.__name__,
        [(one.name, Any, field(default=one.default)) for one in fields(like)],
        namespace={"__post_init__": become},
        kw_only=True,
        slots=True,
    )
    return cast("Callable[P, T]", twin)
