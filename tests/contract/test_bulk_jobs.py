"""Slices of jobs: counted, cut, and read column by column while the queue lives on."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.servers import Server
from toril import InvalidInput, InvalidOption, Queue, Worker
from toril.context import JobContext
from toril.event import Cursor, EventKind
from toril.ids import ulid
from toril.job import FINISHED, Dedup, State, Terms
from toril.outcome import Completed
from toril.storage import open_bulk, open_storage
from toril.storage.columns import Bulk, Columns, JobColumns
from toril.storage.protocol import Claim, Storage

ALL = tuple(JobColumns.__annotations__)


@pytest.fixture(params=["file", "redis", "bullmq"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "file":
        return f"file:{tmp_path / 'store'}"
    server: Server = request.getfixturevalue("valkey")
    layout = "bullmq+" if request.param == "bullmq" else ""
    return f"{layout}{server.url}?prefix=b{ulid()}"


@pytest.fixture
def bulk(url: str) -> Iterator[Bulk]:
    opened = open_bulk(url)
    yield opened
    opened.close()


@pytest.fixture
async def storage(url: str) -> AsyncIterator[Storage]:
    opened = open_storage(url)
    await opened.open()
    yield opened
    await opened.close()


async def work(storage: Storage) -> None:
    """Leave jobs of all fates in queue `q`."""
    queue: Queue[object, object] = Queue("q", storage)

    async def handler(job: JobContext[object]) -> object:
        await job.progress(50)
        if job.data == "bad":
            raise ValueError("no good")
        return {"seen": job.data}

    async with Worker(queue, handler, name="w"):
        for number in range(3):
            await queue.enqueue_and_wait(f"fine-{number}", "ok", name="greet")
        for number in range(2):
            with pytest.raises(Exception, match="no good"):
                await queue.enqueue_and_wait(f"broken-{number}", "bad", attempts=1)
    await queue.enqueue("running", 1)
    await storage.claim("q", Claim(token=ulid(), lease_ms=60_000, count=1, worker_id="x"))
    await queue.enqueue("later", "x", delay=3600)
    await queue.enqueue("urgent", "x", priority=7, attempts=5)
    await queue.enqueue("plain", {"a": 1})
    await queue.stop()


def read(bulk: Bulk, state: State, columns: tuple[str, ...] = ALL, parts: int = 1) -> Columns:
    """Read all slices of a state."""
    whole: Columns = {name: [] for name in columns}
    for cut in bulk.cut_jobs("q", state, parts):
        for page in bulk.scan_jobs("q", cut, columns):
            for name, values in page.items():
                whole[name] += values
    return whole


async def test_slices_hold_what_pages_hold(bulk: Bulk, storage: Storage) -> None:
    await work(storage)
    counts = bulk.counts("q")
    for state in State:
        pages = bulk.read_jobs("q", state, 0, 99)
        found = read(bulk, state)
        assert counts[state] == len(found["id"]) == len(pages["id"]), state
        order = sorted(range(len(found["id"])), key=lambda at: str(found["id"][at]))
        paged = sorted(range(len(pages["id"])), key=lambda at: pages["id"][at])
        for name in ALL:
            expected = [pages[name][at] for at in paged]  # type: ignore[literal-required]
            assert [found[name][at] for at in order] == expected, (state, name)
    assert sum(counts.values()) == 9


async def test_only_the_columns_asked_for_are_read(bulk: Bulk, storage: Storage) -> None:
    await work(storage)
    assert read(bulk, State.COMPLETED, ("name", "result")) == {
        "name": ["greet"] * 3,
        "result": [b'{"seen":"ok"}'] * 3,
    }
    for state in State:
        assert list(read(bulk, state, ("id",))) == ["id"]
    with pytest.raises(InvalidOption, match="no column 'colour'"):
        list(bulk.scan_jobs("q", bulk.cut_jobs("q", State.FAILED, 1)[0], ["colour"]))


async def test_finished_jobs_are_bounded_by_their_end(bulk: Bulk, storage: Storage) -> None:
    await work(storage)
    found = read(bulk, State.COMPLETED, ("finished_ms",))["finished_ms"]
    ends = sorted(end for end in found if isinstance(end, int))
    middle = ends[1]

    def count(since: int | None, until: int | None) -> int:
        cuts = bulk.cut_jobs("q", State.COMPLETED, 2, since, until)
        pages = [page for cut in cuts for page in bulk.scan_jobs("q", cut, ["id"])]
        return sum(len(page["id"]) for page in pages)

    assert count(middle, None) == sum(end >= middle for end in ends)
    assert count(None, middle) == sum(end < middle for end in ends)
    assert count(0, 1) == 0
    with pytest.raises(InvalidOption, match="waiting have no end"):
        bulk.cut_jobs("q", State.WAITING, 1, since_ms=1)


@pytest.mark.parametrize("terms", [Terms(), Terms(delay_ms=3_600_000), Terms(priority=3)])
@pytest.mark.parametrize("parts", [1, 3])
def test_slices_hold_every_job_once(bulk: Bulk, terms: Terms, parts: int) -> None:
    ids = [f"row-{number}" for number in range(2500)]
    bulk.write_jobs("q", ids, [b"1"] * len(ids), terms=terms)
    (state,) = (state for state, count in bulk.counts("q").items() if count)
    cuts = bulk.cut_jobs("q", state, parts)
    assert len(cuts) <= parts
    found: list[object] = []
    for cut in cuts:
        for page in bulk.scan_jobs("q", cut, ["id"], limit=300):
            found += page["id"]
    assert len(found) == len(ids)
    assert set(found) == set(ids)


async def test_a_line_is_read_whole_while_jobs_come_and_go(bulk: Bulk, storage: Storage) -> None:
    ids = [f"row-{number}" for number in range(4000)]
    bulk.write_jobs("q", ids, [b"1"] * len(ids))
    found: list[object] = []
    gone: set[str] = set()
    for part, cut in enumerate(bulk.cut_jobs("q", State.WAITING, 2)):
        for turn, page in enumerate(bulk.scan_jobs("q", cut, ["id"], limit=200)):
            found += page["id"]
            claim = Claim(token=ulid(), lease_ms=60_000, count=20, worker_id="x")
            batch = await storage.claim("q", claim)
            # From the newer end too, which was read already: what follows moves up.
            taken = [f"row-{3999 - 600 * part - 70 * turn - number}" for number in range(70)]
            await storage.remove("q", taken)
            gone |= {job.spec.id for job in batch.jobs} | set(taken)
            new = [f"new-{part}-{turn}-{number}" for number in range(20)]
            bulk.write_jobs("q", new, [b"1"] * len(new))
    seen = Counter(found)
    assert [job_id for job_id, count in seen.items() if count > 1] == []
    assert [job_id for job_id in ids if job_id not in seen and job_id not in gone] == []


async def test_finished_jobs_come_once_while_others_finish_and_go(
    bulk: Bulk, storage: Storage
) -> None:
    ids = [f"row-{number}" for number in range(2500)]
    bulk.write_jobs("q", ids, [b"1"] * len(ids))
    claim = Claim(token=ulid(), lease_ms=60_000, count=100, worker_id="x")
    while jobs := (await storage.claim("q", replace(claim, token=ulid()))).jobs:
        await storage.settle("q", [Completed(lease=job.lease, result=b"1") for job in jobs])
    (cut,) = bulk.cut_jobs("q", State.COMPLETED, 1)
    found: list[object] = []
    for turn, page in enumerate(bulk.scan_jobs("q", cut, ["id"], limit=200)):
        found += page["id"]
        # What was read last may be the place to read on from.
        await storage.remove("q", [str(one) for one in page["id"][-3:]])
        assert turn < 20
    assert Counter(found) == Counter(ids)


async def test_a_job_refused_for_its_dedup_key_is_no_new_one(bulk: Bulk) -> None:
    terms = Terms(dedup=Dedup("one"))
    written = bulk.write_jobs("q", ["a", "b"], [b"1", b"2"], terms=terms)
    assert (written.created, written.duplicates, written.first_duplicate) == (1, 1, "b")
    again = bulk.write_jobs("q", ["a", "c"], [b"1", b"2"], terms=terms)
    assert (again.created, again.duplicates, again.first_duplicate) == (0, 2, "a")


@pytest.mark.parametrize(
    ("payloads", "names", "terms", "said"),
    [
        ([b"1"], "job", Terms(), "2 ids but 1 payloads: give one for each id"),
        ([b"1"] * 3, "job", Terms(), "2 ids but 3 payloads: give one for each id"),
        ([b"1"] * 2, ["job"], Terms(), "2 ids but 1 names: give one for each id, or a single one"),
        ([b"1"] * 2, "job", [Terms()] * 3, "2 ids but 3 terms: give one for each id, or a single"),
    ],
)
def test_columns_of_another_length_are_refused_before_anything_is_written(
    bulk: Bulk, payloads: list[bytes], names: list[str] | str, terms: list[Terms] | Terms, said: str
) -> None:
    with pytest.raises(InvalidInput, match=said):
        bulk.write_jobs("q", ["a", "b"], payloads, names, terms)
    assert bulk.write_jobs("q", ["a", "b"], [b"1"] * 2).created == 2


def test_an_id_twice_among_new_jobs_is_one_job_with_the_first_payload(bulk: Bulk) -> None:
    written = bulk.write_jobs("q", ["a", "b", "a"], [b"1", b"2", b"3"])
    assert (written.duplicates, written.first_duplicate) == (1, "a")
    (cut,) = bulk.cut_jobs("q", State.WAITING, 1)
    (page,) = bulk.scan_jobs("q", cut, ["id", "payload"])
    found = zip(page["id"], page["payload"], strict=True)
    assert sorted(found) == [("a", b"1"), ("b", b"2")]


def test_what_came_under_the_same_origin_counts_as_created(bulk: Bulk) -> None:
    ids, payloads = ["a", "b"], [b"1", b"2"]
    assert bulk.write_jobs("q", ids, payloads, origin="run-1").created == 2
    assert bulk.write_jobs("q", ids, payloads, origin="run-1").created == 2
    assert bulk.write_jobs("q", ids, payloads, origin="run-2").created == 0
    assert bulk.counts("q")[State.WAITING] == 2


def test_jobs_written_in_one_go_keep_their_order_names_and_terms(bulk: Bulk) -> None:
    ids = [f"row-{number}" for number in range(700)]
    names = [f"name-{number % 3}" for number in range(700)]
    terms = [Terms(attempts=1 + number % 4) for number in range(700)]
    bulk.write_jobs("q", ids, [b"%d" % number for number in range(700)], names, terms)
    found = bulk.read_jobs("q", State.WAITING, 0, 1000)
    assert found["id"] == ids
    assert found["name"] == names
    assert found["max_attempts"] == [one.attempts for one in terms]
    assert found["payload"] == [b"%d" % number for number in range(700)]


def test_a_state_without_jobs_has_nothing_to_read(bulk: Bulk) -> None:
    assert set(bulk.counts("q").values()) == {0}
    for state in State:
        assert read(bulk, state, parts=2)["id"] == []
        assert state not in FINISHED or bulk.cut_jobs("q", state, 2, 1, 2) is not None


@pytest.mark.parametrize("paused", [False, True])
async def test_new_jobs_among_known_ones_are_added(
    bulk: Bulk, storage: Storage, paused: bool
) -> None:
    ids = [f"row-{number}" for number in range(300)]
    bulk.write_jobs("q", ids[::3], [b"1"] * 100)
    await storage.pause("q", paused)
    written = bulk.write_jobs("q", [*ids, "row-5"], [b"2"] * 301)
    assert (written.created, written.duplicates, written.first_duplicate) == (200, 101, "row-0")
    found = read(bulk, State.WAITING, ("id", "payload"))
    assert sorted(map(str, found["id"])) == sorted(ids)
    assert found["payload"].count(b"1") == 100


async def test_known_jobs_are_told_as_duplicates(bulk: Bulk, storage: Storage) -> None:
    bulk.write_jobs("q", ["a", "b"], [b"1", b"1"])
    bulk.write_jobs("q", ["b"], [b"1"])
    events = await storage.events("q", Cursor.START)
    told = [event.job_id for event in events if event.kind is EventKind.DUPLICATED]
    assert told == ["b"]
