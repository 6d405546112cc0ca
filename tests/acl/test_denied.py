"""What users may not do is refused by the server, and leaves everything as it was."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
from redis import Redis

from tests.acl.by_role import AnyStorage, ByRole, admit, by_role
from tests.servers import Server, redis_binary, valkey_binary
from toril.acl import ROLES, Role, hashed, make_user
from toril.errors import StorageDenied
from toril.event import Cursor
from toril.ids import token, ulid
from toril.job import JobSpec, State, Terms
from toril.outcome import Completed
from toril.resp.script import Script
from toril.resp.secret import Secret
from toril.resp.sync import SyncClient
from toril.resp.url import Address, parse_url
from toril.storage.bullmq import BullmqStorage
from toril.storage.bullmq.bulk import BullmqBulk
from toril.storage.protocol import Claim
from toril.storage.redis import RedisStorage
from toril.storage.redis.bulk import RedisBulk
from toril.testing import Bench

LAYOUTS: Final = {"lean": "", "bullmq": "bullmq+"}
RIGHTS: Final = "; fix: give the user what `toril acl print` lists for its role$"
HOUR_MS: Final = 3_600_000
Dump = dict[bytes, object]
Call = Callable[[AnyStorage], Awaitable[object]]

FORBIDDEN: Final = (
    *("FLUSHALL", "FLUSHDB", "KEYS *", "CONFIG GET maxmemory", "CONFIG SET maxmemory 1"),
    *("DEBUG SLEEP 0", "SHUTDOWN NOSAVE", "ACL LIST", "ACL WHOAMI", "ACL SETUSER x on nopass"),
    *("SCRIPT FLUSH", "EVAL return 0", "FUNCTION LIST", "REPLICAOF NO ONE", "MONITOR", "SAVE"),
    *("CLIENT PAUSE 1", "PUBLISH news x", "SUBSCRIBE news", "SPUBLISH news x", "MIGRATE h 1 k 0 1"),
)


@pytest.fixture(params=LAYOUTS)
def layout(request: pytest.FixtureRequest) -> str:
    return LAYOUTS[request.param]


@pytest.fixture
def address(layout: str, server: Server) -> Address:
    return parse_url(f"{layout}{server.url}?prefix=d{ulid()}")


@pytest.fixture
def default(server: Server) -> Iterator[Redis]:
    with Redis(port=server.port) as connection:
        yield connection


def stored(server: Any, address: Address) -> Dump:
    """Everything under a prefix but the list of workers, in which whoever asks for work is seen."""
    found = server.keys(f"*{address.prefix}*")
    return {key: server.dump(key) for key in found if not key.endswith(b"workers")}


@asynccontextmanager
async def opened(address: Address) -> AsyncIterator[AnyStorage]:
    storage = BullmqStorage(address) if address.layout == "bullmq" else RedisStorage(address)
    await storage.open()
    try:
        yield storage
    finally:
        await storage.close()


def job(job_id: str, **terms: Any) -> JobSpec:
    return JobSpec(id=job_id, name="job", payload=b"1", terms=Terms(**terms), origin=ulid())


def wish() -> Claim:
    return Claim(token=token(), worker_id="w", count=5, lease_ms=30_000)


@pytest.mark.parametrize("role", ROLES)
def test_dangerous_commands_and_foreign_keys_are_denied(
    role: Role, address: Address, default: Redis
) -> None:
    default.set("foreign", "x")
    client = SyncClient(admit(default, address, role))
    other = f"{address.prefix}s:q:meta"
    foreign = ("GET foreign", "HGET foreign a", "LPUSH foreign a", f"HGET {other} a")
    try:
        assert client.call("", "PING") == b"PONG"
        for command in (*FORBIDDEN, *foreign):
            with pytest.raises(StorageDenied, match=RIGHTS):
                client.call("", *command.split(" "))
        for lua in ("'FLUSHALL'", "'KEYS', '*'", "'HGET', 'foreign', 'a'", "'SET', 'foreign', 1"):
            script = Script.of("try", f"return redis.call({lua})")
            with pytest.raises(StorageDenied, match=RIGHTS):
                client.run(script, f"{address.prefix}:q:")
    finally:
        client.close()
    assert default.get("foreign") == b"x"


WRITES: Final[dict[str, Call]] = {
    "enqueue": lambda storage: storage.enqueue("q", [job("new")]),
    "claim": lambda storage: storage.claim("q", wish()),
    "cancel": lambda storage: storage.cancel("q", ["waits"]),
    "remove": lambda storage: storage.remove("q", ["done"]),
    "keep": lambda storage: storage.keep("q", ["done"], 1),
    "pause": lambda storage: storage.pause("q", True),
    "purge": lambda storage: storage.purge("q", [State.COMPLETED], 0),
    "destroy": lambda storage: storage.destroy("q", force=True),
    "promote": lambda storage: storage.promote("q", ["due"]),
    "tune": lambda storage: storage.tune("q", concurrency=1),
    "revive": lambda storage: storage.revive("q", ["done"]),
}
DENIED: Final[list[tuple[Role, str, str]]] = [
    *(("viewer", verb, layout) for verb in WRITES for layout in LAYOUTS),
    *(("producer", "claim", layout) for layout in LAYOUTS),
    *(("producer", "destroy", layout) for layout in LAYOUTS),
    ("worker", "enqueue", "lean"),
    ("worker", "destroy", "lean"),
]


async def _fill(storage: AnyStorage) -> None:
    """Leave a job in each of the ways a claim could go: done, due, urgent, waiting."""
    await storage.enqueue("q", [job("done")])
    (claimed,) = (await storage.claim("q", wish())).jobs
    await storage.settle("q", [Completed(lease=claimed.lease, result=b"1")])
    await storage.enqueue("q", [job("due", delay_ms=1), job("urgent", priority=1), job("waits")])


@pytest.mark.parametrize(("role", "verb", "name"), DENIED)
async def test_a_denied_verb_changes_nothing(
    role: Role, verb: str, name: str, valkey: Server
) -> None:
    address = parse_url(f"{LAYOUTS[name]}{valkey.url}?prefix=d{ulid()}")
    with Redis(port=valkey.port) as default:
        async with opened(admit(default, address, "admin")) as admin:
            await _fill(admin)
        before = stored(default, address)
        async with opened(admit(default, address, role)) as storage:
            with pytest.raises(StorageDenied):
                await WRITES[verb](storage)
        assert stored(default, address) == before


async def test_a_producer_that_may_not_claim_leaves_plain_jobs_in_line(
    address: Address, default: Redis
) -> None:
    async with opened(admit(default, address, "producer")) as storage:
        await storage.enqueue("q", [job("a"), job("b")])
        before = stored(default, address)
        with pytest.raises(StorageDenied):
            await storage.claim("q", wish())
    assert stored(default, address) == before


async def test_a_user_of_one_queue_sees_no_other(address: Address, default: Redis) -> None:
    async with opened(admit(default, address, "admin")) as admin:
        await admin.enqueue("mine", [job("a")])
        await admin.enqueue("other", [job("b")])
    narrow = admit(default, address, "producer", "worker", "viewer", queues=("mine",))
    async with opened(narrow) as storage:
        await storage.enqueue("mine", [job("c")])
        assert len((await storage.claim("mine", wish())).jobs) == 2
        assert (await storage.counts("mine")).active == 2
        for call in (storage.counts("other"), storage.get("other", ["b"]), storage.queues()):
            with pytest.raises(StorageDenied):
                await call


async def test_a_viewer_does_not_count_what_is_past_its_time(layout: str, valkey: Server) -> None:
    async with by_role(valkey, layout) as rig:
        bench = Bench(rig)
        await bench.run("gone", terms=Terms(result_ttl_ms=1000))
        await bench.run("kept")
        await rig.advance(2000)
        assert isinstance(rig.storage, ByRole)
        with Redis(port=valkey.port) as default:
            before = stored(default, rig.storage.address)
            counts = await rig.storage.storages["viewer"].counts(bench.queue)
            page = await rig.storage.storages["viewer"].peek(bench.queue, State.COMPLETED, 0, 10)
            assert stored(default, rig.storage.address) == before
        assert counts.completed == 1
        assert [record.spec.id for record in page] == ["kept"]
        admin = await rig.storage.storages["admin"].counts(bench.queue)
        assert admin == counts


async def test_a_viewer_lists_workers_without_striking_any_off(layout: str, valkey: Server) -> None:
    async with by_role(valkey, layout) as rig:
        bench = Bench(rig)
        await bench.claim(worker="w1")
        await rig.advance(40_000)
        await bench.claim(worker="w2")
        assert [one.id for one in await rig.storage.workers(bench.queue)] == ["w2"]


async def test_bulk_reads_as_a_viewer_and_writes_as_a_producer(
    address: Address, default: Redis
) -> None:
    kind = BullmqBulk if address.layout == "bullmq" else RedisBulk
    writer = kind(admit(default, address, "producer"))
    reader = kind(admit(default, address, "viewer"))
    try:
        ids = [f"j-{number}" for number in range(300)]
        assert writer.write_jobs("q", ids, [b"1"] * 300).created == 300
        assert writer.write_jobs("q", ids, [b"1"] * 300).duplicates == 300
        writer.write_jobs("q", ["d-1", "d-2"], [b"1"] * 2, terms=Terms(delay_ms=HOUR_MS))
        assert reader.queues() == ["q"]
        assert reader.counts("q")[State.WAITING] == 300
        assert len(reader.read_events("q", Cursor.START, limit=2000)["kind"]) > 600
        assert len(reader.read_jobs("q", State.DELAYED, 0, 10)["id"]) == 2
        for state, count in ((State.WAITING, 300), (State.DELAYED, 2)):
            slices = reader.cut_jobs("q", state, 2)
            found = [one for cut in slices for one in reader.scan_jobs("q", cut, ["id"])]
            assert sum(len(columns["id"]) for columns in found) == count
        with pytest.raises(StorageDenied):
            reader.write_jobs("q", ["x"], [b"1"])
    finally:
        writer.close()
        reader.close()


@pytest.mark.parametrize("binary", [valkey_binary, redis_binary])
def test_a_server_reads_the_lines_of_a_file(binary: Callable[[], Path], tmp_path: Path) -> None:
    users = tmp_path / "users.acl"
    made = [make_user(Address(), [role], secret=hashed(role)).write("file") for role in ROLES]
    users.write_text("\n".join(["user default on nopass ~* &* +@all", *made, ""]))
    with Server(binary(), "--aclfile", str(users)) as server:
        for role in ROLES:
            login = replace(parse_url(server.url), username=f"toril-{role}", password=Secret(role))
            client = SyncClient(login)
            assert client.call("", "PING") == b"PONG"
            client.close()
