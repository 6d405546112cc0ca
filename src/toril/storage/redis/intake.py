"""Pack jobs on their way in, for `enqueue.lua`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import msgpack

from toril.drafts import Drafts
from toril.job import DEFAULT_TERMS, JobSpec, Terms
from toril.storage.columns import spread
from toril.storage.redis.codec import pack, pack_terms
from toril.storage.redis.layout import chunks

Args = list[str | bytes]

NEW: Final = "1"
KNOWN: Final = "0"
"""Whether jobs of these ids may have ended already; where a call is repeated, its own may have."""

_TRUE: Final = b"\xc3"
_FOUR: Final = b"\x94"
"""What an array of four begins with."""
_SHORT: Final = 32
"""The longest packed text whose first byte holds its type and its length."""

_APART: Final = frozenset("plku")
"""What of `_extra` keeps a job out of the plain line, or makes it look for others first."""


class Intake:
    """Packs jobs for one client, which is told of their endings by the name `reply_to`.

    What depends on the terms alone is kept from one job to the next: mostly they share one
    object, and to look it up by its value is dear. Jobs handed in together share even more.
    """

    def __init__(self, reply_to: str) -> None:
        self._reply_to = reply_to
        self._pack = msgpack.Packer().pack
        self._kept = self._of(DEFAULT_TERMS)

    def _of(self, terms: Terms) -> tuple[Terms, bytes, dict[str, object] | bool, bytes, bytes]:
        extra = _extra(terms)
        packed = self._pack(pack_terms(terms))
        return terms, packed, extra, *_ends(extra, terms, self._reply_to)

    def pack(self, specs: Sequence[JobSpec]) -> Args:
        """Write the arguments of `enqueue.lua` after the time."""
        if isinstance(specs, Drafts) and specs.alike:
            return self.pack_alike(specs[0], specs.ids, specs.payloads)
        args: Args = [str(len(specs))]
        heads: Args = []
        fresh = True
        write = self._pack
        head = start = end = b""
        last: JobSpec | None = None
        row = 0
        for spec in specs:
            # Asked by identity, which is quick: jobs handed in together share these objects.
            if (
                last is None
                or spec.origin is not last.origin
                or spec.terms is not last.terms
                or spec.name is not last.name
                or spec.reply is not last.reply
                or spec.requeue_failed is not last.requeue_failed
            ):
                if row:
                    heads += (head, str(row))
                head, start, end = self.parts(spec)
                last, row = spec, 0
            args += (spec.id, start + write(spec.payload) + end)
            row += 1
            fresh = fresh and spec.fresh
        return [*args, *heads, head, str(row), NEW if fresh else KNOWN]

    def pack_alike(self, model: JobSpec, ids: Sequence[str], payloads: Sequence[bytes]) -> Args:
        """Write the arguments for jobs that are like `model` but for id and payload."""
        head, start, end = self.parts(model)
        write = self._pack
        args: Args = [str(len(ids))]
        for job_id, payload in zip(ids, payloads, strict=True):
            args += (job_id, start + write(payload) + end)
        args += (head, str(len(ids)), NEW if model.fresh else KNOWN)
        return args

    def parts(self, spec: JobSpec) -> tuple[bytes, bytes, bytes]:
        """Pack a job's head, and what stands before and after its payload."""
        terms, packed_terms, extra, plain, waited = self._kept
        if spec.terms is not terms:
            self._kept = self._of(spec.terms)
            terms, packed_terms, extra, plain, waited = self._kept
        write = self._pack
        origin, name = write(spec.origin), write(spec.name)
        if plain and len(origin) <= _SHORT and len(name) <= _SHORT:
            head = origin + name + (waited if spec.reply else plain)
            if spec.requeue_failed:
                head += _TRUE
        else:
            reply = self._reply_to if spec.reply else False
            facts = (spec.origin, terms.delay_ms, spec.requeue_failed, reply, extra, spec.name)
            head = write(facts)
        return head, _FOUR + name, packed_terms + origin


def pack_rows(
    ids: Sequence[str],
    payloads: Sequence[bytes],
    names: Sequence[str] | str,
    terms: Sequence[Terms] | Terms,
    origin: str,
) -> Iterator[Args]:
    """Write the arguments for jobs that lie in columns, call by call."""
    intake = Intake("")
    if isinstance(names, str) and isinstance(terms, Terms):
        model = JobSpec(id="", name=names, terms=terms, origin=origin)
        for some in zip(chunks(ids), chunks(payloads), strict=True):
            yield intake.pack_alike(model, *some)
        return
    count = len(ids)
    rows = zip(ids, payloads, spread(names, count), spread(terms, count), strict=True)
    specs = [JobSpec(id=i, payload=p, name=n, terms=t, origin=origin) for i, p, n, t in rows]
    for part in chunks(specs):
        yield intake.pack(part)


def _extra(terms: Terms) -> dict[str, object] | bool:
    """What the scripts must know of the terms; False for a job with nothing special."""
    extra: dict[str, object] = {}
    if terms.priority:
        extra["p"] = terms.priority
    if terms.lifo:
        extra["l"] = True
    if terms.result_ttl_ms is not None:
        extra["t"] = terms.result_ttl_ms
    for letter, keep in (("c", terms.keep_completed), ("f", terms.keep_failed)):
        if keep.count is not None or keep.age_ms is not None:
            extra[letter] = [False if x is None else x for x in (keep.count, keep.age_ms)]
    if terms.keep_logs != 1000:
        extra["g"] = terms.keep_logs
    dedup = terms.dedup
    if dedup is not None:
        extra["k"] = dedup.key
        if dedup.ttl_ms is not None:
            extra["u"] = dedup.ttl_ms
        if dedup.extend:
            extra["y"] = True
        if dedup.replace:
            extra["v"] = True
    return extra or False


def _ends(extra: dict[str, object] | bool, terms: Terms, reply_to: str) -> tuple[bytes, bytes]:
    """Pack what ends the record of a job for the plain line, without and with somebody waiting.

    Both are empty if it has to go elsewhere first: a delay, a priority, a key to hold, the front.
    """
    known = extra if isinstance(extra, dict) else {}
    if terms.delay_ms or not _APART.isdisjoint(known):
        return b"", b""
    return pack(extra), pack({**known, "r": [reply_to]})
