"""A Spark session that knows ``format("logstore")``, for programs, examples and tests on one machine."""

from __future__ import annotations

import importlib.util
import os
import sys
import warnings
from collections.abc import Mapping
from typing import Final

from pyspark import SparkContext
from pyspark.sql import SparkSession

from logstore.errors import MissingExtraError
from spark_connector.java import require_java
from spark_connector.source import LogStoreDataSource

_SERVER: Final = "sc://"
_UNIX_SOCKETS: Final = "spark.python.unix.domain.socket.enabled"
_OTHERS_MAY_WRITE: Final = 0o022


def spark_session(master: str = "local[*]", *, app: str = "logstore", **conf: str) -> SparkSession:
    """The running session, or a new one, with ``LogStoreDataSource`` registered.

    ``master``: ``sc://HOST:PORT`` for a server of Spark Connect, whose machine then has to see the store's directory,
    and its Python this package. ``SPARK_REMOTE`` and ``spark.remote`` say so, too, as for Spark itself.
    ``conf``: Spark's settings, as in ``spark_session(**{"spark.driver.memory": "4g"})``. Its Python workers are this
    interpreter's, unless ``PYSPARK_PYTHON`` says otherwise; with a ``local`` master Spark reaches them by Unix domain
    sockets, unless ``conf`` says otherwise. ``UnsupportedPlatformError`` if Java is missing or too old (a server has
    its own); ``MissingExtraError`` if a client of Spark Connect lacks a package.
    """
    remote = _remote(master, conf)
    if remote is not None:
        _require_client(remote)
    if remote is None or not remote.startswith(_SERVER):
        require_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(app)
    builder = builder.master(master) if remote is None else builder.remote(remote)
    if remote is None and _may_use_unix_sockets(master, conf):
        builder = builder.config(_UNIX_SOCKETS, "true")
    for name, value in conf.items():
        if name != "spark.remote":
            builder = builder.config(name, value)
    with warnings.catch_warnings():
        # Spark asks for pandas < 3 where a newer one is installed; nothing here uses pandas.
        warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas")
        spark = builder.getOrCreate()
        spark.dataSource.register(LogStoreDataSource)
    return spark


def _may_use_unix_sockets(master: str, conf: Mapping[str, str]) -> bool:
    """Whether a new session's Python workers are better reached by Unix domain sockets than by TCP.

    A task with few rows takes some 40 ms less, which is what a delayed acknowledgement of TCP takes. Spark makes the
    sockets in the temporary directory of Java, under a name that must be short, and trusts whoever may write
    to them: so not where that directory is another than the default, and not where the umask lets others write.
    """
    if (
        not master.startswith("local")
        or _UNIX_SOCKETS in conf
        or SparkContext._active_spark_context is not None
    ):
        return False
    of_java = [
        os.environ.get(name, "") for name in ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS")
    ]
    if any("java.io.tmpdir" in text for text in (*of_java, *conf.values())):
        return False
    umask = os.umask(0o077)  # it can only be read by setting it
    os.umask(umask)
    return umask & _OTHERS_MAY_WRITE == _OTHERS_MAY_WRITE


def _remote(master: str, conf: Mapping[str, str]) -> str | None:
    """The server of Spark Connect that is asked for; None: a session of this process's own."""
    if master.startswith(_SERVER):
        return master
    return conf.get("spark.remote") or os.environ.get("SPARK_REMOTE") or None


def _require_client(remote: str) -> None:
    """``MissingExtraError`` without a client's packages: PySpark itself would end the process, with exit code 0."""
    missing = [name for name in ("grpc", "grpc_status") if importlib.util.find_spec(name) is None]
    if missing:
        raise MissingExtraError(
            f"Spark Connect ({remote}) needs packages that are not installed: {', '.join(missing)}",
            hint="pip install 'pyspark[connect]'; or leave out sc:// and SPARK_REMOTE for a session of this process",
        )
