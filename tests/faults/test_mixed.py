"""Faults of all kinds in a random order that a seed brings back; `reliability.md` 4.3."""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import Callable
from functools import partial

import pytest

from tests.faults.nemesis import Harm, Nemesis, pick_seed
from tests.faults.stage import LEASE_S, Program, Stage
from tests.resp.proxy import Proxy
from tests.servers import SAFE, Server
from toril.storage.redis.scripts import script

SCRIPTS = (
    *("enqueue", "claim", "claim_alone", "settle", "settle_alone", "renew", "reap", "outlook"),
)
GAP_S = 0.07
"""Between two hand-ins: long enough for the last fault to find the producers still at it."""


class Crowd:
    """Workers that are replaced when they die, and what is done to them."""

    def __init__(self, stage: Stage, server: Server, proxy: Proxy, size: int) -> None:
        self._stage = stage
        self._server = server
        self._proxy = proxy
        self._born = 0
        self.workers = [self._new() for _ in range(size)]
        self.killed = 0

    def _new(self) -> Program:
        self._born += 1
        # Every second one speaks through the proxy, which loses replies.
        url = f"redis://127.0.0.1:{self._proxy.port}" if self._born % 2 else ""
        return self._stage.worker(f"w{self._born}", url=url, concurrency=4)

    def harms(self) -> dict[str, Harm]:
        """Everything that can be done, by name."""
        look = self._stage.looker
        return {
            "kill worker": self._kill,
            "freeze worker": self._freeze,
            "lose replies": self._lose_replies,
            "reset proxy": lambda _: self._proxy.abort_all(),
            "kill connections": lambda _: _none(look.call("CLIENT", "KILL", "TYPE", "normal")),
            "flush scripts": lambda _: _none(look.call("SCRIPT", "FLUSH")),
            "freeze server": self._freeze_server,
            "restart server": self._restart_server,
        }

    def _kill(self, chance: random.Random) -> None:
        at = chance.randrange(len(self.workers))
        self.workers[at].process.kill()
        self.killed += 1
        self.workers[at] = self._new()

    async def _freeze(self, chance: random.Random) -> None:
        worker = chance.choice(self.workers)
        worker.signal(signal.SIGSTOP)
        self.killed += 1
        await asyncio.sleep(1.5 * LEASE_S)
        worker.signal(signal.SIGCONT)

    def _lose_replies(self, chance: random.Random) -> None:
        word = script(chance.choice(SCRIPTS)).sha.encode()
        self._proxy.cut_reply_to(word, times=chance.randint(1, 4))

    async def _freeze_server(self, chance: random.Random) -> None:
        self._server.signal(signal.SIGSTOP)
        await asyncio.sleep(chance.uniform(0.1, 0.5))
        self._server.signal(signal.SIGCONT)

    async def _restart_server(self, chance: random.Random) -> None:
        self._server.kill()
        await asyncio.sleep(chance.uniform(0.1, 0.5))
        await asyncio.to_thread(self._server.start)


def _none(_answer: object) -> None:
    return None


async def storm(
    stage: Stage, serve: Callable[..., Server], jobs: int, faults: int, seed: int
) -> None:
    server = serve(*SAFE)
    stage.url = server.url
    async with Proxy(server.port) as proxy:
        crowd = Crowd(stage, server, proxy, 4)
        await stage.ready(*crowd.workers)
        through = f"redis://127.0.0.1:{proxy.port}"
        half = jobs // 2
        producers = [
            stage.producer("good", count=half, at_once=5, gap=GAP_S, url=through),
            stage.producer(
                *("bad",), count=half, at_once=5, gap=GAP_S, data={"do": "fail"},
                options={"attempts": 2, "backoff": 0.05},
            ),
        ]  # fmt: skip
        nemesis = Nemesis(stage.history, seed, crowd.harms())
        await nemesis.run(faults, (0.1, 0.5))
        for producer in producers:
            await stage.until(partial(_gone, producer), 60)
        await stage.drained(len(stage.of("enqueue", "ok")), 60)
    dump = stage.check()
    stalls = sum(job.stalls for job in dump.jobs)
    assert stalls <= 4 * (crowd.killed + faults), "more stalls than jobs in hand at each fault"


def _gone(program: Program) -> bool:
    return not program.alive


async def test_a_short_storm_breaks_no_invariant(
    stage: Stage, serve: Callable[..., Server]
) -> None:
    await storm(stage, serve, 1200, 14, pick_seed(20))


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(1, 6))
async def test_a_long_storm_breaks_no_invariant(
    stage: Stage, serve: Callable[..., Server], seed: int
) -> None:
    await storm(stage, serve, 5000, 40, pick_seed(seed))
