"""One simulated machine: the real engine on the in-memory file system, beside the model of its promises.

A machine lives through calls, crashes and restarts. Every answer of the engine goes to the model, which
raises ``Violation`` when a promise is broken; every call and answer goes to ``lines``, the run's trace.
"""

from __future__ import annotations

from logstore.errors import LogStoreError, OutcomeUnknownError, PartitionPoisonedError
from logstore.format.batch import decode_batches, iter_headers
from logstore.types import OffsetAndMetadata, TopicPartition
from tests.sim import model as rules
from tests.sim.host import ROOT, Host, opens
from tests.sim.model import Model, PartitionModel, Place, Row, Violation
from tests.sim.on_disk import check_indexes
from tests.sim.workload import (
    GROUP,
    TOPIC,
    Append,
    Commit,
    CreateTopic,
    Flush,
    Read,
    Reopen,
    Settings,
    Tick,
    Trim,
)


class Machine(Host):
    """Appends, rolls, topics, commits and deleted records, without keys and without producers."""

    model: Model

    def __init__(self, settings: Settings, *, trace: bool = False) -> None:
        super().__init__(trace=trace)
        self.settings = settings
        self.model = Model(segment_bytes=settings.segment_bytes)

    def twin(self) -> Machine:
        return Machine(self.settings)

    def survivors(self) -> dict[Place, list[Row]]:
        return {place: list(mine.rows) for place, mine in self.model.partitions.items()}

    def records(self) -> int:
        return self.model.counter

    def set_up(self) -> None:
        """A new store with the topic and one durable batch in each partition."""
        self.start()
        self.ensure_topic()

    def ensure_topic(self) -> None:
        """Create the topic with its first records, unless it is there."""
        if TOPIC in self.model.topics:
            return
        self.model.creating = TOPIC
        self.store.create_topic(TOPIC, partitions=self.settings.partitions, config=self.settings.config())
        self.model.created(TOPIC, self.settings.partitions)
        for number in range(self.settings.partitions):
            self.do(Append("all", 2, 24, number))

    # --- calls --------------------------------------------------------------------------------------

    def _append(self, call: Append) -> None:
        place = Place(TOPIC, call.partition)
        mine = self.model.partitions[place]
        mine.in_flight = self.model.next_rows(call.records, call.value_bytes, self.clock.wall_ms())
        rows = [(None, row.value, None, row.timestamp_ms) for row in mine.in_flight]
        log = self.partition(place)
        try:
            placed = log.append(rows, acks=call.acks)
        except LogStoreError as error:
            poisoned = isinstance(error, OutcomeUnknownError | PartitionPoisonedError)
            mine.refuse(log.high_watermark if poisoned else log.log_end_offset, poisoned=poisoned)
            self._look(place)
            raise
        mine.appended(placed.offset, log.leader_epoch, call.acks)
        self.model.unsure.discard(place.topic)
        self.lines.append(f"  offset {placed.offset} epoch {log.leader_epoch}")
        self._look(place)

    def _flush(self, call: Flush) -> None:
        place = Place(TOPIC, call.partition)
        self.partition(place).flush()
        self.model.partitions[place].all_durable()
        self._look(place)

    def _look(self, place: Place) -> None:
        log = self.partition(place)
        promises = self.settings.visible_after == "flush"
        self.model.partitions[place].saw_ends(log.high_watermark, log.log_end_offset, promises=promises)

    def _read(self, call: Read) -> None:
        place = Place(TOPIC, call.partition)
        log, mine = self.partition(place), self.model.partitions[place]
        end = log.high_watermark
        mine.check_start(log.log_start_offset)
        found = [
            (record.offset, Row(record.timestamp_ms, record.value))
            for record in log.records(log.log_start_offset)
        ]
        if found != list(enumerate(mine.rows[:end]))[log.log_start_offset :]:
            raise Violation(rules.NOTHING_INVENTED, f"{place} reads {found}, the model has {mine.rows[:end]}")
        self._look_up_time(place, mine.rows[:end], log.log_start_offset)

    def _look_up_time(self, place: Place, visible: list[Row], start: int) -> None:
        if len(visible) <= start:
            return
        wanted_ms = visible[(start + len(visible)) // 2].timestamp_ms
        due = next(at for at, row in enumerate(visible) if at >= start and row.timestamp_ms >= wanted_ms)
        found = self.partition(place).offset_for_timestamp(wanted_ms)
        if found != due:
            raise Violation(rules.INDEXES, f"{place}: time {wanted_ms} is at offset {due}, found {found}")

    def _reopen(self, _call: Reopen) -> None:
        self.close()
        self.start()
        for place in self.model.partitions:
            before = self.model.partitions[place].epoch
            self._look(place)
            if before >= 0 and self.partition(place).leader_epoch not in (before, -1):
                raise Violation(rules.EPOCH_GROWS, f"{place}: a clean reopen changed the epoch {before}")

    def close(self) -> None:
        """Close in order: then everything is durable, whatever its acks."""
        store = self.store
        for mine in self.model.partitions.values():
            mine.in_use = False  # from here on a crash may find it closed in order
        store.close()
        self._store = None
        for mine in self.model.partitions.values():
            mine.all_durable()

    def _create_topic(self, _call: CreateTopic) -> None:
        number = len(self.model.topics)
        name = self.model.creating or f"u{number}"
        self.model.creating = name
        if name not in self.store.list_topics():
            self.store.create_topic(name, partitions=1)
        self.model.created(name, 1)

    def _commit(self, call: Commit) -> None:
        place = Place(TOPIC, call.partition)
        log = self.partition(place)
        offset = log.high_watermark
        self.model.committing = {place: offset}
        position = OffsetAndMetadata(offset, log.leader_epoch, f"at {offset}")
        self.store.commit_offsets(GROUP, {TopicPartition(*place): position})
        self.model.committed[place] = offset
        self.model.committing = {}

    def _trim(self, call: Trim) -> None:
        place = Place(TOPIC, call.partition)
        log, mine = self.partition(place), self.model.partitions[place]
        mine.trimming = (log.log_start_offset + log.high_watermark + 1) // 2
        starts = self.store.delete_records(place.topic, {place.partition: mine.trimming})
        mine.start, mine.trimming = mine.trimming, 0
        mine.all_durable()  # a deletion syncs first
        if list(starts.values()) != [mine.start]:
            raise Violation(rules.START_STAYS, f"{place}: deleted up to {mine.start}, told {starts}")
        self._look(place)

    def _tick(self, call: Tick) -> None:
        self.clock.advance(call.milliseconds)
        in_use = {place for place, mine in self.model.partitions.items() if mine.in_use}
        for place in in_use:
            self.model.partitions[place].in_use = False  # the housekeeper may close an idle topic in order
        self.store.step()
        for place, mine in self.model.partitions.items():
            mine.in_use = place in in_use and self.store._registry.get(place.topic).owned
            self._look(place)

    HANDLERS = {  # noqa: RUF012 - a table, never changed
        Append: _append,
        Flush: _flush,
        Read: _read,
        Reopen: _reopen,
        CreateTopic: _create_topic,
        Commit: _commit,
        Trim: _trim,
        Tick: _tick,
    }

    # --- after a crash ------------------------------------------------------------------------------

    def recover(self, *, power_loss: bool) -> None:
        """Start on what is there, and hold all of it against the promises. SimulatedCrash passes."""
        with opens():
            self.start()
            self.model.check_topics(name for name in self.store.list_topics() if not name.startswith("__"))
            self._adopt_creation(power_loss=power_loss)
            for place, mine in sorted(self.model.partitions.items()):
                self._recover_partition(place, mine, power_loss=power_loss)
            self._check_commits()

    def _adopt_creation(self, *, power_loss: bool) -> None:
        """A topic whose creation was cut short is there whole, or not at all. After a kill it may still go
        with the power, until something was appended to it: nobody was told that it exists."""
        name = self.model.creating
        if name is not None and name in self.store.list_topics():
            self.model.created(name, self.settings.partitions if name == TOPIC else 1)
            if not power_loss:
                self.model.unsure.add(name)
        if power_loss:
            self.model.unsure.clear()  # what is seen now is on the disk
        self.model.creating = None

    def _recover_partition(self, place: Place, mine: PartitionModel, *, power_loss: bool) -> None:
        log = self.partition(place)
        before = mine.epoch
        self._observe(place, mine)
        self._own(place)
        found = self.read_rows(place, log.log_end_offset)
        self.lines.append(f"  {place.topic}-{place.partition} has {len(found)}, epoch {log.leader_epoch}")
        mine.check_survivors(found, power_loss=power_loss)
        if mine.in_use and 0 <= before >= log.leader_epoch:
            raise Violation(rules.EPOCH_GROWS, f"{place}: epoch {before} before, {log.leader_epoch} after")
        mine.adopt(found, power_loss=power_loss)
        mine.start, mine.trimming = log.log_start_offset, 0
        mine.saw_epoch(log.leader_epoch)
        self._look(place)

    def _observe(self, place: Place, mine: PartitionModel) -> None:
        """Read as a reader does, before anything was recovered: what is shown now is a promise too."""
        end = self.partition(place).high_watermark
        mine.check_shown(self.read_rows(place, end), end)
        if self.settings.visible_after == "flush":
            mine.shown = max(mine.shown, end)

    def _own(self, place: Place) -> None:
        """Take the topic as a first append would, which recovers it."""
        topic = self.store._registry.get(place.topic)
        with topic.using():
            topic.log(place.partition)

    def read_rows(self, place: Place, end: int) -> list[Row]:
        """All records below ``end`` through ``read``; (offset, epoch) pairs go to the model."""
        log, mine = self.partition(place), self.model.partitions[place]
        mine.check_start(log.log_start_offset)
        # What was deleted cannot be looked at any more: the model's word is taken for it.
        rows: list[Row] = mine.rows[: log.log_start_offset]
        while len(rows) < end:
            data = log.read(len(rows), 1 << 20, "read_uncommitted")
            if not len(data):
                break
            for _position, header in iter_headers(data):
                batch = decode_batches(
                    bytes(data[_position : _position + header.size]), place.topic, place.partition
                )
                into_batch = (
                    len(rows) == log.log_start_offset < header.next_offset
                )  # the start may lie inside one
                if header.base_offset != len(rows) and not (into_batch and header.base_offset < len(rows)):
                    raise Violation(
                        rules.NOTHING_INVENTED, f"{place}: batch at {header.base_offset} after {len(rows)}"
                    )
                found = [Row(record.timestamp_ms, record.value) for record in batch]
                mine.name(header.base_offset, header.leader_epoch, found)
                rows += found[len(rows) - header.base_offset :]
        return rows

    def _check_commits(self) -> None:
        found = self.store.committed_offsets(GROUP)
        self.model.check_commits({Place(*place): position.offset for place, position in found.items()})

    def prove_usable(self) -> None:
        """New records go in and come out, then a close in order leaves files that agree with each other."""
        self.ensure_topic()
        for place in sorted(self.model.partitions):
            if place.topic == TOPIC:
                self.do(Append("all", 1, 8, place.partition))
                self.do(Read(place.partition))
        self.close()
        for place in sorted(self.model.partitions):
            interval = self.settings.index_interval_bytes if place.topic == TOPIC else 4096
            folder = f"{ROOT}/{place.topic}-{place.partition}"
            if place.topic in self.model.topics and self.model.partitions[place].rows:
                check_indexes(self.fs, folder, interval)
