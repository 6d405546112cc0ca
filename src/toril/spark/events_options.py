"""The options of `toril_events`, checked before anything is asked of a storage."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from toril.errors import InvalidInput, InvalidOption
from toril.ids import check_name
from toril.spark.events_offsets import Place
from toril.spark.options import Options
from toril.spark.target import TARGET_OPTIONS, Target
from toril.text import suggest

NAME: Final = "toril_events"
KNOWN: Final = (
    *TARGET_OPTIONS,
    "queue",
    "queues",
    "queuePattern",
    "startingOffsets",
    "endingOffsets",
    "maxRowsPerTrigger",
    "fetchSize",
    "partitions",
    "failOnDataLoss",
)
EARLIEST: Final = "earliest"
LATEST: Final = "latest"

Edge = str | Mapping[str, str | Place]
"""`earliest`, `latest`, or for each queue one of these words or a place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventsOptions:
    """What to read, from where to where, and how."""

    target: Target
    queues: tuple[str, ...]
    pattern: str | None
    starting: Edge
    ending: Edge
    max_rows: int | None
    fetch_size: int
    partitions: int | None
    fail_on_loss: bool

    @classmethod
    def read(cls, given: Mapping[str, str]) -> EventsOptions:
        """Check the options that somebody gave."""
        options = Options.read(NAME, given, KNOWN)
        queues, pattern = _queues(options), options.text("queuePattern")
        most = options.count("maxRowsPerTrigger", 0, 1, 1_000_000_000)
        cut = options.count("partitions", 0, 1, 10_000)
        return cls(
            target=Target.of(options),
            queues=queues,
            pattern=pattern,
            starting=_edge(options, "startingOffsets", EARLIEST, queues),
            ending=_edge(options, "endingOffsets", LATEST, queues),
            max_rows=most or None,
            fetch_size=options.count("fetchSize", 2000, 1, 10_000),
            partitions=cut or None,
            fail_on_loss=options.flag("failOnDataLoss", True),
        )

    def check_batch(self) -> None:
        """Refuse what only a stream obeys."""
        if self.max_rows is not None:
            raise InvalidOption(
                f"{NAME}: option 'maxRowsPerTrigger' is for streams; use readStream,"
                " or 'endingOffsets' for a part of the events"
            )
        _refuse_word(self.starting, LATEST, "startingOffsets", "that reads nothing")
        _refuse_word(self.ending, EARLIEST, "endingOffsets", "that reads nothing")

    def check_stream(self) -> None:
        """Refuse what only a batch obeys."""
        if self.ending != LATEST:
            raise InvalidOption(f"{NAME}: option 'endingOffsets' is for batch reads; use read")


def _queues(options: Options) -> tuple[str, ...]:
    given = [name for name in ("queue", "queues", "queuePattern") if options.text(name) is not None]
    if len(given) != 1:
        fact = f"{' and '.join(given)} exclude each other" if given else "no queue"
        raise InvalidOption(f"{NAME}: {fact}; give one of 'queue', 'queues' or 'queuePattern'")
    one = options.text("queue")
    names = options.names("queues") if one is None else (one,)
    for name in names:
        check_name("queue", name)
    if len(set(names)) < len(names):
        raise options.wrong("queues", "names a queue twice")
    return names


def _edge(options: Options, name: str, default: str, queues: tuple[str, ...]) -> Edge:
    text = options.text(name)
    if text is None or text.strip().lower() in (EARLIEST, LATEST):
        return default if text is None else text.strip().lower()
    try:
        given = json.loads(text)
    except ValueError:
        given = None
    if not isinstance(given, dict):
        raise options.wrong(
            name, 'must be earliest, latest or JSON, as {"queue": {"id": …, "n": …}}'
        )
    edge: dict[str, str | Place] = {}
    for queue, value in given.items():
        if queues and queue not in queues:
            hint = suggest(queue, queues)
            raise options.wrong(name, f"names '{queue}', which is not read.{hint}")
        try:
            edge[queue] = value if value in (EARLIEST, LATEST) else Place.parse(value)
        except InvalidInput as error:
            raise options.wrong(name, f"is wrong for '{queue}': {error}") from None
    return edge


def _refuse_word(edge: Edge, word: str, name: str, fact: str) -> None:
    if edge == word:
        raise InvalidOption(f"{NAME}: option '{name}' = '{word}': {fact} in a batch")
