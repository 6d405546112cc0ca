"""A storage whose every verb goes out as the user whose business it is."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Final, TypeVar, cast

from redis import Redis

from tests.contract.bullmq_rig import BullmqRig
from tests.contract.redis_rig import RedisRig
from tests.servers import Server
from toril.acl import ROLES, Role, hashed, make_user
from toril.clock import ManualClock
from toril.ids import ulid
from toril.resp.secret import Secret
from toril.resp.url import Address, parse_url
from toril.storage.bullmq import BullmqStorage
from toril.storage.redis import RedisStorage
from toril.testing import Rig

AnyStorage = RedisStorage | BullmqStorage
T = TypeVar("T")

VERBS: Final[Mapping[Role, str]] = {
    "producer": "enqueue cancel remove keep finished",
    "worker": "claim wait renew settle reap leave progress log heartbeat lease_left_ms",
    "viewer": "get events cursor counts peek queues workers logs",
    "admin": (
        "pause purge destroy promote reprioritize reschedule replace revive discard rerun tune"
    ),
}


class ByRole:
    """Four connections to one storage, one for each role."""

    def __init__(self, storages: Mapping[Role, AnyStorage]) -> None:
        self.storages = storages

    @property
    def features(self) -> object:
        """What all of them can."""
        return self.storages["admin"].features

    @property
    def url(self) -> str:
        """Where they are."""
        return self.storages["admin"].url

    @property
    def address(self) -> Address:
        """Where they are, in parts."""
        return self.storages["admin"].address

    @property
    def now_ms(self) -> int:
        """What all of them take for the time."""
        return self.storages["admin"].now_ms

    @now_ms.setter
    def now_ms(self, value: int) -> None:
        for storage in self.storages.values():
            storage.now_ms = value

    def poke(self) -> None:
        """Let all blocked calls look again."""
        for storage in self.storages.values():
            storage.poke()

    async def open(self) -> None:
        """Log in as every user."""
        for storage in self.storages.values():
            await storage.open()

    async def close(self) -> None:
        """Leave."""
        for storage in self.storages.values():
            await storage.close()

    async def settle_calls(self) -> None:
        """Have the commands under way answered, on every connection."""
        for storage in self.storages.values():
            link = storage._client if isinstance(storage, RedisStorage) else storage.client
            await link.call("", "PING")


def _verb(name: str, role: Role) -> Callable[..., Awaitable[object]]:
    def call(self: ByRole, *args: Any, **options: Any) -> Any:
        return getattr(self.storages[role], name)(*args, **options)

    return call


for _role, _names in VERBS.items():
    for _name in _names.split():
        setattr(ByRole, _name, _verb(_name, _role))


class _Settles:
    """Waits for the calls of all connections, where a rig knows of one."""

    storage: Any
    clock: ManualClock

    async def _settle(self) -> None:
        for _ in range(3):
            await self.storage.settle_calls()
            await self.clock.settle(5)


class LeanByRole(_Settles, RedisRig):
    """The lean layout, by role."""

    def __init__(self, address: Address, logins: Mapping[Role, Address]) -> None:
        super().__init__(address)
        made = {role: RedisStorage(one, clock=self.clock) for role, one in logins.items()}
        self.storage = cast("RedisStorage", ByRole(made))
        self.storage.now_ms = self.clock.now_ms()


class BullmqByRole(_Settles, BullmqRig):
    """The BullMQ layout, by role."""

    def __init__(self, address: Address, logins: Mapping[Role, Address]) -> None:
        super().__init__(address)
        made = {role: BullmqStorage(one, clock=self.clock) for role, one in logins.items()}
        self.storage = cast("BullmqStorage", ByRole(made))
        self.storage.now_ms = self.clock.now_ms()


def admit(server: Any, address: Address, *roles: Role, queues: tuple[str, ...] = ()) -> Address:
    """Make a user of these roles by the printed command; give the address to log in with."""
    password = ulid()
    name = f"{address.prefix}-{'-'.join(roles)}"
    user = make_user(address, roles, queues=queues, name=name, secret=hashed(password))
    server.execute_command(*user.write("setuser").split(" "))
    return replace(address, username=name, password=Secret(password))


@asynccontextmanager
async def by_role(server: Server, layout: str) -> AsyncIterator[Rig]:
    """Open a rig under a prefix of its own, with a user for each role and no rights beyond."""
    address = parse_url(f"{layout}{server.url}?prefix=t{ulid()}")
    with Redis(port=server.port) as default:
        logins = {role: admit(default, address, role) for role in ROLES}
        rig = (BullmqByRole if layout else LeanByRole)(address, logins)
        await rig.storage.open()
        try:
            yield cast("Rig", rig)
        finally:
            await rig.storage.close()
            if isinstance(rig, BullmqByRole):
                rig.close()
            names = {str(one.username) for one in logins.values()}
            default.acl_deluser(*names)
        _check_refusals(default, names)


def _check_refusals(server: Any, names: set[str]) -> None:
    """See that nothing was refused on the way but the look for twins outside the prefix."""
    refused = [one for one in server.acl_log() if one["username"] in names]
    assert [one for one in refused if one["object"] != "exists" and one["reason"] != "key"] == []
    assert {one["object"].rpartition(":")[2] for one in refused} <= {"exists", "meta"}
