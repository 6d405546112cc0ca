"""One user for everything: an admin, also without what toril can do without, and on a cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Final, cast

import pytest
from redis import Redis

from tests.contract.bullmq_rig import BullmqRig
from tests.contract.redis_rig import RedisRig
from tests.resp.nodes import cluster
from tests.servers import Server
from toril.acl import hashed, make_user
from toril.ids import ulid
from toril.resp.secret import Secret
from toril.resp.url import Address, parse_url
from toril.testing import CHECKS, ContractCheck, Rig, run_check

OPTIONAL: Final = frozenset(
    {"client|id", "client|kill", "client|list", "client|setname", "client|unblock", "info"}
)
WAITS: Final = [check for check in CHECKS if "wait" in check.name or "cancelled" in check.name]
LAYOUTS: Final = {"lean": "", "bullmq": "bullmq+"}


@pytest.fixture(scope="module")
def nodes() -> Iterator[list[Server]]:
    with cluster(3) as servers:
        yield servers


def admit(servers: list[Server], address: Address, without: frozenset[str]) -> Address:
    """Make an admin on all servers; give the address to log in with."""
    user = make_user(address, ["admin"], name=str(address.prefix), secret=hashed("secret"))
    left = tuple(one for one in user.commands if one not in without)
    for server in servers:
        with Redis(port=server.port) as default:
            default.execute_command(*replace(user, commands=left).write("setuser").split(" "))
    return replace(address, username=user.name, password=Secret("secret"))


@asynccontextmanager
async def admin(
    servers: list[Server], layout: str, url: str, without: frozenset[str] = frozenset()
) -> AsyncIterator[Rig]:
    """Open a rig whose storage is an admin's."""
    address = parse_url(f"{LAYOUTS[layout]}{url}?prefix=o{ulid()}")
    login = admit(servers, address, without)
    rig = RedisRig(login) if layout == "lean" else BullmqRig(login)
    await rig.storage.open()
    try:
        yield cast("Rig", rig)
    finally:
        await rig.storage.close()
        if isinstance(rig, BullmqRig):
            rig.close()


async def run(check: ContractCheck, rig: Rig) -> None:
    reason = check.why_not(rig.storage)
    if reason is not None:
        pytest.skip(reason)
    await run_check(check, rig)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("check", WAITS, ids=lambda check: check.name)
async def test_an_admin_does_without_what_is_optional(
    check: ContractCheck, layout: str, valkey: Server
) -> None:
    async with admin([valkey], layout, valkey.url, OPTIONAL) as rig:
        await run(check, rig)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("check", CHECKS[::8], ids=lambda check: check.name)
async def test_an_admin_works_on_a_cluster(
    check: ContractCheck, layout: str, nodes: list[Server]
) -> None:
    url = "redis+cluster://" + ",".join(f"127.0.0.1:{node.port}" for node in nodes)
    async with admin(nodes, layout, url) as rig:
        await run(check, rig)
