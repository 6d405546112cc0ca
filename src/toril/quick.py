"""Make frozen values quickly, for the few places that make one per job."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, fields
from typing import Any, ParamSpec, TypeVar, cast

P = ParamSpec("P")
T = TypeVar("T")


def maker(kind: Callable[P, T]) -> Callable[P, T]:
    """Return what makes the same as a frozen, slotted, keyword-only dataclass, four times as fast.

    Such a class sets each field through `object.__setattr__`, to get past its own guard. So a blank
    with the same slots and no guard is filled, and then becomes one of its kind. As dataclasses
    do, it writes the function that does so: one call, and no loop over the fields.
    """
    if hasattr(kind, "__post_init__"):
        raise TypeError(f"{kind!r} checks its fields, which a maker would leave out")
    known = fields(cast("Any", kind))
    if any(one.default_factory is not MISSING for one in known):
        raise TypeError(f"{kind!r} makes a default anew each time, which a maker would share")
    names = [one.name for one in known]
    defaults = {f"_{one.name}": one.default for one in known if one.default is not MISSING}
    taken = (f"{name}=_{name}" if f"_{name}" in defaults else name for name in names)
    lines = [
        f"def make(*, {', '.join(taken)}):",
        "    made = blank()",
        *(f"    made.{name} = {name}" for name in names),
        "    made.__class__ = kind",
        "    return made",
    ]
    space: dict[str, Any] = {
        **defaults,
        "blank": type("Blank", (), {"__slots__": tuple(names)}),
        "kind": kind,
    }
    exec("\n".join(lines), space)  # noqa: S102  # names of fields only
    return cast("Callable[P, T]", space["make"])
