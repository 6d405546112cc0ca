"""The codec: options as Node packs them, whatever Node wrote read back."""

from __future__ import annotations

import json
from datetime import timedelta

import msgpack
import pytest

from toril.errors import InvalidInput
from toril.job import KEEP_ALL, KEEP_NONE, Dedup, JobSpec, Keep, State, Terms
from toril.outcome import CANCELLED, Failure, Lease
from toril.retry import Backoff
from toril.storage.bullmq import codec
from toril.storage.bullmq.leases import read_note
from toril.storage.bullmq.terms import keep_jobs, keep_option


def fields(options: object, **more: bytes) -> dict[bytes, bytes]:
    raw = {b"name": b"mail", b"data": b"{}", b"opts": json.dumps(options).encode()}
    return raw | {name.encode(): value for name, value in more.items()}


def test_a_plain_job_has_the_options_that_node_writes_and_no_more() -> None:
    assert codec.options_of(JobSpec(id="a", terms=Terms(attempts=2))) == {
        "attempts": 2,
        "kl": 1000,
        "jobId": "a",
    }


def test_every_term_comes_back_from_the_wire() -> None:
    terms = Terms(
        delay_ms=500,
        priority=7,
        lifo=True,
        attempts=5,
        backoff=Backoff("exponential", 2, max_delay=60, jitter=0.5),
        keep_completed=Keep(count=10),
        keep_failed=Keep(count=5, age=timedelta(hours=1)),
        result_ttl_ms=9000,
        timeout_ms=8000,
        expires_ms=7000,
        dedup=Dedup("k", 3, extend=True, replace=True),
        keep_logs=12,
        correlation_id="req-1",
    )
    spec = JobSpec(id="a", name="mail", terms=terms, origin="o1", reply=True)
    sent = msgpack.unpackb(codec.pack(codec.options_of(spec)))
    wire = fields(sent, priority=b"7")
    wire[b"data"] = spec.payload
    assert codec.read_spec("a", wire) == spec


def test_options_hold_text_only() -> None:
    packed = codec.pack({"x": "ü🐂\0", "broken": "\ud800"})
    assert msgpack.unpackb(packed) == {"x": "ü🐂\0", "broken": "\\ud800"}
    assert b"\xc4" not in packed, "a bin value makes the scripts die"


@pytest.mark.parametrize(
    ("keep", "option"),
    [
        (KEEP_ALL, False),
        (KEEP_NONE, True),
        (Keep(count=3), 3),
        (Keep(age=90), {"age": 90}),
        (Keep(age=1.2, count=4), {"age": 2, "count": 4}),
    ],
)
def test_keeping_is_said_in_nodes_words(keep: Keep, option: object) -> None:
    assert keep_option(keep) == option


@pytest.mark.parametrize(
    ("option", "wire"),
    [
        (None, {"count": -1}),
        (False, {"count": -1}),
        (True, {"count": 0}),
        (0, {"count": 0}),
        (7, {"count": 7}),
        ({"age": 60}, {"age": 60}),
        ({"age": 60, "count": 2, "limit": 1}, {"age": 60, "count": 2}),
        ({}, {"count": -1}),
        ("often", {"count": -1}),
    ],
)
def test_keep_jobs_always_has_what_the_script_dies_without(option: object, wire: object) -> None:
    assert keep_jobs(option) == wire


@pytest.mark.parametrize(
    "options",
    [
        {},
        [],
        {"attempts": "many", "backoff": 5, "removeOnComplete": "x", "de": 3, "toril": []},
        {"backoff": {"type": "fixed", "delay": 0}, "de": {"id": "a:b"}, "kl": None},
        {"backoff": {"type": "exponential", "delay": 7_200_000}, "de": {"id": "x", "extend": True}},
        {"backoff": {"type": "mine"}, "removeOnFail": {"age": -1, "count": -2}},
    ],
)
def test_whatever_options_a_stranger_wrote_the_job_can_be_read(options: object) -> None:
    wire = fields(options)
    terms = codec.read_spec("a", wire).terms
    assert terms.attempts == 1
    assert (terms.keep_completed, terms.keep_failed) == (KEEP_ALL, KEEP_ALL)


def test_options_that_are_no_json_are_none() -> None:
    assert codec.read_options({b"opts": b"{broken"}) == {}


def test_a_number_as_backoff_is_a_fixed_delay_and_other_types_are_strategies() -> None:
    wire = fields({"backoff": 1500})
    backoff = codec.read_spec("a", wire).terms.backoff
    assert backoff == Backoff("fixed", 1.5, jitter=0.0)
    wire = fields({"backoff": {"type": "jittered", "delay": 10}})
    custom = codec.read_spec("a", wire).terms.backoff
    assert custom is not None
    assert (custom.kind, custom.is_custom) == ("jittered", True)


def test_a_claimed_job_carries_what_its_settle_needs() -> None:
    wire = fields(
        {"attempts": 3, "removeOnComplete": True, "stackTraceLimit": 2},
        ats=b"2",
        atm=b"1",
        stc=b"1",
        timestamp=b"1000",
    )
    job = codec.read_claimed("a", wire, "t:1", 5000)
    assert (job.lease.attempt, job.started, job.stalls, job.age_ms) == (2, 2, 1, 4000)
    note = read_note(job.lease)
    assert (note["ats"], note["stc"], note["keep_completed"], note["stacks"]) == (2, 1, True, 2)


@pytest.mark.parametrize("text", ["", "foreign", "{}", "[1,2]", "7"])
def test_a_foreign_note_is_read_as_saying_nothing(text: str) -> None:
    note = read_note(Lease(job_id="a", token="t", attempt=1, note=text))
    assert (note["ats"], note["keep_completed"], note["ttl_ms"]) == (-1, None, None)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (codec.STALLED_TEXT, "JobStalled"),
        (codec.CANCELLED_TEXT, CANCELLED),
        (b"child bull:{q}:c1 failed", "ChildFailed"),
    ],
)
def test_a_deferred_failure_dooms_the_job(text: bytes, kind: str) -> None:
    job = codec.read_claimed("a", fields({}, defa=text), "t", 0)
    assert job.doom == Failure(kind=kind, reason=text.decode())


def test_a_reason_quoted_by_the_official_python_client_is_unquoted() -> None:
    record = codec.read_record("a", fields({}, failedReason=b'"boom"'), State.FAILED, None)
    assert record.failure == Failure(kind="Error", reason="boom")


def test_stack_traces_are_one_array_newest_last_within_the_jobs_limit() -> None:
    failure = Failure(kind="E", reason="r", stack="three")
    assert codec.add_stack(b'["one","two"]', failure, None) == '["one","two","three"]'
    assert codec.add_stack(b'["one","two"]', failure, 2) == '["two","three"]'
    assert codec.add_stack(b"broken", failure, None) == '["three"]'
    assert codec.add_stack(None, failure, 0) == "[]"


def test_data_that_is_not_text_is_refused() -> None:
    with pytest.raises(InvalidInput, match="not UTF-8"):
        codec.check_payload("data of job 'a'", b"\xff")


def test_an_id_in_line_whose_job_is_gone_is_not_run() -> None:
    job = codec.read_claimed("ghost", {b"processedOn": b"5", b"ats": b"1"}, "t", 0)
    assert job.doom is not None
    assert job.doom.kind == "JobMissing"
