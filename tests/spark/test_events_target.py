"""Which storages a source of Spark can reach, and from where; no session is needed."""

from __future__ import annotations

from pathlib import Path

import pytest

from toril.errors import InvalidOption
from toril.spark.events_source import EventsSource
from toril.spark.options import Options
from toril.spark.target import TARGET_OPTIONS, Target


class OnCluster(EventsSource):
    """The source as `register` makes it for a session on many machines."""

    master = "spark://far:7077"


@pytest.mark.parametrize("url", ["unix:///run/valkey.sock", "file:queues", "embedded:"])
def test_a_storage_of_one_machine_is_refused_on_a_cluster(url: str) -> None:
    with pytest.raises(InvalidOption, match="use a server they can reach"):
        OnCluster({"url": url, "queue": "q"})
    OnCluster({"url": "redis://far", "queue": "q"})


@pytest.mark.parametrize("layout", ["", "bullmq+"])
def test_the_embedded_server_is_started_adopted_and_let_go(tmp_path: Path, layout: str) -> None:
    home = tmp_path / "home"
    given = {"url": f"{layout}embedded:{home}?prefix=e"}
    target = Target.of(Options.read("toril_events", given, TARGET_OPTIONS))
    first, second = target.open(), target.open()
    first.write_jobs("q", ["a"], [b"{}"])
    first.close()
    assert second.number(second.span("q").last) == 2
    second.close()
    again = target.open()
    assert list(again.queues()) == ["q"]
    again.close()


def test_a_path_means_the_same_on_every_executor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TORIL_HOME", str(tmp_path / "home"))
    for given, expected in [
        ("file:queues?timeout=2", f"file:{tmp_path}/queues?timeout=2"),
        ("embedded:data", f"embedded:{tmp_path}/data"),
        ("bullmq+embedded:?prefix=e", f"bullmq+embedded:{tmp_path}/home?prefix=e"),
        ("redis://host:1/2", "redis://host:1/2"),
    ]:
        target = Target.of(Options.read("toril_events", {"url": given}, TARGET_OPTIONS))
        assert target.resolve() == expected
