"""Record batches as bytes, for what stands above the engine and passes them on: how many records, and as Arrow columns.

``to_table``: whole batches, as a fetch gives them, as a table of records (its docstring has the columns).
``arrow_builder``: the same as record batches, from one fetch after the other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from logstore.format.arrow import TableBuilder, schema, to_table
from logstore.format.batch import read_header
from logstore.format.compression import MAX_DECOMPRESSED_BYTES
from logstore.types import Buffer

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["TableBuilder", "arrow_builder", "records_in", "schema", "to_table"]


def arrow_builder(
    topic: str, partition: int, columns: pa.Schema, *, batch_bytes: int, end_offset: int
) -> TableBuilder:
    """For the records of a partition up to ``end_offset``, in record batches of some ``batch_bytes`` of records.

    ``columns``: those of ``schema``, also by other names and with timestamps in us.
    """
    return TableBuilder(columns, topic, partition, True, MAX_DECOMPRESSED_BYTES, batch_bytes, end_offset)


def records_in(batch: Buffer) -> int:
    """How many records one encoded batch holds, as its header says. ``CorruptBatchError``."""
    return read_header(batch).records_count
