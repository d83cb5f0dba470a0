"""A machine whose topic has keys and producers, is cleaned, erased from, deleted and made anew.

Beside the ledger of the topic's one partition its model knows the producers: what they have sent, what of it was
lost, and that no id is handed out twice.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from logstore.errors import (
    DuplicateSequenceError,
    ErasureIncompleteError,
    LogStoreError,
    OutcomeUnknownError,
    OutOfOrderSequenceError,
    PartitionPoisonedError,
)
from logstore.format.batch import decode_batches, encode_batch, iter_headers
from logstore.log.log_offsets import LogOffsets
from logstore.log.producers.producer_replay import marker_of
from logstore.partition.partition_log import PartitionLog
from logstore.partition.topic import Topic
from logstore.seams.fs import read_file
from logstore.seams.memory_fs import MemoryFileSystem
from logstore.upkeep.cleaning_run import CleaningRun
from tests.sim import ledger as rules
from tests.sim import model as plain_rules
from tests.sim.host import ROOT, Host, opens
from tests.sim.ledger import Batch, Ledger, Row, Seen, Timeline
from tests.sim.ledger_workload import (
    NAME,
    TOPIC,
    Clean,
    End,
    Erase,
    Gap,
    Import,
    LedgerSettings,
    NewId,
    Put,
    Recreate,
    Resend,
    Send,
    Slice,
    Watch,
)
from tests.sim.model import Place, Violation
from tests.sim.on_disk import check_indexes
from tests.sim.workload import Flush, Read, Reopen, Tick, Trim

PLACE = Place(TOPIC, 0)
FOLDER = f"{ROOT}/{TOPIC}-0"
_TELLING_BYTES = 20  # of a value, all of which are unique from the start on: it may be torn


@dataclass(slots=True)
class Sender:
    """A producer: ``pending`` was sent, and is not in the log."""

    producer_id: int
    next_sequence: int = 0
    pending: list[Batch] = field(default_factory=list)

    def copy(self) -> Sender:
        return replace(self, pending=list(self.pending))


@dataclass(slots=True)
class LedgerModel:
    """``topic_id`` None: there is no topic; ``creating``, ``deleting``: a call that is under way; ``unsure``: the
    topic was seen after a kill and never acknowledged; ``former``: one that a power loss may bring back."""

    ledger: Ledger = field(default_factory=Ledger)
    topic_id: str | None = None
    creating: bool = False
    deleting: bool = False
    unsure: bool = False
    former: tuple[str, Ledger] | None = None
    senders: dict[int, Sender] = field(default_factory=dict)
    ids: set[int] = field(default_factory=set)
    import_ids: set[int] = field(default_factory=set)
    import_epoch: int = -1
    counter: int = 0

    def copy(self) -> LedgerModel:
        former = None if self.former is None else (self.former[0], self.former[1].copy())
        return replace(
            self,
            ledger=self.ledger.copy(),
            former=former,
            senders={number: sender.copy() for number, sender in self.senders.items()},
            ids=set(self.ids),
            import_ids=set(self.import_ids),
        )

    def signature(self) -> int:
        former = None if self.former is None else (self.former[0], self.former[1].signature())
        topic = (self.topic_id, self.creating, self.deleting, self.unsure, former)
        producers = (self.senders, sorted(self.ids), sorted(self.import_ids), self.import_epoch)
        return hash((self.ledger.signature(), repr((topic, producers))))


class LedgerMachine(Host):
    model: LedgerModel

    def __init__(self, settings: LedgerSettings, *, trace: bool = False) -> None:
        super().__init__(trace=trace)
        self.settings = settings
        self.model = LedgerModel()
        self._run: CleaningRun | None = None

    def twin(self) -> LedgerMachine:
        return LedgerMachine(self.settings)

    def survivors(self) -> object:
        ledger = self.model.ledger
        return self.model.topic_id, list(ledger.batches), set(ledger.gone), ledger.start

    def records(self) -> int:
        return self.model.counter

    @property
    def ledger(self) -> Ledger:
        return self.model.ledger

    @property
    def log(self) -> PartitionLog:
        return self.partition(PLACE)

    @property
    def topic(self) -> Topic:
        return self.store._registry.get(TOPIC)

    def abandon(self) -> None:
        self._run = None
        super().abandon()

    # --- setting up ---

    def set_up(self) -> None:
        self.start()
        self.ensure_topic()

    def ensure_topic(self) -> None:
        """The topic with two closed segments: values, newer values, a tombstone."""
        if self.model.topic_id is not None:
            return
        self._create()
        self.do(Put("abc"))
        self.do(Put("ab", "all", 250))
        self.do(Put("C", "all"))
        self.do(Put("b", "all", 700))

    def _create(self) -> None:
        self.model.creating = True
        self.store.create_topic(TOPIC, partitions=1, config=self.settings.config())
        self._created(self.store._registry.entry(TOPIC).topic_id)
        self.model.former = None

    def _created(self, topic_id: str) -> None:
        self.model.creating = self.model.deleting = False
        self.model.topic_id = topic_id
        self.model.ledger = Ledger(self.settings.delete_retention_ms)
        for sender in self.model.senders.values():
            sender.pending.clear()

    # --- appends ---

    def _rows(self, keys: str, value_bytes: int) -> tuple[Row, ...]:
        rows = []
        for letter in keys:
            self.model.counter += 1
            number = self.model.counter
            value = None if letter.isupper() else b"%05d:" % number + self._filling(number, value_bytes)
            rows.append(
                Row(b"key-" + letter.lower().encode(), value, self.clock.wall_ms() - number * 37 % 90)
            )
        return tuple(rows)

    @staticmethod
    def _filling(number: int, size: int) -> bytes:
        return (b"%x." % (number * 2654435761 % (1 << 32)) * (size // 3 + 4))[: size + 8]

    def _put(self, call: Put) -> None:
        self._append(Batch(self._rows(call.keys, call.value_bytes)), call.acks)

    def _sender(self, number: int) -> Sender:
        sender = self.model.senders.get(number)
        if sender is None:
            sender = self.model.senders[number] = Sender(self._new_id())
        return sender

    def _new_id(self) -> int:
        """An id as a producer without a name gets it."""
        producer_id = self.store.backend.init_producer(None).producer_id
        if producer_id in self.model.ids:
            raise Violation(rules.IDS_ONCE, f"{producer_id} again, after {sorted(self.model.ids)[-3:]}")
        self.model.ids.add(producer_id)
        return producer_id

    def _renew(self, call: NewId) -> None:
        self.model.senders[call.producer] = Sender(self._new_id())

    def _send(self, call: Send) -> None:
        sender = self._sender(call.producer)
        if sender.pending:
            self._send_pending(sender, call.acks)
            return
        rows = self._rows(call.keys, call.value_bytes)
        batch = Batch(rows, sender.producer_id, 0, sender.next_sequence, call.producer > 0)
        sender.next_sequence += batch.size
        self._append(batch, call.acks, sender)

    def _send_pending(self, sender: Sender, acks: Any) -> None:
        """What got lost is sent again, in order; none of it is in the log."""
        while sender.pending:
            self._append(sender.pending.pop(0), acks, sender)

    def _resend(self, call: Resend) -> None:
        sender = self._sender(call.producer)
        sent = self.ledger.of_producer(sender.producer_id)
        if sender.pending or len(sent) <= call.back:
            self._send_pending(sender, call.acks)
            return
        batch = sent[-1 - call.back]
        try:
            offset = self.log.append_batch(_encoded(batch), acks=call.acks).offset
        except DuplicateSequenceError:
            if call.back == 0:
                raise Violation(rules.ONCE, f"the last batch {batch} is not remembered") from None
        else:
            self.ledger.answered_again(batch, offset, call.acks)
        self._look()

    def _gap(self, call: Gap) -> None:
        sender = self._sender(call.producer)
        if not self.ledger.of_producer(sender.producer_id):
            return  # a log that does not know the producer takes any sequence
        batch = Batch(self._rows("d", 8), sender.producer_id, 0, sender.next_sequence + 5, call.producer > 0)
        try:
            offset = self.log.append_batch(_encoded(batch)).offset
        except OutOfOrderSequenceError:
            self._look()
            return
        raise Violation(
            rules.ONCE, f"{batch} is at {offset}, although sequence {sender.next_sequence} was due"
        )

    def _append(self, batch: Batch, acks: Any, sender: Sender | None = None) -> None:
        self.ledger.begin(batch)
        try:
            placed = self.log.append_batch(_encoded(batch), acks=acks)
        except LogStoreError as error:
            self._refused(error)
            if sender is not None:
                sender.pending.insert(0, batch)
            raise
        self._appended(placed.offset, acks)

    def _appended(self, offset: int, acks: Any) -> None:
        self.ledger.appended(offset, acks)
        self.model.unsure, self.model.former = False, None
        self.lines.append(f"  offset {offset}")
        self._look()

    def _refused(self, error: LogStoreError) -> None:
        self.ledger.refuse(poisoned=isinstance(error, OutcomeUnknownError | PartitionPoisonedError))
        self._look()

    def _end(self, call: End) -> None:
        sender = self.model.senders.get(call.producer)
        if sender is None:
            return
        self.ledger.begin(Batch(producer_id=sender.producer_id, epoch=0, commits=call.commit))
        try:
            placed = self.log.end_transaction(sender.producer_id, 0, commit=call.commit)
        except LogStoreError as error:
            self._refused(error)
            raise
        self._appended(placed.offset, "all")

    def _import(self, call: Import) -> None:
        model = self.model
        lease = self.store.backend.init_producer(NAME)
        try:
            if lease.epoch <= model.import_epoch:
                raise Violation(rules.RESUMES, f"epoch {lease.epoch} after {model.import_epoch}")
            model.import_epoch = lease.epoch
            model.import_ids.add(lease.producer_id)
            mine = [batch for _, batch in self.ledger.batches if batch.producer_id in model.import_ids]
            due, told = sum(batch.size for batch in mine), lease.last_sequence(TOPIC, 0)
            if told != due:
                raise Violation(rules.RESUMES, f"{told} records are said to be in, {due} are")
            rows = self._rows("abcd"[: call.records], 24)
            self._append(Batch(rows, lease.producer_id, lease.epoch, due), "all")
        finally:
            lease.release()

    def _flush(self, _call: Flush) -> None:
        self.log.flush()
        self.ledger.durable = self.ledger.end
        self._look()

    # --- cleaning ---

    def _clean(self, call: Clean) -> None:
        self._evict()
        self.ledger.begin_cleaning(self.clock.wall_ms(), self.ledger.end)
        done = self.store.admin.compact(TOPIC, roll=call.roll)
        self._verify()
        self.ledger.durable = self.ledger.end
        self._look()
        self.ledger.cleaned_up_to(done[0].cleaned_to, self.ledger.end)

    def _evict(self) -> None:
        """What comes next ends the cleaning that is under way, in order."""
        if self._run is not None:
            self._run, run = None, self._run
            run.end_early()
            self._verify()
            self.ledger.over()

    def _slice(self, call: Slice) -> None:
        """As the housekeeper does it, but for shorter slices."""
        kit, topic = self.store._cleaning.kit, self.topic
        with topic.using():
            log = topic.log(0)
            if self._run is None or self._run.ended:
                self.ledger.over()
                kit.look_at_clock()
                found = self.store._cleaning.compactor._look(topic, 0, log.cleaner_point)
                if found.end_offset <= found.start_offset:
                    return
                self.ledger.begin_cleaning(self.clock.wall_ms(), log.high_watermark)
                self._run = kit.start(topic, 0, (found.start_offset, found.end_offset))
            for _ in range(call.pieces):
                if self._run is None or self._run.ended:
                    break
                result = self._run.slice(0.0)
                self._verify()
                if result is not None:
                    self.ledger.cleaned_up_to(result.cleaned_to, self.ledger.end)
                    self._run = None

    def _erase(self, call: Erase) -> None:
        self._evict()
        key = b"key-" + call.key.encode()
        ledger = self.ledger
        ledger.begin_erasing(key)
        open_from = rules.stable_end(ledger.batches, ledger.end)
        try:
            self.store.admin.erase_keys(TOPIC, [key])
        except ErasureIncompleteError:
            self._verify()
            rows = rules.rows_of(ledger.batches)
            if not any(row.key == key and offset >= open_from for offset, row in rows):
                raise Violation(rules.ERASED, f"{key!r} cannot be erased, no transaction is open") from None
            ledger.erasing = ledger.promised = None
            ledger.durable = ledger.end
            return
        self._verify()
        ledger.durable = ledger.end
        self._look()
        ledger.erased_for_good()
        self._check_disk()

    def _check_disk(self) -> None:
        """Whatever the name of the file: an erased value is in none."""
        if self.ledger.erased:
            for path, content in contents(self.fs.clone(), ROOT):
                for value in self.ledger.erased:
                    if value[:_TELLING_BYTES] in content:
                        raise Violation(
                            rules.ERASED, f"{path} holds {value[:6]!r} of {self.ledger.written[value]!r}"
                        )

    # --- the rest ---

    def _recreate(self, _call: Recreate) -> None:
        self._evict()
        model = self.model
        model.deleting = True
        old = model.topic_id
        self.store.delete_topic(TOPIC)
        model.former, model.topic_id, model.deleting, model.unsure = None, None, False, False
        model.ledger = Ledger(self.settings.delete_retention_ms)
        self._create()
        if model.topic_id == old:
            raise Violation(rules.TOPIC_GONE, f"the new topic has the id {old} of the old one")
        self._look()
        self._verify()

    def _trim(self, _call: Trim) -> None:
        """Only what is stable: an open transaction keeps its records."""
        ledger = self.ledger
        stable = rules.stable_end(ledger.batches, self.log.high_watermark)
        if stable <= ledger.start:
            return
        ledger.trimming = (ledger.start + stable + 1) // 2
        starts = self.store.delete_records(TOPIC, {0: ledger.trimming})
        ledger.start, ledger.trimming = ledger.trimming, 0
        ledger.durable = ledger.end
        if list(starts.values()) != [ledger.start]:
            raise Violation(plain_rules.START_STAYS, f"deleted up to {ledger.start}, told {starts}")
        self._look()

    def _tick(self, call: Tick) -> None:
        self.clock.advance(call.milliseconds)
        ledger = self.ledger
        if self._run is None and self.settings.compacts:
            ledger.begin_cleaning(self.clock.wall_ms(), ledger.end)
        self.store.step()
        self._look()
        self._verify()
        if self._run is None or self._run.ended:
            self._run = None
            if not self.fs.faults.fired:  # else the housekeeper may have met an error, and told only its log
                ledger.over()

    def _reopen(self, _call: Reopen) -> None:
        self._evict()
        self.close()
        self.start()
        self._look()

    def close(self) -> None:
        self._evict()
        self.store.close()
        self._store = None
        self.ledger.durable = self.ledger.end

    def _read(self, _call: Read) -> None:
        self._verify()

    def _watch(self, _call: Watch) -> None:
        """Another process sees what this one has shown."""
        with self.another_process() as reader:
            log = reader.partition(TOPIC, 0)
            bounds = log.bounds()
            if bounds.high_watermark < self.ledger.shown:
                shown = (bounds.high_watermark, self.ledger.shown)
                raise Violation(
                    plain_rules.WATERMARK_SAFE, f"another process sees {shown[0]}, shown was {shown[1]}"
                )
            self._check_reader(log)

    # --- looking ---

    def _look(self) -> None:
        bounds = self.log.bounds()
        start, stable = bounds.log_start_offset, bounds.last_stable_offset
        self.ledger.saw_bounds(start, bounds.high_watermark, stable, bounds.log_end_offset)

    def _verify(self) -> None:
        """Everything that this process shows, raw and committed; what is missing now stays so."""
        if self.ledger.poisoned:
            return  # recovery says what is there
        ledger = self.ledger
        found, timeline, bounds = self._check_raw(self.log)
        above = {offset for offset in ledger.gone if offset >= bounds.high_watermark}
        ledger.looked(timeline, found, bounds.log_start_offset, bounds.high_watermark)
        ledger.gone |= above
        self._check_committed(self.log, timeline, bounds)

    def _check_reader(self, log: PartitionLog) -> None:
        _, timeline, bounds = self._check_raw(log)
        self._check_committed(log, timeline, bounds)

    def _check_raw(self, log: PartitionLog) -> tuple[list[Seen], Timeline, LogOffsets]:
        bounds = log.bounds()
        self.ledger.check_start(bounds.log_start_offset)
        found = batches_seen(log, bounds.log_start_offset, bounds.high_watermark)
        timeline = self.ledger.check_shown(found, bounds.high_watermark)
        self.ledger.check_stable(timeline, bounds.high_watermark, bounds.last_stable_offset)
        return found, timeline, bounds

    def _check_committed(self, log: PartitionLog, timeline: Timeline, bounds: LogOffsets) -> None:
        start, stable = bounds.log_start_offset, bounds.last_stable_offset
        if start > stable:
            return
        for backwards in (False, True) if self._store is not None and self.topic.owned else (False,):
            found = [
                (record.offset, Row(record.key or b"", record.value, record.timestamp_ms))
                for record in log.records(start, reverse=backwards)
            ]
            due = found[::-1] if backwards else found
            self.ledger.check_committed(timeline, start, stable, due)

    # --- after a crash ---

    def recover(self, *, power_loss: bool) -> None:
        self._check_disk()
        with opens():
            self.start()
            self._recover_topic(power_loss=power_loss)
            if self.model.topic_id is None:
                return
            self._observe()
            with self.topic.using():
                self.topic.log(0)
            self._recover_log(power_loss=power_loss)
        self._check_disk()

    def _recover_topic(self, *, power_loss: bool) -> None:
        """It is as it was, or a call that was under way is done, or it is half done between two steps."""
        model = self.model
        entry = self.store._registry.catalogue.topics.get(TOPIC)
        found = None if entry is None else entry.topic_id
        if found is not None and found == model.topic_id:
            model.creating = model.deleting = False
        elif model.former is not None and found == model.former[0]:
            model.topic_id, model.ledger = model.former
        elif found is None and model.deleting:
            model.former = None if power_loss or model.topic_id is None else (model.topic_id, model.ledger)
            model.topic_id, model.deleting, model.ledger = None, False, Ledger()
        elif found is None and (model.topic_id is None or model.unsure):
            model.topic_id, model.creating, model.ledger = None, False, Ledger()
        elif found is not None and model.creating and model.topic_id is None:
            self._created(found)
            model.unsure = not power_loss
        else:
            rule = plain_rules.TOPICS_SURVIVE if model.topic_id is not None else rules.TOPIC_GONE
            raise Violation(rule, f"the topic has the id {found}, it was {model.topic_id}")
        if power_loss:
            model.unsure, model.former = False, None

    def _observe(self) -> None:
        """What readers see before anything is recovered, in this process and in another one: a promise, too."""
        ledger = self.ledger
        found, timeline, bounds = self._check_raw(self.log)
        gone, wiped = set(ledger.gone), set(ledger.wiped)
        ledger.looked(timeline, found, bounds.log_start_offset, bounds.high_watermark)
        try:
            self._check_committed(self.log, timeline, bounds)
            if self.fs._ticks % 3 == 0:  # opening it takes its time: not after every crash
                with self.another_process() as reader:
                    self._check_reader(reader.partition(TOPIC, 0))
        finally:
            ledger.gone, ledger.wiped = gone, wiped
        ledger.shown = max(ledger.shown, bounds.high_watermark)

    def _recover_log(self, *, power_loss: bool) -> None:
        ledger, bounds = self.ledger, self.log.bounds()
        start, end = bounds.log_start_offset, bounds.log_end_offset
        ledger.check_start(start)
        found = batches_seen(self.log, start, end)
        self.lines.append(f"  has {end}, start {start}, {sum(len(seen.rows) for seen in found)} records")
        timeline = ledger.check_survivors(found, end, power_loss=power_loss)
        ledger.start = start
        lost = ledger.adopt(timeline, found, end, power_loss=power_loss)
        for sender in self.model.senders.values():
            mine = {batch for batch in (*lost, *sender.pending) if batch.producer_id == sender.producer_id}
            mine = {batch for batch in mine if batch.commits is None and ledger.place_of(batch) is None}
            sender.pending = sorted(mine, key=lambda batch: batch.sequence)
        self._look()
        self._check_committed(self.log, timeline, bounds)

    def prove_usable(self) -> None:
        self.ensure_topic()
        self.do(Put("d", "all", 8))
        for number in sorted(self.model.senders):
            self.do(Resend(number))
        if self.settings.compacts and self.fs._ticks % 3 == 0:
            self.do(Clean())
        self.do(Read())
        self.close()
        check_indexes(self.fs, FOLDER, self.settings.index_interval_bytes)

    HANDLERS = {  # noqa: RUF012 - a table, never changed
        Put: _put,
        Send: _send,
        Resend: _resend,
        Gap: _gap,
        NewId: _renew,
        End: _end,
        Import: _import,
        Clean: _clean,
        Slice: _slice,
        Erase: _erase,
        Recreate: _recreate,
        Watch: _watch,
        Flush: _flush,
        Read: _read,
        Reopen: _reopen,
        Trim: _trim,
        Tick: _tick,
    }


def _encoded(batch: Batch) -> bytes:
    return encode_batch(
        [(row.key, row.value, None, row.timestamp_ms) for row in batch.rows],
        now_ms=0,
        producer_id=batch.producer_id,
        producer_epoch=batch.epoch,
        base_sequence=batch.sequence,
        transactional=batch.transactional,
    )


def batches_seen(log: PartitionLog, start: int, end: int) -> list[Seen]:
    """All batches of [start, end), as ``read_uncommitted`` gives them."""
    found: list[Seen] = []
    at = start
    while at < end:
        data = log.read(at, 1 << 20, "read_uncommitted")
        for position, header in iter_headers(data):
            raw = bytes(data[position : position + header.size])
            records = decode_batches(raw, TOPIC, 0)
            rows = {
                record.offset: Row(record.key or b"", record.value, record.timestamp_ms)
                for record in records
                if record.offset >= start
            }
            marker = marker_of(raw, header) if header.is_control and header.records_count else None
            commits = None if marker is None else marker.committed
            found.append(Seen(header.base_offset, header.next_offset, header.producer_id, commits, rows))
            at = header.next_offset
        if not data:
            break
    return found


def contents(fs: MemoryFileSystem, directory: str) -> list[tuple[str, bytes]]:
    """Every file below ``directory``."""
    found: list[tuple[str, bytes]] = []
    for name in fs.listdir(directory):
        path = f"{directory}/{name}"
        try:
            found.append((path, read_file(fs, path)))
        except IsADirectoryError:
            found += contents(fs, path)
    return found
