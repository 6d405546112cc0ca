"""Jobs on their way in: what callers give, checked and encoded before anything is sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Generic, Literal, cast

from toril.drafts import Drafts
from toril.errors import InvalidOption, InvalidPayload
from toril.ids import check_name, ulid, ulids
from toril.job import In, JobSpec, Out, State, Terms
from toril.options import JobOptions, JobOverrides
from toril.quick import new_spec
from toril.retry import Seconds
from toril.serde import Serde, dumps_all
from toril.storage.protocol import Cancellation, Feature, Storage
from toril.tend import TendedQueue, unstorable
from toril.text import printable

RESULT_TTL_S: Final = 3600.0
"""How long the reliable verbs keep a finished job, unless told otherwise."""

OnFailed = Literal["requeue", "keep"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EnqueueResult(Generic[Out]):
    """What became of a hand-in by id.

    `queued`: a new job waits. `duplicate`: one of that id (or dedup key) is there already, in
    `existing_state`. `completed`: it has run before, and `result` is what it returned.
    """

    id: str
    status: Literal["queued", "duplicate", "completed"]
    existing_state: State | None = None
    result: Out | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelResult:
    """What became of a cancel: see `Cancellation`."""

    id: str
    status: Cancellation


# Without slots: NewJob[Mail](…) of a frozen, slotted class is a TypeError in Python.
@dataclass(frozen=True, kw_only=True, init=False)
class NewJob(Generic[In]):
    """A named job for `add_bulk`."""

    name: str
    data: In
    id: str | None = None
    options: JobOptions | None = None

    def __init__(
        self, *, name: str, data: In, id: str | None = None, options: JobOptions | None = None
    ) -> None:
        # What a frozen dataclass would do field by field, in a third of the time: they come in
        # thousands.
        fields = self.__dict__
        fields["name"] = name
        fields["data"] = data
        fields["id"] = id
        fields["options"] = options


class TakingQueue(TendedQueue[In, Out]):
    """The part of a queue that makes specs of what it is given."""

    def __init__(
        self,
        name: str,
        storage: Storage,
        serde: Serde[In],
        result_serde: Serde[Out],
        defaults: JobOptions,
    ) -> None:
        super().__init__(name, storage, serde, result_serde, defaults)
        self._terms_for_add = self._terms(defaults, None)
        self._terms_for_enqueue = self._terms(defaults, RESULT_TTL_S)
        self._last_name = "job"

    def _enqueue_spec(
        self,
        id: str,
        data: In,
        name: str,
        on_failed: OnFailed,
        options: JobOverrides,
        *,
        reply: bool = False,
    ) -> JobSpec:
        requeue_failed = is_requeue(on_failed)
        changes = cast("Mapping[str, object]", options)
        chosen = self.defaults.override(changes)
        terms = self._terms(chosen, RESULT_TTL_S) if changes else self._terms_for_enqueue
        return new_spec(
            id=check_name("job", id),
            name=self._handler_name(name),
            payload=self._encode(id, data, terms, chosen.size_limit),
            terms=terms,
            origin=ulid(),
            reply=reply,
            requeue_failed=requeue_failed,
        )

    def _drafts(
        self, jobs: Sequence[NewJob[In]], data: Sequence[In], requeue_failed: bool | None = None
    ) -> Drafts:
        """Check and encode jobs handed in together, of one origin.

        An id that comes twice is handed in twice: the second time it is a duplicate. The
        reliable verbs give `requeue_failed`; they keep results for a while.
        """
        reliable = requeue_failed is not None
        usual = self._terms_for_enqueue if reliable else self._terms_for_add
        result_ttl = RESULT_TTL_S if reliable else None
        count = len(jobs)
        name = self._handler_name(jobs[0].name) if jobs else ""
        ids = ulids(count)
        origins, names = ids[:1] * count, [name] * count
        terms, made = [usual] * count, [True] * count
        limits: dict[int, int] = {}
        given: set[str] = set()
        special = [
            (number, new)
            for number, new in enumerate(jobs)
            if new.name is not name or new.id is not None or new.options is not None
        ]
        for number, new in special:
            if new.id is not None:
                job_id = check_name("job", new.id)
                if job_id in given:
                    origins[number] = ids[number]
                given.add(job_id)
                ids[number], made[number] = job_id, False
            if new.options is not None:
                options = self._job_options(new.options)
                terms[number], limits[number] = self._terms(options, result_ttl), options.size_limit
            if new.name is not name:
                names[number] = self._handler_name(new.name)
        payloads = self._encode_all(data)
        drafts = Drafts(ids, names, payloads, terms, origins, made, bool(requeue_failed))
        self._check_payloads(drafts, limits, self.defaults.size_limit)
        return drafts

    def _drafts_alike(self, name: str, data: Sequence[In], changes: Mapping[str, object]) -> Drafts:
        """Check and encode jobs that differ in nothing but their data, of one origin."""
        options, terms = self._options_for_add(changes)
        count, ids = len(data), ulids(len(data))
        drafts = Drafts(
            ids,
            [self._handler_name(name)] * count,
            self._encode_all(data),
            [terms] * count,
            ids[:1] * count,
            [True] * count,
        )
        self._check_payloads(drafts, {}, options.size_limit)
        return drafts

    def _encode_all(self, data: Sequence[In]) -> list[bytes]:
        try:
            return dumps_all(self.serde, data)
        except InvalidPayload as error:
            raise unstorable(error) from None

    def _check_payloads(self, drafts: Drafts, limits: Mapping[int, int], limit: int) -> None:
        """Refuse what is too large; `limits` are those of jobs that have one of their own."""
        usual = limit == self.defaults.size_limit and not limits
        if usual and max(map(len, drafts.payloads), default=0) <= self._roomy:
            return
        for number, spec in enumerate(drafts):
            self._check_payload(spec.id, spec.payload, spec.terms, limits.get(number, limit))

    def _job_options(self, options: object) -> JobOptions:
        if not isinstance(options, JobOptions):
            raise InvalidOption(f"options={printable(options, 60)}: give JobOptions(…)")
        return options

    def _add_spec(
        self, name: str, data: In, id: str | None, changes: Mapping[str, object]
    ) -> JobSpec:
        options, terms = self._options_for_add(changes)
        origin = ulid()
        job_id = origin if id is None else check_name("job", id)
        return new_spec(
            id=job_id,
            name=self._handler_name(name),
            payload=self._encode(job_id, data, terms, options.size_limit),
            terms=terms,
            origin=origin,
            fresh=id is None,
        )

    def _options_for_add(self, changes: Mapping[str, object]) -> tuple[JobOptions, Terms]:
        if not changes:
            return self.defaults, self._terms_for_add
        options = self.defaults.override(changes)
        return options, self._terms(options, None)

    def _handler_name(self, name: str) -> str:
        """Check the name of a handler; most jobs have that of the one before."""
        if name is not self._last_name:
            self._last_name = check_name("handler", name)
        return self._last_name

    def _terms(self, options: JobOptions, result_ttl: Seconds | None) -> Terms:
        terms = options.terms(result_ttl)
        asked = {
            Feature.LIFO: terms.lifo,
            Feature.EXPIRES: terms.expires_ms is not None,
            Feature.CORRELATION: terms.correlation_id is not None,
            Feature.KEEP_COUNT: any(
                keep.count not in (None, 0) for keep in (terms.keep_completed, terms.keep_failed)
            ),
            Feature.KEEP_AGE: any(
                keep.age is not None for keep in (terms.keep_completed, terms.keep_failed)
            ),
        }
        for feature, wanted in asked.items():
            if wanted:
                self.require(feature, feature.value)
        return terms


def is_requeue(on_failed: OnFailed) -> bool:
    """Read what is to become of failed ids."""
    if on_failed not in ("requeue", "keep"):
        raise InvalidOption(f"on_failed={on_failed!r}: must be 'requeue' or 'keep'")
    return on_failed == "requeue"


def data_of(jobs: Sequence[NewJob[In]]) -> list[In]:
    """Take the data out of new jobs; refuse what is none."""
    if set(map(type, jobs)) - {NewJob}:
        for number, new in enumerate(jobs):
            if not isinstance(new, NewJob):
                raise InvalidOption(
                    f"jobs[{number}]={printable(new, 60)}: give NewJob(name=…, data=…)"
                )
    return [new.data for new in jobs]
