"""Golden state: what toril leaves behind is what Node 5.62.0 leaves behind, key for key."""

from __future__ import annotations

import pytest

from tests.bullmq.dump import Dump
from tests.bullmq.golden import play_on_node, play_on_toril
from tests.bullmq.peer import Agent
from tests.bullmq.scenarios import ANY_ORDER, SCENARIOS
from tests.servers import Server

pytestmark = pytest.mark.node


@pytest.fixture(scope="module")
def left_by_node() -> dict[str, Dump]:
    """What Node left; it plays each scenario once."""
    return {}


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("batch", [False, True], ids=["official", "batch"])
async def test_toril_leaves_what_node_leaves(
    scenario: str, batch: bool, agent: Agent, server: Server, left_by_node: dict[str, Dump]
) -> None:
    if scenario not in left_by_node:
        left_by_node[scenario] = await play_on_node(scenario, agent, server.port)
    expected = left_by_node[scenario]
    found = await play_on_toril(scenario, agent, server.port, batch=batch)
    if scenario in ANY_ORDER:
        expected, found = expected.without_order_of_events(), found.without_order_of_events()
    assert expected.diff(found, "Node 5.62.0", "toril") == ""
