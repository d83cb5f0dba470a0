"""``commit.group``: what a query has finished, committed to a consumer group, so that group tools show its lag.

Spark calls a source's ``commit`` only when it begins the next trigger, and under AvailableNow never for the last
batch. It always asks for the latest offset after a batch, from that batch's end: so that is when the position is
committed. After a query was stopped between two triggers, its restart commits the batch before.
"""

from __future__ import annotations

import logging

import logstore
from logstore.errors import RetriableError
from logstore.types import OffsetAndMetadata
from spark_connector.offsets import StreamOffset

logger = logging.getLogger("logstore.spark")

_LOCK_TIMEOUT_S = 5.0


class Progress:
    """Commits positions that moved to ``group``; None: does nothing."""

    def __init__(self, path: str, group: str | None) -> None:
        self._path = path
        self._group = group
        self._done = StreamOffset({}, {})

    def note(self, done: StreamOffset) -> None:
        """Everything before ``done`` is finished. The store is opened for writing for this alone: nothing is
        locked between calls. What a retry may cure (another process in the way) is logged and tried again with
        the next trigger; other errors are the caller's."""
        if self._group is None:
            return
        moved = {
            place: OffsetAndMetadata(at.offset, at.epoch, "spark")
            for place, at in done.places.items()
            if self._done.places.get(place) != at
        }
        if not moved:
            return
        try:
            with logstore.open(self._path, lock_timeout_s=_LOCK_TIMEOUT_S, threads=False) as store:
                store.commit_offsets(self._group, moved)
        except RetriableError as error:
            logger.warning("progress is not committed to group %r this time: %s", self._group, error)
            return
        self._done = done
