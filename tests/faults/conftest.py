"""Real servers and processes for the fault tests; the long ones run only when asked for."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.faults.stage import Stage
from tests.servers import Server, valkey_binary

_HERE = Path(__file__).parent


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark everything here `faults`; leave out `slow` unless -m or TORIL_SLOW names it."""
    asked = "slow" in (config.option.markexpr or "") or os.environ.get("TORIL_SLOW")
    skip = pytest.mark.skip(reason="long form; run with -m slow, or TORIL_SLOW=1")
    for item in items:
        if _HERE in item.path.parents:
            item.add_marker(pytest.mark.faults)
            if "slow" in item.keywords and not asked:
                item.add_marker(skip)


@pytest.fixture
def serve() -> Iterator[Callable[..., Server]]:
    """Start servers of the test's own, with options, to be mistreated."""
    with ExitStack() as stack:
        yield lambda *options: stack.enter_context(Server(valkey_binary(), *options))


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
