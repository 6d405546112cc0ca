"""Run the published contract over every storage of ours."""

from __future__ import annotations

import subprocess
import sys

import pytest

from toril.errors import UnsupportedFeature
from toril.storage.protocol import Beats
from toril.testing import CHECKS, Bench, ContractCheck, Rig, run_check


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
async def test_the_storage_keeps_the_contract(check: ContractCheck, rig: Rig) -> None:
    reason = check.why_not(rig.storage)
    if reason is not None:
        pytest.skip(reason)
    await run_check(check, rig)


def test_the_suite_has_at_least_eighty_checks() -> None:
    assert len(CHECKS) >= 80


def test_every_check_has_a_name_of_its_own_that_is_a_sentence() -> None:
    names = [check.name for check in CHECKS]
    assert len(set(names)) == len(names)
    assert [name for name in names if name.count("_") < 3] == []


async def test_a_check_that_does_not_apply_says_so_and_is_refused(rig: Rig) -> None:
    async def never_runs(_bench: Bench) -> None:
        raise AssertionError("a check ran on a storage without its facet")

    check = ContractCheck(name="needs_another_facet", run=never_runs, facet=Beats)
    if isinstance(rig.storage, Beats):
        pytest.skip("this storage has every facet")
    assert "Beats" in (check.why_not(rig.storage) or "")
    with pytest.raises(UnsupportedFeature, match="Beats"):
        await run_check(check, rig)


def test_the_suite_needs_no_test_framework() -> None:
    code = (
        "import sys, toril.testing;"
        "found = {'pytest', 'hypothesis', '_pytest'} & set(sys.modules);"
        "sys.exit(f'imported: {found}' if found else 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
