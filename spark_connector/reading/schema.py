"""The columns: those of Spark's Kafka source, and what ``valueFormat`` makes of ``value``."""

from __future__ import annotations

import json
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from logstore.errors import InvalidArgumentError
from spark_connector.reading.values import check_json_type, decode_json, decode_strings
from spark_connector.settings.options import SourceOptions

ERROR_COLUMN: Final = "valueError"
_HEADERS: Final = ArrayType(
    StructType([StructField("key", StringType()), StructField("value", BinaryType())])
)


def spark_schema(options: SourceOptions) -> StructType | str:
    """The columns; as DDL text where ``valueSchema`` is DDL, which only Spark's driver can parse."""
    if options.value_format == "json" and not options.value_schema.startswith("{"):
        return _ddl(options)
    return _columns(options, _value_type(options))


def _value_type(options: SourceOptions) -> DataType:
    if options.value_format == "binary":
        return BinaryType()
    if options.value_format == "string":
        return StringType()
    try:
        return StructType.fromJson(json.loads(options.value_schema))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidArgumentError(
            f"valueSchema={options.value_schema[:200]} is no schema's JSON: {error!r}",
            hint="give what StructType.json() returns, or columns such as: carrier STRING, flight INT",
        ) from error


def _columns(options: SourceOptions, value: DataType) -> StructType:
    fields = [
        StructField("key", BinaryType()),
        StructField("value", value),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
    ]
    if options.include_headers:
        fields.append(StructField("headers", _HEADERS))
    if options.value_format != "binary":
        fields.append(StructField(ERROR_COLUMN, StringType()))
    return StructType(fields)


def _ddl(options: SourceOptions) -> str:
    columns = _columns(options, BinaryType())
    types = {field.name: field.dataType.simpleString() for field in columns}
    types["value"] = f"STRUCT<{options.value_schema}>"
    return ", ".join(f"`{name}` {kind}" for name, kind in types.items())


def check_schema(options: SourceOptions, schema: StructType) -> None:
    """``InvalidArgumentError`` for a schema that the user gave and that is not the source's, and for value columns
    that JSON cannot be read as."""
    given = {field.name: field.dataType for field in schema}
    value = given.get("value", BinaryType())
    expected = _columns(options, value if options.value_format == "json" else _value_type(options))
    fits = [(f.name, f.dataType) for f in schema] == [(f.name, f.dataType) for f in expected]
    if not fits or (options.value_format == "json" and not isinstance(value, StructType)):
        raise InvalidArgumentError(
            f"the source has a schema of its own, {expected.simpleString()}, and takes no other",
            hint="leave .schema(...) out; valueFormat and valueSchema say how values are decoded",
        )
    if options.value_format == "json":
        check_json_type(arrow_schema(schema).field("value").type)


def arrow_schema(schema: StructType) -> pa.Schema:
    """What Spark demands of Arrow batches of these columns, to the letter."""
    return to_arrow_schema(schema, timezone="UTC")


def is_plain(options: SourceOptions) -> bool:
    """Whether the columns are those of the log, but for a name and the unit of the timestamps."""
    return options.value_format == "binary" and not options.include_headers


def _headers_or_null(column: pa.ListArray, kind: pa.DataType) -> pa.Array:
    """A record without headers has null, as in Spark's Kafka source, not an empty list."""
    none = pc.equal(pc.list_value_length(column), 0)
    if not pc.any(none).as_py():
        return column
    # ``pc.if_else`` makes such lists anew, element by element. The mask asks for offsets that are no slice.
    begins = pa.array(column.offsets.to_numpy())
    return pa.ListArray.from_arrays(begins, column.values, type=column.type, mask=none).cast(kind)


def to_columns(batch: pa.RecordBatch, options: SourceOptions, target: pa.Schema) -> pa.RecordBatch:
    """A batch of the log's columns, or where they are plain already of the source's, as one of the source's."""
    if is_plain(options):
        return batch
    columns = [batch.column(name) for name in ("key", "value", "topic", "partition", "offset")]
    columns += [batch.column("timestamp"), batch.column("timestamp_type")]
    if options.include_headers:
        columns.append(_headers_or_null(batch.column("headers"), target.field("headers").type))
    if options.value_format != "binary":
        kind = target.field("value").type
        values = columns[1]
        decoded = decode_strings(values) if options.value_format == "string" else decode_json(values, kind)
        columns[1] = decoded.values
        columns.append(decoded.errors)
    found = [
        column if column.type == field.type else column.cast(field.type)
        for column, field in zip(columns, target, strict=True)
    ]
    return pa.RecordBatch.from_arrays(found, schema=target)
