"""One Spark session for all tests of this folder, and servers for them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.servers import Server, valkey_binary
from tests.spark.chromium import Chromium, chromium
from toril.errors import MissingExtra
from toril.spark.session import check_installed, open_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def pytest_configure() -> None:
    """Let the JVMs of tests, which live for seconds, spend less on compiling and threads."""
    os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what lies here: it runs in a run of its own, file by file."""
    here = Path(__file__).parent
    asked = "slow" in (config.option.markexpr or "") or os.environ.get("TORIL_SLOW")
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.spark)
            if "slow" in item.keywords and not asked:
                item.add_marker(pytest.mark.skip(reason="long form; run with TORIL_SLOW=1"))
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(300))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A session with two cores, whose tasks may fail three times."""
    try:
        check_installed()
    except MissingExtra as missing:
        if os.environ.get("CI"):
            pytest.fail(str(missing))
        pytest.skip(str(missing))
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    session = open_session("local[2,4]", app="toril-tests", settings={"spark.driver.memory": "1g"})
    yield session
    session.stop()


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """One Valkey for all; a test keeps to queues of its own name."""
    with Server(valkey_binary()) as running:
        yield running


@pytest.fixture
def queue(request: pytest.FixtureRequest) -> str:
    """A queue name of this test's own."""
    return "".join(one if one.isalnum() else "-" for one in request.node.name)[:100]


@pytest.fixture(scope="session")
def browser() -> Iterator[Chromium]:
    """One browser for all who look at pages."""
    program = chromium()
    if program is None:
        reason = "the report is not looked at: no 'chromium' on the PATH"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    with Chromium(program) as running:
        yield running
