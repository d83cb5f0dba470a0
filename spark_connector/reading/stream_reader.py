"""The streaming reader: offsets, admission, data loss and progress on the driver; tasks read by ``reading.py``."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from logstore import LogStoreError, TopicPartition
from logstore.api.topics import TopicMetadata
from logstore.errors import DataLossError, UnknownPartitionError, UnknownTopicError
from logstore.seams.clock import Clock, SystemClock
from spark_connector.connection import Logs
from spark_connector.reading.offsets import StreamOffset
from spark_connector.reading.planner import Admission, Range, split
from spark_connector.reading.progress import Progress
from spark_connector.reading.ranges import Split, lost_end, read_split, report_loss, why_lost
from spark_connector.settings.options import SourceOptions
from spark_connector.settings.positions import Place, check_covered, resolve

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger("logstore.spark")

_WALK_BYTES: Final = 1 << 20


class LogStoreStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Lives in one process of the driver as long as the query; a pickled copy of it reads in the tasks."""

    def __init__(self, options: SourceOptions, schema: StructType, clock: Clock | None = None) -> None:
        self._options = options
        self._schema = schema
        self._logs = Logs(options.target, options.isolation)
        self._clock = SystemClock() if clock is None else clock
        self._progress = Progress(options.target, options.commit_group)
        self._pinned: StreamOffset | None = None
        self._last_read_s: float | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Clock and progress are the driver's."""
        return {"_options": self._options, "_schema": self._schema}

    # --- offsets ---

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's names, here and below
        """Where a new query begins. Errors: those of the options, ``UnknownTopicError``."""
        newest = self._newest()
        high = {place: at.offset for place, at in newest.places.items()}
        spec = self._options.starting
        check_covered(spec, high)
        by_time = self._logs.at_times(spec.timestamps(high))
        starts = resolve(spec, self._logs.earliest(high), high, by_time, self._on_loss)
        places = {place: Place(starts[place], at.epoch) for place, at in newest.places.items()}
        return StreamOffset(places, newest.ids).to_json()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Pin the ends: what comes later is the next run's."""
        self._pinned = self._newest()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """The limits of the options, as far as one of Spark's kinds says it; ``latestOffset`` keeps them all."""
        options = self._options
        if options.max_offsets_per_trigger is not None:
            return ReadMaxRows(options.max_offsets_per_trigger)
        if options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(options.max_bytes_per_trigger)
        if options.min_offsets_per_trigger is not None:
            return ReadMinRows(options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802
        """Where the log ends now, for the query's progress."""
        return self._newest().to_json()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Where the trigger ends that begins at ``start``, which all batches before have finished.

        New topics and partitions are read from offset 0. Errors: ``DataLossError`` for positions whose records
        are gone, unless ``failOnDataLoss=false``.
        """
        begun = StreamOffset.from_json(start)
        self._note(begun)
        newest = self._newest() if self._pinned is None else self._pinned
        starts = self._starts(begun, newest)
        ends = {place: max(at.offset, starts[place]) for place, at in newest.places.items()}
        taken = ends if isinstance(limit, ReadAllAvailable) else self._admitted(starts, ends)
        places = {}
        for place, offset in taken.items():
            before = begun.places.get(place)
            same = before is not None and before.offset == offset == starts[place]
            # A position keeps its epoch until it moves: Spark compares the texts.
            places[place] = (
                before if same and before is not None else Place(offset, newest.places[place].epoch)
            )
        if any(offset > starts[place] for place, offset in taken.items()):
            self._last_read_s = self._clock.monotonic_s()
        return StreamOffset(places, newest.ids).to_json()

    def _newest(self) -> StreamOffset:
        topics = self._logs.topics(self._options.selection)
        places = self._logs.latest(self._logs.places(self._options.selection, topics))
        return StreamOffset(places, {name: topic.topic_id for name, topic in topics.items()})

    # --- admission ---

    def _admitted(
        self, starts: dict[TopicPartition, int], ends: dict[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        options = self._options
        now_s = self._clock.monotonic_s()
        if self._last_read_s is None:
            self._last_read_s = now_s
        admission = Admission(
            most=options.max_offsets_per_trigger,
            # Pinned ends do not move: to wait for more would be to wait for ever.
            least=None if self._pinned is not None else options.min_offsets_per_trigger,
            max_delay_ms=options.max_trigger_delay_ms,
        )
        taken = admission.admit(starts, ends, (now_s - self._last_read_s) * 1000)
        if options.max_bytes_per_trigger is not None:
            taken = self._within_bytes(starts, taken, options.max_bytes_per_trigger)
        return taken

    def _within_bytes(
        self, starts: dict[TopicPartition, int], ends: dict[TopicPartition, int], budget: int
    ) -> dict[TopicPartition, int]:
        """The smallest backlogs first, so that what they leave of their share goes to the others."""
        backlogs = {place: ends[place] - starts[place] for place in ends}
        left, waiting = budget, sum(backlogs.values())
        taken = dict(starts)
        for place in sorted(backlogs, key=lambda place: (backlogs[place], place)):
            if backlogs[place] <= 0:
                continue
            share = max(1, left * backlogs[place] // waiting)
            taken[place], used = self._walk(place, starts[place], ends[place], share)
            left, waiting = max(left - used, 0), waiting - backlogs[place]
        return {place: taken[place] for place in ends}

    def _walk(self, place: TopicPartition, start: int, end: int, budget: int) -> tuple[int, int]:
        """Where ``budget`` bytes from ``start`` on end, whole batches, at least one; and the bytes."""
        offset, used = start, 0
        while offset < end and (used < budget or offset == start):
            result = self._logs.fetch(place, Place(offset), min(_WALK_BYTES, max(budget - used, 1)))
            if result.error is not None or result.next_offset <= offset:
                return end, used  # the task that reads it will tell what is wrong
            if used and used + len(result.batches) > budget:
                break
            offset, used = result.next_offset, used + len(result.batches)
        return min(offset, end), used

    # --- data loss ---

    def _starts(self, begun: StreamOffset, newest: StreamOffset) -> dict[TopicPartition, int]:
        """Where each partition goes on. What is gone is reported: ``DataLossError``, or a warning."""
        for place in sorted(set(begun.places) - set(newest.places)):
            self._lost(
                f"{place.topic}-{place.partition} is gone; it was read up to {begun.places[place].offset}"
            )
        starts = {}
        for place, end in newest.places.items():
            at = begun.places.get(place)
            if at is not None and not _same_topic(begun, newest, place.topic):
                self._lost(
                    f"topic {place.topic!r} was deleted and made anew; the old one was read up to {at.offset} of "
                    f"partition {place.partition}"
                )
                at = None
            if at is None:
                at = Place(0, end.epoch)
            starts[place] = self._checked(place, at, end)
        return starts

    def _checked(self, place: TopicPartition, at: Place, end: Place) -> int:
        """The position, or where to go on if the log has none such."""
        result = self._logs.fetch(place, at, 1)
        error = result.error
        if error is None:
            return at.offset
        if isinstance(error, DataLossError) and error.lost_from >= 0:
            self._lost(error.message)
            return error.lost_from  # a crash took records back: what was written in their place is read
        lost_to = lost_end(error, at.offset, end.offset)
        if lost_to is None:
            raise error
        report_loss(self._options, place, at.offset, lost_to, why_lost(error))
        return lost_to

    def _lost(self, text: str) -> None:
        if self._options.fail_on_data_loss:
            raise DataLossError(
                text, hint="set failOnDataLoss=false to go on, or begin with a new checkpoint"
            )
        logger.warning("%s; failOnDataLoss=false: going on", text)

    def _on_loss(self, error: LogStoreError) -> None:
        if self._options.fail_on_data_loss:
            raise error
        logger.warning("%s; failOnDataLoss=false: taking the nearest", error.message)

    # --- batches ---

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The tasks of the trigger [start, end), the same for the same two offsets."""
        begun, ending = StreamOffset.from_json(start), StreamOffset.from_json(end)
        moved = {place: at for place, at in ending.places.items() if begun.places.get(place) != at}
        topics = self._logs.backend.topics()  # asked now: of one topic a connection may know an older id
        moved = {place: at for place, at in moved.items() if self._is_there(place, at, ending, topics)}
        starts = self._starts(
            StreamOffset({place: at for place, at in begun.places.items() if place in moved}, begun.ids),
            StreamOffset(moved, ending.ids),
        )
        ranges = [Range(*place, starts[place], at.offset) for place, at in moved.items()]
        pieces = split(
            ranges,
            min_partitions=self._options.min_partitions,
            max_records=self._options.max_records_per_partition,
        )
        return [Split(piece, moved[TopicPartition(*piece[:2])].epoch) for piece in pieces]

    def _is_there(
        self, place: TopicPartition, at: Place, ending: StreamOffset, topics: Mapping[str, TopicMetadata]
    ) -> bool:
        """Whether the planned end is one of this log. It is another's if the topic was made anew since, or if a
        crash took back what the plan had seen: other records would come under the same offsets."""
        topic = topics.get(place.topic)
        if topic is None or place.partition >= topic.partitions:
            self._lost(f"{place.topic}-{place.partition} is gone before its batch was read")
            return False
        try:
            result = self._logs.fetch(place, at, 1)
        except (UnknownTopicError, UnknownPartitionError) as gone:
            self._lost(f"{place.topic}-{place.partition} is gone before its batch was read: {gone.message}")
            return False
        if ending.ids.get(place.topic) not in ("", topic.topic_id):
            self._lost(f"topic {place.topic!r} was deleted and made anew before its batch was read")
            return False
        error = result.error
        if isinstance(error, DataLossError):
            self._lost(error.message)
        elif error is not None and lost_end(error, at.offset, at.offset) is None:
            raise error
        return True

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_split(self._options, self._schema, partition)

    def commit(self, end: dict[str, Any]) -> None:
        self._note(StreamOffset.from_json(end))

    def _note(self, done: StreamOffset) -> None:
        """Commit what is finished, of partitions that are still there: what was lost has no position."""
        if self._options.commit_group is None:
            return
        newest = self._newest()
        there = {
            place: at
            for place, at in done.places.items()
            if place in newest.places
            and at.offset <= newest.places[place].offset
            and _same_topic(done, newest, place.topic)
        }
        self._progress.note(StreamOffset(there, done.ids))


def _same_topic(begun: StreamOffset, newest: StreamOffset, topic: str) -> bool:
    before, now = begun.ids.get(topic, ""), newest.ids.get(topic, "")
    return not before or not now or before == now
