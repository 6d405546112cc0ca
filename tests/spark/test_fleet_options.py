"""What a fleet refuses before it asks a server or starts a task."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

from toril import JobContext
from toril.errors import InvalidName, InvalidOption, UnsupportedFeature
from toril.spark import SparkWorkerFleet
from toril.spark.cargo import Cargo
from toril.spark.fleet_failure import one_line

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

URL = "redis://127.0.0.1:1"


def handler(job: JobContext[Any]) -> None:
    """Do nothing."""


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"stop_when": "empty"}, "stop_when='empty': must be 'drained' or None"),
        ({"tasks": 0}, "tasks=0"),
        ({"tasks": 3}, "tasks=3: 'local[2,4]' has 2 slots now, so 1 would wait"),
        ({"concurrency": 0}, "concurrency=0"),
        ({"worker_id": "one"}, "takes no worker_id=: the tasks would share one id"),
        ({"metrics": None}, "takes no metrics="),
        ({"leese": 3}, "unknown option 'leese'. Did you mean 'lease'?"),
        ({"lease": -1}, "lease=-1"),
        ({"on_progress": 3}, "on_progress=3"),
        ({"url": "redis://:geheim@host"}, "holds a password"),
        ({"url_env": "X"}, "give 'url' or 'urlEnv', not both"),
        ({"handler": "json"}, "handler='json': write 'package.module:function'"),
        ({"handler": "jsom:dumps"}, "No module named 'jsom'"),
        ({"handler": "json:dump_s"}, "no 'dump_s' there. Did you mean 'dumps'?"),
        ({"handler": "json:__name__"}, "it is a str, not a function"),
    ],
)
def test_a_fleet_refuses_what_cannot_be_meant(
    spark: SparkSession, options: dict[str, Any], message: str
) -> None:
    given: dict[str, Any] = {"handler": handler, "url": URL, **options}
    with pytest.raises(InvalidOption) as caught:
        SparkWorkerFleet(spark, "emails", **given)
    assert message in str(caught.value)
    assert "geheim" not in str(caught.value)


def test_a_fleet_refuses_a_queue_name_and_a_handler_that_is_none(spark: SparkSession) -> None:
    with pytest.raises(InvalidName):
        SparkWorkerFleet(spark, "a:b", handler, url=URL)
    with pytest.raises(InvalidOption, match="handler=3: give a function"):
        SparkWorkerFleet(spark, "emails", 3, url=URL).start()  # type: ignore[arg-type]


def test_a_session_of_spark_connect_is_refused_with_the_way_out() -> None:
    remote = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})()
    with pytest.raises(UnsupportedFeature, match="run this on the cluster's driver"):
        SparkWorkerFleet(remote, "emails", handler, url=URL)


def test_what_cannot_travel_is_refused_with_the_way_out() -> None:
    lock = threading.Lock()

    def locked(job: JobContext[Any]) -> None:
        with lock:
            pass

    cargo = Cargo(handler=locked, options={})
    with pytest.raises(InvalidOption, match=r"cannot be sent to executors .*inside the handler"):
        cargo.pack()


def test_what_is_missing_on_an_executor_is_named() -> None:
    class Stranger:
        def __reduce__(self) -> tuple[object, ...]:
            return __import__, ("no_such_module_here",)

        def __call__(self, job: JobContext[Any]) -> None:
            pass

    packed = Cargo(handler=Stranger(), options={}).pack()
    with pytest.raises(InvalidOption, match=r"No module named 'no_such_module_here'.*--py-files"):
        Cargo.unpack(packed)


@pytest.mark.parametrize(
    ("wall", "reason"),
    [
        (
            (
                "An error occurred while calling z:PythonRDD.collectAndServe.\n"
                ": org.apache.spark.SparkException: Job aborted due to stage failure: Task 0\n"
                "\tat org.apache.spark.X\n"
                "Caused by: org.apache.spark.SparkException: Python worker exited unexpectedly"
                " (crashed). Consider setting 'faulthandler' to 'true'.\n\tat org.apache.spark.Y\n"
                "Caused by: java.io.EOFException\n\t... 22 more"
            ),
            "Python worker exited unexpectedly (crashed).",
        ),
        (
            (
                ": org.apache.spark.SparkException: Aborted: Traceback (most recent call last):\n"
                '  File "worker.py", line 1\n'
                "ModuleNotFoundError: No module named 'toril'\n\n\tat org.apache.spark.X"
            ),
            "ModuleNotFoundError: No module named 'toril'.",
        ),
        (
            "An error\n: org.apache.spark.SparkException: Job 3 cancelled part of group x\n\tat y",
            "Job 3 cancelled part of group x.",
        ),
        ("something else", "something else."),
    ],
)
def test_sparks_wall_of_text_becomes_one_line(wall: str, reason: str) -> None:
    text = str(one_line("emails", RuntimeError(wall)))
    assert text.startswith(f"fleet on 'emails': Spark gave up: {reason} Unfinished jobs come back")
    assert "\n" not in text
