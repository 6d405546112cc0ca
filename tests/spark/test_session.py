"""Sessions, options and targets: checked before Spark or a server is asked."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from toril.errors import InvalidOption, MissingExtra
from toril.spark.options import Options
from toril.spark.schema import EVENTS, JOBS, arrow_schema, choose, ddl
from toril.spark.session import check_installed, java_version, open_session
from toril.spark.target import Target

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KNOWN = ("url", "urlEnv", "passwordFile", "fetchSize", "failOnDataLoss", "states", "since")


def options(**given: str) -> Options:
    """What a reader would be given."""
    return Options.read("toril_jobs", given, KNOWN)


def test_a_session_that_is_there_is_given_back_untouched(spark: SparkSession) -> None:
    before = spark.conf.get("spark.sql.shuffle.partitions")
    settings = {"spark.sql.shuffle.partitions": "7"}
    assert open_session("local[1]", settings=settings) is spark
    assert spark.conf.get("spark.sql.shuffle.partitions") == before


def test_a_session_of_ours_reads_arrow_without_checks_of_each_value(spark: SparkSession) -> None:
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    java = jvm.java.lang.System
    assert java.getProperty("arrow.enable_unsafe_memory_access") == "true"
    assert java.getProperty("arrow.enable_null_check_for_get") == "false"


def test_sparks_columns_and_arrows_are_the_same(spark: SparkSession) -> None:
    from pyspark.sql.pandas.types import to_arrow_schema

    for columns in (EVENTS, JOBS):
        frame = spark.createDataFrame([], ddl(columns))
        assert to_arrow_schema(frame.schema, timezone="UTC") == arrow_schema(columns)


def test_a_schema_chooses_columns_in_its_order(spark: SparkSession) -> None:
    schema = spark.createDataFrame([], "state string, id string").schema
    assert list(choose("toril_jobs", schema, JOBS)) == ["state", "id"]


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("idd string", "column 'idd' is unknown. Did you mean 'id'?"),
        ("id bigint", "column 'id' is string, not bigint; cast it after the load"),
    ],
)
def test_a_schema_that_does_not_fit_is_refused(
    spark: SparkSession, schema: str, message: str
) -> None:
    with pytest.raises(InvalidOption, match="toril_jobs") as caught:
        choose("toril_jobs", spark.createDataFrame([], schema).schema, JOBS)
    assert message in str(caught.value)


def test_an_unknown_option_is_refused_with_a_suggestion() -> None:
    with pytest.raises(InvalidOption) as caught:
        options(fetchsise="5")
    assert "toril_jobs: unknown option 'fetchsise'. Did you mean 'fetchSize'?" in str(caught.value)


def test_options_are_read_whatever_their_case() -> None:
    assert options(FETCHSIZE="1_000").count("fetchSize", 2000, 1, 10_000) == 1000
    assert options(failondataloss="False").flag("failOnDataLoss", True) is False
    assert options(states="failed, completed").names("states") == ("failed", "completed")
    assert options(since="1970-01-01T00:00:01+00:00").instant("since") == 1000


@pytest.mark.parametrize("value", ["0", "-1", "ten", "10001", " ", "1.5", "²"])
def test_a_number_out_of_its_limits_is_refused(value: str) -> None:
    with pytest.raises(InvalidOption, match="option 'fetchSize'"):
        options(fetchSize=value).count("fetchSize", 2000, 1, 10_000)


@pytest.mark.parametrize("value", ["yesterday", "2026-01-31T12:00:00"])
def test_a_time_without_a_zone_is_refused(value: str) -> None:
    with pytest.raises(InvalidOption, match="ISO 8601 with a zone"):
        options(since=value).instant("since")


@pytest.mark.parametrize("url", ["redis://:geheim@host:1", "rediss://me:geheim@host/0"])
def test_a_password_among_the_options_is_refused_and_not_shown(url: str) -> None:
    with pytest.raises(InvalidOption) as caught:
        Target.of(options(url=url))
    assert "geheim" not in str(caught.value)
    assert "urlEnv" in str(caught.value)


def test_a_url_comes_from_the_environment_of_the_machine_it_is_used_on() -> None:
    target = Target.of(options(urlEnv="QUEUE_URL"))
    assert target.resolve({"QUEUE_URL": "redis://:geheim@host:1"}) == "redis://:geheim@host:1"
    assert "geheim" not in repr(target)
    with pytest.raises(InvalidOption, match="set QUEUE_URL on the driver and on all executors"):
        target.resolve({})


def test_a_password_comes_from_a_file_and_is_quoted(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("ge/h@im\n")
    target = Target.of(options(url="redis://me@host:6380/2", passwordFile=str(secret)))
    assert target.resolve() == "redis://me:ge%2Fh%40im@host:6380/2"
    secret.unlink()
    with pytest.raises(InvalidOption, match="cannot be read"):
        target.resolve()


@pytest.mark.parametrize("url", ["unix:///run/valkey.sock", "file:queues", "embedded:"])
def test_a_storage_of_one_machine_is_refused_on_a_cluster(url: str) -> None:
    target = Target.of(options(url=url))
    target.check_reach("local[2]")
    target.check_reach("local-cluster[2,1,1024]")
    with pytest.raises(InvalidOption, match="use a server they can reach"):
        target.check_reach("spark://host:7077")


def test_a_missing_java_is_told_with_the_way_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert java_version() is None
    with pytest.raises(MissingExtra, match=r"E14.*Java 17 or newer, none was found"):
        check_installed()
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019-01-15' >&2\n")
    java.chmod(0o755)
    with pytest.raises(MissingExtra, match="found 11"):
        check_installed()
