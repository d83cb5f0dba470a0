"""Producers and transactions of a partition against a plain history, through reopens, kills and power losses."""

from __future__ import annotations

import random
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from logstore.errors import (
    DuplicateSequenceError,
    OutOfOrderSequenceError,
    ProducerFencedError,
    TransactionStateError,
)
from logstore.format.batch import decode_batches, encode_batch
from logstore.log.producers.producer_state import SEQUENCE_MASK
from logstore.ownership.live import LiveSlot, MemoryLive
from logstore.ownership.locks import MemoryLocks
from logstore.partition.partition_log import PartitionLog
from logstore.seams.clock import ManualClock
from logstore.seams.memory_crash import Chooser, KeepAll, KeepNothing, RandomChooser
from logstore.seams.memory_fs import MemoryFileSystem
from logstore.store import LogStore
from logstore.types import Acks
from tests.log.logs import NOW_MS

IDS = (5, 6, 1 << 62)
producer_ids = st.sampled_from(IDS)
counts = st.integers(1, 4)
all_acks: st.SearchStrategy[Acks] = st.sampled_from([1, "all"])


class Event(NamedTuple):
    """A batch in the log: of a producer (``producer`` -1: of none), or a marker (``outcome`` is not None)."""

    offset: int
    values: tuple[bytes, ...]
    producer: int = -1
    epoch: int = -1
    sequence: int = -1
    transactional: bool = False
    commits: bool | None = None

    @property
    def next_offset(self) -> int:
        return self.offset + max(len(self.values), 1)


class Known(NamedTuple):
    """What follows from a history for one producer."""

    epoch: int
    sequence: int  # the next one
    batches: tuple[Event, ...]
    opened: int  # offset at which its transaction began, -1


def known(history: list[Event], producer: int) -> Known | None:
    found: Known | None = None
    for event in history:
        if event.producer != producer:
            continue
        batches = found.batches if found is not None and found.epoch == event.epoch else ()
        sequence = found.sequence if found is not None and batches else 0
        opened = -1 if found is None else found.opened
        if event.commits is not None:
            found = Known(event.epoch, sequence, batches, -1)
            continue
        if event.transactional and opened < 0:
            opened = event.offset
        after = (event.sequence + len(event.values)) & SEQUENCE_MASK
        found = Known(event.epoch, after, (*batches, event)[-5:], opened)
    return found


def aborted_and_open(history: list[Event]) -> tuple[set[int], int | None]:
    """Offsets of events whose transaction was aborted; where the first open one begins."""
    gone: set[int] = set()
    opened: dict[int, list[int]] = {}
    for event in history:
        if event.commits is not None:
            offsets = opened.pop(event.producer, [])
            if not event.commits:
                gone.update(offsets)
        elif event.transactional:
            opened.setdefault(event.producer, []).append(event.offset)
    return gone, min((offsets[0] for offsets in opened.values()), default=None)


class ProducersMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.fs = MemoryFileSystem()
        self.clock = ManualClock(NOW_MS)
        self.live: dict[int, LiveSlot] = {}
        self.history: list[Event] = []
        self.durable = 0
        self.number = 0
        self.boots = 0
        self.beside: LogStore | None = None

    @initialize(
        segment=st.sampled_from([1_024, 1_500, 1 << 20]), visible=st.sampled_from(["flush", "append"])
    )
    def create(self, segment: int, visible: str) -> None:
        self.store = self.open("rw")
        self.store.create_topic("t", config={"segment.bytes": str(segment), "visible.after": visible})

    def open(self, mode: Any) -> LogStore:
        return LogStore(
            "/store",
            mode,
            fs=self.fs,
            clock=self.clock,
            locks=MemoryLocks(clock=self.clock),
            live=MemoryLive(self.live),
            threads=False,
        )

    @property
    def log(self) -> PartitionLog:
        return self.store.partition("t", 0)

    @property
    def end(self) -> int:
        return self.history[-1].next_offset if self.history else 0

    def values(self, count: int) -> tuple[bytes, ...]:
        self.number += count
        return tuple(b"%06d" % number + bytes(30) for number in range(self.number - count, self.number))

    def send(self, event: Event, acks: Acks = "all") -> int:
        batch = encode_batch(
            [(None, value) for value in event.values],
            now_ms=self.clock.wall_ms(),
            producer_id=event.producer,
            producer_epoch=event.epoch,
            base_sequence=event.sequence,
            transactional=event.transactional,
        )
        return self.log.append_batch(batch, acks=acks).offset

    def landed(self, event: Event, acks: Acks, offset: int) -> None:
        assert offset == self.end
        self.history.append(event._replace(offset=offset))
        if acks == "all":
            self.durable = self.end

    # --- calls ---

    @rule(count=counts, acks=all_acks)
    def plain(self, count: int, acks: Acks) -> None:
        event = Event(-1, self.values(count))
        self.landed(event, acks, self.send(event, acks))

    @rule(
        producer=producer_ids,
        count=counts,
        acks=all_acks,
        first=st.sampled_from([0, 9, SEQUENCE_MASK - 1, SEQUENCE_MASK]),
        newer=st.sampled_from([0, 0, 0, 1, 3]),
        transactional=st.booleans(),
    )
    def next_batch(
        self, producer: int, count: int, acks: Acks, first: int, newer: int, transactional: bool
    ) -> None:
        state = known(self.history, producer)
        epoch, sequence = (0, first) if state is None else (state.epoch + newer, state.sequence)
        if state is not None and newer and first == 0:
            sequence = 0
        if state is not None and not state.batches:
            sequence = first
        event = Event(-1, self.values(count), producer, epoch, sequence, transactional)
        if state is not None and state.opened >= 0 and not (transactional and newer == 0):
            with pytest.raises(TransactionStateError, match=f"open since offset {state.opened}"):
                self.send(event, acks)
            return
        self.landed(event, acks, self.send(event, acks))

    @rule(producer=producer_ids, back=st.integers(0, 6), acks=all_acks)
    def again(self, producer: int, back: int, acks: Acks) -> None:
        """A batch that is stored comes once more: it is answered, and never stored twice."""
        state = known(self.history, producer)
        sent = [
            event
            for event in self.history
            if event.producer == producer and event.commits is None and state and event.epoch == state.epoch
        ]
        if state is None or len(sent) <= back or not state.batches:
            return
        event = sent[-1 - back]
        end = self.log.log_end_offset
        try:
            assert self.send(event, acks) == event.offset
            assert event in state.batches
        except DuplicateSequenceError:
            assert back > 0
        except (OutOfOrderSequenceError, TransactionStateError):
            assert event not in state.batches
        assert self.log.log_end_offset == end
        if acks == "all" and back == 0:
            self.durable = max(self.durable, event.next_offset)

    @rule(producer=producer_ids, ahead=st.sampled_from([1, 2, 1000, 1 << 29]))
    def gap(self, producer: int, ahead: int) -> None:
        state = known(self.history, producer)
        if state is None or not state.batches or state.opened >= 0:
            return
        sequence = (state.sequence + ahead) & SEQUENCE_MASK
        with pytest.raises(OutOfOrderSequenceError) as caught:
            self.send(Event(-1, self.values(1), producer, state.epoch, sequence))
        assert (caught.value.expected_sequence, caught.value.found_sequence) == (state.sequence, sequence)

    @rule(producer=producer_ids)
    def zombie(self, producer: int) -> None:
        state = known(self.history, producer)
        if state is None or state.epoch == 0:
            return
        with pytest.raises(ProducerFencedError) as caught:
            self.send(Event(-1, self.values(1), producer, state.epoch - 1, state.sequence))
        assert (caught.value.expected_epoch, caught.value.found_epoch) == (state.epoch, state.epoch - 1)
        with pytest.raises(ProducerFencedError):
            self.log.end_transaction(producer, state.epoch - 1, commit=False)

    @rule(producer=producer_ids, commit=st.booleans(), newer=st.sampled_from([0, 0, 1]))
    def end_transaction(self, producer: int, commit: bool, newer: int) -> None:
        state = known(self.history, producer)
        if state is None:
            return
        placed = self.log.end_transaction(producer, state.epoch + newer, commit=commit)
        event = Event(-1, (), producer, state.epoch + newer, commits=commit)
        self.landed(event, "all", placed.offset)

    @rule(
        producers=st.lists(st.tuples(producer_ids, counts), min_size=2, max_size=6),
        commits=st.lists(st.booleans(), min_size=3, max_size=3),
        all_end=st.booleans(),
    )
    def transactions(self, producers: list[tuple[int, int]], commits: list[bool], all_end: bool) -> None:
        """Several transactions, one through the other."""
        for producer, count in producers:
            state = known(self.history, producer)
            if state is None or state.opened >= 0 or not state.batches:
                self.next_batch(producer, count, 1, 0, 0, True)
            else:
                self.next_batch(producer, count, 1, 0, 1, True)
        ends = sorted({producer for producer, _ in producers})[0 if all_end else 1 :]
        for producer, commit in zip(ends, commits, strict=False):
            self.end_transaction(producer, commit, 0)
        self.read(0.0, all_end, 1 << 20)

    @rule(milliseconds=st.sampled_from([10, 6_000]))
    def time_passes(self, milliseconds: int) -> None:
        self.clock.advance(milliseconds)
        self.store.step()

    # --- ends ---

    @rule(how=st.sampled_from(["reopen", "release"]))
    def close(self, how: str) -> None:
        if how == "release":
            self.store.release("t")
        else:
            self.store.close()
            self.store = self.open("rw")
        self.durable = self.end
        self.read(0.0, False, 200)

    @rule()
    def kill(self) -> None:
        self.leave()
        self.fs = self.fs.process_crash()
        self.comes_back()

    @rule(kept=st.one_of(st.just("none"), st.just("all"), st.integers(0, 10**6)))
    def power_loss(self, kept: str | int) -> None:
        choose: Chooser = KeepNothing() if kept == "none" else KeepAll()
        if isinstance(kept, int):
            choose = RandomChooser(random.Random(kept))
        self.leave()
        self.fs = self.fs.crash(choose)
        self.live = {}
        self.boots += 1
        self.clock.reboot(f"boot-{self.boots}")
        self.comes_back()

    def leave(self) -> None:
        self.store.abandon()
        if self.beside is not None:
            self.beside.abandon()
            self.beside = None

    def comes_back(self) -> None:
        self.store = self.open("rw")
        topic = self.store._registry.get("t")
        observed = self.log.bounds()
        before = list(self.log.records(0))
        with topic.using():
            topic.log(0)
        end = self.log.log_end_offset
        assert self.durable <= end <= self.end
        self.history = [event for event in self.history if event.next_offset <= end]
        assert self.end == end
        if observed.high_watermark == end:
            assert observed.last_stable_offset == self.log.last_stable_offset
            assert before == list(self.log.records(0))
        self.durable = end
        self.read(0.0, False, 1)

    # --- what readers see ---

    @rule(start=st.floats(0, 1), outside=st.booleans(), max_bytes=st.sampled_from([1, 200, 1 << 20]))
    def read(self, start: float, outside: bool, max_bytes: int) -> None:
        log = self.log
        if outside:
            if self.beside is None:
                self.beside = self.open("r")
            log = self.beside.partition("t", 0)
        visible = log.high_watermark
        shown = [event for event in self.history if event.next_offset <= visible]
        gone, opened = aborted_and_open(shown)
        stable = visible if opened is None else opened
        assert log.last_stable_offset == stable
        offset = int(start * stable)
        everything = self.rows(shown, set(), visible)
        committed = self.rows(shown, gone, stable)
        assert [(r.offset, r.value) for r in log.records(0, isolation="read_uncommitted")] == everything
        due = [row for row in committed if row[0] >= offset]
        assert [(r.offset, r.value) for r in log.records(offset)] == due
        assert [(r.offset, r.value) for r in log.records(offset, reverse=True)] == due[::-1]
        table = log.to_arrow(offset)
        assert list(zip(table["offset"].to_pylist(), table["value"].to_pylist(), strict=True)) == due
        assert self.in_bytes(log, offset, max_bytes) == due

    def in_bytes(self, log: PartitionLog, offset: int, max_bytes: int) -> list[tuple[int, bytes | None]]:
        found: list[tuple[int, bytes | None]] = []
        while True:
            fetched = log.fetch(offset, max_bytes, "read_committed")
            if fetched.next_offset == offset:
                return found
            records = decode_batches(fetched.data, "t", 0, start_offset=offset)
            found += [(record.offset, record.value) for record in records]
            offset = fetched.next_offset

    def rows(self, events: list[Event], gone: set[int], end: int) -> list[tuple[int, bytes]]:
        return [
            (event.offset + number, value)
            for event in events
            if event.offset not in gone and event.offset < end
            for number, value in enumerate(event.values)
        ]

    @invariant()
    @precondition(lambda self: hasattr(self, "store"))
    def bounds_are_in_order(self) -> None:
        bounds = self.log.bounds()
        assert bounds.last_stable_offset <= bounds.high_watermark <= bounds.log_end_offset == self.end


CALM = settings(
    derandomize=True,
    deadline=None,
    database=None,
    max_examples=80,
    stateful_step_count=40,
    suppress_health_check=list(HealthCheck),
)
TestProducersMachine = ProducersMachine.TestCase
TestProducersMachine.settings = CALM


@pytest.mark.long
def test_the_machine_at_length() -> None:
    run_state_machine_as_test(
        ProducersMachine, settings=settings(CALM, max_examples=3_000, stateful_step_count=120)
    )
