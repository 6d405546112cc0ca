"""The table of storages and features, from what the storages themselves declare."""

from __future__ import annotations

from typing import Final

from toril.errors import UnsupportedFeature
from toril.storage import open_bulk, open_storage
from toril.storage.protocol import Beats, Edits, Ends, Feature, Limits, Notes, Storage

URLS: Final = {
    "`memory:`": "memory:",
    "`file:`": "file:jobs",
    "`embedded:`, `redis:` …": "redis://localhost",
    "`bullmq+redis:` …": "bullmq+redis://localhost",
}

FEATURES: Final = {
    Feature.LIFO: "`lifo=`",
    Feature.KEEP_COUNT: "`keep_completed=`, `keep_failed=` by number",
    Feature.KEEP_AGE: "`keep_completed=`, `keep_failed=` by age",
    Feature.EXPIRES: "`expires_in=`",
    Feature.CORRELATION: "`correlation_id=`",
    Feature.RATE_LIMIT: "`limiter=`",
    Feature.ANY_SERDE: "serdes other than JSON",
}

FACETS: Final = {
    Notes: "progress and logs of jobs",
    Edits: "promote, retry, change priority, delay and data",
    Ends: "retry or delete finished jobs only as they were seen",
    Limits: "`tune`: concurrency, rate and events of a whole queue",
    Beats: "leases are renewed while the event loop is blocked",
}

EVERYWHERE: Final = (
    "delay, priority, attempts, backoff, dedup, cancel, pause, results with a time to live, events"
)


def feature_table() -> str:
    """Give the table as Markdown."""
    storages = {title: open_storage(url) for title, url in URLS.items()}
    rows = [[EVERYWHERE, *("yes" for _ in storages)]]
    rows += [
        [FEATURES[one], *(_word(one in storage.features) for storage in storages.values())]
        for one in Feature
    ]
    rows += [
        [text, *(_word(_has(storage, facet)) for storage in storages.values())]
        for facet, text in FACETS.items()
    ]
    rows.append(["read and written by Spark", *(_word(_has_bulk(url)) for url in URLS.values())])
    lines = ["", *storages], ["---", *("---" for _ in storages)], *rows
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def _has(storage: Storage, facet: type) -> bool:
    return isinstance(storage, facet)


def _has_bulk(url: str) -> bool:
    try:
        open_bulk(url).close()
    except UnsupportedFeature:
        return False
    return True


def _word(holds: bool) -> str:
    return "yes" if holds else "no"
