"""Find queues on a server, whoever wrote them: of any prefix, tagged or not, either layout."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from toril.doctor.finding import Bounds
from toril.resp.client import Client
from toril.resp.url import Layout

_AT_ONCE: Final = 1000
_GLOB: Final = re.compile(r"([\\*?\[\]])")
_LEAN: Final = re.compile(r"\{(?P<prefix>.+):(?P<name>[^:{}]+)\}:meta", re.DOTALL)
_BULLMQ: Final = re.compile(r"(?P<prefix>.+):(?P<name>[^:]+):meta", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spot:
    """Where a queue's keys are."""

    layout: Layout
    prefix: str
    name: str
    """As its clients give it; `{mail}` where the braces are part of the key."""
    db: int = 0

    @property
    def bare(self) -> str:
        """The name without braces."""
        return self.name[1:-1] if self.is_tagged else self.name

    @property
    def is_tagged(self) -> bool:
        """Whether the braces of a cluster are around its name."""
        return self.name.startswith("{") and self.name.endswith("}")

    @property
    def base(self) -> str:
        """What all its keys begin with."""
        if self.layout == "lean":
            return f"{{{self.prefix}:{self.name}}}:"
        return f"{self.prefix}:{self.name}:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Census:
    """The queues found; `cut` if keys were left unseen."""

    spots: tuple[Spot, ...]
    cut: bool


async def count_queues(
    client: Client,
    nodes: Sequence[str],
    bounds: Bounds,
    *,
    name: str | None = None,
    db: int = 0,
) -> Census:
    """Look for queues of any prefix; with `name` only for those of that name."""
    pattern = "*:meta" if name is None else f"*{glob(name)}*:meta"
    spots: set[Spot] = set()
    walk = Walk(client, nodes, bounds.keys)
    async for keys in walk.over(pattern, "hash"):
        found = (read_meta(key, db) for key in keys)
        spots |= {spot for spot in found if spot and name in (None, spot.bare)}
    ordered = sorted(spots, key=lambda spot: (spot.layout, spot.prefix, spot.name))
    return Census(spots=tuple(ordered), cut=walk.cut)


class Walk:
    """Passes over the keys of all nodes, up to a bound; `cut` tells that it was reached."""

    def __init__(self, client: Client, nodes: Sequence[str], most: int) -> None:
        self._client = client
        self._nodes = nodes
        self._left = most
        self.cut = False

    async def over(self, pattern: str, kind: str) -> AsyncIterator[Sequence[str]]:
        """Give the names that match, page by page; one may come twice."""
        for node in self._nodes:
            cursor = b"0"
            while True:
                if self._left <= 0:
                    self.cut = True
                    return
                self._left -= _AT_ONCE
                args = ("SCAN", cursor, "MATCH", pattern, "COUNT", _AT_ONCE, "TYPE", kind)
                cursor, keys = cast("list[Any]", await self._client.call_at(node, *args))
                yield [key.decode(errors="replace") for key in keys]
                if cursor == b"0":
                    break


def glob(text: str) -> str:
    """Write text so that a pattern matches it literally."""
    return _GLOB.sub(r"\\\1", text)


def read_meta(key: str, db: int = 0) -> Spot | None:
    """Read the queue from the name of its `meta` key."""
    for layout, form in (("lean", _LEAN), ("bullmq", _BULLMQ)):
        match = form.fullmatch(key)
        if match:
            return Spot(
                layout=cast("Layout", layout), prefix=match["prefix"], name=match["name"], db=db
            )
    return None
