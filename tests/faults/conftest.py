"""Real servers and processes for the fault tests; the long ones run only when asked for."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.faults.stage import Stage
from tests.servers import Server, redis_binary, valkey_binary

_HERE = Path(__file__).parent


class BullmqServer(Server):
    """A server whose queues are in the BullMQ layout."""

    @property
    def url(self) -> str:
        """Where it listens, and what is spoken there."""
        return f"bullmq+{super().url}"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark everything here `faults`; leave out `slow` unless -m or TORIL_SLOW names it.

    What tells clients apart but not servers (`client_side`), and the long forms, run on Redis
    only when TORIL_FAULTS_ON_REDIS asks for all of it. On the BullMQ storage run those marked
    `on_bullmq`, and on a Valkey server only.
    """
    asked = "slow" in (config.option.markexpr or "") or os.environ.get("TORIL_SLOW")
    skip = pytest.mark.skip(reason="long form; run with -m slow, or TORIL_SLOW=1")
    all_on_redis = os.environ.get("TORIL_FAULTS_ON_REDIS")
    kept, left_out = [], []
    for item in items:
        if _HERE in item.path.parents:
            item.add_marker(pytest.mark.faults)
            if _server_of(item) == "bullmq" and "on_bullmq" not in item.keywords:
                left_out.append(item)
                continue
            once = "slow" in item.keywords or "client_side" in item.keywords
            if once and _server_of(item) == "redis" and not all_on_redis:
                left_out.append(item)
                continue
            if "slow" in item.keywords and not asked:
                item.add_marker(skip)
        kept.append(item)
    items[:] = kept
    config.hook.pytest_deselected(items=left_out)


def _server_of(item: pytest.Item) -> str:
    found = getattr(item, "callspec", None)
    return "" if found is None else str(found.params.get("serve", ""))


@pytest.fixture(params=["valkey", "redis", "bullmq"])
def serve(request: pytest.FixtureRequest) -> Iterator[Callable[..., Server]]:
    """Start servers of the test's own, with options, to be mistreated."""
    binary = redis_binary() if request.param == "redis" else valkey_binary()
    kind = BullmqServer if request.param == "bullmq" else Server
    with ExitStack() as stack:
        yield lambda *options: stack.enter_context(kind(binary, *options))


@pytest.fixture
def server(serve: Callable[..., Server]) -> Server:
    """One server without persistence."""
    return serve()


@pytest.fixture
def stage(tmp_path: Path, server: Server) -> Iterator[Stage]:
    """A stage on a server of its own."""
    stage = Stage(tmp_path, server.url)
    yield stage
    stage.close()
