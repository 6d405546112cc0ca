"""A server that may lose jobs, refuse them or let others in is told of."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from tests.doctor.conftest import found
from tests.resp.nodes import wait_for
from tests.resp.watch import watched_master
from tests.servers import SAFE, Server, redis_binary, valkey_binary
from toril import Queue
from toril.doctor.examine import examine
from toril.doctor.facts import Facts
from toril.doctor.finding import Finding, Level
from toril.doctor.server import check_server
from toril.errors import StorageError
from toril.resp.url import parse_url

SOUND = Facts(
    node="127.0.0.1:6379",
    info={
        "valkey_version": "9.1.2",
        "maxmemory_policy": "noeviction",
        "aof_enabled": "1",
        "role": "master",
        "used_memory": "999600",
        "connected_clients": "2",
        "maxclients": "100",
    },
    config={"appendfsync": "everysec", "bind": "127.0.0.1", "port": "6379", "protected-mode": "no"},
    open_to_all=True,
    ahead_ms=3.0,
    trip_ms=0.2,
)
HERE = parse_url("redis://127.0.0.1")


@pytest.fixture
def server() -> Iterator[Server]:
    """A server of the test's own, to be mistreated."""
    with Server(valkey_binary(), *SAFE) as running:
        yield running


@pytest.fixture
def raw(server: Server) -> Iterator[Any]:
    """A client that asks no questions."""
    with Redis(port=server.port) as client:
        yield client


async def finding(server: Server, check: str) -> Finding:
    return found(await examine(server.url), check)


def judged(facts: Facts, check: str, url: str = "redis://127.0.0.1") -> Finding:
    (one,) = [one for one in check_server(facts, parse_url(url)) if one.check == check]
    return one


async def test_a_sound_server_is_ok_throughout(server: Server) -> None:
    report = await examine(server.url)
    assert {one.level for one in report.findings} == {Level.OK}
    assert [one.check for one in report.findings] == [
        *("version", "eviction", "persistence", "replication", "access", "clock", "clients"),
        "queues",
    ]


async def test_a_server_that_evicts_is_a_problem_and_its_queues_are_looked_at(
    server: Server, raw: Any
) -> None:
    async with Queue[int, int]("mail", server.url) as queue:
        await queue.add("n", 1)
    raw.config_set("maxmemory-policy", "allkeys-lru")
    with pytest.raises(StorageError, match="allkeys-lru"):
        await Queue[int, int]("mail", server.url).start()
    report = await examine(server.url)
    eviction = found(report, "eviction")
    assert (eviction.level, eviction.code) == (Level.PROBLEM, "E15")
    assert eviction.text == (
        "maxmemory-policy is allkeys-lru: the server may delete jobs; needs noeviction"
    )
    assert str(eviction.fix).startswith("CONFIG SET maxmemory-policy noeviction")
    assert found(report, "workers").count == 1
    raw.config_set("maxmemory-policy", "noeviction")
    assert (await finding(server, "eviction")).level is Level.OK


async def test_memory_that_is_nearly_full_is_a_warning(server: Server, raw: Any) -> None:
    raw.config_set("maxmemory", int(raw.info("memory")["used_memory"] * 1.05))
    eviction = await finding(server, "eviction")
    assert eviction.level is Level.WARNING
    assert "of memory are used; when it is full, new jobs are refused" in eviction.text


async def test_what_is_not_written_to_disk_is_a_warning(server: Server, raw: Any) -> None:
    raw.config_set("appendfsync", "no")
    assert "appendfsync is no" in (await finding(server, "persistence")).text
    raw.config_set("appendonly", "no")
    nothing = await finding(server, "persistence")
    assert nothing.level is Level.WARNING
    assert nothing.text.startswith("nothing is written to disk")
    raw.config_set("save", "60 1")
    assert "only snapshots (save 60 1)" in (await finding(server, "persistence")).text
    raw.config_set("appendonly", "yes")
    raw.config_set("appendfsync", "everysec")
    assert (await finding(server, "persistence")).text == "changes go to disk (each second)"
    # While it writes its first log, a server does not stop.
    raw.config_set("save", "")
    wait_for(lambda: not raw.info("persistence")["aof_rewrite_in_progress"])


async def test_a_disk_that_takes_nothing_is_a_problem(server: Server, raw: Any) -> None:
    shutil.rmtree(server.directory)
    raw.bgsave()
    wait_for(lambda: not raw.info("persistence")["rdb_bgsave_in_progress"])
    persistence = await finding(server, "persistence")
    assert persistence.level is Level.PROBLEM
    assert "could not save a snapshot" in persistence.text


async def test_a_replica_is_a_problem_and_its_master_may_be_one(server: Server, raw: Any) -> None:
    with Server(valkey_binary(), "--replicaof", f"127.0.0.1 {server.port}") as other:
        wait_for(lambda: raw.info("replication")["connected_slaves"] == 1)
        report = await examine(other.url)
        replication = found(report, "replication")
        assert (replication.level, replication.code) == (Level.PROBLEM, "E15")
        where = f"127.0.0.1:{server.port}"
        assert replication.text == f"this is a replica of {where}, which takes no jobs"
        assert where in str(replication.fix)
        assert "queues were not looked at" in found(report, "queues").text
        master = await finding(server, "replication")
        assert master.level is Level.WARNING
        assert "min-replicas-to-write is 0" in master.text
        raw.config_set("min-replicas-to-write", 1)
        assert (await finding(server, "replication")).text == "a master with 1 replica"


async def test_durability_that_cannot_be_kept_is_a_problem(server: Server, raw: Any) -> None:
    for asked, said in (("local", "can be kept"), ("replicated:1", "there are 0 replicas")):
        report = await examine(f"{server.url}?durability={asked}")
        assert said in found(report, "durability").text
    raw.config_set("appendonly", "no")
    local = found(await examine(f"{server.url}?durability=local"), "durability")
    assert (local.level, local.code) == (Level.PROBLEM, "E15")
    assert local.text == (
        "durability=local cannot be kept, as changes are not written to disk;"
        " the storage does not open"
    )


async def test_dead_connections_that_stay_are_a_warning(server: Server, raw: Any) -> None:
    raw.config_set("tcp-keepalive", 0)
    assert "tcp-keepalive is 0" in (await finding(server, "clients")).text


async def test_idle_connections_that_are_closed_are_a_warning(server: Server, raw: Any) -> None:
    raw.config_set("timeout", 10)
    clients = await finding(server, "clients")
    assert clients.level is Level.WARNING
    assert "idle for 10 s" in clients.text


async def test_a_user_who_may_not_ask_is_told_what_can_be_seen(server: Server, raw: Any) -> None:
    raw.execute_command(
        "ACL", "SETUSER", "ada", "on", ">word", "~*", "&*", "+@all", "-config", "-acl"
    )
    report = await examine(f"redis://ada:word@127.0.0.1:{server.port}")
    assert "may not see" in found(report, "access").text
    assert "word" not in str(report)


@pytest.mark.parametrize(
    ("layout", "lacking", "refused"),
    [
        ("bullmq+", ("scan",), ["queues", "records", "dedup"]),
        ("bullmq+", ("pttl",), ["dedup"]),
        ("bullmq+", ("lrange",), ["lines"]),
        ("", ("hscan",), ["records"]),
        ("", ("scan", "lpos"), ["queues", "dedup"]),
    ],
)
async def test_a_check_that_a_user_may_not_make_does_not_end_the_others(
    server: Server, raw: Any, layout: str, lacking: tuple[str, ...], refused: list[str]
) -> None:
    async with Queue[int, int]("mail", f"{layout}{server.url}") as queue:
        await queue.add("n", 1, delay=3600, dedup="k")
    minus = [f"-{name}" for name in lacking]
    raw.execute_command("ACL", "SETUSER", "ada", "on", ">word", "~*", "&*", "+@all", *minus)
    report = await examine(f"{layout}redis://ada:word@127.0.0.1:{server.port}", ["mail"])
    assert report.of(Level.PROBLEM) == []
    warnings = report.of(Level.WARNING)
    assert [one.check for one in warnings] == refused
    assert all("not looked at: this user has no permissions" in one.text for one in warnings)


async def test_a_queue_a_user_may_not_read_is_still_named(server: Server, raw: Any) -> None:
    raw.hset("bull:mail:meta", "version", "bullmq:5.62.0")
    raw.execute_command("ACL", "SETUSER", "ada", "on", ">word", "~bull:{*", "&*", "+@all")
    report = await examine(f"bullmq+redis://ada:word@127.0.0.1:{server.port}", ["mail"])
    assert found(report, "place").text.endswith("found 'bull:mail' (this user may not read it)")


async def test_redis_is_checked_like_valkey() -> None:
    with Server(redis_binary(), *SAFE) as redis:
        async with Queue[int, int]("mail", redis.url) as queue:
            await queue.add("n", 1, delay=3600)
        report = await examine(redis.url)
    assert found(report, "version").text.startswith("redis ")
    assert {one.level for one in report.findings if one.check != "version"} == {Level.OK}


async def test_a_master_behind_sentinels_is_checked(tmp_path: Path) -> None:
    with watched_master(tmp_path) as watched:
        url = f"redis+sentinel://127.0.0.1:{watched.port}/main"
        async with Queue[int, int]("mail", url) as queue:
            await queue.add("n", 1, delay=3600)
        report = await examine(url)
    assert f"at 127.0.0.1:{watched.master.port}" in found(report, "version").text
    assert "1 replica" in found(report, "replication").text
    assert found(report, "records").level is Level.OK


@pytest.mark.parametrize(
    ("changed", "level", "said"),
    [
        ({"redis_version": "6.2.14"}, Level.PROBLEM, "redis 6.2.14 is too old; toril needs 7.0"),
        ({"valkey_version": "7.0.1"}, Level.PROBLEM, "valkey 7.0.1 is too old; toril needs 7.2"),
        ({"valkey_version": "8.1.3"}, Level.WARNING, "valkey 8.1.3: whoever may run scripts"),
        ({"redis_version": "7.0.15"}, Level.WARNING, "CVE-2025-49844"),
        ({"redis_version": "8.2.2"}, Level.OK, "redis 8.2.2 at 127.0.0.1:6379"),
    ],
)
def test_old_and_unsafe_versions_are_known(
    changed: dict[str, str], level: Level, said: str
) -> None:
    kept = {name: value for name, value in SOUND.info.items() if name != "valkey_version"}
    version = judged(replace(SOUND, info=kept | changed), "version")
    assert version.level is level
    assert said in version.text


@pytest.mark.parametrize(
    ("ahead_ms", "level", "said"),
    [
        (3.0, Level.OK, "3 ms ahead of ours"),
        (-1500.0, Level.WARNING, "its clock is 1.5 s behind ours"),
        (3_600_000.0, Level.PROBLEM, "its clock is 3,600.0 s ahead of ours"),
    ],
)
def test_clocks_that_differ_are_told(ahead_ms: float, level: Level, said: str) -> None:
    clock = judged(replace(SOUND, ahead_ms=ahead_ms), "clock")
    assert (clock.level, clock.text) == (level, said)


def test_a_slow_way_is_no_difference_of_clocks() -> None:
    slow = replace(SOUND, ahead_ms=1200.0, trip_ms=900.0)
    assert judged(slow, "clock").level is Level.OK


@pytest.mark.parametrize(
    ("bind", "url", "level", "said"),
    [
        ("127.0.0.1 -::1", "redis://127.0.0.1", Level.OK, "nobody outside this machine"),
        ("* -::*", "redis://127.0.0.1", Level.WARNING, "listens on * -::* and asks nobody"),
        ("", "redis://127.0.0.1", Level.WARNING, "listens on all addresses"),
        ("*", "redis://db.example", Level.WARNING, "go to db.example unencrypted"),
        ("*", "rediss://db.example?verify=off", Level.WARNING, "TLS is not verified"),
    ],
)
def test_an_open_door_is_a_warning(bind: str, url: str, level: Level, said: str) -> None:
    access = judged(replace(SOUND, config={**SOUND.config, "bind": bind}), "access", url)
    assert access.level is level
    assert said in access.text


def test_a_password_closes_the_door() -> None:
    closed = replace(SOUND, open_to_all=False, config={**SOUND.config, "bind": "*"})
    assert judged(closed, "access").text == "with a password"


def test_a_replica_that_lags_and_a_crowd_are_warnings() -> None:
    late = {"connected_slaves": "1", "slave0": "ip=::1,port=1,state=online,offset=9,lag=31"}
    facts = replace(SOUND, info={**SOUND.info, **late, "connected_clients": "80"})
    findings = [one for one in check_server(facts, HERE) if one.level is Level.WARNING]
    assert [one.check for one in findings] == ["replication", "clients"]
    assert "31 s behind" in findings[0].text
    assert "80 of 100 connections" in findings[1].text


def test_sizes_are_short() -> None:
    assert "1 MB of memory used" in judged(SOUND, "eviction").text
