"""Partitions as a batch and streaming source and sink of Spark: ``format("logstore")`` (see README.md)."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spark_connector.java import require_java
    from spark_connector.reading.progress import source_metrics
    from spark_connector.session import spark_session
    from spark_connector.source import LogStoreDataSource


_PLACES = {
    "LogStoreDataSource": "source",
    "require_java": "java",
    "source_metrics": "reading.progress",
    "spark_session": "session",
}
_EXTRA = ("pyspark", "py4j", "pyarrow", "pandas", "numpy")


def __getattr__(name: str) -> Any:
    """Imported at first use: ``MissingExtraError`` names the extra if pyspark is not installed."""
    if name not in _PLACES:
        raise AttributeError(f"module 'spark_connector' has no attribute {name!r}")
    try:
        return getattr(importlib.import_module(f"spark_connector.{_PLACES[name]}"), name)
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in _EXTRA:
            raise
        from logstore.errors import MissingExtraError

        raise MissingExtraError(
            f"the Spark connector needs the package {error.name}, which is not installed",
            hint="pip install 'logstore-engine[spark]'",
        ) from error


__all__ = ["LogStoreDataSource", "require_java", "source_metrics", "spark_session"]
