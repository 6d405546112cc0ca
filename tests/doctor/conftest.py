"""A real server, and a queue on it that can be put into disorder."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from redis import Redis

from tests.servers import SAFE, Server, valkey_binary
from toril import Queue
from toril.doctor.examine import examine, mend
from toril.doctor.finding import Bounds, Finding, Level, Report
from toril.ids import ulid


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A queue, and a way past the storage to its keys."""

    url: str
    base: str
    raw: Any

    @property
    def queue(self) -> Queue[Any, Any]:
        """The queue as its users have it."""
        return Queue[Any, Any]("mail", self.url)

    def key(self, name: str) -> str:
        """One of its keys."""
        return self.base + name

    async def look(self, *, limit: int = 10_000) -> Report:
        """Examine it."""
        return await examine(self.url, ["mail"], Bounds(entries=limit))

    async def mend(self, report: Report) -> list[str]:
        """Do what a report proposes."""
        return await mend(self.url, report.remedies)


def found(report: Report, check: str) -> Finding:
    """The one finding of a check."""
    (finding,) = [one for one in report.findings if one.check == check]
    return finding


def bad(report: Report) -> Sequence[str]:
    """The checks of a queue that are not ok, worst first."""
    ours = [one for one in report.findings if one.queue is not None]
    levels = (Level.PROBLEM, Level.WARNING)
    return [one.check for level in levels for one in ours if one.level is level]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A server that keeps what it has answered."""
    with Server(valkey_binary(), *SAFE) as running:
        yield running


@pytest.fixture(scope="module")
def raw(server: Server) -> Iterator[Any]:
    """A client that asks no questions."""
    with Redis(port=server.port) as client:
        yield client


@pytest.fixture(params=["redis", "bullmq"])
def case(request: pytest.FixtureRequest, server: Server, raw: Any) -> Case:
    """A queue of either layout, under a prefix of its own."""
    return make_case(str(request.param), server, raw)


@pytest.fixture
def lean(server: Server, raw: Any) -> Case:
    """A queue of toril's own layout."""
    return make_case("redis", server, raw)


@pytest.fixture
def bull(server: Server, raw: Any) -> Case:
    """A BullMQ queue."""
    return make_case("bullmq", server, raw)


def make_case(layout: str, server: Server, raw: Any) -> Case:
    """Name a queue nobody used."""
    prefix = f"d{ulid()}"
    if layout == "redis":
        return Case(url=f"{server.url}?prefix={prefix}", base=f"{{{prefix}:mail}}:", raw=raw)
    return Case(url=f"bullmq+{server.url}?prefix={prefix}", base=f"{prefix}:{{mail}}:", raw=raw)
