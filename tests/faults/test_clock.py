"""Clients whose clocks are wrong; `reliability.md` C1. Delays follow the server."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.faults.stage import Stage

HOUR = 3600
DELAY_S = 1.5
HELD_S = 4.5


def _library() -> str | None:
    """Find libfaketime: installed, or unpacked somewhere that TORIL_FAKETIME names."""
    given = os.environ.get("TORIL_FAKETIME")
    places = [Path(given)] if given else Path("/usr/lib").glob("*/faketime/libfaketime.so.1")
    return next((str(place) for place in places if place.exists()), None)


def skewed(how: str, seconds: int) -> dict[str, str]:
    """The environment of a process whose wall clock is wrong by some seconds."""
    if how == "python":
        return {"TORIL_TEST_SKEW": str(seconds)}
    library = _library()
    if library is None:
        reason = "libfaketime is not installed (Debian: apt-get install libfaketime)"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    return {
        "LD_PRELOAD": library,
        "FAKETIME": f"{seconds:+d}",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "DONT_FAKE_MONOTONIC": "1",
    }


@pytest.mark.client_side
@pytest.mark.parametrize("how", ["python", "libfaketime"])
@pytest.mark.parametrize("ahead", ["producer", "worker"])
async def test_c1_delays_and_retries_do_not_see_an_hour_of_difference(
    stage: Stage, how: str, ahead: str
) -> None:
    signs = (1, -1) if ahead == "producer" else (-1, 1)
    of_producer, of_worker = (skewed(how, sign * HOUR) for sign in signs)
    # Shorter than the job that is held, longer than what other processes may take from it.
    worker = stage.worker("w", env=of_worker, lease=HELD_S - 0.5)
    await stage.ready(worker)
    producers = [
        stage.producer("delayed", env=of_producer, options={"delay": DELAY_S}),
        stage.producer(
            "retried",
            env=of_producer,
            data={"do": "fail"},
            options={"attempts": 2, "backoff": DELAY_S},
        ),
        stage.producer("held", env=of_producer, data={"do": "sleep", "seconds": HELD_S}),
    ]
    for producer in producers:
        assert await stage.ended(producer, 20) == 0
    await stage.drained(3)
    wall = {one.proc: one.t_wall - one.t_mono for one in (*stage.of("enqueue"), *stage.of("run"))}
    assert abs(wall["delayed"] - wall["w"]) > HOUR, "the clocks do not differ"
    start = await stage.started("delayed-00000")
    acked = stage.of("enqueue", job="delayed-00000")
    assert acked[0].t_mono + DELAY_S <= start.t_mono + 0.005
    # One job at a time, and one of them takes long: only then can the delayed one be late.
    assert start.t_mono - acked[1].t_mono < DELAY_S + HELD_S + 1
    first, second = stage.of("run", "invoke", job="retried-00000")
    assert DELAY_S * 0.8 - 0.1 <= second.t_mono - first.t_mono < DELAY_S * 1.2 + HELD_S + 1
    dump = stage.check()
    assert all(job.stalls == 0 for job in dump.jobs)
