"""What a storage lacks is refused, as early as possible and before anything is sent."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, cast

import pytest

from tests.queue.conftest import (
    AnyQueue,
    Context,
    MakeQueue,
    Work,
    echo,
    state_is,
    until,
)
from toril import (
    JobOptions,
    Keep,
    Limiter,
    ManualClock,
    MemoryStorage,
    MsgpackSerde,
    NewJob,
    Queue,
    State,
    Storage,
    UnsupportedFeature,
    Worker,
)
from toril.storage.protocol import ALL_FEATURES, Edits, Feature, Limits, Notes


class LackingStorage(MemoryStorage):
    """A memory storage that honours fewer options and counts how often it is opened."""

    def __init__(self, clock: ManualClock, *lacks: Feature) -> None:
        super().__init__(clock=clock)
        self.lacks = frozenset(lacks)
        self.opens = 0

    @property
    def features(self) -> frozenset[Feature]:
        """All but some."""
        return ALL_FEATURES - self.lacks

    async def open(self) -> None:
        """Count, and open."""
        self.opens += 1
        await super().open()


_CORE = frozenset(name for name in vars(Storage) if not name.startswith("_"))


class CoreOnly:
    """The core verbs of a storage and nothing else."""

    def __init__(self, inner: Storage) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        if name in _CORE:
            return getattr(self._inner, name)
        raise AttributeError(name)


OPTIONS: list[tuple[Feature, dict[str, Any]]] = [
    (Feature.LIFO, {"lifo": True}),
    (Feature.KEEP_COUNT, {"keep_completed": 5}),
    (Feature.KEEP_COUNT, {"keep_failed": Keep(count=5)}),
    (Feature.KEEP_AGE, {"keep_completed": Keep(age=5)}),
    (Feature.KEEP_AGE, {"keep_failed": timedelta(days=1)}),
    (Feature.EXPIRES, {"expires_in": 5}),
    (Feature.CORRELATION, {"correlation_id": "request-1"}),
]


@pytest.mark.parametrize(("feature", "options"), OPTIONS)
async def test_an_option_the_storage_lacks_is_refused_before_anything_is_sent(
    make_queue: MakeQueue, clock: ManualClock, feature: Feature, options: dict[str, Any]
) -> None:
    storage = LackingStorage(clock, feature)
    queue = make_queue(on=storage)
    new = NewJob[Any](name="send", data=None, options=JobOptions(**options))
    calls: list[Callable[[], Any]] = [
        lambda: queue.enqueue("job-1", None, **options),
        lambda: queue.enqueue_and_wait("job-1", None, **options),
        lambda: queue.add("send", None, **options),
        lambda: queue.add_many("send", [None], **options),
        lambda: queue.add_bulk([NewJob(name="send", data=None), new]),
    ]
    for call in calls:
        with pytest.raises(UnsupportedFeature) as refusal:
            await call()
        assert "queue 'emails'" in str(refusal.value)
        assert feature.value in str(refusal.value)
        assert "memory:" in str(refusal.value)
    assert storage.opens == 0


@pytest.mark.parametrize(("feature", "options"), OPTIONS)
def test_a_default_the_storage_lacks_is_refused_when_the_queue_is_made(
    clock: ManualClock, feature: Feature, options: dict[str, Any]
) -> None:
    with pytest.raises(UnsupportedFeature, match="emails"):
        Queue("emails", LackingStorage(clock, feature), defaults=JobOptions(**options))


@pytest.mark.parametrize(("feature", "options"), OPTIONS)
async def test_lacking_one_feature_leaves_the_others_usable(
    make_queue: MakeQueue, clock: ManualClock, feature: Feature, options: dict[str, Any]
) -> None:
    others = ALL_FEATURES - {feature}
    queue = make_queue(on=LackingStorage(clock, *others))
    assert (await queue.enqueue("job-1", None, **options)).status == "queued"


@pytest.mark.parametrize("where", ["serde", "result_serde"])
def test_a_serde_the_storage_cannot_carry_is_refused_when_the_queue_is_made(
    clock: ManualClock, where: str
) -> None:
    storage = LackingStorage(clock, Feature.ANY_SERDE)
    serde: Any = {where: MsgpackSerde()}
    with pytest.raises(UnsupportedFeature, match="serde 'msgpack'"):
        Queue("emails", storage, **serde)


async def test_a_limiter_the_storage_lacks_is_refused(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    storage = LackingStorage(clock, Feature.RATE_LIMIT)
    queue = make_queue(on=storage)
    limiter = Limiter(1, 1)
    with pytest.raises(UnsupportedFeature, match="limiter"):
        Worker(queue, echo, limiter=limiter)
    with pytest.raises(UnsupportedFeature, match="limiter"):
        queue.execute(echo, limiter=limiter)
    with pytest.raises(UnsupportedFeature, match="limiter"):
        await queue.tune(limiter=limiter)
    assert storage.opens == 0
    await queue.tune(concurrency=1)


async def test_a_storage_without_any_feature_serves_plain_jobs(
    make_queue: MakeQueue, work: Work, clock: ManualClock
) -> None:
    queue = make_queue(on=LackingStorage(clock, *ALL_FEATURES))
    await work(queue, echo)
    assert await queue.enqueue_and_wait("a", 1, priority=3, attempts=2, dedup="key") == 1
    assert await queue.enqueue_and_wait("b", 2, keep_completed=False, keep_failed=True) == 2


def test_every_feature_has_its_refusal_here() -> None:
    tested = {feature for feature, _ in OPTIONS} | {Feature.ANY_SERDE, Feature.RATE_LIMIT}
    assert tested == ALL_FEATURES


# -- facets --------------------------------------------------------------------------------


@pytest.fixture
def core(storage: Storage) -> Storage:
    """A storage with the core verbs only."""
    return cast("Storage", CoreOnly(storage))


FACET_VERBS: dict[str, Callable[[AnyQueue], Any]] = {
    "logs": lambda queue: queue.logs("job-1"),
    "promote": lambda queue: queue.promote("job-1"),
    "promote_jobs": lambda queue: queue.promote_jobs(),
    "retry_job": lambda queue: queue.retry_job("job-1"),
    "retry_jobs": lambda queue: queue.retry_jobs(),
    "change_priority": lambda queue: queue.change_priority("job-1", 1),
    "change_delay": lambda queue: queue.change_delay("job-1", 1),
    "update_data": lambda queue: queue.update_data("job-1", None),
    "tune": lambda queue: queue.tune(concurrency=1),
}


def test_the_core_has_no_facets(core: Storage) -> None:
    assert not isinstance(core, Notes | Edits | Limits)


@pytest.mark.parametrize("verb", FACET_VERBS)
async def test_a_verb_whose_facet_is_missing_is_refused(
    make_queue: MakeQueue, core: Storage, verb: str
) -> None:
    queue = make_queue(on=core)
    with pytest.raises(UnsupportedFeature) as refusal:
        await FACET_VERBS[verb](queue)
    assert core.url in str(refusal.value)


async def test_the_core_alone_runs_jobs_and_answers(
    make_queue: MakeQueue, core: Storage, work: Work
) -> None:
    queue = make_queue(on=core)
    await work(queue, echo)
    assert await queue.enqueue_and_wait("job-1", 1) == 1
    assert (await queue.cancel("job-1")).status == "completed"
    assert (await queue.get_job_counts()).completed == 1
    assert list(await queue.clean()) == ["job-1"]


@pytest.mark.parametrize("note", ["progress", "log"])
async def test_a_handler_that_notes_something_where_nothing_is_kept_fails_clearly(
    make_queue: MakeQueue, core: Storage, work: Work, note: str
) -> None:
    queue = make_queue(on=core)

    async def talk(job: Context) -> None:
        await getattr(job, note)("half")

    await work(queue, talk)
    await queue.enqueue("job-1", None, attempts=1)
    await until(lambda: state_is(queue, "job-1", State.FAILED))
    status = await queue.get_status("job-1")
    assert status is not None
    assert status.error is not None
    assert status.error.kind == "toril.errors.UnsupportedFeature"
