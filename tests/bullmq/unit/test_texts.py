"""Options as text: whatever is written once for many says what those of each job say."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from toril.drafts import Drafts
from toril.job import JobSpec, Terms
from toril.retry import Backoff
from toril.storage.bullmq import codec
from toril.storage.bullmq.texts import Texts, write_columns, write_options, write_texts

TERMS = Terms(attempts=3, backoff=Backoff("fixed", 2), correlation_id='"ü"')
ODD = ["a", "a b~", "ü", '"', "\\", "\x7f", "\t", "\ud800"]


def read(texts: Texts, ids: Sequence[str]) -> list[object]:
    each = texts.each or [f"{texts.head}{job_id}{texts.tail}" for job_id in ids]
    assert each[-1] == texts.last(ids[-1])
    return [json.loads(text) for text in each]


def test_options_of_a_batch_say_what_those_of_each_job_say() -> None:
    shared = Terms(attempts=3, backoff=Backoff("fixed", 2))
    timed = Terms(timeout_ms=8000, correlation_id='"ü"')
    specs = [
        JobSpec(id="a", terms=shared),
        JobSpec(id='"b', terms=shared, origin="o"),
        JobSpec(id="c", terms=shared, reply=True),
        JobSpec(id="ü", terms=timed),
        JobSpec(id="e", terms=timed, origin='"o', reply=True),
        JobSpec(id="f", terms=shared, origin="o", reply=True),
    ]
    written = [json.loads(text) for text in write_options(specs)]
    assert written == [codec.options_of(spec) for spec in specs]


@pytest.mark.parametrize("odd", ODD)
def test_options_of_jobs_that_are_alike_say_what_those_of_each_job_say(odd: str) -> None:
    ids = ["plain", odd]
    payloads, origins = [b"{}"] * 2, ["o"] * 2
    drafts = Drafts(ids, ["job"] * 2, payloads, [TERMS] * 2, origins, [False] * 2)
    each = [json.loads(text) for text in write_options(list(drafts))]
    assert read(write_texts(drafts), ids) == each
    assert read(write_columns(ids, [TERMS] * 2, "o"), ids) == each


def test_options_are_written_once_where_ids_need_no_quotes() -> None:
    assert not write_columns(["a", "order-42/7"], [TERMS] * 2, "o").each
    assert write_columns(["a", 'say "x"'], [TERMS] * 2, "o").each


def test_jobs_in_columns_have_the_options_of_their_own_terms() -> None:
    other = Terms(timeout_ms=8000)
    ids, terms = ["a", "b", "c"], [TERMS, other, TERMS]
    specs = [JobSpec(id=one, terms=two, origin="o") for one, two in zip(ids, terms, strict=True)]
    assert read(write_columns(ids, terms, "o"), ids) == [codec.options_of(spec) for spec in specs]
