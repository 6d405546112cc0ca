"""`toril metrics`: the gauges of a storage, once, as Prometheus reads them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import click

from toril.cli.options import At, placed, speaking
from toril.cli.output import Output
from toril.cli.place import open_at
from toril.exporter import gauge
from toril.ids import check_name
from toril.prometheus import STORAGE_GAUGES, PrometheusMetrics
from toril.queue import Queue
from toril.storage.protocol import Storage


@click.command("metrics")
@click.argument("queues", nargs=-1, metavar="[QUEUE]...")
@speaking
@placed
def command(output: Output, queues: tuple[str, ...], at: At) -> None:
    """Print what the queues hold now, in Prometheus' text format; all queues, or those named.

    \b
    toril metrics
    toril metrics mail orders --json

    What workers count (attempts, durations, retries) is theirs to tell: see
    `toril worker --metrics-port`.
    """
    metrics = PrometheusMetrics()
    names = [check_name("queue", name) for name in queues]
    storage = open_at(at)
    asyncio.run(_look(metrics, storage, names))
    if output.json:
        output.result("", {"url": storage.url, "metrics": samples(metrics)})
    else:
        output.line(metrics.render(STORAGE_GAUGES).decode().rstrip("\n"))


async def _look(metrics: PrometheusMetrics, storage: Storage, names: Sequence[str]) -> None:
    await storage.open()
    try:
        for name in names or sorted(await storage.queues()):
            await gauge(metrics, Queue[Any, Any](name, storage))
    finally:
        await storage.close()
    metrics.set_redis_connection_status(True)


def samples(metrics: PrometheusMetrics) -> list[dict[str, object]]:
    """Give the gauges of the storage as values."""
    chosen = metrics.registry.restricted_registry(STORAGE_GAUGES)
    return [
        {"name": sample.name, "labels": sample.labels, "value": sample.value}
        for family in chosen.collect()
        for sample in family.samples
    ]
