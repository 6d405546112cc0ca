"""Make what storages answer with quickly; see `toril.quick`."""

from __future__ import annotations

from typing import Final

from toril.job import JobSpec, State
from toril.outcome import Failure, Lease
from toril.quick import blank_of
from toril.storage.protocol import Claimed, Receipt

_Receipt: Final = blank_of(Receipt)
_Claimed: Final = blank_of(Claimed)


def new_receipt(*, id: str, created: bool, state: State | None) -> Receipt:
    """Make a `Receipt` of a job that holds no other's place."""
    made = _Receipt()
    made.id = id
    made.created = created
    made.state = state
    made.deduplicated = False
    made.__class__ = Receipt
    return made  # type: ignore[no-any-return]  # a cast would be a call


def new_claimed(
    *,
    spec: JobSpec,
    lease: Lease,
    created_ms: int,
    age_ms: int,
    started: int,
    attempts_made: int,
    stalls: int,
    doom: Failure | None,
) -> Claimed:
    """Make a `Claimed`."""
    made = _Claimed()
    made.spec = spec
    made.lease = lease
    made.created_ms = created_ms
    made.age_ms = age_ms
    made.started = started
    made.attempts_made = attempts_made
    made.stalls = stalls
    made.doom = doom
    made.__class__ = Claimed
    return made  # type: ignore[no-any-return]  # a cast would be a call
