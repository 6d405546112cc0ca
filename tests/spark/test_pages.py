"""Run every Python block of the pages on Spark, in one session, on a server of their own."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tests.docs.pages import ON_SPARK, Block, name_of, snippets
from tests.docs.pages import PAGES as ALL_PAGES
from tests.servers import Server, valkey_binary
from toril import JobContext, NewJob, Queue, Reject

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WRITTEN: Final = ("redis://localhost:6379", "redis://127.0.0.1:6379")
RELATIVE: Final = (
    *("events", "events-checkpoint", "incoming", "lake", "orders.parquet", "report.html"),
    *("ship-checkpoint", "tables"),
)
"""Paths of the pages. Spark takes them from where it was started, which is not where a test is."""


def on_spark(page: Path) -> list[Block]:
    """The blocks of a page that need a session: all of a page on Spark, else those that say so."""
    whole = page.name.startswith("spark")
    return [block for block in snippets(page) if whole or block.note == ON_SPARK]


PAGES: Final = [page for page in ALL_PAGES if on_spark(page)]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with what the pages speak of."""
    import pyarrow as pa
    from pyarrow import parquet

    orders = pa.table({"order_no": [1, 2, 3], "total": [9.5, 3.25, 12.0]})
    parquet.write_table(orders, tmp_path / "orders.parquet")
    (tmp_path / "incoming").mkdir()
    (tmp_path / "incoming" / "1.json").write_text('{"order_id": "order-3", "shop": 1}\n')
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
async def url() -> AsyncIterator[str]:
    """A server with a queue that has something to tell."""
    with Server(valkey_binary()) as server:
        queue: Queue[int, int] = Queue("emails", server.url)

        def send(job: JobContext[int]) -> int:
            if job.data % 5 == 0:
                raise Reject("timeout of the peer")
            return job.data

        queue.execute(send, concurrency=10)
        async with queue:
            jobs = await queue.add_bulk([NewJob(name="send", data=n) for n in range(20)])
            for job in jobs:
                if job.data % 5:
                    await queue.wait_until_finished(job.id)
        for name in ("mail-a", "mail"):
            async with Queue[int, int](name, server.url) as other:
                await other.add("x", 1)
        yield server.url


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_the_snippets_of_a_page_run_one_after_the_other(
    spark: SparkSession, page: Path, place: Path, url: str
) -> None:
    from toril.spark import register

    register(spark)
    for snippet in on_spark(page):
        assert snippet.reason is None, f"{snippet.where} is not run: {snippet.reason}"
        code = snippet.code.replace("spark.stop()\n", "")  # the session is everybody's
        for written in WRITTEN:
            code = code.replace(written, url)
        for name in RELATIVE:
            code = code.replace(f'"{name}"', f'"{place / name}"')
        code = code.replace('"file:', f'"file:{place}/')
        said = io.StringIO()
        with redirect_stdout(said):
            exec(compile(code, snippet.where, "exec"), {"__name__": "__main__", "spark": spark})
        assert said.getvalue() == snippet.output or snippet.output is None, snippet.where
