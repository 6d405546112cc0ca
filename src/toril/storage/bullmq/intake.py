"""What is sent to add jobs: to our batch scripts by most, to the official ones by all."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Final

from toril.drafts import Drafts
from toril.job import JobSpec, State, Terms
from toril.storage.bullmq import codec
from toril.storage.bullmq.keys import Keys
from toril.storage.bullmq.scripts import Command, call
from toril.storage.bullmq.texts import Texts, write_options
from toril.storage.created import Created, ids_of
from toril.storage.protocol import Receipt
from toril.storage.quick import new_receipt

PLAIN: Final = "add"
"""The batch script for jobs that are nothing but put at the end of the line."""
LATER: Final = "later"
"""The batch script for jobs with a delay or a priority."""
NONE: Final = ""
"""Stands for the official scripts."""


def script_for(terms: Terms) -> str:
    """Name the batch script that adds jobs of these terms."""
    if terms.lifo or terms.dedup:
        return NONE
    return LATER if terms.delay_ms or terms.priority else PLAIN


def created(script: str, jobs: Sequence[JobSpec]) -> Sequence[Receipt]:
    """Answer a hand-in of jobs that a batch script added."""
    if script == LATER:
        return [new_receipt(id=spec.id, created=True, state=first_state(spec)) for spec in jobs]
    return Created(ids_of(jobs))


def added(
    script: str, jobs: Sequence[JobSpec], options: Texts, guard: tuple[str, str]
) -> list[str | bytes]:
    """Write the arguments of a batch script for some jobs."""
    later = [spec.terms for spec in jobs] if script == LATER else ()
    if isinstance(jobs, Drafts):
        return added_arguments(jobs.ids, jobs.names, jobs.payloads, options, guard, later)
    ids, names = [spec.id for spec in jobs], [spec.name for spec in jobs]
    return added_arguments(ids, names, [spec.payload for spec in jobs], options, guard, later)


def added_alone(script: str, spec: JobSpec) -> list[str | bytes]:
    """Write the arguments of a batch script for a single job."""
    name, options = codec.clean(spec.name), write_options((spec,))[0]
    arguments: list[str | bytes] = ["", "", name, "", "", spec.id, spec.payload, options]
    if script == LATER:
        arguments += (str(spec.terms.delay_ms), str(spec.terms.priority))
    return arguments


def added_arguments(
    ids: Sequence[str],
    names: Sequence[str],
    payloads: Sequence[bytes],
    options: Texts,
    guard: tuple[str, str] = ("", ""),
    later: Sequence[Terms] = (),
) -> list[str | bytes]:
    """Write the arguments of a batch script that adds jobs; what they share is written once.

    `later` holds the terms of the jobs if they have delays or priorities.
    """
    columns: list[Sequence[str | bytes]] = [ids, payloads]
    if options.each:
        columns.append(options.each)
    if later:
        columns.append([str(terms.delay_ms) for terms in later])
        columns.append([str(terms.priority) for terms in later])
    shared = names[0] if names.count(names[0]) == len(names) else ""
    if not shared:
        columns.append([codec.clean(name) for name in names])
    head = (*guard, codec.clean(shared), options.head, options.tail)
    return [*head, *chain.from_iterable(zip(*columns, strict=True))]


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
