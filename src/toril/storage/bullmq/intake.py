"""What is sent to add jobs: by our batch script for plain ones, by the official ones for all."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Final

from toril.job import JobSpec, State, Terms
from toril.storage.bullmq import codec
from toril.storage.bullmq.keys import Keys
from toril.storage.bullmq.scripts import Command, call
from toril.storage.protocol import Receipt
from toril.storage.quick import new_receipt


def is_plain_by(terms: Terms) -> bool:
    """Whether jobs of these terms are nothing but put at the end of the line."""
    return not (terms.delay_ms or terms.priority or terms.lifo or terms.dedup)


def created(jobs: Sequence[JobSpec]) -> list[Receipt]:
    """Answer a hand-in of jobs that were all new."""
    state = State.WAITING  # once for all: to take it out of its enum costs as much as a call
    return [new_receipt(id=spec.id, created=True, state=state) for spec in jobs]


def added(
    jobs: Sequence[JobSpec], options: Sequence[str], guard: tuple[str, str]
) -> list[str | bytes]:
    """Write the arguments of the batch script for some jobs."""
    ids, names = [spec.id for spec in jobs], [spec.name for spec in jobs]
    return added_arguments(ids, names, [spec.payload for spec in jobs], options, guard)


def added_arguments(
    ids: Sequence[str],
    names: Sequence[str],
    payloads: Sequence[bytes],
    options: Sequence[str],
    guard: tuple[str, str] = ("", ""),
) -> list[str | bytes]:
    """Write the arguments of the batch script that adds jobs; mostly they share one name."""
    columns: list[Sequence[str | bytes]] = [ids, payloads, options]
    shared = names[0] if names.count(names[0]) == len(names) else ""
    if not shared:
        columns.append([codec.clean(name) for name in names])
    return [*guard, codec.clean(shared), *chain.from_iterable(zip(*columns, strict=True))]


def first_state(spec: JobSpec) -> State:
    """The state of a job that was just added."""
    if spec.terms.delay_ms:
        return State.DELAYED
    return State.PRIORITIZED if spec.terms.priority else State.WAITING


_ADD: Final = {
    State.DELAYED: "addDelayedJob",
    State.PRIORITIZED: "addPrioritizedJob",
    State.WAITING: "addStandardJob",
}


def add_command(keys: Keys, spec: JobSpec, now_ms: int) -> Command:
    """Write the command that adds a job by the official script for its kind."""
    dedup = spec.terms.dedup
    head = codec.pack(
        [
            *(keys.base, spec.id, codec.clean(spec.name), now_ms, None, None, None, None),
            None if dedup is None else keys.dedup(dedup.key),
        ]
    )
    options = codec.pack(codec.options_of(spec))
    return call(_ADD[first_state(spec)], keys, head, spec.payload, options)
