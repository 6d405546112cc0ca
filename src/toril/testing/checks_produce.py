"""Check how jobs come in, are read, cancelled and removed."""

from __future__ import annotations

from functools import partial

from toril.errors import UnsupportedFeature
from toril.event import EventKind
from toril.job import Keep, State, Terms
from toril.storage.protocol import Cancellation, Feature, Receipt, Removal
from toril.testing.suite import Bench, check, error_of

ODD_JSON = '{"text":"grüße 🐂 \\u0000 \\" \\\\","list":[1,2.5,null,true,{}]}'.encode()
LATER = Terms(delay_ms=60_000)
NEEDS = {
    Feature.LIFO: Terms(lifo=True),
    Feature.KEEP_COUNT: Terms(keep_completed=Keep(count=3)),
    Feature.KEEP_AGE: Terms(keep_completed=Keep(age=60)),
    Feature.EXPIRES: Terms(expires_ms=5_000),
    Feature.CORRELATION: Terms(correlation_id="req-1"),
}


@check()
async def a_new_job_is_created_and_waits(bench: Bench) -> None:
    (receipt,) = await bench.add("a")
    assert receipt == Receipt(id="a", created=True, state=State.WAITING)
    record = await bench.known("a")
    assert record.state is State.WAITING
    assert (record.attempts_made, record.attempts_started, record.stalls) == (0, 0, 0)
    assert record.result is None
    assert record.failure is None


@check()
async def delay_and_priority_decide_the_state_of_a_new_job(bench: Bench) -> None:
    (urgent,) = await bench.add("urgent", terms=Terms(priority=1))
    (later,) = await bench.add("later", terms=LATER)
    (both,) = await bench.add("both", terms=Terms(priority=1, delay_ms=60_000))
    states = [receipt.state for receipt in (urgent, later, both)]
    assert states == [State.PRIORITIZED, State.DELAYED, State.DELAYED]
    assert (await bench.known("later")).due_ms is not None


@check()
async def a_delayed_job_tells_when_it_is_due(bench: Bench) -> None:
    await bench.add("a", terms=LATER)
    record = await bench.known("a")
    assert record.due_ms == record.created_ms + 60_000


@check()
async def a_job_is_read_back_as_it_was_handed_in(bench: Bench) -> None:
    terms = Terms(attempts=5, priority=7, timeout_ms=9_000, keep_logs=12)
    await bench.add("a", terms=terms, name="mail", payload=b'{"to":"x"}')
    spec = (await bench.known("a")).spec
    assert (spec.id, spec.name, spec.payload) == ("a", "mail", b'{"to":"x"}')
    assert (spec.terms.attempts, spec.terms.priority) == (5, 7)
    assert (spec.terms.timeout_ms, spec.terms.keep_logs) == (9_000, 12)


@check()
async def json_payload_and_result_come_back_byte_for_byte(bench: Bench) -> None:
    await bench.add("a", payload=ODD_JSON)
    job = await bench.take()
    assert job.spec.payload == ODD_JSON
    await bench.complete(job, ODD_JSON)
    record = await bench.known("a")
    assert record.spec.payload == ODD_JSON
    assert record.result == ODD_JSON


@check(feature=Feature.ANY_SERDE)
async def binary_payload_and_result_come_back_byte_for_byte(bench: Bench) -> None:
    every_byte = bytes(range(256)) + b"\r\n$-1\r\n"
    await bench.add("a", payload=every_byte)
    job = await bench.take()
    assert job.spec.payload == every_byte
    await bench.complete(job, every_byte[::-1])
    assert (await bench.known("a")).result == every_byte[::-1]


@check(feature=Feature.ANY_SERDE)
async def an_empty_payload_and_an_empty_result_are_values(bench: Bench) -> None:
    await bench.add("a", payload=b"")
    job = await bench.take()
    assert job.spec.payload == b""
    await bench.complete(job, b"")
    assert (await bench.known("a")).result == b""


@check()
async def odd_but_allowed_names_and_ids_come_back_unchanged(bench: Bench) -> None:
    job_id = "Größe-42/é.x_y=z+🐂"
    await bench.add(job_id, name="näme of a job")
    job = await bench.take()
    assert (job.spec.id, job.lease.job_id, job.spec.name) == (job_id, job_id, "näme of a job")
    await bench.complete(job)
    assert await bench.state(job_id) is State.COMPLETED


@check(feature=Feature.CORRELATION)
async def the_correlation_id_stays_with_the_job(bench: Bench) -> None:
    await bench.add("a", terms=Terms(correlation_id="req-1"))
    assert (await bench.take()).spec.terms.correlation_id == "req-1"
    assert (await bench.known("a")).spec.terms.correlation_id == "req-1"


@check(feature=Feature.EXPIRES)
async def the_expiry_and_the_age_of_a_job_reach_its_worker(bench: Bench) -> None:
    await bench.add("a", terms=Terms(expires_ms=5_000))
    await bench.rig.advance(6_000)
    job = await bench.take()
    assert job.spec.terms.expires_ms == 5_000
    assert job.age_ms >= 6_000, "the worker could not tell that the job has expired"


@check()
async def a_taken_id_is_not_created_again_and_its_payload_stays(bench: Bench) -> None:
    await bench.add("a", payload=b'"first"')
    (receipt,) = await bench.add("a", payload=b'"second"')
    assert receipt == Receipt(id="a", created=False, state=State.WAITING)
    assert (await bench.known("a")).spec.payload == b'"first"'
    assert (await bench.storage.counts(bench.queue)).total == 1


@check()
async def a_duplicate_is_told_the_state_of_the_job_there(bench: Bench) -> None:
    seen = []
    await bench.add("a")
    job = await bench.take()
    seen += await bench.add("a")
    await bench.complete(job, b'"mine"')
    seen += await bench.add("a", requeue_failed=True)
    assert [receipt.state for receipt in seen] == [State.ACTIVE, State.COMPLETED]
    assert not any(receipt.created for receipt in seen)
    assert (await bench.known("a")).result == b'"mine"'


@check()
async def a_duplicate_leaves_an_event(bench: Bench) -> None:
    await bench.add("a")
    await bench.add("a")
    assert await bench.told(EventKind.DUPLICATED) == ["a"]
    assert await bench.told(EventKind.ADDED) == ["a"]


@check()
async def an_enqueue_repeated_after_a_lost_reply_says_created_and_makes_one_job(
    bench: Bench,
) -> None:
    specs = [bench.spec("a", payload=b'"once"'), bench.spec("b")]
    await bench.unheard("enqueue", lambda: bench.storage.enqueue(bench.queue, specs))
    receipts = await bench.storage.enqueue(bench.queue, specs)
    assert [(receipt.id, receipt.created) for receipt in receipts] == [("a", True), ("b", True)]
    assert (await bench.storage.counts(bench.queue)).total == 2
    assert await bench.told(EventKind.ADDED) == ["a", "b"]


@check()
async def a_repeated_enqueue_is_recognised_after_the_job_has_started(bench: Bench) -> None:
    spec = bench.spec("a")
    await bench.unheard("enqueue", lambda: bench.storage.enqueue(bench.queue, [spec]))
    await bench.take()
    (receipt,) = await bench.storage.enqueue(bench.queue, [spec])
    assert (receipt.created, receipt.state) == (True, State.ACTIVE)
    assert not (await bench.claim()).jobs, "the repeated enqueue made the job run twice"


@check()
async def one_id_twice_in_a_batch_is_one_job(bench: Bench) -> None:
    specs = [bench.spec("a", payload=b"1"), bench.spec("b"), bench.spec("a", payload=b"2")]
    receipts = await bench.storage.enqueue(bench.queue, specs)
    assert [receipt.id for receipt in receipts] == ["a", "b", "a"]
    assert [receipt.created for receipt in receipts] == [True, True, False]
    assert (await bench.known("a")).spec.payload == b"1"
    assert (await bench.storage.counts(bench.queue)).waiting == 2


@check()
async def an_empty_batch_changes_nothing(bench: Bench) -> None:
    assert list(await bench.storage.enqueue(bench.queue, [])) == []
    assert list(await bench.storage.get(bench.queue, [])) == []
    settlement = await bench.settle()
    assert list(settlement.answers) == []
    assert (await bench.storage.counts(bench.queue)).total == 0


@check()
async def a_failed_job_is_replaced_only_when_the_hand_in_asks_for_it(bench: Bench) -> None:
    await bench.add("a", payload=b'"old"')
    await bench.fail(await bench.take())
    (kept,) = await bench.add("a", payload=b'"new"')
    assert (kept.created, kept.state) == (False, State.FAILED)
    (anew,) = await bench.add("a", payload=b'"new"', requeue_failed=True)
    assert (anew.created, anew.state) == (True, State.WAITING)
    record = await bench.known("a")
    assert (record.attempts_made, record.failure, record.spec.payload) == (0, None, b'"new"')
    assert (await bench.storage.counts(bench.queue)).failed == 0


@check()
async def a_thousand_jobs_go_through_in_order(bench: Bench) -> None:
    ids = [f"job-{number}" for number in range(1000)]
    receipts = await bench.add(*ids)
    assert [receipt.id for receipt in receipts] == ids
    assert all(receipt.created for receipt in receipts)
    jobs = await bench.take_many(1000)
    assert [job.spec.id for job in jobs] == ids
    records = await bench.storage.get(bench.queue, ids)
    assert {record.state for record in records if record is not None} == {State.ACTIVE}


@check()
async def get_answers_in_the_order_asked_with_none_for_the_unknown(bench: Bench) -> None:
    await bench.add("a", "b")
    records = await bench.storage.get(bench.queue, ["b", "nobody", "a", "b"])
    found = [None if record is None else record.spec.id for record in records]
    assert found == ["b", None, "a", "b"]


@check()
async def cancel_deletes_a_job_that_has_not_started(bench: Bench) -> None:
    await bench.add("waiting")
    await bench.add("urgent", terms=Terms(priority=3))
    await bench.add("later", terms=LATER)
    ids = ["later", "nobody", "waiting", "urgent"]
    answers = await bench.storage.cancel(bench.queue, ids)
    gone = Cancellation.CANCELLED
    assert list(answers) == [gone, Cancellation.NOT_FOUND, gone, gone]
    assert list(await bench.storage.get(bench.queue, ids)) == [None] * 4
    await bench.rig.advance(60_001)
    assert not (await bench.claim(10)).jobs


@check()
async def cancel_of_a_waiting_job_takes_it_out_of_the_line(bench: Bench) -> None:
    await bench.add("a", "b", "c")
    assert list(await bench.storage.cancel(bench.queue, ["b"])) == [Cancellation.CANCELLED]
    assert await bench.order(2) == ["a", "c"]
    assert not (await bench.claim()).jobs, "a cancelled job was handed out"


@check()
async def cancel_leaves_an_event(bench: Bench) -> None:
    await bench.add("a")
    await bench.storage.cancel(bench.queue, ["a", "nobody"])
    assert await bench.told(EventKind.CANCELLED) == ["a"]


@check()
async def cancel_changes_nothing_for_running_and_finished_jobs(bench: Bench) -> None:
    await bench.run("done")
    await bench.add("broken")
    await bench.fail(await bench.take())
    await bench.add("busy")
    job = await bench.take()
    answers = await bench.storage.cancel(bench.queue, ["done", "broken", "busy"])
    expected = [Cancellation.COMPLETED, Cancellation.FAILED, Cancellation.PROCESSING]
    assert list(answers) == expected
    renewal = await bench.storage.renew(bench.queue, [job.lease], 30_000)
    assert list(renewal.cancelled) == [], "the owner was asked although running= was not given"
    assert await bench.told(EventKind.CANCELLED) == []


@check()
async def cancel_of_a_running_job_reaches_its_owner_at_the_next_renewal(bench: Bench) -> None:
    await bench.add("a", "b")
    first, second = await bench.take_many(2)
    (answer,) = await bench.storage.cancel(bench.queue, ["a"], running=True)
    assert answer is Cancellation.REQUESTED
    renewal = await bench.storage.renew(bench.queue, [first.lease, second.lease], 30_000)
    assert (list(renewal.lost), list(renewal.cancelled)) == ([], [first.lease])
    assert await bench.state("a") is State.ACTIVE


@check()
async def a_cancelled_request_may_be_repeated_after_a_lost_reply(bench: Bench) -> None:
    await bench.add("a", "b")
    await bench.unheard("cancel", lambda: bench.storage.cancel(bench.queue, ["a"]))
    (answer,) = await bench.storage.cancel(bench.queue, ["a"])
    assert answer in {Cancellation.CANCELLED, Cancellation.NOT_FOUND}
    assert await bench.told(EventKind.CANCELLED) == ["a"]
    assert await bench.order(1) == ["b"]


@check()
async def the_id_of_a_cancelled_job_is_free_and_its_old_place_is_gone(bench: Bench) -> None:
    await bench.add("a", "b", payload=b'"old"')
    await bench.storage.cancel(bench.queue, ["a"])
    (receipt,) = await bench.add("a", payload=b'"new"')
    assert receipt.created
    assert await bench.order(2) == ["b", "a"]
    assert (await bench.known("a")).spec.payload == b'"new"'
    assert not (await bench.claim()).jobs, "the cancelled entry came back to life"


@check()
async def a_cancelled_delay_does_not_start_the_next_job_of_that_id_early(bench: Bench) -> None:
    await bench.add("a", terms=Terms(delay_ms=1_000))
    await bench.storage.cancel(bench.queue, ["a"])
    await bench.add("a", terms=LATER)
    await bench.rig.advance(2_000)
    assert not (await bench.claim()).jobs, "the old delay started the new job"
    await bench.rig.advance(58_001)
    assert await bench.order(1) == ["a"]


@check()
async def remove_deletes_jobs_in_any_state_but_active(bench: Bench) -> None:
    await bench.run("done")
    await bench.add("broken")
    await bench.fail(await bench.take())
    await bench.add("busy")
    await bench.take()
    await bench.add("waiting")
    await bench.add("later", terms=LATER)
    ids = ["done", "broken", "busy", "waiting", "later", "nobody"]
    answers = await bench.storage.remove(bench.queue, ids)
    gone = Removal.REMOVED
    assert list(answers) == [gone, gone, Removal.ACTIVE, gone, gone, Removal.NOT_FOUND]
    assert await bench.state("busy") is State.ACTIVE
    assert (await bench.storage.counts(bench.queue)).total == 1
    assert set(await bench.told(EventKind.REMOVED)) == {"done", "broken", "waiting", "later"}


@check()
async def a_remove_may_be_repeated_after_a_lost_reply(bench: Bench) -> None:
    await bench.add("a", "b")
    await bench.unheard("remove", lambda: bench.storage.remove(bench.queue, ["a"]))
    (answer,) = await bench.storage.remove(bench.queue, ["a"])
    assert answer in {Removal.REMOVED, Removal.NOT_FOUND}
    assert (await bench.storage.counts(bench.queue)).waiting == 1


@check()
async def an_option_the_storage_lacks_is_refused_and_nothing_is_stored(bench: Bench) -> None:
    for feature, terms in NEEDS.items():
        if feature not in bench.storage.features:
            await error_of(UnsupportedFeature, partial(bench.add, "a", terms=terms))
            assert await bench.record("a") is None, f"a job without its {feature} was stored"


@check()
async def two_queues_do_not_see_each_other(bench: Bench) -> None:
    other = Bench(bench.rig, "other")
    await bench.add("a", payload=b'"here"')
    (receipt,) = await other.add("a", payload=b'"there"')
    assert receipt.created
    await other.complete(await other.take(), b'"other"')
    assert await bench.state("a") is State.WAITING
    assert (await bench.known("a")).spec.payload == b'"here"'
    assert await bench.told(EventKind.COMPLETED) == []
    await bench.storage.pause("other", True)
    assert await bench.order(1) == ["a"]
