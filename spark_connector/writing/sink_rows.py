"""Rows of a DataFrame on their way in: which columns there must be, and Arrow batches by where their rows go."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    StringType,
    StructType,
    TimestampType,
)

from logstore.errors import InvalidArgumentError, InvalidRecordError

_NO_PARTITION: Final = -(2**63)
_UNWRITTEN: Final = frozenset({"offset", "timestampType"})
"""Columns of the source that a log gives anew: what was read can be written as it is."""


class Placed(NamedTuple):
    """Rows of one topic. ``partition`` None: the topic's partitioner's."""

    topic: str
    partition: int | None
    rows: pa.RecordBatch


def check_columns(schema: StructType, topic: str | None) -> list[str]:
    """``InvalidArgumentError`` for a column that is missing or of another type than a record's field. ``topic``: the
    option. Gives the columns that are not written."""
    types = {field.name: field.dataType for field in schema}
    if len(types) < len(schema):
        raise InvalidArgumentError(
            f"two columns have the same name: {', '.join(schema.fieldNames())}", hint="rename one of them"
        )
    if "value" not in types:
        raise InvalidArgumentError(
            f"there is no column value among {', '.join(types)}",
            hint='make one, such as: df.selectExpr("to_json(struct(*)) AS value")',
        )
    if topic is None and "topic" not in types:
        raise InvalidArgumentError(
            "neither option topic nor a column topic says where rows go",
            hint='.option("topic", "flights"), or a column topic of strings',
        )
    for name, (fits, expected, advice) in _FIELDS.items():
        if name in types and not fits(types[name]):
            raise InvalidArgumentError(
                f"column {name} is {types[name].simpleString()}, not {expected}", hint=advice
            )
    return [name for name in types if name not in _FIELDS and name not in _UNWRITTEN]


def _is_bytes(kind: DataType) -> bool:
    return isinstance(kind, StringType | BinaryType)


def _is_headers(kind: DataType) -> bool:
    if not isinstance(kind, ArrayType) or not isinstance(kind.elementType, StructType):
        return False
    fields = [(field.name, type(field.dataType)) for field in kind.elementType]
    return fields == [("key", StringType), ("value", BinaryType)]


_FIELDS: Final = {
    "value": (_is_bytes, "string or binary", "CAST(value AS STRING), or to_json(struct(...)) AS value"),
    "key": (_is_bytes, "string or binary", "CAST(key AS STRING)"),
    "topic": (lambda kind: isinstance(kind, StringType), "string", "CAST(topic AS STRING)"),
    "partition": (lambda kind: isinstance(kind, IntegerType), "int", "CAST(partition AS INT)"),
    "timestamp": (lambda kind: isinstance(kind, TimestampType), "timestamp", "CAST(timestamp AS TIMESTAMP)"),
    "headers": (_is_headers, "array<struct<key:string,value:binary>>", "make it so, or leave it out"),
}


def placed(batch: pa.RecordBatch, topic: str | None) -> Iterator[Placed]:
    """The batch's rows by where they go, in the order of the batch. ``topic``: the option, else the column's.

    ``InvalidRecordError`` for a row without a topic.
    """
    if not batch.num_rows:
        return
    names = batch.schema.names
    by_topic, by_partition = topic is None, "partition" in names
    if not by_topic and not by_partition:
        yield Placed(topic or "", None, batch)
        return
    count = batch.num_rows
    topics = [topic or ""]
    codes = np.zeros(count, np.int64)
    if by_topic:
        encoded = batch.column("topic").dictionary_encode()
        if encoded.null_count:
            raise InvalidRecordError(
                f"{encoded.null_count} of {count} rows have no topic",
                hint='set option topic, or filter them out: df.where("topic IS NOT NULL")',
            )
        topics = encoded.dictionary.to_pylist()
        codes = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    numbers = np.full(count, _NO_PARTITION, np.int64)
    if by_partition:
        column = batch.column("partition").cast(pa.int64()).fill_null(_NO_PARTITION)
        numbers = column.to_numpy(zero_copy_only=False)
    places, inverse = np.unique(np.stack([codes, numbers]), axis=1, return_inverse=True)
    inverse = inverse.reshape(-1)
    for index, (code, number) in enumerate(places.T.tolist()):
        part = batch if places.shape[1] == 1 else batch.take(pa.array(np.flatnonzero(inverse == index)))
        yield Placed(topics[code], None if number == _NO_PARTITION else number, part)
