"""Options are read once for all jobs that share them, and right for each."""

from __future__ import annotations

import json

import pytest

from toril.job import JobSpec, Terms
from toril.storage.bullmq.sheets import Sheets, read_sheet
from toril.storage.bullmq.texts import write_options

TERMS = Terms(attempts=4, timeout_ms=500)


def raw(spec: JobSpec) -> bytes:
    """Options as the batch script is given them."""
    (text,) = write_options([spec])
    return text.encode()


def test_jobs_of_the_same_terms_share_what_was_read() -> None:
    specs = [JobSpec(id=f"order-{n}", origin=f"origin-{n}", terms=TERMS) for n in range(3)]
    read = [read_sheet(spec.id, raw(spec), 0) for spec in specs]
    assert [origin for _, origin in read] == [spec.origin for spec in specs]
    assert len({id(sheet) for sheet, _ in read}) == 1
    assert read[0][0].terms == TERMS


@pytest.mark.parametrize("origin", ["", "a", '"', "\\", "\x7f", "a\\", "ü🐂"])
@pytest.mark.parametrize("job_id", ["a", "ü🐂", 'x"y', "jobId", "\x7f", "attempts", "1"])
@pytest.mark.parametrize("correlation", [None, "a", '"o":"x', "\x7f", '"jobId":"a"'])
def test_each_job_gets_what_is_its_own(job_id: str, origin: str, correlation: str | None) -> None:
    terms = Terms(correlation_id=correlation)
    for spec in (
        JobSpec(id=job_id, origin=origin, terms=terms),
        JobSpec(id=f"{job_id}2", origin=f"{origin}2", terms=terms),
    ):
        sheet, found = read_sheet(spec.id, raw(spec), 0)
        assert (found, sheet.terms) == (spec.origin, terms)


def test_marks_that_stand_for_something_else_are_not_shared() -> None:
    for number in range(2):
        text = json.dumps({"backoff": {"type": "mine", "o": f"x{number}"}}, separators=(",", ":"))
        sheet, origin = read_sheet("a", text.encode(), 0)
        assert (origin, sheet.fault) == ("", None)
    for number in range(2):
        options = {"toril": {"o": f"x{number}"}, "de": {"id": f"k{number}", "o": "z"}}
        text = json.dumps(options, separators=(",", ":"))
        sheet, origin = read_sheet("a", text.encode(), 0)
        assert sheet.terms.dedup is not None
        assert (origin, sheet.terms.dedup.key) == (f"x{number}", f"k{number}")


def test_the_priority_is_the_records_own() -> None:
    spec = JobSpec(id="a", terms=TERMS)
    assert [read_sheet("a", raw(spec), n)[0].terms.priority for n in (0, 3, 0)] == [0, 3, 0]


ORDER = b'{"attempts":4,"jobId":"order-%d"%b}'


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ((b"order-1", ORDER % (1, b"")), (b"order-2", ORDER % (2, b""))),
        ((b"order-1", ORDER % (1, b',"kl":1')), (b"order-2", ORDER % (2, b',"kl":2'))),
        ((b"3", b'{"attempts":3}'), (b"5", b'{"attempts":5}')),
        ((b"3", b'{"jobId":"3","attempts":3}'), (b"5", b'{"jobId":"5","attempts":5}')),
        ((b"a", b'{"jobId":"a","toril":{"o":"a"}}'), (b"b", b'{"jobId":"b","toril":{"o":"b"}}')),
        ((b"a", b'{"jobId":"a","toril":{"o":"x"}}'), (b"b", b'{"jobId":"b","toril":{"o":"y"}}')),
        ((b"a", b"{}"), (b"b", b"{}")),
        ((b"a", b"no JSON"), (b"b", b'{"jobId":"b"}')),
    ],
)
def test_a_job_after_another_is_read_as_if_it_were_the_first(
    first: tuple[bytes, bytes], second: tuple[bytes, bytes]
) -> None:
    for priorities in ((b"0", b"0"), (b"0", b"7")):
        sheets = Sheets()
        for (raw_id, raw), priority in zip(
            (first, second, second), (*priorities, b"0"), strict=True
        ):
            expected = read_sheet(raw_id.decode(), raw, int(priority))
            assert sheets.read(raw_id, raw, priority) == expected


def test_jobs_that_differ_in_nothing_but_the_id_are_read_once() -> None:
    sheets = Sheets()
    one = sheets.read(b"order-1", ORDER % (1, b""), b"0")
    assert sheets.read(b"order-22", ORDER % (22, b""), b"0") is one
