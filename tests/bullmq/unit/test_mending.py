"""What is found broken in a job, and put in order before an official script dies of it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest

from tests.servers import Server
from toril.ids import ulid
from toril.job import State
from toril.outcome import DONE, Failed
from toril.storage.bullmq import BullmqStorage
from toril.storage.bullmq.codec import read_claimed
from toril.storage.bullmq.mending import fault_in, fault_of
from toril.storage.bullmq.work import grant_command
from toril.testing import Bench, MemoryRig

SOUND = {b"opts": b'{"attempts":3}', b"atm": b"1", b"ats": b"2", b"stc": b"0", b"data": b"{"}
NO_OBJECTS = [b"{not json", b"null", b"[1]", b"[]", b"5", b"", b"\xff"]
GARBAGE = {"opts": b"{not json", "atm": b"many", "ats": b"many", "stc": b"many"}


@pytest.mark.parametrize("fields", [SOUND, {}, {b"opts": b"{}"}, {b"atm": b"-1"}])
def test_a_sound_job_is_left_alone(fields: dict[bytes, bytes]) -> None:
    assert fault_of(fields) is None


@pytest.mark.parametrize("raw", NO_OBJECTS)
def test_options_that_are_no_object_doom_the_job(raw: bytes) -> None:
    job = read_claimed("a", {**SOUND, b"opts": raw}, "t:1", 0)
    assert job.doom is not None
    assert (job.doom.kind, job.doom.reason) == (
        "SerdeError",
        "broken record: opts is no JSON object",
    )


@pytest.mark.parametrize("name", ["atm", "ats", "stc"])
@pytest.mark.parametrize("raw", [b"many", b"", b"-", b"9" * 30, b"nan", b"inf", b"2.0", b" 2"])
def test_a_counter_that_is_no_whole_number_dooms_the_job(name: str, raw: bytes) -> None:
    job = read_claimed("a", {**SOUND, name.encode(): raw}, "t:1", 0)
    assert job.doom is not None
    assert (job.doom.kind, job.doom.reason) == (
        "SerdeError",
        f"broken record: {name} is no whole number",
    )


@pytest.mark.parametrize(
    "options",
    [
        {"attempts": "many"},
        {"attempts": True},
        {"attempts": [3]},
        {"delay": "soon"},
        {"priority": {}},
        {"kl": "all"},
        {"stackTraceLimit": "x"},
        {"backoff": "fast"},
        {"backoff": {"type": 7}},
        {"backoff": {"type": "fixed", "delay": "x"}},
        {"removeOnComplete": "x"},
        {"removeOnFail": [1]},
        {"de": 3},
        {"repeat": 5},
        {"toril": []},
        {"toril": {"t": "x"}},
    ],
)
def test_an_option_of_the_wrong_type_dooms_the_job_and_is_named(options: object) -> None:
    assert isinstance(options, dict)
    (name,) = options
    job = read_claimed("a", {**SOUND, b"opts": json.dumps(options).encode()}, "t:1", 0)
    assert job.doom is not None
    assert job.doom.kind == "SerdeError"
    assert job.doom.reason.startswith(f"broken record: option {name}")


@pytest.mark.parametrize(
    "options",
    [
        {"attempts": 0, "delay": 1.5, "priority": 3, "kl": 5, "stackTraceLimit": 0},
        {"attempts": "3", "backoff": 5, "removeOnComplete": True, "removeOnFail": 3},
        {"backoff": {"type": "mine"}, "removeOnFail": {"age": 3}, "de": {"id": "k"}},
        {"attempts": None, "unknown": [1], "repeat": {"every": 1}, "toril": {"t": 5}},
    ],
)
def test_options_that_node_takes_doom_nobody(options: dict[str, object]) -> None:
    assert fault_in(options) is None


def test_a_number_written_as_text_counts_as_in_node() -> None:
    job = read_claimed("a", {**SOUND, b"opts": b'{"attempts":"3"}'}, "t:1", 0)
    assert (job.doom, job.spec.terms.attempts) == (None, 3)


class LiveRig(MemoryRig):
    """A rig for tests that neither move time nor crash anybody."""

    def __init__(self, storage: BullmqStorage) -> None:
        self.storage = storage  # type: ignore[assignment]


@pytest.fixture(params=[True, False], ids=["batch", "official"])
async def bench(server: Server, request: pytest.FixtureRequest) -> AsyncIterator[Bench]:
    """A bench on an open storage."""
    storage = BullmqStorage(f"bullmq+{server.url}?prefix=m{ulid()}", batch=request.param)
    await storage.open()
    yield Bench(LiveRig(storage))
    await storage.close()


def store(bench: Bench) -> BullmqStorage:
    """The storage of a bench."""
    assert isinstance(bench.storage, BullmqStorage)
    return bench.storage


async def reap(bench: Bench) -> None:
    """Run one check for stalled jobs, whenever the last one was."""
    keys = store(bench).keys(bench.queue)
    await store(bench).client.call(keys.base, "DEL", keys.of("stalled-check"))
    await bench.storage.reap(bench.queue, 1, 30_000)


@pytest.mark.parametrize("field", GARBAGE)
async def test_a_broken_job_whose_worker_dies_before_it_is_mended_is_recovered(
    bench: Bench, field: str
) -> None:
    storage = store(bench)
    keys = storage.keys(bench.queue)
    await bench.add("bad", "good")
    await storage.client.call(keys.base, "HSET", keys.of("bad"), field, GARBAGE[field])
    # What a worker does before it looks at the job, and nothing else; the server may refuse it.
    command = grant_command(keys, bench.wish(1), "dead:1", await storage.now(bench.queue))
    await storage.client.pipeline(keys.base, [command])
    await storage.client.call(keys.base, "DEL", keys.lock("bad"))
    await reap(bench)
    await reap(bench)
    jobs = {job.spec.id: job for job in (await bench.claim(2)).jobs}
    assert jobs.keys() == {"bad", "good"}
    doom = jobs["bad"].doom
    assert doom is not None
    assert (doom.kind, jobs["bad"].stalls) == ("SerdeError", 1)
    assert (await bench.settle(Failed(lease=jobs["bad"].lease, failure=doom))).answers == [DONE]
    record = await bench.known("bad")
    assert (record.state, record.failure and record.failure.reason) == (State.FAILED, doom.reason)
    raw = await storage.client.call(keys.base, "HGET", keys.of("bad"), f"toril-broken-{field}")
    assert raw == GARBAGE[field]


@pytest.mark.parametrize("field", GARBAGE)
async def test_a_broken_job_stays_doomed_when_its_worker_dies_after_mending_it(
    bench: Bench, field: str
) -> None:
    storage = store(bench)
    keys = storage.keys(bench.queue)
    await bench.add("bad", "good")
    await storage.client.call(keys.base, "HSET", keys.of("bad"), field, GARBAGE[field])
    jobs = {job.spec.id: job for job in (await bench.claim(2)).jobs}
    assert jobs.keys() == {"bad", "good"}
    assert jobs["good"].doom is None
    first = jobs["bad"].doom
    assert first is not None
    await storage.client.call(keys.base, "DEL", keys.lock("bad"))
    await reap(bench)
    await reap(bench)
    again = await bench.take()
    assert (again.spec.id, again.doom) == ("bad", first)


async def test_a_broken_job_that_is_retried_by_hand_runs_without_its_options(bench: Bench) -> None:
    storage = store(bench)
    keys = storage.keys(bench.queue)
    await bench.add("bad")
    await storage.client.call(keys.base, "HSET", keys.of("bad"), "opts", "{not json")
    job = await bench.take()
    assert job.doom is not None
    await bench.settle(Failed(lease=job.lease, failure=job.doom))
    assert await storage.revive(bench.queue, ["bad"]) == [True]
    assert (await bench.take()).doom is None
