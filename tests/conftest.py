"""Choose how hard hypothesis tries, mark and order tests, allow Ctrl-C."""

from __future__ import annotations

import os
import signal
from typing import Final

import pytest
from hypothesis import is_hypothesis_test, settings

# The same examples each time in CI, fresh ones at a desk.
settings.register_profile(
    "ci", derandomize=True, max_examples=200, deadline=None, print_blob=True, database=None
)
settings.register_profile("default", max_examples=50, deadline=None)
settings.load_profile("ci" if os.environ.get("CI") else "default")

# Tracing doubles the time of a test. These go where others go as well: many times over, or on a
# second server, or through processes of their own. So do properties: hundreds of examples.
_REPEATS: Final[dict[str, tuple[str, ...]]] = {
    "tests/faults/": (),
    "tests/contract/test_state_machine.py": (),
    "tests/contract/test_machine_catches.py": (),
    "tests/contract/test_mutants.py": (),
    "tests/contract/test_contract.py": (
        "[redis-",
        "[cluster-",
        "[bullmq-redis-",
        "[bullmq-cluster-",
    ),
    "tests/queue/": ("[valkey", "[file"),
    "tests/bullmq/test_links.py": (),
}
"""Where they lie, and what their parameters begin with, if it is not all of them."""

_LONG: Final = ("tests/contract/test_state_machine.py", "tests/faults/test_mixed.py")
"""Tests of up to minutes each: begun last, one of them would be waited for alone."""


_APART: Final = "tests/spark/"
"""A run of its own, whose tests share a session; there all are traced."""


def _is_property(item: pytest.Item) -> bool:
    return isinstance(item, pytest.Function) and is_hypothesis_test(item.obj)


def pytest_configure() -> None:
    """Let Ctrl-C reach the programs under test, also where a shell in the background ignores it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests that repeat others, and begin with the long ones."""
    items.sort(key=lambda item: not item.nodeid.startswith(_LONG))
    for item in items:
        for place, starts in _REPEATS.items():
            chosen = not starts or any(start in item.nodeid for start in starts)
            if chosen and item.nodeid.startswith(place):
                item.add_marker(pytest.mark.repeat)
        if _is_property(item) and not item.nodeid.startswith(_APART):
            item.add_marker(pytest.mark.repeat)
