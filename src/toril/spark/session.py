"""Open a Spark session that suits one machine, unless there is one already."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from toril.errors import MissingExtra
from toril.extras import missing_extra

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA: Final = 17
_VERSION: Final = re.compile(r'version "(\d+)(?:\.(\d+))?')

_LOCAL: Final = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
}
_ARROW: Final = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
"""Spark keeps within a batch and asks for nulls first; Arrow need not check both at each value."""
_DEFAULTS: Final = {
    "spark.driver.defaultJavaOptions": _ARROW,
    "spark.driver.memory": "2g",
    "spark.executor.defaultJavaOptions": _ARROW,
    "spark.redaction.regex": "(?i)secret|password|token|access[.]?key|url",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "4",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


def open_session(
    master: str = "local[*]", *, app: str = "toril", settings: dict[str, str] | None = None
) -> SparkSession:
    """Give the session there is, untouched, or start one with defaults for short jobs."""
    check_installed()
    from pyspark.sql import SparkSession

    found = SparkSession.getActiveSession()
    if found is not None:
        return found
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master(master).appName(app)
    defaults = {**_DEFAULTS, **(_LOCAL if master.startswith("local") else {})}
    for name, value in {**defaults, **(settings or {})}.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def check_installed() -> None:
    """Raise `MissingExtra` where pyspark or its Java is missing."""
    if find_spec("pyspark") is None or find_spec("pyarrow") is None:
        raise missing_extra("Spark needs", "spark", f", and Java {JAVA}")
    found = java_version()
    if found is None or found < JAVA:
        have = "none was found" if found is None else f"found {found}"
        raise MissingExtra(
            f"toril[E14] Spark needs Java {JAVA} or newer, {have}."
            f" fix: install a JRE {JAVA} and set JAVA_HOME, or put 'java' on the PATH"
        )


def java_version() -> int | None:
    """The major version of the Java that Spark would start, None where there is none."""
    home = os.environ.get("JAVA_HOME")
    program = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if program is None:
        return None
    try:
        done = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _VERSION.search(done.stderr + done.stdout)
    if found is None:
        return None
    major, minor = found.groups()
    return int(minor or 0) if major == "1" else int(major)
