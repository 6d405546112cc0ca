"""Names and limits that the asynchronous and the blocking side of the layout share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, TypeVar

from toril.errors import EventsTrimmed, StorageError
from toril.event import Cursor
from toril.resp.url import Address

PREFIX: Final = "jq"
_BULLMQ_PREFIX: Final = "bull"
LAYOUT: Final = 1

CHUNK: Final = 250
"""Items per call: keeps a script under two milliseconds of server time."""


T = TypeVar("T")


def chunks(items: Sequence[T]) -> Iterable[Sequence[T]]:
    """Cut what is to be done into calls."""
    return (items[first : first + CHUNK] for first in range(0, len(items), CHUNK))


def base_of(prefix: str | None, queue: str) -> str:
    """The base of a queue's keys; its braces put them all into one slot of a cluster."""
    return f"{{{prefix or PREFIX}:{queue}}}:"


def check_layout(found: bytes | None, queue: str, url: str) -> None:
    """Refuse a layout newer than ours."""
    if found is not None and int(found) > LAYOUT:
        raise StorageError(
            f"queue {queue!r} on {url} has layout {int(found)}, this toril knows {LAYOUT}; "
            "upgrade toril"
        )


def twins_of(address: Address, queue: str) -> tuple[str, ...]:
    """The `meta` keys of BullMQ queues of the same name; none if the user knows of them."""
    if address.hash_tag is not None:
        return ()
    prefix = address.prefix or _BULLMQ_PREFIX
    return f"{prefix}:{{{queue}}}:meta", f"{prefix}:{queue}:meta"


def check_twin(address: Address, queue: str, key: str, found: bool) -> None:
    """Raise if a BullMQ queue of the same name stands beside this one, unseen by its clients."""
    if found:
        remedy = "" if "{" in key else " with hash_tag=off"
        raise StorageError(
            f"queue {queue!r} on {address.safe}: '{key}' exists, a BullMQ queue of this name, whose"
            f" clients would never meet those of toril's own layout; open it as 'bullmq+…'{remedy},"
            " or choose another name (hash_tag=on if both are meant to exist)"
        )


def check_trimmed(queue: str, after: int, first: int, stop: int) -> None:
    """Raise `EventsTrimmed` if events after `after` and up to `stop` lie before `first`."""
    gone = min(first - 1, stop) - after
    if gone > 0:
        raise EventsTrimmed(
            f"{gone:,} events after {Cursor(after)} of queue {queue!r} are gone; "
            f"read on from {Cursor(first - 1)}, or keep more with events_kept=",
            count=gone,
            resume=Cursor(first - 1),
        )
