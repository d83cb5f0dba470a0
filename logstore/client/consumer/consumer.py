"""``Consumer``: positions, fetches and commits, over any ``Backend``."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Generic

from logstore.api.backend import Backend
from logstore.api.groups import Assignor, checked_offsets, validate_group
from logstore.arguments import function_or_none, partition_place, seconds, whole
from logstore.client.consumer.assignment import Assignment
from logstore.client.consumer.assignment_changes import Following, Hooks
from logstore.client.consumer.committing import going_back, points, spans
from logstore.client.consumer.consumed_offsets import GroupMetadata, TransactionOffsets
from logstore.client.consumer.dead_letters import DeadLetters, LetterBox, raw_record
from logstore.client.consumer.decoder import Decoder, Loan
from logstore.client.consumer.fetch_state import FetchState
from logstore.client.consumer.fetcher import Fetcher
from logstore.client.consumer.membership import NOT_A_MEMBER, Membership
from logstore.client.consumer.offset_commits import CommitCallback, OffsetCommits
from logstore.client.consumer.positions import Positions
from logstore.client.consumer.settings import (
    OnPoison,
    OnReset,
    PartitionsHook,
    Start,
    Subscription,
    Topics,
    check_ungrouped,
    settings_of,
)
from logstore.client.serializers import Deserializer
from logstore.errors import (
    ClientClosedError,
    ConsumerThreadError,
    ForkedStoreError,
    InvalidArgumentError,
    LogStoreError,
    WakeupError,
)
from logstore.seams.clock import Clock, SystemClock
from logstore.types import Isolation, K, OffsetAndMetadata, Record, RecordMetadata, TopicPartition, V

logger = logging.getLogger(__name__)

# Between two tries after an error that may pass.
_RETRY_S = 0.02
# Records lent at once to a `for record in consumer`.
_LOAN_RECORDS = 500
# Between two looks at partitions whose committed offset is in an open transaction.
_UNSETTLED_S = 0.02


class Consumer(Positions, Generic[K, V]):
    """Reads records of assigned partitions, in order per partition. Belongs to one thread: the first that
    uses it (another may take over when that has ended); only ``wakeup`` may be called from any.

    ``topics``: a name, names, a ``re.Pattern`` (must match whole names; internal topics are left out), or
    (topic, partition) pairs. ``group``: where committed offsets are kept, and whose consumers share the topics'
    partitions among them, each read by one at a time (pairs are read as they are given, by no member).
    ``start`` ("earliest", "latest", an offset, a datetime) applies where there is no committed offset and, in
    a group, the partition was there when the group began; "committed" is an error there. ``until_end``: stop
    at the ends found when partitions are picked up, in a group once no more of them are on their way here.
    ``on_reset``: what to do when the position is gone. ``on_poison``: "raise", "skip", ``DeadLetters(topic)`` or
    a callable (raw record, error) for records that a deserializer refuses. ``auto_commit_interval_ms``:
    commit what earlier polls handed out, every so often, before partitions are given up, and at close.
    ``on_assigned``, ``on_revoked`` (before they go to another member, and at close: commits still count),
    ``on_lost`` (deleted topics; all, when the group has given this member up): called with the partitions, by
    the thread that polls.

    In a group: ``instance_id`` makes a static member, whose partitions stay its own over a restart within
    ``session_timeout_ms``; a second consumer with that id takes over, and the first gets MemberFencedError.
    ``assignor``: "sticky" (even, little moves), "range" or "round_robin". A member that gives no sign of life
    (every ``heartbeat_interval_ms``, by itself) for ``session_timeout_ms``, or does not poll for
    ``max_poll_interval_ms``, has lost its partitions: its commits are refused (UnknownMemberError), its next
    poll calls ``on_lost`` and joins again. A killed process's partitions move at once.

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
        instance_id: str | None = None,
        assignor: Assignor = "sticky",
        session_timeout_ms: int = 45_000,
        heartbeat_interval_ms: int = 3_000,
        max_poll_interval_ms: int = 300_000,
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
            instance_id=instance_id,
            assignor=assignor,
            session_timeout_ms=session_timeout_ms,
            heartbeat_interval_ms=heartbeat_interval_ms,
            max_poll_interval_ms=max_poll_interval_ms,
        )
        if group is not None:
            validate_group(group)
        else:
            check_ungrouped(self._settings)
        for name, hook in (
            ("key_deserializer", key_deserializer),
            ("value_deserializer", value_deserializer),
            ("on_assigned", on_assigned),
            ("on_revoked", on_revoked),
            ("on_lost", on_lost),
        ):
            function_or_none(hook, name)
        self._backend = backend
        self._group = group
        self._clock = clock or SystemClock()
        self._letters: LetterBox | None = None
        if isinstance(on_poison, DeadLetters):
            on_poison = self._letters = LetterBox(backend, on_poison, group)
        self._decoder = Decoder(key_deserializer, value_deserializer, on_poison)
        self._hooks = Hooks(on_assigned, on_revoked, on_lost)
        self._pid = os.getpid()
        self._owner: threading.Thread | None = None
        self._owner_ident = -1
        self._closed = False
        self._loan: Loan | None = None
        self._handed_out = 0
        self._start(Subscription(topics))

    def _start(self, subscription: Subscription) -> None:
        """Join the group and pick up partitions."""
        if self._letters is not None:
            self._letters.check_source(subscription.reads)
        backend, settings, group = self._backend, self._settings, self._group
        self._assignment = Assignment(backend, subscription, settings, group)
        self._fetcher = Fetcher(backend, self._assignment, settings, self._clock)
        interval_s = settings.auto_commit_interval_s
        self._commits = OffsetCommits(backend, group, self._assignment, self._clock, interval_s)
        self._membership: Membership | None = None
        if group is not None and self._assignment.shared:
            self._membership = Membership(
                backend,
                group,
                self._assignment,
                settings,
                self._commits,
                self._hooks,
                self._fetcher.wakeup,
                self._clock,
            )
        self._following = self._membership or Following(self._assignment, self._hooks)
        self._following.start()

    # --- records out ---

    def poll(self, max_records: int = 500, timeout_s: float = 1.0) -> list[Record[K, V]]:
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
        records: list[Record[K, V]] = []
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

    def batches(self, max_records: int = 500, timeout_s: float = 1.0) -> Iterator[list[Record[K, V]]]:
        """What ``poll`` gives, again and again: an empty list when ``timeout_s`` is over with nothing new.
        Ends under until_end at the end, else never."""
        while True:
            records = self.poll(max_records, timeout_s)
            if not records and self.is_finished():
                return
            yield records

    def __iter__(self) -> Iterator[Record[K, V]]:
        """Record by record, waiting for more; ends under until_end at the end, else never.

        The record that the loop's body has in hand counts as handed out, the one after it does not, so
        ``commit`` in the body covers what the loop has seen. Breaking off loses nothing.
        """
        while (records := self.lend()) is not None:
            yield from records

    def lend(self, timeout_s: float | None = None) -> Iterator[Record[K, V]] | None:
        """The next records of one partition, for a loop: each counts as handed out once it is taken, and the next call
        takes back what was not. None: the end under until_end, or ``timeout_s`` is over. Errors as ``poll``."""
        while True:
            self._begin()
            if not self._await_records(timeout_s):
                return None
            state = self._fetcher.next_ready()
            if state is not None:
                loan = self._loan = Loan(state, self._decoder.decode(state, _LOAN_RECORDS, raising=True))
                self._fetcher.ready.rotate(-1)
                records: Iterator[Record[K, V]] = loan.records
                return records

    def take_back(self, records: Sequence[Record[K, V]]) -> None:
        """As if the last ``poll`` had not handed these out: the next one brings them again. For a caller that could not
        take them. A ``wakeup`` that came meanwhile is forgotten."""
        self._enter()
        self._settle()
        for where, span in spans(records).items():
            state = self._assignment.states.get(where)
            if state is not None:
                state.seek(span.first)
        self._handed_out -= len(records)
        self._fetcher.wakeup.take()

    def _begin(self) -> None:
        self._enter()
        self._hooks.check_outside()
        self._settle()
        if self._commits.call_back():
            self._enter()  # a callback may have closed the consumer
        self._auto_commit()

    def _await_records(self, timeout_s: float | None) -> bool:
        """Wait until there are records to hand out. False: time is up, or the end was reached."""
        clock = self._clock
        fetcher = self._fetcher
        now_s = clock.monotonic_s()
        end_s = None if timeout_s is None else now_s + timeout_s
        while True:
            self._following.follow()
            if fetcher.wakeup.take():
                raise self._awoken()
            if fetcher.next_ready() is not None:
                fetcher.refetch_others(now_s)
                return True
            if self.is_finished():
                return False
            wait_s = self._longest_wait_s()
            if end_s is not None:
                wait_s = max(0.0, min(wait_s, end_s - now_s))
            passing = fetcher.fetch(wait_s)
            now_s = clock.monotonic_s()
            if end_s is not None and now_s >= end_s and fetcher.next_ready() is None:
                if passing is not None:
                    raise passing
                if fetcher.wakeup.take():
                    raise self._awoken()
                return False
            if passing is not None:
                fetcher.nap(_RETRY_S if end_s is None else min(_RETRY_S, end_s - now_s))

    def _awoken(self) -> LogStoreError:
        """Why a poll ends: ``wakeup``, or the store was closed by another thread."""
        return _closed_error() if self._closed else WakeupError("consumer.wakeup() was called")

    def _longest_wait_s(self) -> float:
        """Of one fetch: a member shows in between that it polls, and looks at what it could not take up."""
        wait_s, membership = self._settings.fetch_max_wait_s, self._membership
        if membership is not None:
            wait_s = min(wait_s, self._settings.max_poll_interval_ms / 2000)
            wait_s = min(wait_s, _UNSETTLED_S) if membership.unsettled() else wait_s
        return wait_s

    def is_finished(self) -> bool:
        """Under until_end: everything not paused was handed out."""
        return (
            self._settings.until_end
            and all(state.at_end or state.paused for state in self._assignment.states.values())
            and (self._membership is None or self._membership.has_its_share())
        )

    # --- commits ---

    def commit(self, offsets: Mapping[TopicPartition, int | OffsetAndMetadata] | None = None) -> None:
        """Make positions durable: of all partitions as handed out so far, or the given ones (the next
        offset to read). Returns when they are. InvalidArgumentError without a group.

        UnknownMemberError, MemberFencedError, StaleGenerationError: the group has given the partitions to others;
        what is not committed is read again by them, and the next poll says so.
        """
        self._commits.commit(self._to_commit(offsets, "commit()"))

    def commit_async(
        self,
        offsets: Mapping[TopicPartition, int | OffsetAndMetadata] | None = None,
        callback: CommitCallback | None = None,
    ) -> None:
        """The same without waiting. ``callback(offsets, error)`` is called by a later poll, ``commit`` or
        ``close``, error None once they are durable; without one, failures are logged. Commits keep their order."""
        function_or_none(callback, "callback")
        self._commits.commit_async(self._to_commit(offsets, "commit_async()"), callback)

    def _to_commit(
        self, offsets: Mapping[TopicPartition, int | OffsetAndMetadata] | None, call: str
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        self._enter()
        self._need_group(call)
        return self._commits.changed(self._point) if offsets is None else checked_offsets(offsets)

    def group_metadata(self) -> GroupMetadata:
        """Who this consumer is in its group, for the offsets of a transaction. InvalidArgumentError without one."""
        self._enter()
        group, membership = self._need_group("group_metadata()"), self._membership
        identity = None if membership is None else membership.identity
        return GroupMetadata(group, None, -1) if identity is None else GroupMetadata(group, *identity)

    @property
    def consumed_offsets(self) -> TransactionOffsets:
        """For ``tx.send_offsets`` and ``rewind``: this consumer's part in a transaction."""
        return TransactionOffsets(
            self._backend,
            self._group,
            self._assignment,
            self._commits,
            self.group_metadata,
            self._point,
            self._settle,
        )

    @contextmanager
    def committing(self, records: Iterable[Record[K, V]]) -> Iterator[None]:
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

    def dead_letter(self, record: Record[K, V], error: BaseException, *, attempts: int = 1) -> RecordMetadata:
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
        if self._commits.is_due():
            try:
                self._commits.commit(self._commits.changed(self._point))
            except NOT_A_MEMBER as error:
                logger.warning("group %r: an automatic commit was refused: %s", self._group, error)

    def committed(self, topic: str, partition: int) -> OffsetAndMetadata | None:
        """The group's committed position as it stands now; None if there is none."""
        self._enter()
        committed = self._backend.committed_offsets(self._need_group("committed()"))
        return committed.get(partition_place((topic, partition)))

    def _need_group(self, call: str) -> str:
        return self._commits.need_group(call)

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
        self._hooks.check_close()
        self._settle()
        try:
            self._commit_at_close()
            places = list(self._assignment.states)
            if self._membership is not None and self._membership.is_lost:
                self._hooks.lost(places)
            else:
                self._hooks.revoked(places)
        finally:
            self._closed = True
            self._fetcher.close()
            self._commits.close()
            self._following.leave()
            if self._letters is not None:
                self._letters.close()

    def _commit_at_close(self) -> None:
        if self._settings.auto_commit_interval_s is None:
            self._commits.flush()
            return
        try:
            self._commits.commit(self._commits.changed(self._point))
        except NOT_A_MEMBER as error:
            logger.warning("group %r: the last automatic commit was refused: %s", self._group, error)

    def close_with_store(self) -> None:
        """The store that lent this consumer closes, perhaps in another thread than the consumer's own: then
        its waiting poll and its next call get ClientClosedError, and the group is free at once. What it
        has not committed will be read again."""
        try:
            if self._hooks.running:
                raise ConsumerThreadError("the consumer's thread is inside one of its hooks")
            self.close()
        except ConsumerThreadError:
            self._closed = True
            self.wakeup()
            self._following.leave()

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
            raise _closed_error()
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


def _closed_error() -> ClientClosedError:
    return ClientClosedError("this consumer is closed", hint="make another one: store.consumer()")
