"""``LogStoreDataSource``: ``format("logstore")``."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from logstore.errors import InvalidArgumentError
from spark_connector.notices import notice
from spark_connector.settings.options import check_names, parse
from spark_connector.settings.sink_options import parse_sink
from spark_connector.worker_heap import settle_worker

if TYPE_CHECKING:
    from spark_connector.settings.options import Mode, SourceOptions
    from spark_connector.settings.sink_options import SinkOptions

logger = logging.getLogger("logstore.spark")


class LogStoreDataSource(DataSource):
    """A store's topics as a source and sink of Spark, batch and streaming. Register it once a session:

        spark.dataSource.register(LogStoreDataSource)
        spark.read.format("logstore").option("subscribe", "flights").load("data")

    Options: see the README beside this file. Errors come when Spark plans the read or write.
    """

    @classmethod
    def name(cls) -> str:
        return "logstore"

    def schema(self) -> StructType | str:
        """The columns, after a look at all options; what changes nothing is warned about here, once a read."""
        from spark_connector.reading.schema import spark_schema

        settle_worker()
        for warning in check_names(self.options, "any").warnings:
            logger.warning("%s", warning)
        return spark_schema(parse(self.options, "any"))

    def reader(self, schema: StructType) -> DataSourceReader:
        from spark_connector.reading.reader import LogStoreReader

        return LogStoreReader(self._checked(schema, "batch"), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        from spark_connector.reading.stream_reader import LogStoreStreamReader

        return LogStoreStreamReader(self._checked(schema, "stream"), schema)

    def _checked(self, schema: StructType, mode: Mode) -> SourceOptions:
        from spark_connector.reading.schema import check_schema

        options = parse(self.options, mode)
        check_schema(options, schema)
        return options

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from spark_connector.writing.writer import LogStoreWriter

        if overwrite:
            raise InvalidArgumentError(
                "mode overwrite: records are appended to a log, those that are there are never replaced",
                hint='.mode("append"); to begin anew, delete the topic or its records first',
            )
        return LogStoreWriter(self._sink(), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802, ARG002
        """``overwrite``: under outputMode complete, where each batch appends the whole result, as to Kafka."""
        from spark_connector.writing.writer import LogStoreStreamWriter

        return LogStoreStreamWriter(self._sink(), schema)

    def _sink(self) -> SinkOptions:
        options, warnings = parse_sink(self.options)
        for warning in warnings:
            notice(warning)
        return options
