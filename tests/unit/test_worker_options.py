"""What a worker is told is checked when it is made, before anything is opened."""

from __future__ import annotations

import os
import re
import socket
import warnings
from dataclasses import FrozenInstanceError
from datetime import timedelta

import pytest

from toril import Queue, Worker
from toril.errors import InvalidName, InvalidOption, TorilWarning
from toril.ids import NAME_LIMIT
from toril.retry import Backoff, ErrorCategory, Seconds
from toril.storage.protocol import Rate
from toril.worker_options import OPTION_NAMES, Limiter, WorkerOptions, WorkerOverrides

NAN, INF = float("nan"), float("inf")


def made(**given: object) -> WorkerOptions:
    return WorkerOptions.of(given)


def test_the_defaults_are_the_documented_ones() -> None:
    options = WorkerOptions()
    assert options.concurrency == 1
    assert (options.lease, options.lease_ms) == (30, 30_000)
    assert (options.heartbeat, options.heartbeat_s) == (None, 15)
    assert (options.reap_interval, options.max_stalls) == (30, 1)
    assert (options.attempts, options.backoff, options.max_backoff) == (None, None, 3600)
    assert (options.shutdown_timeout, options.block_timeout) == (30, 5)
    assert options.max_reconnect_attempts == 0
    assert options.on_lease_lost == "signal"
    assert (options.logger, options.metrics, options.limiter) == (None, None, None)


REFUSED: list[tuple[str, object, str]] = [
    ("concurrency", 0, "1 or more"),
    ("concurrency", -1, "1 or more"),
    ("concurrency", 1.5, "whole number, not float"),
    ("concurrency", True, "whole number, not bool"),
    ("concurrency", "4", "whole number, not str"),
    ("lease", 0, "more than 0 s"),
    ("lease", -1, "more than 0 s"),
    ("lease", NAN, "finite"),
    ("lease", INF, "finite"),
    ("lease", timedelta(0), "more than 0 s"),
    ("lease", None, "not a duration"),
    ("heartbeat", 0, "more than 0 s"),
    ("heartbeat", -1, "more than 0 s"),
    ("heartbeat", "15", "not a duration"),
    ("reap_interval", 0, "more than 0 s"),
    ("reap_interval", -1, "more than 0 s"),
    ("reap_interval", True, "not a duration"),
    ("max_stalls", -1, "0 or more"),
    ("max_stalls", 0.5, "whole number, not float"),
    ("attempts", 0, "1 or more"),
    ("attempts", "x", "whole number, not str"),
    ("backoff", "fixed", "give Backoff(kind, delay)"),
    ("backoff", 5, "give Backoff(kind, delay)"),
    ("max_backoff", 0, "more than 0 s"),
    ("max_backoff", NAN, "finite"),
    ("strategies", ["mine"], "map names to functions"),
    ("strategies", {"mine": 5}, "map names to functions"),
    ("limiter", "10/s", "give Limiter(max, duration)"),
    ("limiter", {"max": 10, "duration": 1}, "give Limiter(max, duration)"),
    ("limiter", Limiter(0, 1), "1 or more"),
    ("limiter", Limiter(1.5, 1), "whole number"),  # type: ignore[arg-type]
    ("limiter", Limiter(10, 0), "more than 0 s"),
    ("limiter", Limiter(10, INF), "finite"),
    ("classify", "permanent", "give a function"),
    ("unknown", "maybe", "'transient' or 'permanent'"),
    ("unknown", None, "'transient' or 'permanent'"),
    ("shutdown_timeout", -1, "at least 0 s"),
    ("shutdown_timeout", None, "not a duration"),
    ("block_timeout", 0, "more than 0 s"),
    ("max_reconnect_attempts", -1, "0 or more"),
    ("max_reconnect_attempts", 1.0, "whole number, not float"),
    ("on_lease_lost", "ignore", "'signal' or 'cancel'"),
    ("on_lease_lost", None, "'signal' or 'cancel'"),
    ("on_lease_lost", ["cancel"], "'signal' or 'cancel'"),
    ("strict_progress", 1, "True or False"),
]


@pytest.mark.parametrize(
    ("name", "value", "bound"), REFUSED, ids=[f"{name}={value}" for name, value, _ in REFUSED]
)
def test_a_bad_option_is_refused_with_its_name_and_its_bound(
    name: str, value: object, bound: str
) -> None:
    with pytest.raises(InvalidOption) as caught:
        made(**{name: value})
    assert type(caught.value) is InvalidOption
    assert str(caught.value).startswith(name)
    assert bound in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("concurrency", 1000),
        ("lease", timedelta(minutes=1)),
        ("lease", 0.5),
        ("shutdown_timeout", 0),
        ("max_stalls", 0),
        ("attempts", 1),
        ("attempts", None),
        ("backoff", Backoff("fixed", 3600)),
        ("backoff", Backoff.custom("mine")),
        ("strategies", {}),
        ("strategies", {"mine": lambda _attempt, _error: 1}),
        ("limiter", Limiter(10, timedelta(minutes=1))),
        ("on_lease_lost", "cancel"),
        ("unknown", "permanent"),
        ("name", "front desk"),
    ],
)
def test_an_option_at_its_bound_is_taken(name: str, value: object) -> None:
    assert getattr(made(**{name: value}), name) == value


def test_a_backoff_longer_than_its_cap_is_refused() -> None:
    with pytest.raises(InvalidOption, match=r"delay of 20 s exceeds max_backoff of 10 s"):
        WorkerOptions(backoff=Backoff("fixed", 20), max_backoff=10)
    assert WorkerOptions(backoff=Backoff("fixed", 10), max_backoff=10).policy().backoff


def test_a_backoff_of_more_than_an_hour_is_warned_of() -> None:
    with pytest.warns(TorilWarning, match=r"delay of 7200 s is over one hour"):
        WorkerOptions(backoff=Backoff("fixed", 7200, max_delay=7200), max_backoff=7200)


def test_an_unknown_option_is_refused_with_a_suggestion() -> None:
    with pytest.raises(
        InvalidOption, match=r"^unknown worker option 'concurency'. Did you mean 'concurrency'\?"
    ) as caught:
        made(concurency=3)
    assert "Known: concurrency, lease, heartbeat" in str(caught.value)


def test_the_keyword_arguments_are_the_options() -> None:
    assert set(WorkerOverrides.__annotations__) == set(OPTION_NAMES)


@pytest.mark.parametrize("beat", [15.001, 30, 300, timedelta(seconds=16)])
def test_a_heartbeat_over_half_the_lease_is_warned_of(beat: Seconds) -> None:
    with pytest.warns(TorilWarning, match=r"over half the lease of 30 s.*use 15 or less"):
        options = WorkerOptions(heartbeat=beat)
    assert options.heartbeat == beat


@pytest.mark.parametrize(
    ("beat", "lease", "seconds"), [(15, 30, 15), (1, 30, 1), (timedelta(seconds=2), 4, 2)]
)
def test_a_heartbeat_of_half_the_lease_or_less_is_fine(
    beat: Seconds, lease: float, seconds: float
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert WorkerOptions(heartbeat=beat, lease=lease).heartbeat_s == seconds


def test_the_warning_points_at_whoever_made_the_worker() -> None:
    with pytest.warns(TorilWarning, match=r"over half the lease") as caught:
        Worker(Queue("q", "memory:"), print, heartbeat=20)
    assert caught[0].filename == __file__


def test_a_worker_id_is_made_of_host_process_and_six_random_digits() -> None:
    host = re.sub(r"[^0-9A-Za-z._-]+", "-", socket.gethostname())[:128] or "host"
    found = WorkerOptions().worker_id
    assert re.fullmatch(rf"{re.escape(host)}-{os.getpid()}-[0-9a-f]{{6}}", found)


def test_a_thousand_workers_get_a_thousand_ids() -> None:
    # 24 random bits: chance alone repeats one about once in 34 runs of a thousand.
    assert len({WorkerOptions().worker_id for _ in range(1000)}) >= 998


@pytest.mark.parametrize("given", ["w1", "x" * NAME_LIMIT, "a:b{c}"])
def test_a_given_worker_id_is_kept(given: str) -> None:
    assert WorkerOptions(worker_id=given).worker_id == given


@pytest.mark.parametrize("given", ["", None])
def test_an_empty_worker_id_is_replaced(given: object) -> None:
    assert re.search(r"-\d+-[0-9a-f]{6}$", made(worker_id=given).worker_id)


@pytest.mark.parametrize(
    "bad", ["x" * (NAME_LIMIT + 1), "a\nb", "\x1b[2J", "..", 7, 0, b"w", False]
)
@pytest.mark.parametrize("option", ["worker_id", "name"])
def test_a_bad_worker_name_is_refused(option: str, bad: object) -> None:
    with pytest.raises(InvalidName, match=r"^worker id "):
        made(**{option: bad})


def test_an_empty_name_is_refused() -> None:
    with pytest.raises(InvalidName, match=r"^worker id '' is empty"):
        WorkerOptions(name="")


def test_options_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        WorkerOptions().lease = 3  # type: ignore[misc]


def test_a_limiter_becomes_a_rate() -> None:
    assert Limiter(10, timedelta(minutes=1)).rate() == Rate(max=10, duration_ms=60_000)
    assert Limiter(1, 0.5).rate() == Rate(max=1, duration_ms=500)


@pytest.mark.parametrize("category", list(ErrorCategory))
def test_the_policy_takes_unknown_trouble_as_told(category: ErrorCategory) -> None:
    policy = made(unknown=str(category)).policy()
    assert policy.classify(ValueError()) is category
    assert policy.classify(ConnectionError()) is ErrorCategory.TRANSIENT


def test_the_policy_carries_what_the_worker_overrides() -> None:
    def classify(_error: BaseException) -> ErrorCategory:
        return ErrorCategory.PERMANENT

    strategies = {"mine": lambda _attempt, _error: 1.0}
    policy = WorkerOptions(
        attempts=4,
        backoff=Backoff("fixed", 2),
        max_backoff=timedelta(minutes=1),
        strategies=strategies,
        classify=classify,
    ).policy()
    assert (policy.attempts, policy.backoff) == (4, Backoff("fixed", 2))
    assert (policy.max_backoff_ms, policy.strategies) == (60_000, strategies)
    assert policy.classify is classify
