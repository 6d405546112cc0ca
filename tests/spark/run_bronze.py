"""One run of bronze in a process of its own, so that a test can kill it or choose its master.

    python -m tests.spark.run_bronze '{"master": …, "settings": {…}, "lake": …, "queues": […], …}'

Prints one line of JSON: what `bronze` told, and how many rows the lake holds.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any


def main(text: str) -> None:
    """Do what the text says."""
    import pyspark

    from toril.spark import open_session
    from toril.spark.analytics import bronze, read_bronze

    given: dict[str, Any] = json.loads(text)
    master, lake = given.pop("master", "local[2,4]"), given.pop("lake")
    settings = {"spark.driver.memory": "1g", **given.pop("settings", {})}
    spark = open_session(master, settings=settings)
    run = bronze(spark, lake, **given)
    events = read_bronze(spark, lake)
    told = {
        "rows": run.rows,
        "batches": run.batches,
        "held": events.count(),
        "once": events.select("queue", "number", "kind").distinct().count(),
    }
    print(json.dumps(told), flush=True)
    logs = Path(pyspark.__file__).parent / "work" / spark.sparkContext.applicationId
    spark.stop()
    shutil.rmtree(logs, ignore_errors=True)  # executors of a local cluster write nowhere else


if __name__ == "__main__":
    main(sys.argv[1])
