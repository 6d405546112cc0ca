"""Hand in named jobs: one, many alike, or many of all kinds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Unpack, cast

from toril.clock import Clock
from toril.drafts import Described, Drafts
from toril.errors import InvalidOption
from toril.intake import NewJob, TakingQueue
from toril.job import In, Job, JobSpec, Out, State
from toril.metrics import EnqueueMetrics
from toril.options import JobOverrides
from toril.quick import new_job
from toril.storage.created import Created
from toril.storage.protocol import Receipt
from toril.tend import to_time
from toril.text import printable

_BATCH: Final = 10_000
"""How many new jobs one call to a storage carries at most."""


class AddingQueue(TakingQueue[In, Out]):
    """The part of a queue that hands in."""

    clock: Clock
    metrics: EnqueueMetrics | None

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
        try:
            many = [new.data for new in jobs]
        except AttributeError:
            number, other = next(
                (number, new) for number, new in enumerate(jobs) if not isinstance(new, NewJob)
            )
            raise InvalidOption(
                f"jobs[{number}]={printable(other, 60)}: give NewJob(name=…, data=…)"
            ) from None
        return await self._hand_in_all(many, self._drafts(jobs, many))

    async def _hand_in_all(self, data: Sequence[In], specs: Drafts) -> Sequence[Job[In, Out]]:
        await self._open()
        receipts: Sequence[Receipt] = ()
        for first in range(0, len(specs), _BATCH):
            some = specs[first : first + _BATCH]
            answers = await self.storage.enqueue(self.name, some)
            self._count(some, answers)
            receipts = [*receipts, *answers] if receipts else answers
        taken = () if isinstance(receipts, Created) else [r.id for r in receipts if not r.created]
        there = await self._jobs_there(taken)
        now = self.clock.now_ms()

        def describe(number: int) -> Job[In, Out]:
            receipt = receipts[number]
            found = there.get(receipt.id)
            return found or self._added(data[number], specs[number], receipt, now)

        return Described(len(receipts), describe)

    async def _jobs_there(self, ids: Sequence[str]) -> Mapping[str, Job[In, Out]]:
        if not ids:
            return {}
        records = await self.storage.get(self.name, ids)
        return {record.spec.id: self._job(record) for record in records if record is not None}

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
