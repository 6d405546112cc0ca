"""The commands under `toril spark`."""

from toril.cli.lazy import Lazy, LazyGroup

_HELP = {
    "ingest": "Load a file, a directory or a table into a queue.",
    "archive": "Move finished jobs to Parquet, verified before they are deleted.",
    "replay": "Retry the failed jobs that a condition chooses.",
    "export": "Write the results of completed jobs as a table.",
    "analyze": "Compute what queues did: throughput, latency, failures.",
    "report": "Write that as one HTML page.",
    "fleet": "Work a queue's jobs on Spark's executors.",
}

spark = LazyGroup(
    name="spark",
    lazy={
        name: Lazy(home=f"toril.cli.spark.{name}", name="command", help=text)
        for name, text in _HELP.items()
    },
    help="""Queues as tables, on Spark: this machine's cores, or a cluster with --master.

    Needs the extra 'spark' and Java 17.""",
    no_args_is_help=True,
)
