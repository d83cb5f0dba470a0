"""One Spark session per test process. Without a Java that Spark can run on, the tests that need one are left out
and one line at the end of the run says so; all others here need none."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from spark_connector import connection
from spark_connector.held_store import close_held_stores
from spark_connector.java import java_version, why_not
from tests.house import ROOT

_WHY_NOT = why_not(java_version())
_NEED_JAVA = [
    "test_session.py",
    "test_readme.py",
    "test_reused_dataframe.py",
    "test_json_session.py",
    "test_sink_session.py",
    "test_examples_streams.py",
    "test_examples_delivery.py",
    "test_examples_state.py",
]
collect_ignore = [] if _WHY_NOT is None else _NEED_JAVA


def pytest_unconfigure() -> None:
    if _WHY_NOT is not None and os.environ.get("PYTEST_XDIST_WORKER", "gw0") == "gw0":
        names = ", ".join(
            [*(f"tests/spark/{name}" for name in _NEED_JAVA), "tests/integration/test_killed_stream.py"]
        )
        line = f"\nNOT RUN: {names}: {_WHY_NOT}. Install Java 17 or 21.\n"
        os.write(2, line.encode())


@pytest.fixture(autouse=True)
def _no_store_stays_open() -> Iterator[None]:
    yield
    close_held_stores()
    connection.forget_stores()


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    from spark_connector import spark_session

    known = [str(ROOT), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, dict.fromkeys(known)))
    folder = tmp_path_factory.mktemp("spark")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Spark's own: of sockets and of pandas
        found = spark_session(
            "local[2]",
            app="tests",
            **{
                "spark.driver.memory": "1g",
                "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
                "spark.ui.enabled": "false",
                "spark.driver.bindAddress": "127.0.0.1",
                "spark.driver.host": "127.0.0.1",
                "spark.sql.shuffle.partitions": "2",
                "spark.sql.session.timeZone": "UTC",
                "spark.sql.warehouse.dir": str(folder / "warehouse"),
                "spark.local.dir": str(folder),
                "spark.log.level": "FATAL",
                "spark.ui.showConsoleProgress": "false",
            },
        )
        yield found
        found.stop()
