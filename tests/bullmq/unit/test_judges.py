"""Retries are told by a script and by the bulk reader; both must tell the same."""

from __future__ import annotations

from random import Random
from typing import Any, cast

import pytest

from tests.servers import Server
from toril.event import Cursor
from toril.ids import ulid
from toril.resp.replies import Argument
from toril.resp.sync import SyncClient
from toril.resp.url import parse_url
from toril.storage.bullmq import BullmqStorage
from toril.storage.bullmq.bulk import BullmqBulk
from toril.storage.bullmq.keys import Keys, keys_of
from toril.storage.bullmq.observe import number_of, stream_id
from toril.storage.bullmq.official import own
from toril.storage.bullmq.stream import Stream

KINDS = ("added", "active", "delayed", "waiting", "stalled", "completed", "progress", "own")


def fill(client: SyncClient, keys: Keys, dice: Random, count: int) -> None:
    """Write a stream in which everything may follow everything; mark some entries as put back."""
    commands: list[tuple[Argument, ...]] = []
    for _ in range(count):
        kind = dice.choice(KINDS)
        fields: list[Argument] = ["event", kind]
        if dice.random() < 0.97:
            fields += ["jobId", f"job-{min(dice.randrange(40), dice.randrange(40))}"]
        if kind == "waiting":
            fields += ["prev", dice.choice(("active", "active", "delayed"))]
        commands.append(("XADD", keys.of("events"), "*", *fields))
    ids = cast("list[bytes]", client.pipeline(keys.base, commands))
    marked = [one for one in ids if dice.random() < 0.1]
    client.pipeline(keys.base, [("ZADD", keys.of("toril-back"), 1, one) for one in marked])


def ask_script(client: SyncClient, keys: Keys, after: Cursor, count: int) -> set[int]:
    found = cast(
        "list[Any]",
        client.run(own("events"), keys.base, 0, f"({stream_id(after)}", "+", count),
    )
    return {at for at, digit in enumerate(found[5]) if digit == ord("1")}


@pytest.mark.parametrize("seed", range(12))
def test_script_and_bulk_reader_tell_the_same_retries(server: Server, seed: int) -> None:
    dice = Random(seed)
    address = parse_url(f"bullmq+{server.url}?prefix=j{ulid()}")
    client, keys = SyncClient(address), keys_of(address, "q")
    fill(client, keys, dice, 900)
    if seed % 3 == 0:
        client.call(keys.base, "XTRIM", keys.of("events"), "MAXLEN", 700)
    stream = Stream(client, keys, "q")
    span = stream.span()
    told = 0
    for start, count in [(0, 1), (0, 800), (5, 100), (300, 50), (550, 100), (650, 250)]:
        after = stream.walk(span.first, start)
        found = stream.read(after, None, count)
        expected = ask_script(client, keys, after, count)
        assert set(found.retried) == expected, (start, count)
        told += len(expected)
    assert told > 50
    client.close()


async def test_a_long_page_is_read_in_short_ones(server: Server) -> None:
    url = f"bullmq+{server.url}?prefix=j{ulid()}"
    address = parse_url(url)
    client, keys = SyncClient(address), keys_of(address, "q")
    fill(client, keys, Random(1), 900)
    client.close()
    storage = BullmqStorage(url)
    await storage.open()
    whole = list(await storage.events("q", Cursor.START, limit=10_000))
    assert len(whole) > 750
    assert list(await storage.events("q", Cursor.START, limit=600)) == whole[:600]
    assert list(await storage.events("q", whole[99].cursor, whole[700].cursor)) == whole[100:701]
    await storage.close()


ODD: tuple[tuple[Argument, ...], ...] = (
    ("event", "added", "jobId", "a", "name", "greet"),
    ("event", "delayed", "jobId", "a", "delay", "99999999999999"),
    ("event", "delayed", "jobId", "a", "delay", "soon"),
    ("event", "active", "jobId", "a", "prev", "wait"),
    ("event", "mine", "jobId", "a"),
    ("event", "progress", "jobId", "a", "data", '{"at":5}'),
    ("event", "waiting", "jobId", "a", "prev", "active", "name", "x"),
    ("event", "failed", "jobId", "a", "failedReason", b"\xff broken", "prev", "active"),
    ("event", "retries-exhausted", "jobId", "a", "attemptsMade", "3"),
    ("event", "completed", "jobId", b"\xe4", "returnvalue", '"x"', "data", "no progress"),
    ("event", "debounced", "jobId", "b", "debounceId", "k"),
    ("event", "deduplicated", "jobId", "b", "deduplicationId", "k", "deduplicatedJobId", "c"),
    ("event", "cleaned", "count", "12"),
    ("event", "drained"),
    ("kind", "nothing"),
)


async def test_columns_of_odd_entries_are_the_events_of_the_storage(server: Server) -> None:
    url = f"bullmq+{server.url}?prefix=j{ulid()}"
    address = parse_url(url)
    client, keys = SyncClient(address), keys_of(address, "q")
    client.pipeline(keys.base, [("XADD", keys.of("events"), "*", *one) for one in ODD])
    client.close()
    storage, bulk = BullmqStorage(url), BullmqBulk(url)
    await storage.open()
    events = await storage.events("q", Cursor.START)
    await storage.close()
    columns = bulk.read_events("q", Cursor.START)
    ends = [bulk.read_page("q", Cursor.START, limit=limit).seen for limit in (1, 5, 100)]
    bulk.close()
    assert columns["number"] == [number_of(event.cursor) for event in events]
    for name, values in columns.items():
        if name != "number":
            assert values == [getattr(event, name) for event in events], name
    assert ends == [1, 5, len(ODD)]
