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
from toril.storage.bullmq.keys import Keys, keys_of
from toril.storage.bullmq.observe import stream_id
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
