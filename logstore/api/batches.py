"""Record batches as bytes, for what stands above the engine and passes them on: how many records, and as Arrow columns.

``to_table``: whole batches, as a fetch gives them, as a table of records (its docstring has the columns).
"""

from __future__ import annotations

from logstore.format.arrow import to_table
from logstore.format.batch import read_header
from logstore.types import Buffer

__all__ = ["records_in", "to_table"]


def records_in(batch: Buffer) -> int:
    """How many records one encoded batch holds, as its header says. ``CorruptBatchError``."""
    return read_header(batch).records_count
