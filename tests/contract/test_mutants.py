"""Show that the contract's checks turn red when the storage breaks its promises."""

from __future__ import annotations

import pytest

from tests.contract.conftest import memory_rig
from tests.contract.mutants import MUTANTS, Mutant
from toril.errors import UnsupportedFeature
from toril.testing import CHECKS, ContractCheck, Rig, run_check, suite

BY_NAME = {check.name: check for check in CHECKS}
CASES = [
    pytest.param(mutant, name, id=f"{mutant.name}-{name}")
    for mutant in MUTANTS
    for name in mutant.caught_by
]
# A mutant whose code is wrong, or a check that does not apply, must not pass for one that noticed.
BROKEN_MUTANT = (ImportError, NameError, AttributeError, TypeError, UnsupportedFeature)


async def failure_of(check: ContractCheck, rig: Rig) -> Exception | None:
    """Run a check and return what it raised, None if it passed."""
    try:
        await run_check(check, rig)
    except Exception as error:
        return error
    return None


@pytest.mark.parametrize(("mutant", "name"), CASES)
async def test_the_named_check_turns_red_on_the_mutant(
    mutant: Mutant, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(suite, "PATIENCE_S", 0.1)
    monkeypatch.setattr(mutant.target, mutant.method, mutant.broken)
    async with memory_rig() as rig:
        error = await failure_of(BY_NAME[name], rig)
    assert error is not None, "the check did not notice"
    assert not isinstance(error, BROKEN_MUTANT), repr(error)


@pytest.mark.parametrize("name", sorted({name for one in MUTANTS for name in one.caught_by}))
async def test_the_named_check_is_green_without_the_mutant(name: str) -> None:
    async with memory_rig() as rig:
        await run_check(BY_NAME[name], rig)


def test_there_are_at_least_fourteen_mutants_each_with_a_name_of_its_own() -> None:
    names = [mutant.name for mutant in MUTANTS]
    assert len(set(names)) == len(names) >= 14
    assert all(mutant.caught_by for mutant in MUTANTS)
