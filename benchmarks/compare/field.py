"""Everybody who takes part: toril on each storage, its peers, and the ceilings."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, Literal

from benchmarks.install import pins
from benchmarks.peers import TORIL, TORIL_WIRE, Peer, ceiling, peer_of

Kind = Literal["toril", "python", "node", "bare", "ceiling", "raw", "operations"]
Place = Literal["server", "memory", "file"]

NODE: Final = "bullmq-node-5"
"""Whom the others are compared with."""
_PLAIN: Final = {"TORIL_BENCH_PLAIN": "1"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One who takes part; `open` installs it where that is needed."""

    key: str
    name: str
    kind: Kind
    open: Callable[[], Peer]
    pace: float = 1.0
    waits: bool = True
    threads: bool = False
    place: Place = "server"
    only: frozenset[str] = frozenset()
    """The workloads it can do; all of them if none is named."""


def _toril(key: str, name: str, peer: Peer, place: Place) -> Entry:
    named = replace(peer, name=name)
    return Entry(key=key, name=name, kind="toril", open=lambda: named, place=place)


def _toril_entries() -> list[Entry]:
    plain, plain_wire = (replace(peer, env={**peer.env, **_PLAIN}) for peer in (TORIL, TORIL_WIRE))
    return [
        _toril("toril-lean", "toril, lean", TORIL, "server"),
        _toril("toril-wire", "toril, BullMQ wire", TORIL_WIRE, "server"),
        _toril("toril-lean-plain", "toril, lean, without fast", plain, "server"),
        _toril("toril-wire-plain", "toril, BullMQ wire, without fast", plain_wire, "server"),
        _toril("toril-file", "toril, file", TORIL, "file"),
        _toril("toril-file-plain", "toril, file, without fast", plain, "file"),
        _toril("toril-memory", "toril, memory", TORIL, "memory"),
        _toril("toril-memory-plain", "toril, memory, without fast", plain, "memory"),
    ]


def _job_queue_on_files() -> Entry:
    """A second process misses answers of it, and it is too slow for the longer workloads."""
    pin = pins()["job-queue"]
    name = f"{pin.name}, file"
    return Entry(
        key="job-queue-file",
        name=name,
        kind="node",
        open=partial(peer_of, replace(pin, name=name)),
        pace=0.05,
        place="file",
        only=frozenset({"W1", "W2", "W3"}),
    )


def _own(
    key: str, name: str, kind: Kind, *module: str, scheme: str = "", place: Place = "server"
) -> Entry:
    """A program of ours that is no library."""
    command = (sys.executable, "-m", f"benchmarks.compare.adapters.{module[0]}", *module[1:])
    peer = replace(TORIL, name=name, command=command, scheme=scheme)
    return Entry(key=key, name=name, kind=kind, open=lambda: peer, place=place)


def _own_entries() -> list[Entry]:
    operations = ("limits", "operations")
    wire = "bullmq+"
    return [
        _own("asyncio", "asyncio alone", "bare", "bare", place="memory"),
        _own("ceiling-lean", "ceiling: lean", "ceiling", "replay"),
        _own("ceiling-wire", "ceiling: BullMQ wire", "ceiling", "replay", scheme=wire),
        _own("raw", "raw commands", "raw", "limits", "raw"),
        _own("operations-lean", "toril, lean", "operations", *operations),
        _own("operations-wire", "toril, BullMQ wire", "operations", *operations, scheme=wire),
        _own("operations-file", "toril, file", "operations", *operations, place="file"),
        _own("operations-memory", "toril, memory", "operations", *operations, place="memory"),
    ]


def entries() -> dict[str, Entry]:
    """All of them by key, in the order of the tables."""
    found = _toril_entries()
    for pin in pins().values():
        found.append(
            Entry(
                key=pin.key,
                name=pin.name,
                kind="node" if pin.is_node else "python",
                open=partial(peer_of, pin),
                pace=pin.pace,
                waits=pin.waits,
                threads=pin.threads,
            )
        )
    found.append(_job_queue_on_files())
    found += _own_entries()
    for kind in ("batch", "official"):
        name = f"ceiling: BullMQ, {kind} scripts"
        opened = partial(replace, ceiling(kind), name=name)
        found.append(Entry(key=f"ceiling-{kind}", name=name, kind="ceiling", open=opened))
    return {entry.key: entry for entry in found}
