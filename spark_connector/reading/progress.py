"""How far a query is: committed to a consumer group, so that group tools show its lag; and in numbers for a listener.

Spark calls a source's ``commit`` only when it begins the next trigger, and under AvailableNow never for the last
batch. It always asks for the latest offset after a batch, from that batch's end: so that is when the position is
committed. After a query was stopped between two triggers, its restart commits the batch before.

Spark has no way for a source in Python to put ``metrics`` into a query's progress; ``source_metrics`` makes what the
Kafka source would have put there out of the offsets that the progress has.
"""

from __future__ import annotations

import json
import logging
from typing import Protocol

from logstore.errors import DamagedStoreError, RetriableError
from logstore.types import OffsetAndMetadata
from spark_connector.connection import client_of
from spark_connector.held_store import held_store
from spark_connector.reading.offsets import StreamOffset
from spark_connector.settings.target import Target

logger = logging.getLogger("logstore.spark")

_LOCK_TIMEOUT_S = 5.0
_OFFSETS_TOPIC = "__consumer_offsets"


class SourceOffsets(Protocol):
    """A source in the progress of a query, as ``StreamingQueryProgress.sources`` has it; offsets are JSON."""

    @property
    def endOffset(self) -> str | None: ...  # noqa: N802 - Spark's names
    @property
    def latestOffset(self) -> str | None: ...  # noqa: N802


def source_metrics(source: SourceOffsets) -> dict[str, str]:
    """``minOffsetsBehindLatest``, ``max...`` and ``avg...`` over the source's partitions, as texts: what Spark's Kafka
    source shows as ``metrics`` of its progress. Empty while the progress has no offsets, and for a source of another
    kind: a listener hears of all."""
    try:
        end, latest = (
            None if text is None else StreamOffset.from_json(json.loads(text))
            for text in (source.endOffset, source.latestOffset)
        )
    except DamagedStoreError:
        return {}
    if end is None or latest is None or not latest.places:
        return {}
    behind = [
        max(0, at.offset - (end.places[place].offset if place in end.places else 0))
        for place, at in latest.places.items()
    ]
    return {
        "minOffsetsBehindLatest": str(min(behind)),
        "maxOffsetsBehindLatest": str(max(behind)),
        "avgOffsetsBehindLatest": str(sum(behind) / len(behind)),
    }


class Progress:
    """Commits positions that moved to ``group``; None: does nothing."""

    def __init__(self, target: Target, group: str | None) -> None:
        self._target = target
        self._group = group
        self._done = StreamOffset({}, {})

    def note(self, done: StreamOffset) -> None:
        """Everything before ``done`` is finished. A directory's store stays open from one call to the next, but no
        topic is locked between calls: a sink of the same store commits in another process. What a retry may cure
        (another process in the way) is logged and tried again with the next trigger; other errors are the caller's."""
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
            if self._target.path:
                with held_store(self._target.path, _LOCK_TIMEOUT_S) as store:
                    store.commit_offsets(self._group, moved)
                    store.release(_OFFSETS_TOPIC)
            else:
                client_of(self._target).commit_offsets(self._group, moved)
        except RetriableError as error:
            logger.warning("progress is not committed to group %r this time: %s", self._group, error)
            return
        self._done = done
