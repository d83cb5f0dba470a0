"""A table's keys and values as a ``pyarrow.Table``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from logstore.client.arrow import DecodeTexts, as_text, checked_decode
from logstore.types import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa


class KeyColumns(NamedTuple):
    """Keys of one partition, the offsets of their newest records, and those records' values."""

    partition: int
    keys: Sequence[bytes]
    offsets: Sequence[int]
    values: Sequence[bytes]


def keys_to_arrow(topic: str, parts: Iterable[KeyColumns], decode: DecodeTexts | None) -> pa.Table:
    """Columns ``key``, ``value`` (binary, or utf8 where ``decode`` says so), ``partition``, ``offset``.

    ``MissingExtraError`` without pyarrow; PoisonRecordError for bytes that are not UTF-8.
    """
    decode = checked_decode(decode, DecodeTexts)
    from logstore.format.arrow import schema

    found = schema()  # names the extra if it is not installed
    import pyarrow as pa

    kinds = {"utf8": pa.string(), "binary": pa.binary()}
    columns = pa.schema(
        [
            pa.field("key", kinds[decode.get("key", "binary")], nullable=False),
            pa.field("value", kinds[decode.get("value", "binary")], nullable=False),
            found.field("partition"),
            found.field("offset"),
        ]
    )
    tables = []
    for part in parts:
        place = TopicPartition(topic, part.partition)
        count = len(part.keys)
        arrays: list[Any] = [pa.array(part.keys, pa.binary()), pa.array(part.values, pa.binary())]
        offsets = pa.array(part.offsets, pa.int64())
        for number, name in enumerate(("key", "value")):
            if columns.field(name).type == pa.string():
                arrays[number] = as_text(arrays[number], name, place, offsets)
        arrays += [
            pa.repeat(pa.scalar(part.partition, pa.int32()), count),
            pa.array(part.offsets, pa.int64()),
        ]
        tables.append(pa.table(arrays, schema=columns))
    return pa.concat_tables(tables) if tables else columns.empty_table()
