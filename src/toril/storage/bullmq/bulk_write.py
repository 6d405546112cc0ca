"""Add jobs that lie in columns: most by our batch scripts, the others by the official ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from toril.job import JobSpec, Terms
from toril.resp.sync import SyncClient
from toril.storage.bullmq.codes import refused
from toril.storage.bullmq.intake import LATER, NONE, PLAIN, add_command, added_arguments, script_for
from toril.storage.bullmq.keys import Keys
from toril.storage.bullmq.link import CHUNK, check_reply, chunks
from toril.storage.bullmq.official import own
from toril.storage.bullmq.scripts import Command
from toril.storage.bullmq.texts import write_columns
from toril.storage.columns import Written

_AT_ONCE: Final = 50
"""Jobs per call of a batch script: one or two milliseconds of server time."""
_IN_FLIGHT: Final = 20
"""Calls sent before the first is answered."""
_OFFICIALLY: Final = 250
"""Jobs that are added one by one before the first is answered."""
_COMMANDS: Final = 4
"""MULTI, who holds the id, the adding, EXEC."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Jobs to add, as columns of equal length."""

    ids: Sequence[str]
    payloads: Sequence[bytes]
    names: Sequence[str]
    terms: Sequence[Terms]
    origin: str

    def spec(self, at: int) -> JobSpec:
        """One of them as a spec."""
        return JobSpec(
            id=self.ids[at],
            name=self.names[at],
            payload=self.payloads[at],
            terms=self.terms[at],
            origin=self.origin,
        )


class BulkWriter:
    """Adds jobs to one queue. Order is kept among new jobs that the same batch script adds."""

    def __init__(
        self, client: SyncClient, keys: Keys, now: Callable[[], int], batch: bool = True
    ) -> None:
        self._client = client
        self._keys = keys
        self._now = now
        self._batch = batch
        client.learn(own(PLAIN), own(LATER), own("known"), own("ready"))

    def write(self, rows: Rows) -> Written:
        """Add jobs; say how many were new."""
        kinds = _sort(rows) if self._batch else {NONE: list(range(len(rows.ids)))}
        rest, left = kinds.pop(NONE), list[int]()
        for script, places in kinds.items():
            for some in chunks(places, _AT_ONCE * _IN_FLIGHT):
                free, taken = self._add_new(rows, script, some)
                rest += free
                left += taken
        for first in range(0, len(rest), _OFFICIALLY):
            left += self._add_officially(rows, rest[first : first + _OFFICIALLY])
        return Written(
            created=len(rows.ids) - len(left),
            duplicates=len(left),
            first_duplicate=rows.ids[min(left)] if left else None,
        )

    def _add_new(self, rows: Rows, script: str, some: Sequence[int]) -> tuple[list[int], list[int]]:
        """Add jobs in batches; name those left for the official scripts, and duplicates."""
        left = self._add_batches(rows, script, some)
        if not left:
            return [], []
        fresh, taken = self._ask(rows, left)
        # What stood behind a duplicate was left too. What is left again, the queue is why.
        return self._add_batches(rows, script, fresh), taken

    def _add_batches(self, rows: Rows, script: str, some: Sequence[int]) -> list[int]:
        commands: list[Command] = []
        for batch in chunks(some, _AT_ONCE):
            ids, terms = [rows.ids[at] for at in batch], [rows.terms[at] for at in batch]
            args = added_arguments(
                ids,
                [rows.names[at] for at in batch],
                [rows.payloads[at] for at in batch],
                write_columns(ids, terms, rows.origin),
                later=terms if script == LATER else (),
            )
            commands.append(("EVALSHA", own(script).sha, 1, self._keys.base, 0, *args))
        done = zip(chunks(some, _AT_ONCE), self._send(commands), strict=True)
        return [at for batch, (added, _) in done for at in batch[max(0, added) :]]

    def _ask(self, rows: Rows, some: Sequence[int]) -> tuple[list[int], list[int]]:
        """Tell those whose id is free from those that are there and not ours."""
        commands: list[Command] = [
            ("EVALSHA", own("known").sha, 1, self._keys.base, 0, rows.origin, *ids)
            for ids in chunks([rows.ids[at] for at in some], CHUNK)
        ]
        flags = b"".join(self._send(commands)).decode()
        answers = list(zip(some, flags, strict=True))
        free = [at for at, flag in answers if flag == "0"]
        return free, [at for at, flag in answers if flag == "="]

    def _add_officially(self, rows: Rows, some: Sequence[int]) -> list[int]:
        """Add jobs one by one; name those that were there already or not let in."""
        now = self._now()
        specs = [rows.spec(at) for at in some]
        commands = [command for spec in specs for command in self._transaction(spec, now)]
        replies = self._send(commands)[_COMMANDS - 1 :: _COMMANDS]
        pairs = zip(some, specs, replies, strict=True)
        return [at for at, spec, reply in pairs if not _is_new(spec, *reply)]

    def _transaction(self, spec: JobSpec, now: int) -> list[Command]:
        dedup = spec.terms.dedup
        key = "" if dedup is None else dedup.key
        ready = own("ready").sha
        return [
            ("MULTI",),
            ("EVALSHA", ready, 1, self._keys.base, 0, spec.id, spec.origin, 0, key),
            add_command(self._keys, spec, now),
            ("EXEC",),
        ]

    def _send(self, commands: Sequence[Command]) -> list[Any]:
        replies = self._client.pipeline(self._keys.base, commands)
        for reply in replies:
            check_reply(reply)
        return replies


def _sort(rows: Rows) -> dict[str, list[int]]:
    """Tell by which script each job is added."""
    places: dict[str, list[int]] = {PLAIN: [], LATER: [], NONE: []}
    kinds: dict[int, list[int]] = {}
    for at, terms in enumerate(rows.terms):
        kind = kinds.get(id(terms))
        if kind is None:
            kind = kinds[id(terms)] = places[script_for(terms)]
        kind.append(at)
    return places


def _is_new(spec: JobSpec, there: Sequence[bytes], added: bytes | int) -> bool:
    if isinstance(added, int) and added < 0:
        raise refused("add", spec.id, added)
    if there:
        return there[1] == b"1"  # this hand-in made it, its answer was lost
    return added == spec.id.encode()
