"""``Consumer``: positions, fetches and commits, over any ``Backend``."""

from __future__ import annotations

import logging
import os
import threading
import warnings
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from types import TracebackType
from typing import Generic, Literal

from logstore.arguments import (
    function_or_none,
    partition_place,
    partition_places,
    seconds,
    shown,
    whole,
)
from logstore.client.assignment import Assignment
from logstore.client.backend import Backend, GroupHold, ListedOffset
from logstore.client.committing import going_back, points, spans
from logstore.client.consumer_settings import (
    OnPoison,
    OnReset,
    Start,
    Subscription,
    Topics,
    is_offset,
    settings_of,
    timestamp_ms,
)
from logstore.client.dead_letters import DeadLetters, LetterBox, raw_record
from logstore.client.fetch_state import FetchState
from logstore.client.fetcher import Fetcher
from logstore.client.hand_out import Decoder, Loan
from logstore.client.serializers import Deserializer, K, V
from logstore.errors import (
    ClientClosedError,
    ConsumerThreadError,
    ForkedStoreError,
    InvalidArgumentError,
    WakeupError,
)
from logstore.groups.offsets import checked_offsets
from logstore.seams.clock import Clock, SystemClock
from logstore.types import Isolation, OffsetAndMetadata, Record, RecordMetadata, TopicPartition

logger = logging.getLogger(__name__)

PartitionsHook = Callable[[list[TopicPartition]], object]

# Between two tries after an error that may pass.
_RETRY_S = 0.02
# Records lent at once to a `for record in consumer`.
_LOAN_RECORDS = 500


class Consumer(Generic[K, V]):
    """Reads records of assigned partitions, in order per partition. Belongs to one thread: the first that
    uses it (another may take over when that has ended); only ``wakeup`` may be called from any.

    ``topics``: a name, names, a ``re.Pattern`` (must match whole names; internal topics are left out), or
    (topic, partition) pairs. ``group``: where committed offsets are kept; held until ``close``, a second
    live member gets GroupBusyError. ``start`` ("earliest", "latest", an offset, a datetime) applies where
    there is no committed offset; "committed" is an error there. ``until_end``: stop at the ends found now.
    ``on_reset``: what to do when the position is gone. ``on_poison``: "raise", "skip", ``DeadLetters(topic)`` or
    a callable (raw record, error) for records that a deserializer refuses. ``auto_commit_interval_ms``:
    commit what earlier polls handed out, every so often and at close. ``on_assigned``, ``on_revoked`` (at
    close), ``on_lost`` (deleted topics): called with the partitions, by the thread that polls.

    A position moves by what was handed out and by nothing else. DataLossError (a crash took records that
    were shown, or an offset of an older epoch) is raised until ``seek`` goes on.
    """

    def __init__(
        self,
        backend: Backend,
        topics: Topics,
        *,
        group: str | None = None,
        start: Start = "earliest",
        isolation: Isolation = "read_committed",
        until_end: bool = False,
        on_poison: OnPoison = "raise",
        on_reset: OnReset = "error",
        fetch_min_bytes: int = 1,
        fetch_max_wait_ms: float = 500,
        fetch_max_bytes: int = 50 << 20,
        max_partition_fetch_bytes: int = 1 << 20,
        auto_commit_interval_ms: float | None = None,
        key_deserializer: Deserializer[K] | None = None,
        value_deserializer: Deserializer[V] | None = None,
        on_assigned: PartitionsHook | None = None,
        on_revoked: PartitionsHook | None = None,
        on_lost: PartitionsHook | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._settings = settings_of(
            start=start,
            isolation=isolation,
            until_end=until_end,
            on_poison=on_poison,
            on_reset=on_reset,
            fetch_min_bytes=fetch_min_bytes,
            fetch_max_wait_ms=fetch_max_wait_ms,
            fetch_max_bytes=fetch_max_bytes,
            max_partition_fetch_bytes=max_partition_fetch_bytes,
            auto_commit_interval_ms=auto_commit_interval_ms,
        )
        for name, hook in (
            ("key_deserializer", key_deserializer),
            ("value_deserializer", value_deserializer),
            ("on_assigned", on_assigned),
            ("on_revoked", on_revoked),
            ("on_lost", on_lost),
        ):
            function_or_none(hook, name)
        if group is None and (start == "committed" or auto_commit_interval_ms is not None):
            raise InvalidArgumentError(
                "start='committed' and auto_commit_interval_ms need a group", hint="pass group=NAME"
            )
        self._backend = backend
        self._group = group
        self._clock = clock or SystemClock()
        self._letters: LetterBox | None = None
        if isinstance(on_poison, DeadLetters):
            on_poison = self._letters = LetterBox(backend, on_poison, group)
        self._decoder = Decoder(key_deserializer, value_deserializer, on_poison)
        self._on_assigned, self._on_revoked, self._on_lost = on_assigned, on_revoked, on_lost
        self._pid = os.getpid()
        self._owner: threading.Thread | None = None
        self._owner_ident = -1
        self._closed = False
        self._loan: Loan | None = None
        self._handed_out = 0
        self._assignment = Assignment(backend, Subscription(topics), self._settings, group)
        self._fetcher = Fetcher(backend, self._assignment, self._settings, self._clock)
        self._hold: GroupHold | None = None if group is None else backend.join_group(group)
        try:
            self._assigned_news = self._assignment.start()
        except BaseException:
            self._release_group()
            raise
        self._next_commit_s = self._clock.monotonic_s() + (self._settings.auto_commit_interval_s or 0)
        self._dropped = weakref.finalize(self, _report_dropped, group) if group is not None else None

    # --- records out ---

    def poll(self, max_records: int = 500, timeout_s: float = 1.0) -> list[Record]:
        """Up to ``max_records`` records; waits up to ``timeout_s`` for the first. Empty is normal: nothing
        new, or under until_end the end.

        Raises what concerns a partition (OffsetOutOfRangeError, DataLossError, CorruptBatchError, ...) with
        its position left where it was; records of other partitions come with the next poll. WakeupError
        after ``wakeup``; PoisonRecordError when a deserializer refuses the next record.
        """
        self._begin()
        max_records, timeout_s = whole(max_records, "max_records", 1), seconds(timeout_s)
        if not self._await_records(timeout_s):
            return []
        records: list[Record] = []
        taken: list[tuple[FetchState, int]] = []
        fetcher = self._fetcher
        for _ in range(len(fetcher.ready)):
            state = fetcher.next_ready()
            if state is None or (taken and state is taken[0][0]):
                break  # once round
            part = self._decoder.decode(state, max_records - len(records), raising=not records)
            fetcher.ready.rotate(-1)
            taken.append((state, part.raw_total))
            records = records + part.records if records else part.records
            if len(records) >= max_records:
                break
        # Only now: had a hook of the caller's raised, nothing would have been handed out.
        for state, count in taken:
            state.advance(count)
        self._handed_out += len(records)
        return records

    def batches(self, max_records: int = 500, timeout_s: float = 1.0) -> Iterator[list[Record]]:
        """What ``poll`` gives, again and again: an empty list when ``timeout_s`` is over with nothing new.
        Ends under until_end at the end, else never."""
        while True:
            records = self.poll(max_records, timeout_s)
            if not records and self._is_finished():
                return
            yield records

    def __iter__(self) -> Iterator[Record]:
        """Record by record, waiting for more; ends under until_end at the end, else never.

        The record that the loop's body has in hand counts as handed out, the one after it does not, so
        ``commit`` in the body covers what the loop has seen. Breaking off loses nothing.
        """
        while True:
            self._begin()
            if self._await_records(None):
                state = self._fetcher.next_ready()
                if state is None:
                    continue
                self._loan = Loan(state, self._decoder.decode(state, _LOAN_RECORDS, raising=True))
                self._fetcher.ready.rotate(-1)
                yield from self._loan.records
            else:
                return

    def _begin(self) -> None:
        self._enter()
        self._settle()
        self._auto_commit()

    def _await_records(self, timeout_s: float | None) -> bool:
        """Wait until there are records to hand out. False: time is up, or the end was reached."""
        clock = self._clock
        fetcher = self._fetcher
        now_s = clock.monotonic_s()
        end_s = None if timeout_s is None else now_s + timeout_s
        while True:
            self._follow_metadata()
            if fetcher.wakeup.take():
                raise WakeupError("consumer.wakeup() was called")
            if fetcher.next_ready() is not None:
                fetcher.refetch_others(now_s)
                return True
            if self._is_finished():
                return False
            wait_s = self._settings.fetch_max_wait_s
            if end_s is not None:
                wait_s = max(0.0, min(wait_s, end_s - now_s))
            passing = fetcher.fetch(wait_s)
            now_s = clock.monotonic_s()
            if end_s is not None and now_s >= end_s and fetcher.next_ready() is None:
                if passing is not None:
                    raise passing
                if fetcher.wakeup.take():
                    raise WakeupError("consumer.wakeup() was called")
                return False
            if passing is not None:
                fetcher.nap(_RETRY_S if end_s is None else min(_RETRY_S, end_s - now_s))

    def _is_finished(self) -> bool:
        """Under until_end: everything not paused was handed out."""
        return self._settings.until_end and all(
            state.at_end or state.paused for state in self._assignment.states.values()
        )

    def _follow_metadata(self) -> None:
        added, lost = self._assignment.refresh()
        if self._assigned_news:
            added = self._assigned_news + added
            self._assigned_news = []
        if lost and self._on_lost is not None:
            self._on_lost(lost)
        if added and self._on_assigned is not None:
            self._on_assigned(added)
        self._assignment.tell_missing()

    # --- commits ---

    def commit(self, offsets: Mapping[TopicPartition, int | OffsetAndMetadata] | None = None) -> None:
        """Make positions durable: of all partitions as handed out so far, or the given ones (the next
        offset to read). Returns when they are. InvalidArgumentError without a group."""
        self._enter()
        group = self._need_group("commit()")
        if offsets is not None:
            points = checked_offsets(offsets)
        else:
            points = {}
            for where, state in self._assignment.states.items():
                point = self._point(state)
                if state.committed != (point.offset, point.leader_epoch):
                    points[where] = point
        if points:
            self._backend.commit_offsets(group, points)
        for where, point in points.items():
            known = self._assignment.states.get(where)
            if known is not None:
                known.committed = (point.offset, point.leader_epoch)

    @contextmanager
    def committing(self, records: Iterable[Record]) -> Iterator[None]:
        """``with consumer.committing(records):`` commits what the block worked through when it ends well: the
        positions behind these records. If it raises, nothing is committed, the positions go back to the
        first of them, so that the next poll brings them again, and the error goes on."""
        self._enter()
        self._need_group("committing()")
        self._settle()
        found = spans(records)
        with going_back(found, self._assignment.states):
            yield
            self._enter()
            if found:
                self.commit(points(found, self._assignment.states))

    def dead_letter(self, record: Record, error: BaseException, *, attempts: int = 1) -> RecordMetadata:
        """Give a record up that the program cannot work through: it goes, as it is in the log, to the topic of
        ``on_poison=DeadLetters(topic)``, durably. Its offset is the caller's to commit, after this."""
        self._enter()
        if self._letters is None:
            raise InvalidArgumentError(
                "dead_letter() on a consumer without a topic for them",
                hint="pass on_poison=DeadLetters(TOPIC)",
            )
        raw = raw_record(self._backend, record, self._settings.isolation)
        return self._letters.send(raw, error, whole(attempts, "attempts", 1))

    def _point(self, state: FetchState) -> OffsetAndMetadata:
        loan = self._loan
        return loan.point() if loan is not None and loan.state is state else state.commit_point()

    def _auto_commit(self) -> None:
        interval_s = self._settings.auto_commit_interval_s
        if interval_s is not None:
            now_s = self._clock.monotonic_s()
            if now_s >= self._next_commit_s:
                self._next_commit_s = now_s + interval_s
                self.commit()

    def committed(self, topic: str, partition: int) -> OffsetAndMetadata | None:
        """The group's committed position as it stands now; None if there is none."""
        self._enter()
        committed = self._backend.committed_offsets(self._need_group("committed()"))
        return committed.get(partition_place((topic, partition)))

    def _need_group(self, call: str) -> str:
        if self._group is None:
            raise InvalidArgumentError(f"{call} on a consumer without a group", hint="pass group=NAME")
        return self._group

    # --- positions ---

    def assignment(self) -> list[TopicPartition]:
        self._enter()
        return list(self._assignment.states)

    def position(self, topic: str, partition: int) -> int:
        """The next offset to be handed out."""
        self._enter()
        return self._point(self._state(topic, partition)).offset

    def seek(self, topic: str, partition: int, offset: int | Literal["earliest", "latest"]) -> None:
        """Go on from ``offset``. Nothing is checked until the next fetch."""
        self._enter()
        self._settle()
        state = self._state(topic, partition)
        if isinstance(offset, str) and offset in ("earliest", "latest"):
            found = self._assignment.listed([state.where], offset)
            state.seek(found[state.where].offset or 0)
        elif is_offset(offset):
            state.seek(int(offset))
        else:
            raise InvalidArgumentError(
                f"seek to {shown(offset)}",
                hint='an offset is a whole number from 0 on, "earliest" or "latest"',
            )

    def seek_to_timestamp(
        self, timestamp: int | datetime, partitions: Collection[tuple[str, int]] | None = None
    ) -> None:
        """Go on from the first record at least that new (ms since 1970 or a datetime with a time zone), or
        from the end where there is none; all partitions unless some are named."""
        self._enter()
        self._settle()
        states = self._states(partitions)
        found = self._assignment.offsets_at([state.where for state in states], timestamp_ms(timestamp))
        for state in states:
            state.seek(found[state.where])

    def pause(self, partitions: Collection[tuple[str, int]] | None = None) -> None:
        """Hand out nothing of these (all) until ``resume``; what was fetched is kept."""
        self._enter()
        self._settle()
        for state in self._states(partitions):
            state.paused = True

    def resume(self, partitions: Collection[tuple[str, int]] | None = None) -> None:
        self._enter()
        self._settle()
        for state in self._states(partitions):
            state.paused = False
            self._fetcher.offer(state)

    def lag(self) -> dict[TopicPartition, int]:
        """Offsets from the position to the end, of each partition."""
        self._enter()
        states = self._assignment.states
        ends = self._assignment.end_offsets(states)
        return {where: max(0, ends[where] - self._point(state).offset) for where, state in states.items()}

    def beginning_offsets(
        self, partitions: Collection[tuple[str, int]] | None = None
    ) -> dict[TopicPartition, int]:
        """The first offset of these partitions (all that are assigned)."""
        self._enter()
        return self._assignment.beginning_offsets(self._named(partitions))

    def end_offsets(self, partitions: Collection[tuple[str, int]] | None = None) -> dict[TopicPartition, int]:
        """The offset after the last that this consumer may see: high watermarks, or last stable offsets."""
        self._enter()
        return self._assignment.end_offsets(self._named(partitions))

    def offsets_for_times(
        self, timestamp: int | datetime, partitions: Collection[tuple[str, int]] | None = None
    ) -> dict[TopicPartition, ListedOffset]:
        """The first record at least that new; its offset is None where there is none."""
        self._enter()
        return self._assignment.listed(self._named(partitions), timestamp_ms(timestamp))

    def _named(self, partitions: Collection[tuple[str, int]] | None) -> list[TopicPartition]:
        if partitions is None:
            return list(self._assignment.states)
        return partition_places(partitions)

    def _state(self, topic: str, partition: int) -> FetchState:
        state = self._assignment.states.get(partition_place((topic, partition)))
        if state is None:
            raise InvalidArgumentError(
                f"this consumer does not read {topic}-{partition}",
                hint=f"it reads {', '.join(f'{t}-{p}' for t, p in list(self._assignment.states)[:5])}",
            )
        return state

    def _states(self, partitions: Collection[tuple[str, int]] | None) -> list[FetchState]:
        return [self._state(*where) for where in self._named(partitions)]

    # --- the rest ---

    def wakeup(self) -> None:
        """End a waiting ``poll`` (or the next one) with WakeupError. May be called from any thread."""
        self._fetcher.wakeup.trigger()

    def metrics(self) -> dict[str, int]:
        """Totals since the consumer was made."""
        return {
            "records_consumed_total": self._handed_out,
            "bytes_fetched_total": self._fetcher.fetched_bytes,
            "fetches_total": self._fetcher.fetches,
            "records_poisoned_total": self._decoder.poisoned,
        }

    def close(self) -> None:
        """Commit if commits are automatic, and leave the group. Safe to call again."""
        if self._closed or os.getpid() != self._pid:
            return  # in a forked child the group is the parent's to leave
        self._enter()
        self._settle()
        try:
            if self._settings.auto_commit_interval_s is not None:
                self.commit()
            if self._on_revoked is not None and self._assignment.states:
                self._on_revoked(list(self._assignment.states))
        finally:
            self._closed = True
            if self._dropped is not None:
                self._dropped.detach()
            self._release_group()
            if self._letters is not None:
                self._letters.close()

    def close_with_store(self) -> None:
        """The store that lent this consumer closes, perhaps in another thread than the consumer's own: then
        its waiting poll ends, its next call gets ClientClosedError, and the group is free at once. What it
        has not committed will be read again."""
        try:
            self.close()
        except ConsumerThreadError:
            self._closed = True
            if self._dropped is not None:
                self._dropped.detach()
            self.wakeup()
            self._release_group()

    def _release_group(self) -> None:
        hold, self._hold = self._hold, None
        if hold is not None:
            hold.release()

    def __enter__(self) -> Consumer[K, V]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _settle(self) -> None:
        """Take back what a `for` loop was lent and has not come to."""
        loan = self._loan
        if loan is not None:
            self._loan = None
            self._handed_out += loan.settle()

    def _enter(self) -> None:
        """ClientClosedError, ForkedStoreError, ConsumerThreadError."""
        if self._closed:
            raise ClientClosedError("this consumer is closed", hint="make another one: store.consumer()")
        if os.getpid() != self._pid:
            raise ForkedStoreError("this consumer was made before os.fork(), in the parent process")
        if threading.get_ident() != self._owner_ident:
            current = threading.current_thread()
            if self._owner is not None and self._owner.is_alive():
                raise ConsumerThreadError(
                    f"a consumer of thread {self._owner.name!r} was used by thread {current.name!r}"
                )
            self._owner = current
            self._owner_ident = threading.get_ident()


def _report_dropped(group: str) -> None:
    report = f"a consumer of group {group!r} was dropped without close(): the group stays taken"
    logger.warning(report)
    warnings.warn(report, ResourceWarning, stacklevel=2)
