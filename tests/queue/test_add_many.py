"""Many jobs by one call: alike but for their data, or each with its own ways."""

from __future__ import annotations

from typing import Any

import pytest

from tests.queue.conftest import AnyQueue, MakeQueue, RecordingStorage, Work, echo
from toril import Dedup, InvalidInput, InvalidOption, NewJob, State


async def test_many_data_are_as_many_jobs_of_one_name_in_their_order(
    queue: AnyQueue, work: Work
) -> None:
    jobs = await queue.add_many("send", [{"n": 1}, None, "three"])
    assert [(job.name, job.data, job.state) for job in jobs] == [
        ("send", {"n": 1}, State.WAITING),
        ("send", None, State.WAITING),
        ("send", "three", State.WAITING),
    ]
    assert [job.id for job in await queue.get_jobs("waiting")] == [job.id for job in jobs]
    await work(queue, echo)
    assert [await queue.wait_until_finished(job.id) for job in jobs] == [{"n": 1}, None, "three"]


async def test_many_jobs_share_the_options_of_the_call(queue: AnyQueue) -> None:
    jobs = await queue.add_many("send", (n for n in range(3)), delay=60, attempts=7)
    assert {job.state for job in jobs} == {State.DELAYED}
    found = await queue.get_jobs("delayed")
    assert sorted(job.data for job in found) == [0, 1, 2]
    assert {job.terms.attempts for job in found} == {7}


async def test_of_many_jobs_with_one_dedup_key_the_first_is_added(queue: AnyQueue) -> None:
    first, second = await queue.add_many("send", [1, 2], dedup=Dedup("daily"))
    assert (second.id, second.data) == (first.id, 1)
    assert (await queue.get_job_counts()).total == 1


async def test_thousands_go_to_the_storage_in_batches(
    make_queue: MakeQueue, recording: RecordingStorage
) -> None:
    queue = make_queue(on=recording)
    jobs = await queue.add_many("send", range(10_500))
    assert len({job.id for job in jobs}) == 10_500
    assert recording.calls == ["open", "enqueue", "enqueue"]
    page = await queue.get_jobs("waiting", 10_498, 10_600)
    assert [job.data for job in page] == [10_498, 10_499]


async def test_no_data_are_no_jobs(queue: AnyQueue) -> None:
    assert list(await queue.add_many("send", [])) == []
    assert (await queue.get_job_counts()).total == 0


@pytest.mark.parametrize(
    ("name", "data", "options"),
    [
        ("send", [1, object()], {}),
        ("", [1, 2], {}),
        ("", [], {}),
        ("send", [1, 2], {"delay": -1}),
        ("send", [1, 2], {"dely": 1}),
        ("send", [1, "x" * 100], {"size_limit": 50}),
    ],
)
async def test_what_is_wrong_with_one_refuses_all_before_anything_is_sent(
    make_queue: MakeQueue,
    recording: RecordingStorage,
    name: str,
    data: list[Any],
    options: dict[str, Any],
) -> None:
    queue = make_queue(on=recording)
    with pytest.raises(InvalidInput):
        await queue.add_many(name, data, **options)
    assert recording.calls == []


@pytest.mark.parametrize("data", ["text", b"bytes", {"to": "ann"}, 5, None])
async def test_the_data_of_one_job_are_not_taken_for_those_of_many(
    make_queue: MakeQueue, recording: RecordingStorage, data: Any
) -> None:
    queue = make_queue(on=recording)
    with pytest.raises(InvalidOption, match=r"give a list.*add\(\) hands in a single job"):
        await queue.add_many("send", data)
    assert recording.calls == []


async def test_a_bulk_of_something_else_than_new_jobs_names_the_first_of_them(
    make_queue: MakeQueue, recording: RecordingStorage
) -> None:
    queue = make_queue(on=recording)
    jobs: Any = [NewJob(name="send", data=1), {"name": "send", "data": 2}]
    with pytest.raises(InvalidOption, match=r"jobs\[1\]=\{'name': 'send', 'data': 2\}.*NewJob"):
        await queue.add_bulk(jobs)
    assert recording.calls == []
