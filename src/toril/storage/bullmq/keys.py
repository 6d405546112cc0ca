"""Name every key of a BullMQ queue.

    <prefix>:<name>:…      prefix is "bull"; the name is `{queue}`, or `queue` with hash_tag=off;
                           with braces in the prefix, as in `{bull}`, the name is `queue`
    id                     STRING  counter of ids
    meta                   HASH    paused, concurrency, max, duration, opts.maxLenEvents, version
    wait, paused, active   LIST    next to run at the tail
    prioritized, delayed, completed, failed, waiting-children, repeat     ZSET
    pc                     STRING  counter that orders jobs of one priority
    marker                 ZSET    "0": work is there; "1": when the next delayed job is due
    events                 STREAM
    stalled, stalled-check SET, STRING PX     two-phase check for stalled jobs
    limiter                STRING PX          starts in this window
    de:<key>               STRING             the job that holds a deduplication key
    repeat:<id>            HASH               a scheduler
    metrics:completed|failed[:data]           HASH, LIST
    <job>                  HASH
    <job>:lock|logs|dependencies|processed|failed|unsuccessful

Ours, unknown to Node:

    toril-ttl              ZSET    when finished jobs expire
    toril-workers          ZSET    when workers were seen
    toril-cancel           HASH    running jobs that somebody asked to cancel, and their tokens
    toril-back             ZSET    events of jobs that went back or were put off, but not retried
    toril-end:<job>        STRING PX    the ending of a job that is gone
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from toril.errors import InvalidOption, StorageError
from toril.resp.url import Address

PREFIX: Final = "bull"
LEAN_PREFIX: Final = "jq"
_TAG: Final = re.compile(r"[^{}]*(\{[^{}]+\}[^{}]*)?")

QUEUE_KEYS: Final = (
    "id", "meta", "wait", "paused", "active", "prioritized", "delayed", "completed", "failed",
    "waiting-children", "repeat", "pc", "marker", "events", "stalled", "stalled-check", "limiter",
    "metrics:completed", "metrics:completed:data", "metrics:failed", "metrics:failed:data",
)  # fmt: skip
JOB_KEYS: Final = (
    "", ":lock", ":logs", ":dependencies", ":processed", ":failed", ":unsuccessful",
)  # fmt: skip
OWN_KEYS: Final = ("toril-ttl", "toril-workers", "toril-cancel", "toril-back")


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of one queue; `name` is the queue's name as Node would give it."""

    prefix: str
    name: str
    base: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "base", f"{self.prefix}:{self.name}:")

    def of(self, name: str) -> str:
        """The key of one of the queue's own containers, or of a job's hash."""
        return self.base + name

    def lock(self, job_id: str) -> str:
        """The key that holds the token of a job's owner."""
        return f"{self.base}{job_id}:lock"

    def logs(self, job_id: str) -> str:
        """The key of a job's log lines."""
        return f"{self.base}{job_id}:logs"

    def dedup(self, key: str) -> str:
        """The key that names the job holding a deduplication key."""
        return f"{self.base}de:{key}"

    def end(self, job_id: str) -> str:
        """The key of the ending of a job that is gone."""
        return f"{self.base}toril-end:{job_id}"


def check_tagging(address: Address) -> None:
    """Refuse what cannot work: keys of one queue in different slots of a cluster."""
    prefix = address.prefix or PREFIX
    if not _TAG.fullmatch(prefix):
        raise InvalidOption(
            f"{address.safe}: prefix={prefix!r}: at most one pair of braces, with something in it,"
            " as in prefix={bull}; the text in it decides which slot of a cluster all queues are in"
        )
    if address.kind == "cluster" and address.hash_tag is False and not _is_tag(prefix):
        raise InvalidOption(
            f"toril[E15] {address.safe}: hash_tag=off spreads the keys of a queue over the cluster,"
            " and its scripts fail with CROSSSLOT. fix: leave hash_tag out and name the Node queue"
            " '{queue}', or give both sides a prefix with braces"
        )


def _is_tag(prefix: str) -> bool:
    return "{" in prefix


def _in_braces(address: Address) -> bool:
    """Whether names of queues get braces: if asked for, and else if the prefix has none."""
    prefix = address.prefix or PREFIX
    return not _is_tag(prefix) if address.hash_tag is None else address.hash_tag


def keys_of(address: Address, queue: str) -> Keys:
    """Name the keys of a queue; braces that are in its name already are left alone."""
    tagged = _in_braces(address) and "{" not in queue
    return Keys(address.prefix or PREFIX, f"{{{queue}}}" if tagged else queue)


def queue_of(address: Address, meta: str) -> str | None:
    """Read the queue's name from its `meta` key; None for a queue of the other tagging."""
    name = meta.removeprefix(f"{address.prefix or PREFIX}:").removesuffix(":meta")
    is_tagged = name.startswith("{") and name.endswith("}") and "{" not in name[1:]
    if _in_braces(address):
        return name[1:-1] if is_tagged else None
    return None if is_tagged and address.hash_tag is None else name


def twins_of(address: Address, queue: str) -> tuple[str, str]:
    """The `meta` keys of the twin of the other tagging and of the lean twin of a queue."""
    prefix = address.prefix or PREFIX
    lean = address.prefix or LEAN_PREFIX
    other = queue if _in_braces(address) else f"{{{queue}}}"
    return f"{prefix}:{other}:meta", f"{{{lean}:{queue}}}:meta"


def check_twins(address: Address, queue: str, other: bool, lean: bool) -> None:
    """Raise if another queue of the same name stands beside this one, unseen by its clients."""
    prefix = address.prefix or PREFIX
    plain, braced = f"'{prefix}:{queue}:*'", f"'{prefix}:{{{queue}}}:*'"
    if other and _in_braces(address):
        raise StorageError(
            f"queue {queue!r} on {address.safe}: {plain} exists without braces,"
            f" written by a Node client, and would never meet {braced}; either name"
            f" the Node queue '{{{queue}}}', or open it as it is with hash_tag=off"
            " (hash_tag=on if both are meant to exist)"
        )
    if other:
        raise StorageError(
            f"queue {queue!r} on {address.safe}: {braced} exists, with braces in its name too,"
            f" and would never meet {plain}; either name the Node queue '{queue}', or open"
            " it as it is with hash_tag=on (hash_tag=off if both are meant to exist)"
        )
    if lean:
        raise StorageError(
            f"queue {queue!r} on {address.safe}: a queue of this name exists in toril's own layout;"
            " open it without 'bullmq+', or choose another name"
            f" (hash_tag={'on' if _in_braces(address) else 'off'} if both are meant to exist)"
        )
