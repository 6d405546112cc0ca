"""Work the jobs of a queue on Spark executors."""

from __future__ import annotations

import logging
import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Unpack, cast

from toril.errors import InvalidOption, TorilWarning, UnsupportedFeature
from toril.ids import check_name, ulid
from toril.options import whole
from toril.queue import Queue
from toril.retry import to_seconds
from toril.serde import Serde
from toril.spark.cargo import Cargo, Handlers
from toril.spark.fleet_count import FleetProgress
from toril.spark.fleet_handle import FleetHandle, StopWhen
from toril.spark.fleet_task import FleetTask
from toril.spark.target import target_of
from toril.text import suggest
from toril.worker import Worker
from toril.worker_options import TravellingOverrides, WorkerOptions, WorkerOverrides

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

SOURCE: Final = "SparkWorkerFleet"
_LOG: Final = logging.getLogger("toril.spark.fleet")
_LOCAL: Final = re.compile(r"local(?:\[(\d+|\*)(?:,\d+)?\])?")
_NOT_FOR_FLEETS: Final = {
    "worker_id": "the tasks would share one id; use name=",
    "logger": "a logger stays on its machine; configure the logger 'toril.worker' there",
    "metrics": "a collector stays on its machine; use on_progress=, or handle.progress()",
}


class SparkWorkerFleet:
    """Ordinary workers in long tasks on executors, one worker per task.

    `handler` is what a `Worker` takes, or the text `module:function`. `tasks` defaults to the
    slots there are. `stop_when="drained"` ends the fleet when its queue has no work left; without
    it, it works until `stop`. `on_progress` is called twice a second, in a thread of the
    fleet's own. A storage is named as in the sources: by `url`, which holds no password, or by
    `url_env` (TORIL_URL) and `password_file`, which are read on the driver and on the executors.
    """

    def __init__(
        self,
        spark: SparkSession,
        queue: str,
        handler: Handlers,
        *,
        tasks: int | None = None,
        concurrency: int = 1,
        stop_when: StopWhen = None,
        url: str | None = None,
        url_env: str | None = None,
        password_file: str | None = None,
        serde: Serde[Any] | None = None,
        result_serde: Serde[Any] | None = None,
        on_progress: Callable[[FleetProgress], object] | None = None,
        **worker_options: Unpack[TravellingOverrides],
    ) -> None:
        self.queue = check_name("queue", queue)
        if stop_when not in (None, "drained"):
            raise InvalidOption(f"stop_when={stop_when!r}: must be 'drained' or None")
        if on_progress is not None and not callable(on_progress):
            raise InvalidOption(f"on_progress={on_progress!r}: give a function of the progress")
        self.stop_when: StopWhen = stop_when
        self.target = target_of(SOURCE, url, url_env, password_file)
        self._context = classic_context(SOURCE, spark)
        self.target.check_reach(self._context.master or "")
        self._slots = _slots(self._context)
        self.tasks = _check_tasks(self._context, self._slots, tasks)
        self._on_progress = on_progress
        self._cargo = Cargo(
            handler=handler,
            options=_check_options(concurrency, worker_options),
            serde=serde,
            result_serde=result_serde,
        )
        self._cargo.handlers()

    def __repr__(self) -> str:
        return f"<{SOURCE} of {self.tasks} tasks on {self.queue!r}>"

    def start(self) -> FleetHandle:
        """Check the storage and the handler from here, then start the tasks; returns at once."""
        queue: Queue[Any, Any] = Queue(
            self.queue,
            self.target.resolve(),
            serde=self._cargo.serde,
            result_serde=self._cargo.result_serde,
        )
        # Refuses here what it would refuse on each executor.
        worker = Worker(queue, self._cargo.handlers(), **self._cargo.options)
        target = self.target.anchored()
        task = FleetTask(run=ulid(), queue=self.queue, target=target, cargo=self._cargo.pack())
        handle = FleetHandle(
            context=self._context,
            queue=queue,
            task=task,
            tasks=self.tasks,
            stop_when=self.stop_when,
            grace_s=to_seconds("shutdown_timeout", worker.options.shutdown_timeout),
            on_progress=self._on_progress,
        )
        _tell_busy(self._context, self.queue, self.tasks, self._slots)
        handle.begin()
        return handle


def classic_context(source: str, spark: SparkSession) -> SparkContext:
    """The context of a session; Spark Connect has none."""
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        raise UnsupportedFeature(
            f"{source}: a Spark Connect session cannot run long tasks of its own; run this on the"
            " cluster's driver, with spark-submit or as a job"
        )
    return spark.sparkContext


def _slots(context: SparkContext) -> int:
    """How many tasks run at a time, by the executors there are now."""
    local = _LOCAL.fullmatch(context.master or "")
    cores = context.defaultParallelism
    if local and local[1] != "*":  # spark.default.parallelism may say anything
        cores = int(local[1] or 1)
    return max(1, cores // int(context.getConf().get("spark.task.cpus", "1")))


def _check_tasks(context: SparkContext, slots: int, tasks: int | None) -> int:
    """Refuse tasks that could never run together, where that is known; else warn."""
    if context.getConf().get("spark.speculation", "false") == "true":
        warnings.warn(
            "spark.speculation=true starts long tasks twice; a fleet works without it",
            TorilWarning,
            stacklevel=3,
        )
    if tasks is None:
        return slots
    whole("tasks", tasks, 1)
    if tasks > slots:
        master = context.master or ""
        fact = (
            f"tasks={tasks}: '{master}' has {slots} slots now, so {tasks - slots} would wait until"
            f" others end; use tasks={slots} with a higher concurrency="
        )
        if _LOCAL.fullmatch(master):
            raise InvalidOption(f"{fact}, or a master with more cores")
        warnings.warn(f"{fact}, or more executors", TorilWarning, stacklevel=3)
    return tasks


def _tell_busy(context: SparkContext, queue: str, tasks: int, slots: int) -> None:
    """Log that tasks must wait for other jobs of the session, which may be short."""
    tracker = context.statusTracker()
    stages = [tracker.getStageInfo(one) for one in tracker.getActiveStageIds()]
    busy = sum(one.numActiveTasks for one in stages if one is not None)
    if tasks > slots - busy:
        _LOG.warning(
            "fleet on '%s': %d tasks, and %d of %d slots are busy now; those without a slot wait",
            queue,
            tasks,
            busy,
            slots,
        )


def _check_options(concurrency: int, given: TravellingOverrides) -> WorkerOverrides:
    known = (*TravellingOverrides.__annotations__, "concurrency")
    refuse_unknown(SOURCE, given, known, _NOT_FOR_FLEETS)
    options = cast("WorkerOverrides", {**given, "concurrency": concurrency})
    WorkerOptions.of(options)
    return options


def refuse_unknown(
    source: str, given: Iterable[str], known: Sequence[str], senseless: Mapping[str, str]
) -> None:
    """Refuse names of options; of a worker's own that make no sense here, say why."""
    for name in given:
        if name in senseless:
            raise InvalidOption(f"{source} takes no {name}=: {senseless[name]}")
        if name not in known:
            raise InvalidOption(
                f"{source}: unknown option {name!r}.{suggest(name, known)}"
                f" Known: {', '.join(known)}"
            )
