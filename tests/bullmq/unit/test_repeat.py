"""When schedulers run next."""

from __future__ import annotations

import pytest

from toril.storage.bullmq.keys import Keys
from toril.storage.bullmq.repeat import (
    Run,
    legacy_command,
    legacy_key,
    legacy_next,
    next_by_cron,
    scheduler_command,
    to_ms,
)

KEYS = Keys("bull", "{q}")
NOON = 1_700_049_600_000  # 2023-11-15T12:00:00Z


def run(key: str = "nightly", now_ms: int = NOON, prev_ms: int = 0, **repeat: object) -> Run:
    options = {"repeat": repeat, "prevMillis": prev_ms, "attempts": 3}
    return Run(
        job_id="repeat:x:1", name="mail", data=b"{}", options=options, key=key, now_ms=now_ms
    )


@pytest.mark.parametrize(
    ("pattern", "zone", "after_s"),
    [
        ("* * * * *", "UTC", 60),
        ("*/10 * * * * *", "UTC", 10),
        ("@hourly", "UTC", 3600),
        ("0 14 * * *", "Europe/Berlin", 3600),
        ("0 0 ? * *", "UTC", 12 * 3600),
    ],
)
def test_a_pattern_comes_next_in_its_own_time_zone(pattern: str, zone: str, after_s: int) -> None:
    assert next_by_cron(pattern, NOON, zone) == NOON + after_s * 1000


@pytest.mark.parametrize(("pattern", "zone"), [("nonsense", "UTC"), ("* * * * *", "Mars/North")])
def test_what_cannot_be_read_is_a_value_error(pattern: str, zone: str) -> None:
    with pytest.raises(ValueError, match=r"nonsense|Mars"):
        next_by_cron(pattern, NOON, zone)


def test_a_scheduler_ends_at_its_limit_and_at_its_last_day() -> None:
    assert run(every=1, limit=3, count=3).is_over()
    assert not run(every=1, limit=3, count=2).is_over()
    assert run(every=1, endDate=NOON - 1).is_over()
    assert run(every=1, endDate="2023-11-15T11:59:59.000Z").is_over()
    assert not run(every=1, endDate=NOON + 1).is_over()


def test_dates_are_milliseconds_or_iso() -> None:
    assert to_ms("2023-11-15T12:00:00.000Z") == to_ms(NOON) == to_ms(str(NOON)) == NOON
    assert to_ms(None) is None
    assert to_ms("") is None


def test_the_next_job_of_a_pattern_is_named_after_its_time() -> None:
    command = scheduler_command(KEYS, run(pattern="0 13 * * *", tz="UTC"))
    assert command is not None
    assert command[15] == NOON + 3_600_000
    assert command[13] == "bull:{q}:repeat:x:1"


def test_the_server_computes_the_time_of_an_interval() -> None:
    command = scheduler_command(KEYS, run(every=500))
    assert command is not None
    assert command[15] == ""
    assert scheduler_command(KEYS, run()) is None


def test_an_old_repeatable_keeps_its_key_and_its_slots() -> None:
    old = run(every=700, count=1, prev_ms=NOON + 100)
    assert legacy_key(old) == "mail::::700"
    assert legacy_next(old) == (NOON + 100) // 700 * 700 + 700
    assert legacy_key(run(cron="0 0 * * *", tz="UTC", endDate=5)) == "mail::5:UTC:0 0 * * *"
    command = legacy_command(KEYS, old, "mail::::700", NOON + 700)
    assert command[1] == legacy_command(KEYS, old, "mail::::700", NOON + 701)[1]
