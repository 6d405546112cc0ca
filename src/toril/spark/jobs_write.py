"""Write rows as jobs on executors; a row that comes again adds nothing."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from toril.errors import InvalidInput
from toril.ids import check_name, token
from toril.spark.jobs_rows import ROW_OPTIONS, Rows, RowsPlan
from toril.spark.options import Options
from toril.spark.target import Target
from toril.storage.columns import Bulk

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

WRITE_OPTIONS: Final = ("queue", *ROW_OPTIONS, "onDuplicate", "pipelineSize", "reportPath")
_PIPELINE: Final = 2000

_logger: Final = logging.getLogger("toril.spark")


@dataclass(frozen=True, slots=True, kw_only=True)
class Count(WriterCommitMessage):
    """What one task wrote, or all of them."""

    rows: int = 0
    created: int = 0
    duplicates: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class WritePlan:
    """What a writer was asked for; `run` names this write in all its tasks and their repeats."""

    target: Target
    queue: str
    rows: RowsPlan
    fail_on_duplicate: bool
    pipeline_size: int
    report_path: str | None
    run: str

    @classmethod
    def of(cls, options: Options, schema: StructType) -> WritePlan:
        """Check the options of a write."""
        queue = options.text("queue")
        if queue is None:
            raise options.wrong("queue", "is missing; name the queue to write to")
        return cls(
            target=Target.of(options),
            queue=check_name("queue", queue),
            rows=RowsPlan.of(options, schema),
            fail_on_duplicate=options.choice("onDuplicate", "ignore", ("ignore", "fail")) == "fail",
            pipeline_size=options.count("pipelineSize", _PIPELINE, 1, 100_000),
            report_path=options.text("reportPath"),
            run=token()[:13],
        )

    def write(self, batches: Iterator[pa.RecordBatch]) -> Count:
        """Write the rows of one task; each batch is checked whole before any of it is sent."""
        bulk = self.target.open()
        seen: set[str] | None = set() if self.fail_on_duplicate else None
        total = Count()
        try:
            for batch in batches:
                rows = self.rows.rows(batch)
                if seen is not None:
                    _check_new(rows, seen)
                total = _sum([total, self._send(bulk, rows)])
        finally:
            bulk.close()
        return total

    def _send(self, bulk: Bulk, rows: Rows) -> Count:
        """Send a batch in pieces. Only a write that must not meet others' jobs marks its own."""
        origin = f"{self.run}-{_partition()}" if self.fail_on_duplicate else ""
        created = duplicates = 0
        # Only the storage can tell whether it takes any bytes; it does before it writes.
        size = self.pipeline_size if self.rows.raw is None else max(1, len(rows.ids))
        for first in range(0, len(rows.ids), size):
            some = slice(first, first + size)
            written = bulk.write_jobs(
                self.queue,
                rows.ids[some],
                rows.payloads[some],
                rows.names if isinstance(rows.names, str) else rows.names[some],
                rows.terms[some] if isinstance(rows.terms, Sequence) else rows.terms,
                origin,
            )
            created += written.created
            duplicates += written.duplicates
            if self.fail_on_duplicate and written.duplicates:
                raise InvalidInput(
                    f"toril_jobs: {written.duplicates:,} of {len(rows.ids[some]):,} jobs are in"
                    f" queue '{self.queue}' already, or their dedup id is held; the first is"
                    f" '{written.first_duplicate}'. Those before it were added. Write with"
                    " onDuplicate=ignore, or filter them"
                )
        return Count(rows=len(rows.ids), created=created, duplicates=duplicates)

    def report(self, messages: Sequence[WriterCommitMessage | None], batch: int | None) -> None:
        """Tell what was written: to the log, and to a file if one was asked for."""
        total = _sum([one for one in messages if isinstance(one, Count)])
        _logger.info(
            "toril_jobs: queue '%s': %s rows, %s jobs added, %s there already",
            self.queue,
            f"{total.rows:,}",
            f"{total.created:,}",
            f"{total.duplicates:,}",
        )
        if self.report_path is None:
            return
        path = Path(self.report_path)
        facts: dict[str, object] = {"queue": self.queue, **asdict(total)}
        if batch is not None:
            path, facts["batch"] = path / f"batch-{batch}.json", batch
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f".{path.name}.{self.run}")
        draft.write_text(json.dumps(facts) + "\n", encoding="utf-8")
        draft.replace(path)

    def regret(self) -> None:
        """Say what a failed write leaves behind."""
        _logger.warning(
            "toril_jobs: queue '%s': the write failed; jobs that were added stay, and writing the"
            " same rows again adds only the others",
            self.queue,
        )


class JobsWriter(DataSourceArrowWriter):
    """Adds rows as jobs. What is added stays, also if the write fails later."""

    def __init__(self, plan: WritePlan) -> None:
        self.plan = plan

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Count:
        """Add the rows of one task, on an executor."""
        return self.plan.write(iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Tell what was written, on the driver."""
        self.plan.report(messages, None)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Undo nothing."""
        self.plan.regret()


class JobsStreamWriter(DataSourceStreamArrowWriter):
    """Adds the rows of each micro-batch as jobs; a replayed one adds nothing."""

    def __init__(self, plan: WritePlan) -> None:
        self.plan = plan

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Count:
        """Add the rows of one task, on an executor."""
        return self.plan.write(iterator)

    def commit(
        self,
        messages: list[WriterCommitMessage | None],
        batchId: int,  # noqa: N803
    ) -> None:
        """Tell what was written, on the driver."""
        self.plan.report(messages, batchId)

    def abort(
        self,
        messages: list[WriterCommitMessage | None],
        batchId: int,  # noqa: N803
    ) -> None:
        """Undo nothing."""
        self.plan.regret()


def _partition() -> int:
    """The number that a task shares with its repeats only."""
    task = TaskContext.get()
    return 0 if task is None else task.partitionId()


def _sum(counts: Sequence[Count]) -> Count:
    return Count(
        rows=sum(one.rows for one in counts),
        created=sum(one.created for one in counts),
        duplicates=sum(one.duplicates for one in counts),
    )


def _check_new(rows: Rows, seen: set[str]) -> None:
    """Refuse an id that stood in an earlier row of the task, or stands twice in this batch."""
    for job_id in rows.ids:
        if job_id in seen:
            raise InvalidInput(
                f"toril_jobs: id '{job_id}' stands in two rows, and onDuplicate=fail;"
                " drop one of them, or write with onDuplicate=ignore"
            )
        seen.add(job_id)
