"""Plan a read of jobs: which states of which queues, in how many tasks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from toril.errors import InvalidOption
from toril.ids import check_name
from toril.job import FINISHED, State
from toril.spark.options import Options
from toril.spark.target import Target
from toril.storage.columns import Bulk, Slice

READ_OPTIONS: Final = (
    "queue",
    "queues",
    "states",
    "since",
    "until",
    "partitions",
    "fetchSize",
)
_FETCH: Final = 2000
_SMALL: Final = 5000
"""Jobs for which a task of their own does not pay."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """A slice of a state of a queue."""

    queue: str
    cut: Slice


@dataclass(frozen=True, slots=True, kw_only=True)
class JobsPlan:
    """What a reader was asked for."""

    target: Target
    queues: tuple[str, ...]
    states: tuple[State, ...]
    since_ms: int | None
    until_ms: int | None
    partitions: int
    fetch_size: int
    columns: dict[str, str]

    @classmethod
    def of(cls, options: Options, columns: dict[str, str], slots: int) -> JobsPlan:
        """Check the options of a read; `slots` is how many tasks run at a time."""
        since, until = options.instant("since"), options.instant("until")
        if since is not None and until is not None and until <= since:
            raise options.wrong("until", f"is not after 'since' ({options.text('since')})")
        return cls(
            target=Target.of(options),
            queues=queues_of(options),
            states=_states_of(options),
            since_ms=since,
            until_ms=until,
            partitions=options.count("partitions", slots, 1, 10_000),
            fetch_size=options.count("fetchSize", _FETCH, 1, 100_000),
            columns=columns,
        )

    def cut(self, bulk: Bulk) -> list[list[Share]]:
        """Share the jobs out to at most `partitions` tasks."""
        counts = {queue: bulk.counts(queue) for queue in self.queues}
        total = sum(counts[queue][state] for queue in self.queues for state in self.states)
        tasks = max(1, min(self.partitions, -(-total // _SMALL)))
        shares: list[Share] = []
        for queue in self.queues:
            for state in self.states:
                count = counts[queue][state]
                parts = max(1, round(tasks * count / total)) if total else 1
                if count:
                    cuts = self._cut_state(bulk, queue, state, parts)
                    shares += (Share(queue=queue, cut=cut) for cut in cuts)
        return _pack(shares, tasks)

    def _cut_state(self, bulk: Bulk, queue: str, state: State, parts: int) -> Sequence[Slice]:
        if state in FINISHED:
            return bulk.cut_jobs(queue, state, parts, self.since_ms, self.until_ms)
        return bulk.cut_jobs(queue, state, parts)


def _pack(shares: Iterable[Share], tasks: int) -> list[list[Share]]:
    """Put slices into tasks, the largest first, each into the one that has least."""
    packed: list[list[Share]] = [[] for _ in range(tasks)]
    loads = [0] * tasks
    for share in sorted(shares, key=lambda one: -one.cut.count):
        least = loads.index(min(loads))
        packed[least].append(share)
        loads[least] += share.cut.count + 1
    return [task for task in packed if task] or [[]]


def queues_of(options: Options) -> tuple[str, ...]:
    """Read `queue` or `queues`."""
    one, several = options.text("queue"), options.names("queues")
    if (one is None) == (not several):
        raise InvalidOption(
            f"{options.source}: give option 'queue' with one name, or 'queues' with several and"
            " commas between them"
        )
    names = several or (str(one),)
    for name in names:
        check_name("queue", name)
    return tuple(dict.fromkeys(names))


def _states_of(options: Options) -> tuple[State, ...]:
    known = [state.value for state in State]
    chosen = dict.fromkeys(options.names("states") or known)
    for name in chosen:
        if name not in known:
            raise options.wrong("states", f"names '{name}'; known: {', '.join(known)}")
    return tuple(State(name) for name in chosen)
