"""The storage contract as plain async checks, for every storage, also for yours.

Write a `Rig` for the storage, then run each check that applies over a fresh one:

    for check in CHECKS:
        rig = await make_rig()
        if check.why_not(rig.storage) is None:
            await run_check(check, rig)

Checks are plain functions with plain asserts; no test framework is imported here. Under pytest,
`pytest.register_assert_rewrite("toril.testing")` before the first import shows their values.
"""

from toril.testing import (
    checks_ends,
    checks_facets,
    checks_keep,
    checks_observe,
    checks_produce,
    checks_recover,
    checks_tend,
    checks_wait,
    checks_work,
)
from toril.testing.rig import MemoryRig, Rig, lose_next_reply
from toril.testing.suite import CHECKS, Bench, ContractCheck, check, run_check

__all__ = [
    "CHECKS",
    "Bench",
    "ContractCheck",
    "MemoryRig",
    "Rig",
    "check",
    "checks_ends",
    "checks_facets",
    "checks_keep",
    "checks_observe",
    "checks_produce",
    "checks_recover",
    "checks_tend",
    "checks_wait",
    "checks_work",
    "lose_next_reply",
    "run_check",
]
