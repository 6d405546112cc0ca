"""Hand in jobs, by id or by name: one, many alike, or many of all kinds."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Unpack, cast

from toril.clock import Clock
from toril.drafts import Described, Drafts
from toril.errors import InvalidOption
from toril.intake import EnqueueResult, NewJob, OnFailed, TakingQueue, data_of, is_requeue
from toril.job import In, Job, JobRecord, JobSpec, Out, State
from toril.metrics import EnqueueMetrics
from toril.options import JobOverrides
from toril.quick import new_job
from toril.storage.created import Created
from toril.storage.protocol import Receipt
from toril.tend import to_time
from toril.text import printable

_log: Final = logging.getLogger("toril.queue")

_BATCH: Final = 10_000
"""How many new jobs one call to a storage carries at most."""


class AddingQueue(TakingQueue[In, Out]):
    """The part of a queue that hands in."""

    clock: Clock
    metrics: EnqueueMetrics | None

    async def enqueue(
        self,
        id: str,
        data: In,
        *,
        name: str = "job",
        on_failed: OnFailed = "requeue",
        **options: Unpack[JobOverrides],
    ) -> EnqueueResult[Out]:
        """Hand in a job by id; an id that is there already is not queued again.

        An id that failed is queued anew, unless `on_failed="keep"`.
        """
        spec = self._enqueue_spec(id, data, name, on_failed, options)
        receipt = await self._hand_in(spec)
        if receipt.created:
            return self._enqueued(receipt, {})
        there = await self._completed_of([receipt])
        self._tell_duplicate(receipt, there.get(receipt.id))
        return self._enqueued(receipt, there)

    async def enqueue_many(
        self, jobs: Iterable[NewJob[In]], *, on_failed: OnFailed = "requeue"
    ) -> Sequence[EnqueueResult[Out]]:
        """Hand in many jobs by id with as few calls as possible; not a transaction.

        Everything is checked before the first is sent. Each is answered as `enqueue` would; one
        without an id gets a new one.
        """
        if not isinstance(jobs, Iterable):
            raise InvalidOption(f"jobs={printable(jobs, 60)}: give a list of NewJob(id=…, data=…)")
        many, requeue = list(jobs), is_requeue(on_failed)
        receipts = await self._send_all(self._drafts(many, data_of(many), requeue))
        if isinstance(receipts, Created):
            return Described(len(receipts), lambda at: self._enqueued(receipts[at], {}))
        taken = [receipt for receipt in receipts if not receipt.created]
        there = await self._completed_of(taken)
        self._tell_duplicates(taken, len(receipts))
        return [self._enqueued(receipt, there) for receipt in receipts]

    async def add(
        self, name: str, data: In, *, id: str | None = None, **options: Unpack[JobOverrides]
    ) -> Job[In, Out]:
        """Hand in a named job; its id is made here, before the first send, unless given."""
        spec = self._add_spec(name, data, id, cast("Mapping[str, object]", options))
        receipt = await self._hand_in(spec)
        there = None
        if not receipt.created:
            there = (await self._jobs_there([receipt.id])).get(receipt.id)
        return there or self._added(data, spec, receipt, self.clock.now_ms())

    async def add_many(
        self, name: str, data: Iterable[In], **options: Unpack[JobOverrides]
    ) -> Sequence[Job[In, Out]]:
        """Hand in a job of this name and these options for each of the data; not a transaction.

        Everything is checked before the first is sent. For ids, names or options of their own,
        there is `add_bulk`.
        """
        if isinstance(data, str | bytes | Mapping) or not isinstance(data, Iterable):
            raise InvalidOption(
                f"data={printable(data, 60)}: give a list, with the data of one job each;"
                " add() hands in a single job"
            )
        many = list(data)
        drafts = self._drafts_alike(name, many, cast("Mapping[str, object]", options))
        return await self._hand_in_all(many, drafts)

    async def add_bulk(self, jobs: Sequence[NewJob[In]]) -> Sequence[Job[In, Out]]:
        """Hand in many named jobs with as few calls as possible; not a transaction.

        Everything is checked before the first is sent. A job whose id or dedup key is taken is
        answered by the one that is there. Jobs that differ in nothing but their data need less
        time by `add_many`.
        """
        many = data_of(jobs)
        return await self._hand_in_all(many, self._drafts(jobs, many))

    async def _hand_in_all(self, data: Sequence[In], specs: Drafts) -> Sequence[Job[In, Out]]:
        receipts = await self._send_all(specs)
        taken = () if isinstance(receipts, Created) else [r.id for r in receipts if not r.created]
        there = await self._jobs_there(taken)
        now = self.clock.now_ms()

        def describe(number: int) -> Job[In, Out]:
            receipt = receipts[number]
            found = there.get(receipt.id)
            return found or self._added(data[number], specs[number], receipt, now)

        return Described(len(receipts), describe)

    async def _send_all(self, specs: Drafts) -> Sequence[Receipt]:
        await self._open()
        receipts: Sequence[Receipt] = ()
        for first in range(0, len(specs), _BATCH):
            some = specs[first : first + _BATCH]
            answers = await self.storage.enqueue(self.name, some)
            self._count(some, answers)
            receipts = [*receipts, *answers] if receipts else answers
        return receipts

    async def _completed_of(self, taken: Sequence[Receipt]) -> Mapping[str, JobRecord]:
        """Read the jobs that have run already, for their results."""
        return await self._records_of([r.id for r in taken if r.state is State.COMPLETED])

    def _enqueued(self, receipt: Receipt, there: Mapping[str, JobRecord]) -> EnqueueResult[Out]:
        if receipt.created:
            return EnqueueResult(id=receipt.id, status="queued")
        if receipt.state is not State.COMPLETED:
            return EnqueueResult(id=receipt.id, status="duplicate", existing_state=receipt.state)
        record = there.get(receipt.id)
        result = None if record is None else self._result(record.result)
        return EnqueueResult(
            id=receipt.id, status="completed", existing_state=receipt.state, result=result
        )

    def _tell_duplicate(self, receipt: Receipt, record: JobRecord | None) -> None:
        if not _log.isEnabledFor(logging.INFO):
            return
        since_ms = None if record is None else record.finished_ms
        age = "" if since_ms is None else f" {(self.clock.now_ms() - since_ms) / 1000:.0f} s ago"
        _log.info(
            "toril[E11] job '%s' already exists in queue '%s' (%s%s): not queued again;"
            " take a new id, or remove the old job first",
            printable(receipt.id, 60),
            self.name,
            receipt.state or "finished",
            age,
        )

    def _tell_duplicates(self, taken: Sequence[Receipt], count: int) -> None:
        if taken:
            _log.info(
                "toril[E11] %d of %d jobs already exist in queue '%s', '%s' is the first: not"
                " queued again; take new ids, or remove the old jobs first",
                len(taken),
                count,
                self.name,
                printable(taken[0].id, 60),
            )

    async def _jobs_there(self, ids: Sequence[str]) -> Mapping[str, Job[In, Out]]:
        records = await self._records_of(ids)
        return {job_id: self._job(record) for job_id, record in records.items()}

    async def _records_of(self, ids: Sequence[str]) -> Mapping[str, JobRecord]:
        if not ids:
            return {}
        records = await self.storage.get(self.name, ids)
        return {record.spec.id: record for record in records if record is not None}

    async def _hand_in(self, spec: JobSpec) -> Receipt:
        if not self._opened:
            await self._open()
        specs = [spec]
        receipts = await self.storage.enqueue(self.name, specs)
        self._count(specs, receipts)
        (receipt,) = receipts
        return receipt

    def _count(self, specs: Sequence[JobSpec], receipts: Sequence[Receipt]) -> None:
        if self.metrics is not None:
            pairs = zip(specs, receipts, strict=True)
            names = Counter(spec.name for spec, receipt in pairs if receipt.created)
            for name, count in names.items():
                self.metrics.jobs_enqueued(self.name, name, count)

    def _added(self, data: In, spec: JobSpec, receipt: Receipt, now_ms: int) -> Job[In, Out]:
        """Describe a job just added, or one that held the dedup key and is gone already."""
        delayed = receipt.created and receipt.state is State.DELAYED
        return new_job(
            id=receipt.id,
            name=spec.name,
            queue=self.name,
            data=data,
            state=receipt.state or State.COMPLETED,
            terms=spec.terms,
            created_at=to_time(now_ms),
            due_at=to_time(now_ms + spec.terms.delay_ms) if delayed else None,
        )
