"""Write a DataFrame as jobs and get the counts back."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from toril.errors import InvalidOption
from toril.spark.register import register
from toril.storage.columns import Written

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def write_jobs(frame: DataFrame, queue: str, options: Mapping[str, str]) -> Written:
    """Append the rows to a queue, with the options of `toril_jobs`; say how many jobs were new.

    Runs on the driver. After tasks that were run again, what an earlier attempt added counts
    among the duplicates.
    """
    taken = [name for name in options if name.lower() in ("queue", "reportpath")]
    if taken:
        raise InvalidOption(f"write_jobs: option '{taken[0]}' is given by write_jobs itself")
    register(frame.sparkSession)
    with tempfile.TemporaryDirectory(prefix="toril-") as folder:
        report = Path(folder, "report.json")
        writer = frame.write.format("toril_jobs").mode("append").options(**options)
        writer.option("queue", queue).option("reportPath", str(report)).save()
        facts = json.loads(report.read_text("utf-8"))
    return Written(created=facts["created"], duplicates=facts["duplicates"])
