"""The scripts of the BullMQ wire at the speed of the server; prints one line of JSON.

Ids and tokens are known beforehand, so every command is packed before the clock starts and a raw
socket keeps some of them under way: what is left is the server's time.

python -m benchmarks.wire_peer batch|official add|drain <url> <queue> <jobs> <concurrency>
"""

from __future__ import annotations

import json
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from string import ascii_lowercase
from typing import Any, Final

from hiredis import Reader

from benchmarks.compare.adapters.measure import Given, payload, say, stopwatch
from toril.job import JobSpec, Terms
from toril.outcome import Lease
from toril.resp.url import parse_url
from toril.resp.wire import pack
from toril.storage.bullmq import codec
from toril.storage.bullmq.intake import add_command, added_arguments
from toril.storage.bullmq.keys import Keys, keys_of
from toril.storage.bullmq.leases import Fate
from toril.storage.bullmq.link import ENDING_KEPT_MS, chunks
from toril.storage.bullmq.official import own, scripts
from toril.storage.bullmq.scripts import Command, call
from toril.storage.bullmq.texts import write_columns
from toril.storage.bullmq.work import BATCH, Ended, ended_arguments

LEASE_MS: Final = 30_000
UNDER_WAY: Final = 100
"""Jobs whose commands may be without a reply."""
WORKER: Final = "ceiling"
ORIGIN: Final = "bulk"
TERMS: Final = Terms()
KEPT: Final = Fate(
    plain=True, kept=True, ttl_ms=None, for_good=True, outlives=True, waits=False, bare=True
)


class Wire:
    """A blocking connection."""

    def __init__(self, host: str, port: int) -> None:
        self._socket = socket.create_connection((host, port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = Reader(notEnoughData=Ellipsis)

    def push(self, packed: Sequence[bytes], under_way: int) -> None:
        """Send commands, at most so many without a reply."""
        sent = answered = 0
        while answered < len(packed):
            fresh = packed[sent : answered + under_way]
            if len(fresh) * 2 >= under_way or sent + len(fresh) == len(packed):
                self._socket.sendall(b"".join(fresh))
                sent += len(fresh)
            self._reader.feed(self._socket.recv(1 << 18))
            while (reply := self._reader.gets()) is not Ellipsis:
                if isinstance(reply, Exception):
                    raise reply
                answered += 1

    def ask(self, *args: str | bytes | int) -> Any:
        """Send one command, give its reply."""
        self._socket.sendall(pack(*args))
        return self.reply()

    def reply(self) -> Any:
        """Wait for what the server says next."""
        while (reply := self._reader.gets()) is Ellipsis:
            self._reader.feed(self._socket.recv(1 << 16))
        return reply


def batch_add(keys: Keys, specs: Sequence[JobSpec], now_ms: int) -> Iterator[Command]:
    """Write the calls of our own script that add jobs."""
    for some in chunks(specs, BATCH):
        ids, terms = [spec.id for spec in some], [spec.terms for spec in some]
        args = added_arguments(
            ids,
            [spec.name for spec in some],
            [spec.payload for spec in some],
            write_columns(ids, terms, ORIGIN),
        )
        yield ("EVALSHA", own("add").sha, 1, keys.base, now_ms, *args)


def official_add(keys: Keys, specs: Sequence[JobSpec], now_ms: int) -> Iterator[Command]:
    """Write the calls of the official script that add jobs."""
    return (add_command(keys, spec, now_ms) for spec in specs)


def batch_drain(
    keys: Keys, specs: Sequence[JobSpec], concurrency: int, now_ms: int
) -> Iterator[Command]:
    """Write the calls that end a batch and fetch the one that is `concurrency` jobs after it."""
    behind = concurrency // BATCH
    groups = [*chunks(specs, BATCH), *[()] * behind]
    for number, fetched in enumerate(groups):
        args: list[str | bytes | int] = [LEASE_MS, WORKER, f"{number}.", len(fetched)]
        args += (ENDING_KEPT_MS, "", "", "")
        ended = groups[number - behind] if number >= behind else ()
        done: list[Ended] = []
        for letter, spec in zip(ascii_lowercase, ended, strict=False):
            lease = Lease(job_id=spec.id, token=f"{number - behind}.{letter}", attempt=1)
            done.append(Ended(lease=lease, result=_result(spec), fate=KEPT, ending=b""))
        args += ended_arguments(done)
        yield ("EVALSHA", own("finish").sha, 1, keys.base, now_ms, *args)


def official_drain(
    keys: Keys, specs: Sequence[JobSpec], concurrency: int, now_ms: int
) -> Iterator[Command]:
    """Write the calls that end one job and fetch another."""
    grant = {"token": WORKER, "lockDuration": LEASE_MS, "name": WORKER}
    end = codec.pack({**grant, "keepJobs": {"count": -1}, "attempts": 1, "maxMetricsSize": ""})
    for _ in range(concurrency):
        yield call("moveToActive", keys, keys.base, now_ms, codec.pack(grant))
    for number, spec in enumerate(specs, concurrency):
        fetch = "1" if number < len(specs) else "0"
        args = (spec.id, now_ms, "returnvalue", _result(spec), "completed", fetch)
        yield call(
            "moveToFinished",
            keys,
            *(*args, keys.base, end, b""),
            job_id=spec.id,
            special="completed",
        )


def _result(spec: JobSpec) -> bytes:
    return spec.id.removeprefix("job-").encode()


def specs_of(jobs: int) -> list[JobSpec]:
    """The jobs of the workload, with ids that are known."""
    data = (json.dumps(payload(number), separators=(",", ":")) for number in range(jobs))
    return [
        JobSpec(id=f"job-{number}", name="job", payload=text.encode(), terms=TERMS, origin=ORIGIN)
        for number, text in enumerate(data)
    ]


def main() -> None:
    kind = sys.argv.pop(1)
    given = Given.read()
    address = parse_url(given.where)
    keys, now_ms = keys_of(address, given.queue), round(time.time() * 1000)
    specs, size = specs_of(given.jobs), BATCH if kind == "batch" else 1
    if given.verb == "add":
        commands = (batch_add if kind == "batch" else official_add)(keys, specs, now_ms)
    else:
        drain = batch_drain if kind == "batch" else official_drain
        commands = drain(keys, specs, given.concurrency, now_ms)
    packed = [pack(*command) for command in commands]
    wire = Wire(*address.hosts[0])
    for script in (own("add"), own("finish"), *scripts().values()):
        wire.ask("SCRIPT", "LOAD", script.text)
    warm = given.warm_up // size
    wire.push(packed[:warm], UNDER_WAY // size)
    stop = stopwatch()
    wire.push(packed[warm:], UNDER_WAY // size)
    figures = stop()
    kept = ("LLEN", keys.of("wait")) if given.verb == "add" else ("ZCARD", keys.of("completed"))
    assert (found := wire.ask(*kept)) == len(specs), found
    say({"jobs": len(specs) - warm * size, **figures})


if __name__ == "__main__":
    main()
