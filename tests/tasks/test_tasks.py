"""Typed tasks: checked where they are called, run where a worker finds them by name."""

from __future__ import annotations

import asyncio
import gc
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal

import pytest

from tests.servers import Server, valkey_binary
from toril import (
    InvalidName,
    InvalidOption,
    InvalidPayload,
    JobFailed,
    Queue,
    TaskJob,
    Toril,
    TorilError,
    TorilWarning,
    WaitTimeout,
    current_job,
)
from toril.ids import ulid


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server(valkey_binary()) as running:
        yield running


@pytest.fixture(params=["memory", "valkey", "bullmq"])
def app(request: pytest.FixtureRequest, server: Server) -> Toril:
    url = {
        "memory": f"memory:{ulid()}",
        "valkey": f"{server.url}?prefix=t{ulid()}",
        "bullmq": f"bullmq+{server.url}?prefix=b{ulid()}",
    }[request.param]
    return Toril("sums", url)


@dataclass(frozen=True)
class Invoice:
    number: int
    amount: Decimal
    at: datetime


async def test_a_task_takes_and_gives_what_it_is_annotated_with(app: Toril) -> None:
    @app.task(attempts=1)
    async def book(invoice: Invoice, *, times: int = 1) -> Invoice:
        assert isinstance(invoice, Invoice)
        return Invoice(invoice.number, invoice.amount * times, invoice.at)

    given = Invoice(7, Decimal("1.10"), datetime(2026, 1, 31, tzinfo=UTC))
    async with app, app.worker():
        job = await book.enqueue(given, times=3)
        assert await job.result() == Invoice(7, Decimal("3.30"), given.at)
        assert not job.duplicate


async def test_a_plain_function_runs_in_a_thread_and_knows_its_job(app: Toril) -> None:
    @app.task
    def double(a: int) -> list[int]:
        job = current_job.get()
        assert job is not None
        assert job.data == {"a": a}
        return [a, a]

    async with app, app.worker(concurrency=5):
        assert await double.call(3) == [3, 3]


async def test_a_job_is_an_object_of_parameters_that_others_can_write(app: Toril) -> None:
    @app.task
    async def join(first: str, *rest: str, sep: str = "-", **more: int) -> str:
        return sep.join([first, *rest, *(f"{k}={v}" for k, v in more.items())])

    async with app, app.worker():
        queue = app.queue()
        made = await queue.add("join", {"first": "a", "rest": ["b"], "more": {"x": 1}})
        assert await queue.wait_until_finished(made.id) == "a-b-x=1"
        assert await join.call("a", "b", sep="+", x=2) == "a+b+x=2"


async def test_an_id_that_is_there_is_not_queued_again(app: Toril) -> None:
    runs = []

    @app.task
    async def once(a: int) -> int:
        runs.append(a)
        return a

    async with app, app.worker():
        first: TaskJob[int] = await once.options(id="one").enqueue(1)
        assert await first.result() == 1
        again = await once.options(id="one").enqueue(2)
        assert again.duplicate
        assert await again.result() == 1
        status = await again.status()
        assert status is not None
        assert status.state == "completed"
    assert runs == [1]


async def test_tasks_of_several_queues_have_workers_of_their_own(app: Toril) -> None:
    @app.task
    async def here() -> str:
        return "sums"

    @app.task(queue="mail", name="send-mail")
    async def there() -> str:
        job = current_job.get()
        assert job is not None
        return f"{job.queue} {job.name}"

    assert app.queue_names == ("sums", "mail")
    assert set(app.tasks) == {"here", "send-mail"}
    async with app, app.worker("sums"), app.worker("mail"):
        assert await here.call() == "sums"
        assert await there.call() == "mail send-mail"


async def test_options_of_task_and_call_reach_the_job(app: Toril) -> None:
    @app.task(attempts=7, priority=3)
    async def slow(a: int) -> int:
        return a

    async with app:
        job = await slow.options(priority=5, delay=60).enqueue(1)
        found = await app.queue().get_job(job.id)
        assert found is not None
        assert (found.max_attempts, found.priority, str(found.state)) == (7, 5, "delayed")
        assert (await job.cancel()).status == "cancelled"


async def test_waiting_ends_with_the_wait_of_the_call(app: Toril) -> None:
    @app.task
    async def never() -> None:
        pass

    async with app:
        with pytest.raises(WaitTimeout, match="no worker serves queue 'sums'"):
            await never.options(wait=0.05).call()


async def test_data_that_does_not_fit_fails_the_job_at_once_with_the_signature(app: Toril) -> None:
    @app.task(attempts=5)
    async def add(a: int, b: int) -> int:
        return a + b

    async with app, app.worker():
        queue: Queue[object, object] = app.queue()
        for data, fact in (
            ({"a": 1}, "parameter 'b' is missing"),
            ({"a": 1, "b": 2, "bb": 3}, "there is no parameter 'bb'. Did you mean 'b'?"),
            ({"a": 1, "b": "2"}, "b must be int, not str"),
            ([1, 2], "data must be an object of parameters, not list"),
        ):
            made = await queue.add("add", data)
            with pytest.raises(JobFailed) as caught:
                await queue.wait_until_finished(made.id)
            assert "toril[E08]" in str(caught.value)
            assert "add(a: int, b: int) -> int" in str(caught.value)
            assert fact in str(caught.value)
            found = await queue.get_job(made.id)
            assert found is not None
            assert found.attempts_made == 1


async def test_a_result_against_its_annotation_fails_the_job(app: Toril) -> None:
    @app.task
    async def count() -> int:
        return "many"  # type: ignore[return-value]

    async with app, app.worker():
        with pytest.raises(JobFailed, match=r"E04.*task 'count': result must be int, not str"):
            await count.call()


async def test_an_unknown_name_fails_with_the_names_the_worker_knows(app: Toril) -> None:
    @app.task
    async def send_email() -> None:
        pass

    async with app, app.worker():
        made = await app.queue().add("send_emial", {})
        with pytest.raises(JobFailed, match="Did you mean 'send_email'"):
            await app.queue().wait_until_finished(made.id)


@pytest.fixture
def local() -> Toril:
    return Toril(storage="memory:")


async def test_wrong_arguments_are_refused_where_the_call_is(local: Toril) -> None:
    @local.task
    def add(a: int, b: int) -> int:
        return a + b

    for call, fact in (
        (lambda: add.enqueue(1, 2, c=2), "got an unexpected keyword argument 'c'"),  # type: ignore[call-arg]
        (lambda: add.enqueue(1), "missing a required argument: 'b'"),  # type: ignore[call-arg]
        (lambda: add.call("x", 2), "a must be int, not str"),  # type: ignore[arg-type]
    ):
        with pytest.raises(InvalidPayload) as caught:
            call()
        text = str(caught.value)
        assert text.startswith("toril[E08] add(): ")
        assert fact in text
        assert "called at test_tasks.py:" in text


async def test_a_call_nobody_awaits_says_where_it_is(local: Toril) -> None:
    @local.task
    def add(a: int) -> int:
        return a

    def forget() -> None:
        add.enqueue(1)  # type: ignore[unused-coroutine]
        gc.collect()

    with pytest.warns(
        TorilWarning, match=r"E06.*add\.enqueue\(…\) at test_tasks\.py:\d+ was never"
    ):
        forget()


async def test_calls_can_be_gathered_and_made_tasks_of(local: Toril) -> None:
    @local.task
    def add(a: int) -> int:
        return a + 1

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        async with local, local.worker():
            assert await asyncio.gather(*(add.call(n) for n in range(3))) == [1, 2, 3]
            assert await asyncio.create_task(add.call(5)) == 6
            late = asyncio.create_task(add.options(delay=60).call(5))
            await asyncio.sleep(0)
            late.cancel()
            with pytest.raises(asyncio.CancelledError):
                await late
            add.call(7).close()


@pytest.mark.parametrize("habit", ["delay", "apply_async", "send", "kiq", "s"])
def test_a_habit_from_another_library_is_answered(local: Toril, habit: str) -> None:
    @local.task
    def add(a: int, b: int) -> int:
        return a + b

    with pytest.raises(AttributeError, match=rf"E07.*no \.{habit}\(\).*await add\.enqueue"):
        getattr(add, habit)
    assert not hasattr(add, "something_else")


async def test_calling_a_task_calls_its_function_here_and_now(local: Toril) -> None:
    @local.task
    def add(a: int) -> int:
        return a + 1

    @local.task
    async def later(a: int) -> int:
        return a + 2

    assert add(1) == 2
    assert await later(1) == 3


def test_mistakes_in_a_definition_are_refused_at_once(local: Toril) -> None:
    @local.task
    def add(a: int) -> int:
        return a

    with pytest.raises(InvalidOption, match="task 'add' is defined twice"):
        local.task(name="add")(lambda: None)
    with pytest.raises(InvalidOption, match="unknown job option 'atempts'"):
        local.task(atempts=3)  # type: ignore[call-overload]
    with pytest.raises(InvalidOption, match="unknown job option 'dely'"):
        add.options(dely=3)  # type: ignore[call-arg]
    with pytest.raises(InvalidOption, match=r"no task goes to queue 'defalt'\. Did you mean"):
        local.worker("defalt")

    def odd(lock: asyncio.Lock) -> None: ...

    with pytest.raises(InvalidOption, match="parameter 'lock' of task 'odd': Lock has no JSON"):
        local.task(odd)


async def test_an_app_changes_its_storage_before_it_is_used_only(local: Toril) -> None:
    local.use("memory:other")
    assert local.queue().storage.url == "memory:other"
    with pytest.raises(TorilError, match="uses memory:other already"):
        local.use("memory:third")
    assert repr(local) == "<Toril app: 0 tasks on default>"


# -- many calls ----------------------------------------------------------------------------


async def test_many_calls_are_handed_in_together(app: Toril) -> None:
    @app.task
    async def add(a: int, b: int = 1) -> int:
        return a + b

    async with app, app.worker(concurrency=10):
        jobs = await add.enqueue_many(add.bind(n, b=10) for n in range(25))
        assert [await job.result() for job in jobs] == list(range(10, 35))
        assert not any(job.duplicate for job in jobs)
        assert list(await add.enqueue_many([])) == []


async def test_each_of_many_calls_has_the_options_it_was_bound_with(app: Toril) -> None:
    @app.task(attempts=7)
    async def send(to: str) -> None: ...

    async with app:
        await send.options(id="bob").enqueue("bob")
        calls = [
            send.options(id="ann").bind("ann"),
            send.options(id="bob").bind("bob"),
            send.options(delay=60).bind("cid"),
            send.options(delay=60, attempts=2).bind("dan"),
            send.bind("eve"),
        ]
        jobs = await send.enqueue_many(calls)
        assert [job.duplicate for job in jobs] == [False, True, False, False, False]
        assert [job.id for job in jobs[:2]] == ["ann", "bob"]
        queue = app.queue()
        found = [*await queue.get_jobs("waiting"), *await queue.get_jobs("delayed")]
        terms = {job.data["to"]: (job.terms.delay_ms, job.terms.attempts) for job in found}
        assert terms == {
            "ann": (0, 7),
            "bob": (0, 7),
            "cid": (60_000, 7),
            "dan": (60_000, 2),
            "eve": (0, 7),
        }


async def test_a_failed_call_among_many_is_queued_anew_unless_it_is_kept(app: Toril) -> None:
    @app.task(attempts=1)
    async def fail() -> None:
        raise RuntimeError("no")

    once = fail.options(id="once")
    keep = once.options(on_failed="keep")
    async with app:
        async with app.worker():
            with pytest.raises(JobFailed):
                await once.call()
        (kept,) = await fail.enqueue_many([keep.bind()])
        assert kept.duplicate
        with pytest.raises(
            InvalidOption, match=r"with on_failed='keep' and 'requeue'; hand them in apart"
        ):
            await fail.enqueue_many([keep.bind(), once.bind()])
        (anew,) = await fail.enqueue_many([once.bind()])
        assert not anew.duplicate


async def test_only_calls_of_the_task_itself_are_handed_in(app: Toril) -> None:
    @app.task
    async def send(to: str) -> None: ...

    @app.task
    async def other(to: str) -> None: ...

    async with app:
        with pytest.raises(InvalidPayload, match="E08"):
            send.bind(7)  # type: ignore[arg-type]
        with pytest.raises(InvalidOption, match=r"calls\[1\].*give send\.bind"):
            await send.enqueue_many([send.bind("ann"), other.bind("bob")])
        with pytest.raises(InvalidOption, match=r"calls\[0\]=ann.*give send\.bind"):
            await send.enqueue_many(["ann"])  # type: ignore[list-item]
        with pytest.raises(InvalidOption, match=r"give a list of send\.bind"):
            await send.enqueue_many(send.bind("ann"))  # type: ignore[arg-type]
        assert (await app.queue().get_job_counts()).total == 0


async def test_an_empty_id_is_refused_like_any_other_bad_one(local: Toril) -> None:
    @local.task
    async def send(to: str) -> None: ...

    empty = send.options(id="")
    async with local:
        for call in (
            empty.enqueue("ann"),
            empty.call("ann"),
            send.enqueue_many([send.bind("ann"), empty.bind("bob")]),
        ):
            with pytest.raises(InvalidName, match="job id"):
                await call
        assert (await local.queue().get_job_counts()).total == 0


def test_many_calls_that_nobody_awaits_are_told(local: Toril) -> None:
    @local.task
    async def send(to: str) -> None: ...

    def forget() -> None:
        send.enqueue_many([send.bind("ann")])  # type: ignore[unused-coroutine]
        gc.collect()

    with pytest.warns(TorilWarning, match=r"E06.*send\.enqueue_many\(…\) at .* was never"):
        forget()
