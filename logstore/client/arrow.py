"""Records of a topic as Arrow record batches, read over the data plane partition by partition.

numpy and pyarrow come with ``pip install 'logstore-engine[arrow]'`` and are imported on first use.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypedDict, TypeVar, get_args, get_type_hints

from logstore.api.data_plane import DataPlane
from logstore.api.records import FetchRequest
from logstore.arguments import mapping, shown, whole
from logstore.client.consumer.settings import timestamp_ms
from logstore.errors import InvalidArgumentError, PoisonRecordError, UnknownPartitionError
from logstore.types import Isolation, TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

ArrowStart: TypeAlias = Literal["earliest"] | datetime
"""Where to begin in each partition; a datetime stands for the first record at least that new."""

FETCH_BYTES: Final = 4 << 20


class DecodeTexts(TypedDict, total=False):
    """How keys and values are given: "binary" (default) or "utf8"."""

    key: Literal["binary", "utf8"]
    value: Literal["binary", "utf8"]


class Decode(DecodeTexts, total=False):
    """How columns are given. ``timestamp``: "utc" (a timestamp with a time zone, default) or "ms" (a number, as in
    the log)."""

    timestamp: Literal["utc", "ms"]


Decoding = TypeVar("Decoding", Decode, DecodeTexts)


def checked_decode(decode: Decoding | None, kind: type[Decoding]) -> Decoding:
    """InvalidArgumentError names the column and what it may be."""
    if decode is None:
        return kind()
    choices = {name: get_args(hint) for name, hint in get_type_hints(kind).items()}
    for name, how in mapping(decode, "decode", 'column -> how, as {"value": "utf8"}').items():
        if name not in choices:
            raise InvalidArgumentError(
                f"decode of the column {shown(name)}", hint=f"columns are {', '.join(choices)}"
            )
        if how not in choices[name]:
            raise InvalidArgumentError(
                f"decode={{{name!r}: {shown(how)}}}", hint=f"use {' or '.join(map(repr, choices[name]))}"
            )
    return decode


def arrow_schema(decode: Decode, headers: bool) -> pa.Schema:
    """The columns of ``format.arrow.schema``, decoded. ``MissingExtraError`` without the extra ``arrow``."""
    from logstore.format.arrow import schema

    columns = schema(headers)
    import pyarrow as pa

    kinds: dict[str, Any] = {name: pa.string() for name in _texts(decode)}
    if decode.get("timestamp") == "ms":
        kinds["timestamp"] = pa.int64()
    return pa.schema([field.with_type(kinds.get(field.name, field.type)) for field in columns])


def arrow_batches(
    backend: DataPlane,
    topic: str,
    *,
    partitions: Collection[int] | None = None,
    start: ArrowStart = "earliest",
    isolation: Isolation = "read_committed",
    decode: Decode | None = None,
    headers: bool = True,
) -> Iterator[pa.RecordBatch]:
    """Record batches of a topic's records, one partition after the other, up to the ends of this moment; as much
    memory as one fetch takes. Errors of the arguments are raised at once, others on the way: those of a fetch, and
    PoisonRecordError for bytes that are not UTF-8."""
    decode = checked_decode(decode, Decode)
    columns = arrow_schema(decode, headers)
    places = _places(backend, topic, partitions)
    ends = backend.list_offsets(places, "latest", isolation)
    if isinstance(start, datetime):
        starts = backend.list_offsets(places, timestamp_ms(start), isolation)
    elif isinstance(start, str) and start == "earliest":
        starts = backend.list_offsets(places, "earliest", isolation)
    else:
        raise InvalidArgumentError(f"start={shown(start)}", hint='use "earliest" or a datetime')
    spans = []
    for place in places:
        first, end = starts[place].offset, ends[place].offset
        if first is not None and end is not None:
            spans.append((place, first, end))

    def batches() -> Iterator[pa.RecordBatch]:
        for place, first, end in spans:
            yield from _batches_of(backend, place, (first, end), isolation, (decode, columns, headers))

    return batches()


def _places(backend: DataPlane, topic: str, partitions: Collection[int] | None) -> list[TopicPartition]:
    count = backend.topic(topic).partitions
    if partitions is None:
        return [TopicPartition(topic, number) for number in range(count)]
    if isinstance(partitions, str | bytes) or not isinstance(partitions, Collection):
        raise InvalidArgumentError(f"partitions={shown(partitions)}", hint="it is a list of numbers")
    numbers = [whole(number, "partition", 0, 2**31 - 1) for number in partitions]
    for number in numbers:
        if number >= count:
            raise UnknownPartitionError(
                f"topic {topic!r} has no partition {number}", hint=f"its partitions are 0 to {count - 1}"
            )
    return [TopicPartition(topic, number) for number in dict.fromkeys(numbers)]


def _batches_of(
    backend: DataPlane,
    place: TopicPartition,
    offsets: tuple[int, int],
    isolation: Isolation,
    shape: tuple[Decode, pa.Schema, bool],
) -> Iterator[pa.RecordBatch]:
    from logstore.format.arrow import to_table

    topic, partition = place
    offset, end = offsets
    decode, columns, headers = shape
    while offset < end:
        (result,) = backend.fetch(
            [FetchRequest(topic, partition, offset, -1, FETCH_BYTES)],
            isolation=isolation,
            min_bytes=1,
            max_bytes=FETCH_BYTES,
            max_wait_s=0,
        )
        if result.error is not None:
            raise result.error
        if result.next_offset <= offset:
            return  # the log was cut below the end of before
        table = to_table(
            result.batches, topic, partition, start_offset=offset, end_offset=end, headers=headers
        )
        yield from decoded(table, decode, columns, place).to_batches()
        offset = result.next_offset


def decoded(table: pa.Table, decode: Decode, columns: pa.Schema, place: TopicPartition) -> pa.Table:
    """``table``, of one partition, with the columns' types."""
    for name in _texts(decode):
        texts = as_text(table.column(name), name, place, table.column("offset"))
        number = table.schema.get_field_index(name)
        table = table.set_column(number, table.schema.field(number).with_type(texts.type), texts)
    return table.cast(columns)


def _texts(decode: DecodeTexts) -> list[str]:
    return [name for name, how in decode.items() if how == "utf8" and name != "timestamp"]


def as_text(column: Any, name: str, place: TopicPartition, offsets: Any) -> Any:
    """An Arrow column of bytes as text; ``offsets``: of its records, as a column. PoisonRecordError names the first
    record whose bytes are not UTF-8."""
    import pyarrow as pa

    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid:
        contents, at = column.to_pylist(), offsets.to_pylist()
    topic, partition = place
    offset = next((at[number] for number, content in enumerate(contents) if not _is_text(content)), -1)
    raise PoisonRecordError(
        f"the {name} at {topic}-{partition} offset {offset} is not UTF-8",
        hint=f'leave "{name}" out of decode=, and decode what is text',
        topic=topic,
        partition=partition,
        offset=offset,
    )


def _is_text(content: bytes | None) -> bool:
    try:
        return content is None or isinstance(content.decode(), str)
    except UnicodeDecodeError:
        return False
