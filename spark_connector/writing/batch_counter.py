"""Which batch of a query is next, and whether one that comes is in already: the group ``spark-sink-<query id>``.

The number of the next batch is committed to the group in the transaction of a batch's records, so that a batch is in
exactly when the counter is past it; the newest batches' marks stand beside the number, so that another batch under an
old number is noticed. Neither expires.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from logstore import TopicPartition
from logstore.errors import BatchChangedError
from logstore.types import COUNTER_TOPIC, OffsetAndMetadata
from spark_connector.settings.sink_options import SinkOptions
from spark_connector.writing.batch_marks import BatchMarks, Mark

logger = logging.getLogger("logstore.spark")

COUNTER: Final = TopicPartition(COUNTER_TOPIC, 0)
_CHANGED: Final = (
    "nothing of it was written. Begin a new query with a checkpoint of its own, from the offsets that are not in yet "
    "(startingOffsets); or go on with changedBatch=append, which writes some rows twice, or changedBatch=skip, which "
    "leaves out those that were not in"
)


def sink_group(query: str) -> str:
    """The group that holds the query's counter: the number of the batch that is next."""
    return f"spark-sink-{query}"


def next_counter(
    options: SinkOptions,
    query: str,
    batch_id: int,
    mark: Mark,
    committed: Mapping[TopicPartition, OffsetAndMetadata],
) -> OffsetAndMetadata | None:
    """What the counter becomes with batch ``batch_id``; None: the batch is in. ``committed``: of the query's group.
    ``BatchChangedError``: its number is in with other rows."""
    before = committed.get(COUNTER, OffsetAndMetadata(0))
    marks = BatchMarks.decode(before.metadata)
    if before.offset > batch_id and _is_in(options, query, batch_id, marks, mark):
        logger.info("batch %d of query %s is in already, up to %d", batch_id, query, before.offset)
        return None
    if before.offset < batch_id:
        logger.warning(
            "batches %d to %d of query %s were never written to %s: an older copy of the store, or another one",
            before.offset,
            batch_id - 1,
            query,
            options.target,
        )
    newest = marks.with_batch(batch_id, mark).encode()
    return OffsetAndMetadata(max(before.offset, batch_id + 1), metadata=newest)


def _is_in(options: SinkOptions, query: str, batch_id: int, marks: BatchMarks, mark: Mark) -> bool:
    """Whether a batch that the counter is past is the one that was written. ``BatchChangedError``, or what option
    ``changedBatch`` says, for another one under its number."""
    known = marks.marks.get(batch_id)
    if known is not None and known.is_of(mark):
        return True
    if not marks.marks:
        logger.warning(
            "batch %d of query %s is skipped: its number was written by a version that kept no marks of batches",
            batch_id,
            query,
        )
        return True
    had = "which rows it had is not known any more" if known is None else f"with {known.rows} rows"
    text = (
        f"batch {batch_id} of query {query} was written before, {had}, and comes again with {mark.rows} other "
        "ones: the checkpoint has lost its newest files, or is an older copy"
    )
    if options.changed_batch == "error":
        raise BatchChangedError(text, hint=_CHANGED)
    logger.warning("%s; changedBatch=%s", text, options.changed_batch)
    return options.changed_batch == "skip"
