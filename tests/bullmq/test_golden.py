"""Golden state: what toril leaves behind is what Node 5.62.0 leaves behind, key for key."""

from __future__ import annotations

import pytest

from tests.bullmq.dump import Dump, Dumper
from tests.bullmq.golden import play_on_node, play_on_toril
from tests.bullmq.peer import Agent
from tests.bullmq.scenarios import ANY_ORDER, SCENARIOS
from tests.bullmq.sides import Lab
from tests.bullmq.toril_side import TorilSide
from tests.servers import Server
from toril.ids import ulid
from toril.storage.bullmq import BullmqStorage

pytestmark = pytest.mark.node


@pytest.fixture(scope="module")
def left_by_node() -> dict[tuple[str, str], Dump]:
    """What Node left; it plays each scenario once under each prefix."""
    return {}


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize(
    ("batch", "prefix"),
    [(False, "bull"), (True, "bull"), (True, "{bull}")],
    ids=["official", "batch", "prefix with a tag"],
)
async def test_toril_leaves_what_node_leaves(
    scenario: str,
    batch: bool,
    prefix: str,
    agent: Agent,
    server: Server,
    left_by_node: dict[tuple[str, str], Dump],
) -> None:
    place = scenario, prefix
    if place not in left_by_node:
        left_by_node[place] = await play_on_node(scenario, agent, server.port, prefix)
    expected = left_by_node[place]
    found = await play_on_toril(scenario, agent, server.port, prefix, batch=batch)
    if scenario in ANY_ORDER:
        expected, found = expected.without_order_of_events(), found.without_order_of_events()
    assert expected.diff(found, "Node 5.62.0", "toril") == ""


async def test_toril_adds_no_key_of_its_own_but_the_list_of_its_workers(
    agent: Agent, server: Server
) -> None:
    lab = Lab(agent, server.port, f"golden-{ulid()}")
    dumper = Dumper(server.port, 0)
    storage = BullmqStorage(f"bullmq+redis://127.0.0.1:{server.port}")
    side = TorilSide(lab, storage)
    await storage.open()
    await SCENARIOS["one_job_in_each_state"](side)
    assert dumper.ours(lab.queue) == ["toril-workers"]
    await side.close()
    await storage.close()
    dumper.close()
    lab.close()


@pytest.mark.parametrize("scenario", sorted(ANY_ORDER))
async def test_batch_scripts_write_events_in_the_order_of_the_official_ones(
    scenario: str, agent: Agent, server: Server
) -> None:
    expected = await play_on_toril(scenario, agent, server.port, batch=False)
    found = await play_on_toril(scenario, agent, server.port, batch=True)
    assert expected.diff(found, "official scripts", "batch scripts") == ""
