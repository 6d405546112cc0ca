"""The options of jobs as the JSON text that our own scripts store."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from json.encoder import encode_basestring as _quote
from typing import Final, NamedTuple

from toril.drafts import Drafts
from toril.job import JobSpec, Terms
from toril.storage.bullmq.codec import clean, dumps
from toril.storage.bullmq.terms import PRIVATE, write_terms

_UNQUOTED: Final = re.compile(r"[ !#-\[\]-~]*")
"""Ids that JSON writes as they are: ASCII without quotes, backslashes and control characters."""


class Texts(NamedTuple):
    """The options of some jobs: each in full, or what all of them have around their ids."""

    each: Sequence[str]
    head: str = ""
    tail: str = ""

    def last(self, job_id: str) -> str:
        """The options of the last job, which has this id."""
        return self.each[-1] if self.each else f"{self.head}{job_id}{self.tail}"


def write_texts(specs: Sequence[JobSpec]) -> Texts:
    """Write the options of jobs; once for all where they differ in nothing but the id."""
    if isinstance(specs, Drafts) and specs.alike:
        one = specs[0]
        return _write_around(specs.ids, *_around(_shared(one.terms), one.origin, one.reply))
    return Texts(write_options(specs))


def write_columns(ids: Sequence[str], terms: Sequence[Terms], origin: str) -> Texts:
    """Write the options of jobs that lie in columns and were handed in together."""
    one = terms[0]
    around = _around(_shared(one), origin)
    if all(other is one for other in terms):
        return _write_around(ids, *around)
    written: list[str] = []
    for job_id, other in zip(ids, terms, strict=True):
        if other is not one:  # to look them up by their value is dear
            one, around = other, _around(_shared(other), origin)
        written.append(clean(_quote(job_id).join(around)))
    return Texts(written)


def write_options(specs: Sequence[JobSpec]) -> list[str]:
    """Write the options of jobs, each in full."""
    shared, terms = _shared(specs[0].terms), specs[0].terms
    written: list[str] = []
    for spec in specs:
        if spec.terms is not terms:
            shared, terms = _shared(spec.terms), spec.terms
        written.append(clean(_quote(spec.id).join(_around(shared, spec.origin, spec.reply))))
    return written


def _write_around(ids: Sequence[str], head: str, tail: str) -> Texts:
    """Write options that differ in nothing but the id; each in full if an id needs quoting."""
    if _UNQUOTED.fullmatch("".join(ids)):
        return Texts((), clean(f'{head}"'), clean(f'"{tail}'))
    return Texts([clean(f"{head}{_quote(job_id)}{tail}") for job_id in ids])


def _around(shared: tuple[str, str], origin: str, reply: bool = False) -> tuple[str, str]:
    """Write what stands before and after the id in the options of a job."""
    head, inner = shared
    if origin:
        waits = ',"w":1' if reply else ""
        return head, f',"{PRIVATE}":{{{inner}"o":{_quote(origin)}{waits}}}}}'
    rest = inner + ('"w":1' if reply else "")
    return head, f',"{PRIVATE}":{{{rest.removesuffix(",")}}}}}' if rest else "}"


@lru_cache(maxsize=1024)
def _shared(terms: Terms) -> tuple[str, str]:
    """Write what the options of jobs with the same terms begin with: all of them, and our own."""
    options = dict(write_terms(terms))
    private = dumps(options.pop(PRIVATE, {}))[1:-1]
    return f'{dumps(options)[:-1]},"jobId":', private and f"{private},"
