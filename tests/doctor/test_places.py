"""Clients that cannot meet: other prefixes, braces, layouts and databases (E13)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from redis import Redis

from tests.doctor.conftest import bad, found
from tests.servers import Server, valkey_binary
from toril import Queue
from toril.doctor.census import read_meta
from toril.doctor.examine import examine
from toril.doctor.finding import Bounds, Level


@pytest.fixture
def server() -> Iterator[Server]:
    """A server of the test's own: the usual prefixes are looked at."""
    with Server(valkey_binary()) as running:
        yield running


@pytest.fixture
def raw(server: Server) -> Iterator[Any]:
    """A client that asks no questions."""
    with Redis(port=server.port) as client:
        yield client


def node_queue(raw: Any, base: str, waiting: int) -> None:
    """Write a queue as a Node client does."""
    raw.hset(f"{base}:meta", mapping={"opts.maxLenEvents": 10000, "version": "bullmq:5.62.0"})
    for number in range(waiting):
        job = {"name": "n", "data": "{}", "opts": "{}", "timestamp": 1, "delay": 0, "priority": 0}
        raw.hset(f"{base}:{number}", mapping=job)
        raw.lpush(f"{base}:wait", number)


@pytest.mark.parametrize(
    ("key", "spot"),
    [
        ("bull:mail:meta", ("bullmq", "bull", "mail", "mail")),
        ("bull:{mail}:meta", ("bullmq", "bull", "{mail}", "mail")),
        ("{bull}:mail:meta", ("bullmq", "{bull}", "mail", "mail")),
        ("{bull}:{mail}:meta", ("bullmq", "{bull}", "{mail}", "mail")),
        ("a:b:mail:meta", ("bullmq", "a:b", "mail", "mail")),
        ("{jq:mail}:meta", ("lean", "jq", "mail", "mail")),
        ("{a:b:mail}:meta", ("lean", "a:b", "mail", "mail")),
    ],
)
def test_a_queue_is_read_from_its_key(key: str, spot: tuple[str, ...]) -> None:
    read = read_meta(key)
    assert read is not None
    assert (read.layout, read.prefix, read.name, read.bare) == spot
    assert f"{read.base}meta" == key


@pytest.mark.parametrize("key", ["meta", "mail:meta", "bull:mail:wait"])
def test_other_keys_are_no_queues(key: str) -> None:
    assert read_meta(key) is None


async def test_a_prefix_with_braces_is_a_place_like_others(server: Server, raw: Any) -> None:
    node_queue(raw, "{bull}:mail", 1)
    place = found(await examine(f"bullmq+{server.url}", ["mail"]), "place")
    assert "found '{bull}:mail' (1 waiting)" in place.text
    assert place.fix == 'prefix="{bull}"'
    assert bad(await examine(f"bullmq+{server.url}?prefix={{bull}}", ["mail"])) == ["workers"]


async def test_e13_a_queue_under_another_prefix_is_found(server: Server, raw: Any) -> None:
    node_queue(raw, "bull2:mail", 3)
    report = await examine(f"bullmq+{server.url}?hash_tag=off", ["mail"])
    place = found(report, "place")
    assert (place.level, place.code, place.count) == (Level.PROBLEM, "E13", 3)
    assert place.text == (
        "queue 'mail' has no keys under prefix 'bull'; found 'bull2:mail' (3 waiting),"
        " written by a Node client"
    )
    assert place.fix == 'prefix="bull2"'
    mended = await examine(f"bullmq+{server.url}?hash_tag=off&prefix=bull2", ["mail"])
    assert bad(mended) == ["workers"]


async def test_e13_braces_around_the_name_are_found(server: Server, raw: Any) -> None:
    node_queue(raw, "bull:mail", 1204)
    place = found(await examine(f"bullmq+{server.url}", ["mail"]), "place")
    assert "found 'bull:mail' (1,204 waiting), written by a Node client" in place.text
    assert place.fix == "hash_tag=off, or name the queue '{mail}' in Node"
    assert bad(await examine(f"bullmq+{server.url}?hash_tag=off", ["mail"])) == ["workers"]
    raw.flushall()
    node_queue(raw, "bull:{mail}", 1)
    place = found(await examine(f"bullmq+{server.url}?hash_tag=off", ["mail"]), "place")
    assert "found 'bull:{mail}' (1 waiting)" in place.text
    assert place.fix == "hash_tag=on, or name the queue 'mail' in Node"


async def test_e13_another_database_is_found(server: Server) -> None:
    with Redis(port=server.port, db=3) as third:
        node_queue(third, "bull:{mail}", 2)
    place = found(await examine(f"bullmq+{server.url}", ["mail"]), "place")
    assert "found 'bull:{mail}' in database 3 (2 waiting)" in place.text
    assert place.fix == "end the URL with /3"
    assert bad(await examine(f"bullmq+{server.url}/3", ["mail"])) == ["workers"]


async def test_e13_the_other_layout_is_found(server: Server) -> None:
    async with Queue[int, int]("mail", server.url) as queue:
        await queue.add("n", 1)
    place = found(await examine(f"bullmq+{server.url}", ["mail"]), "place")
    assert "found '{jq:mail}' (1 waiting), written by toril in its own layout" in place.text
    assert place.fix == "leave 'bullmq+' out of the URL"


async def test_a_bullmq_queue_is_found_from_the_other_layout(server: Server, raw: Any) -> None:
    node_queue(raw, "bull:mail", 1)
    place = found(await examine(server.url, ["mail"]), "place")
    fix = "put 'bullmq+' before the URL, hash_tag=off, or name the queue '{mail}' in Node"
    assert place.fix == fix


async def test_a_queue_that_is_nowhere_is_a_warning(server: Server) -> None:
    place = found(await examine(server.url, ["mail"]), "place")
    assert place.level is Level.WARNING
    assert place.text == "queue 'mail' has no keys under prefix 'jq', nor under another one"


async def test_twins_are_found_whichever_is_ours(server: Server, raw: Any) -> None:
    node_queue(raw, "bull:{mail}", 1)
    node_queue(raw, "bull:mail", 2)
    twin = found(await examine(f"bullmq+{server.url}", ["mail"]), "twin")
    assert (twin.level, twin.code) == (Level.PROBLEM, "E13")
    assert twin.text.startswith(
        "queue 'mail' is there twice: 'bull:{mail}' and 'bull:mail' (2 waiting), written by a Node"
    )
    twin = found(await examine(f"bullmq+{server.url}?hash_tag=off", ["mail"]), "twin")
    assert twin.level is Level.WARNING  # whoever says which is meant knows of both
    assert "'bull:{mail}' (1 waiting)" in twin.text


async def test_a_twin_of_the_other_layout_is_found(server: Server, raw: Any) -> None:
    async with Queue[int, int]("mail", server.url) as queue:
        await queue.add("n", 1)
    node_queue(raw, "bull:{mail}", 2)
    for url in (server.url, f"bullmq+{server.url}"):
        assert found(await examine(url, ["mail"]), "twin").level is Level.PROBLEM


async def test_all_queues_are_found_and_those_of_others_counted(server: Server, raw: Any) -> None:
    node_queue(raw, "bull:{mail}", 1)
    node_queue(raw, "bull:{sums}", 1)
    node_queue(raw, "bull2:mail", 1)
    report = await examine(f"bullmq+{server.url}")
    text = "2 under prefix 'bull'; beside them 1 under 'bull2' of BullMQ, without braces"
    assert found(report, "queues").text == text
    assert {one.queue for one in report.findings} == {None, "mail", "sums"}


async def test_the_search_for_queues_ends_at_its_limit_and_says_so(
    server: Server, raw: Any
) -> None:
    raw.mset({f"x{number}": 1 for number in range(5000)})
    report = await examine(f"bullmq+{server.url}", bounds=Bounds(keys=2000))
    cut = next(one for one in report.findings if one.check == "queues")
    assert cut.level is Level.WARNING
    assert cut.text.startswith("the server holds more than 2,000 keys")
