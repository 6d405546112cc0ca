"""Run the published contract with each verb sent by the least user that may send it."""

from __future__ import annotations

import pytest

from tests.acl.by_role import by_role
from tests.servers import Server
from toril.testing import CHECKS, ContractCheck, run_check

LAYOUTS = {"lean": "", "bullmq": "bullmq+"}


async def _run(check: ContractCheck, server: Server, layout: str) -> None:
    async with by_role(server, LAYOUTS[layout]) as rig:
        reason = check.why_not(rig.storage)
        if reason is not None:
            pytest.skip(reason)
        await run_check(check, rig)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
async def test_users_keep_the_contract(check: ContractCheck, layout: str, valkey: Server) -> None:
    await _run(check, valkey, layout)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("check", CHECKS[::6], ids=lambda check: check.name)
async def test_users_of_redis_do_too(check: ContractCheck, layout: str, redis: Server) -> None:
    await _run(check, redis, layout)
