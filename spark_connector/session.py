"""A Spark session that knows ``format("logstore")``, for programs, examples and tests on one machine."""

from __future__ import annotations

import os
import sys
import warnings

from pyspark.sql import SparkSession

from spark_connector.java import require_java
from spark_connector.source import LogStoreDataSource


def spark_session(master: str = "local[*]", *, app: str = "logstore", **conf: str) -> SparkSession:
    """The running session, or a new one, with ``LogStoreDataSource`` registered.

    ``conf``: Spark's settings, as in ``spark_session(**{"spark.driver.memory": "4g"})``. Its Python workers are this
    interpreter's, unless ``PYSPARK_PYTHON`` says otherwise. ``UnsupportedPlatformError`` if Java is missing or
    too old.
    """
    require_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master(master).appName(app)
    for name, value in conf.items():
        builder = builder.config(name, value)
    with warnings.catch_warnings():
        # Spark asks for pandas < 3 where a newer one is installed; nothing here uses pandas.
        warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas")
        spark = builder.getOrCreate()
    spark.dataSource.register(LogStoreDataSource)
    return spark
