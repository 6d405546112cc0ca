"""The data source `toril_jobs`: jobs of queues as a table to read and a table to append to."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from pyspark.sql.datasource import DataSource

from toril.errors import InvalidOption, UnsupportedFeature
from toril.spark.jobs_plan import READ_OPTIONS, JobsPlan
from toril.spark.jobs_read import JobsReader
from toril.spark.jobs_write import WRITE_OPTIONS, JobsStreamWriter, JobsWriter, WritePlan
from toril.spark.options import Options
from toril.spark.schema import JOBS, JOBS_ON_REQUEST, choose, ddl
from toril.spark.target import TARGET_OPTIONS

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

NAME: Final = "toril_jobs"


class JobsSource(DataSource):
    """Reads jobs by state and writes rows as jobs; `register` tells it about the session."""

    master: ClassVar[str] = "local"
    slots: ClassVar[int] = 4

    @classmethod
    def name(cls) -> str:
        """What `format` is given."""
        return NAME

    def schema(self) -> str:
        """All columns; a schema of the user's own chooses among them."""
        return ddl(JOBS)

    def reader(self, schema: StructType) -> JobsReader:
        """Read jobs of a queue."""
        options = Options.read(NAME, self.options, (*TARGET_OPTIONS, *READ_OPTIONS))
        plan = JobsPlan.of(options, choose(NAME, schema, JOBS | JOBS_ON_REQUEST), self.slots)
        plan.target.check_reach(self.master)
        return JobsReader(plan)

    def writer(self, schema: StructType, overwrite: bool) -> JobsWriter:
        """Append rows as jobs."""
        if overwrite:
            raise UnsupportedFeature(
                f"{NAME}: mode 'overwrite' would have to delete a queue in use; write with"
                " mode('append'), and empty the queue before with Queue.destroy() if you mean it"
            )
        return JobsWriter(self._write_plan(schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> JobsStreamWriter:  # noqa: N802
        """Append each micro-batch as jobs."""
        if overwrite:
            raise UnsupportedFeature(
                f"{NAME}: output mode 'complete' would add changed rows under ids that exist;"
                " use outputMode('append')"
            )
        plan = self._write_plan(schema)
        if plan.fail_on_duplicate:
            raise InvalidOption(
                f"{NAME}: option 'onDuplicate' = 'fail' cannot be kept by a stream: a restart"
                " replays its last batch, whose jobs are there; use 'ignore'"
            )
        return JobsStreamWriter(plan)

    def _write_plan(self, schema: StructType) -> WritePlan:
        known = (*TARGET_OPTIONS, *WRITE_OPTIONS)
        plan = WritePlan.of(Options.read(NAME, self.options, known), schema)
        plan.target.check_reach(self.master)
        return plan
