"""W1 to W4: add, add in bulk, drain, request and response."""

from __future__ import annotations

from benchmarks.compare.records import percentile
from benchmarks.compare.stage import CONCURRENCY, Stage, Values


def one_by_one(stage: Stage) -> Values:
    """W1."""
    return stage.measured("one", stage.sizes.singles, 1)[1]


def bulk(stage: Stage) -> Values:
    """W2."""
    return stage.measured("add", stage.sizes.jobs, 1)[1]


def drain(stage: Stage) -> Values:
    """W3; the adapter ends only when every job has run."""
    jobs = stage.sizes.jobs
    stage.fill(jobs)
    figures, values = stage.measured("drain", jobs, CONCURRENCY)
    if "ran" in figures:
        if figures["ran"] != jobs:
            raise AssertionError(f"{figures['ran']:,} of {jobs:,} jobs ran")
        values["peak MB"] = figures["peak_mb"]
        values["ran again"] = figures["again"]
    return values


def calls(stage: Stage) -> Values:
    """W4."""
    values: Values = {}
    for callers, count in ((1, stage.sizes.lone_calls), (CONCURRENCY, stage.sizes.calls)):
        stage.bench.clear()
        if stage.entry.place == "memory":
            figures = stage.run("call", count, callers)
        else:
            with stage.serve(count, CONCURRENCY):
                figures = stage.run("call", count, callers)
        for share in (50, 99):
            name = f"p{share} ms, {callers} at once"
            values[name] = percentile(figures["latencies"], share)
    return values
