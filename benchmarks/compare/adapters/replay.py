"""The ceiling of toril's own scripts: its commands once recorded, then sent packed beforehand.

A run of toril is listened to with MONITOR, the server is put back to where it was, and a raw
socket sends the same commands again: what is left is the server's time. Nothing here knows what the
commands mean, so it stays true when they change.

python -m benchmarks.compare.adapters.replay add|drain <url> <queue> <jobs> <concurrency>
"""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Final

from benchmarks.compare.adapters.measure import Given, say, stopwatch
from benchmarks.wire_peer import Wire
from toril import open_storage
from toril.resp.url import parse_url
from toril.resp.wire import pack

UNDER_WAY: Final = 8
NOT_SENT: Final = frozenset(
    b"HELLO AUTH SELECT CLIENT INFO CONFIG SCRIPT MONITOR PING BLPOP BRPOP BLMOVE BZPOPMIN XREAD "
    b"SUBSCRIBE QUIT ECHO".split()
)
"""What only prepares a connection or waits on one; the scripts are loaded already."""
_END: Final = b"replay:end"
_WORD: Final = re.compile(rb'"((?:[^"\\]|\\.)*)"')
_ESCAPE: Final = re.compile(rb"\\(x[0-9a-f]{2}|.)", re.DOTALL)
_LETTERS: Final = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"a": b"\a", b"b": b"\b"}


def words(line: bytes) -> list[bytes]:
    """Read the arguments of a line of MONITOR."""
    return [_ESCAPE.sub(_unescape, word) for word in _WORD.findall(line)]


def _unescape(match: re.Match[bytes]) -> bytes:
    said = match[1]
    return bytes((int(said[1:], 16),)) if len(said) == 3 else _LETTERS.get(said, said)


def recorded(given: Given, host: str, port: int) -> list[list[bytes]]:
    """Run toril once and keep what it sent."""
    listener, lines = Wire(host, port), list[bytes]()
    listener.ask("MONITOR")

    def listen() -> None:
        while _END not in (line := listener.reply()):
            lines.append(line)

    thread = threading.Thread(target=listen)
    thread.start()
    program = [sys.executable, "-m", "benchmarks.compare.adapters.toril", given.verb]
    rest = [given.where, given.queue, str(given.jobs), str(given.concurrency)]
    try:
        subprocess.run([*program, *rest], check=True, stdout=subprocess.DEVNULL)
    finally:
        Wire(host, port).ask("ECHO", _END)
        thread.join()
    return list(sent_again(lines))


def sent_again(lines: list[bytes]) -> Iterator[list[bytes]]:
    """The commands of clients that change or read jobs."""
    for line in lines:
        head, _, said = line.partition(b"] ")
        if b" lua" not in head and (sent := words(said))[0].upper() not in NOT_SENT:
            yield sent


def main() -> None:
    """Record, go back, and send again."""
    given = Given.read()
    host, port = parse_url(given.where).hosts[0]
    wire = Wire(host, port)
    for key in wire.ask("KEYS", "*"):  # db 1 remembers where it began
        wire.ask("COPY", key, key, "DB", 1)
    packed = [pack(*command) for command in recorded(given, host, port)]
    wire.ask("FLUSHDB")
    wire.ask("SWAPDB", 0, 1)
    spent, stop = _cpu_us(wire), stopwatch()
    wire.push(packed, UNDER_WAY)
    figures = {**stop(), "server_cpu_us": _cpu_us(wire) - spent}
    asyncio.run(_check(given))
    say({"jobs": given.jobs, **figures})


async def _check(given: Given) -> None:
    """See that the commands did the same again."""
    storage = open_storage(given.where)
    await storage.open()
    counts = await storage.counts(given.queue)
    await storage.close()
    reached = counts.waiting if given.verb == "add" else counts.completed
    assert reached == given.jobs, counts


def _cpu_us(wire: Wire) -> float:
    said = wire.ask("INFO", "cpu").decode()
    times = re.findall(r"used_cpu_(?:user|sys):([0-9.]+)", said)
    return sum(map(float, times)) * 1e6


if __name__ == "__main__":
    main()
