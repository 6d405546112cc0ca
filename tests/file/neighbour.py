"""Another process on the same file storage; says what it saw, one JSON line each.

python -m tests.file.neighbour wait|events|finished|hold|claim <url>
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import sys
import time
from pathlib import Path

from toril.event import Cursor
from toril.storage.file import FileStorage
from toril.storage.protocol import Claim

POLL_S = 3600
BLOCK_MS = 60_000


def say(**what: object) -> None:
    """Tell the test."""
    print(json.dumps(what), flush=True)


async def main(verb: str, directory: str) -> None:
    """Block in a verb until the test does something elsewhere."""
    storage = FileStorage(directory, poll=POLL_S)
    await storage.open()
    say(ready=True)
    if verb == "wait":
        await storage.wait(["q"], BLOCK_MS)
        seen_ns = time.monotonic_ns()
        batch = await storage.claim("q", Claim(token="t", worker_id="n", count=1, lease_ms=1_000))
        say(seen_ns=seen_ns, ids=[job.spec.id for job in batch.jobs])
    elif verb == "events":
        events = await storage.events("q", Cursor.START, block_ms=BLOCK_MS)
        say(seen_ns=time.monotonic_ns(), ids=[event.job_id for event in events])
    elif verb == "finished":
        endings = await storage.finished("q", ["a"], BLOCK_MS)
        say(seen_ns=time.monotonic_ns(), ids=[ending.id for ending in endings])
    await storage.close()


def hold(directory: str) -> None:
    """Take the write lock and keep it until stdin ends."""
    db = sqlite3.connect(Path(directory) / "toril.db", isolation_level=None)
    db.execute("BEGIN IMMEDIATE")
    say(ready=True)
    sys.stdin.read()
    db.execute("ROLLBACK")
    db.close()


if __name__ == "__main__":
    if sys.argv[1] == "hold":
        hold(sys.argv[2])
    else:
        asyncio.run(main(*sys.argv[1:]))
