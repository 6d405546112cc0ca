"""A claim is read job by job, or by what jobs handed in together share; the answer is the same."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toril.job import DEFAULT_TERMS, JobSpec, Terms
from toril.storage.redis import codec

NAMES = ["job", "ö", "", "n" * 31, "n" * 32, "n" * 255]
ORIGINS = ["", "o", "p" * 26]
TERMS = [DEFAULT_TERMS, Terms(attempts=3)]
PAYLOADS = st.one_of(st.binary(max_size=8), st.integers(250, 260).map(lambda size: b"x" * size))


def specs() -> st.SearchStrategy[JobSpec]:
    return st.builds(
        JobSpec,
        id=st.text("ab", min_size=1, max_size=3),
        name=st.sampled_from(NAMES),
        payload=PAYLOADS,
        terms=st.sampled_from(TERMS),
        origin=st.sampled_from(ORIGINS),
    )


def reply(entries: Sequence[tuple[str, bytes | None]]) -> list[object]:
    """What a claim of these jobs returns."""
    ids, blobs = [job_id.encode() for job_id, _ in entries], [blob for _, blob in entries]
    facts = [len(ids), 1_000, 0, 1, 0]
    return [0, -1, 1_500, ids, blobs, facts if ids else []]


@given(st.lists(specs(), max_size=8))
def test_jobs_come_out_as_they_went_in(wanted: list[JobSpec]) -> None:
    batch = codec.read_batch("t", reply([(spec.id, codec.pack_spec(spec)) for spec in wanted]))
    assert [job.spec for job in batch.jobs] == wanted
    assert [job.lease.job_id for job in batch.jobs] == [spec.id for spec in wanted]
    assert all(job.doom is None for job in batch.jobs)


@pytest.mark.parametrize("broken", [None, b"", b"\x94", b"no spec", b"\x94\xa3job\xc4\x01"])
@pytest.mark.parametrize("at", range(5))
def test_an_unreadable_job_among_twins_harms_no_other(broken: bytes | None, at: int) -> None:
    twins = [JobSpec(id=f"id-{number}", payload=b"1", origin="o") for number in range(5)]
    entries: list[tuple[str, bytes | None]] = [(one.id, codec.pack_spec(one)) for one in twins]
    entries[at] = ("bad", broken)
    jobs = codec.read_batch("t", reply(entries)).jobs
    assert [job.doom is not None for job in jobs] == [number == at for number in range(5)]
    assert [job.spec for job in jobs if job.doom is None] == twins[:at] + twins[at + 1 :]
