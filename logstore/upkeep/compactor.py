"""Compaction by hand: every partition that holds dirt, at full speed, on the caller's thread."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import replace
from typing import Final, TypeAlias, TypeVar

from logstore.directory.partition_folder import folder_is_mine
from logstore.errors import (
    ClientClosedError,
    InvalidArgumentError,
    LogStoreError,
    TopicLockedError,
    UnknownPartitionError,
)
from logstore.log.cleaning.cleanable import Cleanable
from logstore.log.cleaning.cleaning import CleanResult
from logstore.log.owned_log import OwnedLog
from logstore.partition.cleaned_topic import CleanedTopic
from logstore.types import CleaningProgress, CompactedPartition, OpenTransaction, TopicPartition
from logstore.upkeep.cleaning_facts import CleaningFacts
from logstore.upkeep.cleaning_run import CleaningKit, CleaningRun

_MOST_ENDED_EARLY: Final = 20  # one after the other, in an internal topic that others write meanwhile
SLICE_S: Final = 0.05  # how often progress is told, and a closing store noticed


Result = TypeVar("Result")
Steps: TypeAlias = Generator[tuple[TopicPartition, CleaningProgress], None, Result]
"""Work in slices, each of which tells how far it came; returns the result."""


class _EndedEarlyError(Exception):
    """The log of an internal topic is another one now: another process rolled or recovered it."""


class Compactor:
    """Any thread; one call at a time for a topic."""

    def __init__(self, kit: CleaningKit) -> None:
        self._kit = kit

    def compact(
        self,
        topic: CleanedTopic,
        partitions: Sequence[int],
        *,
        roll: bool = False,
    ) -> Steps[list[CompactedPartition]]:
        """Clean what is dirty, whatever its ratio, in steps that tell their progress; wait for no quarantine.
        ``roll``: close the active segment first, so that all that is stable is cleaned. The rows name no
        transactional ids.

        Errors: ``TopicLockedError`` with the holder; ``InvalidArgumentError`` if the topic does not compact;
        those of a cleaning (``CorruptBatchError``, ``DiskFullError``, ``StorageError``), the partition is then
        as before; ``ClientClosedError`` if the topic was deleted or given up meanwhile; ``TopicLockedError`` too
        if other processes rolled an internal topic's log again and again meanwhile.
        """
        if not topic.config.cleanup_policy.compact:
            raise InvalidArgumentError(
                f"topic {topic.name!r} does not compact",
                hint="set cleanup.policy=compact, or compact,delete",
            )
        for partition in partitions:
            if not 0 <= partition < topic.entry.partitions:
                raise UnknownPartitionError(
                    f"topic {topic.name!r} has partitions 0 to {topic.entry.partitions - 1}, not {partition}"
                )
        return self._compact(topic, partitions, roll)

    def _compact(
        self, topic: CleanedTopic, partitions: Sequence[int], roll: bool
    ) -> Steps[list[CompactedPartition]]:
        done = []
        with topic.using(), self._kit.reserved(topic):
            self._kit.look_at_clock()
            for partition in partitions:
                row = yield from self._one(topic, partition, roll)
                done.append(row)
        return done

    def _one(self, topic: CleanedTopic, partition: int, roll: bool) -> Steps[CompactedPartition]:
        context = self._kit.context
        directory = context.partition_directory(topic.name, partition)
        if topic.owned_log(partition) is None and not folder_is_mine(
            context.fs, directory, topic.entry.topic_id
        ):
            return CompactedPartition(partition=partition, cleaned_to=0)  # nothing was ever appended
        log = topic.log(partition)
        context.commit([(log, log.log_end_offset)])  # what is not durable may not be cleaned
        if roll:
            log.roll_idle()
        done = CompactedPartition(partition=partition, cleaned_to=log.cleaner_point)
        ended_early = 0
        while True:
            log = topic.log(partition)  # of an internal topic: another one, if other processes rolled it
            found = self._look(topic, partition, log.cleaner_point)
            # Where nothing is dirty, one round all the same: tombstones may have come of age.
            if found.end_offset <= found.start_offset and (done.segments_before or not found.clean_bytes):
                break
            run = self.begin(topic, partition, (found.start_offset, found.end_offset))
            try:
                result = yield from self.drive(run)
            except _EndedEarlyError:
                ended_early += 1
                if ended_early < _MOST_ENDED_EARLY:
                    continue
                raise TopicLockedError(
                    f"compacting {run.where}: other processes rolled its log {ended_early} times meanwhile, and "
                    "each time it had to begin anew",
                    hint="try again when less is written; what was cleaned stays so",
                ) from None
            done = joined(done, result)
            if result.cleaned_to >= found.end_offset:
                break  # else the key map was full: the rest is the next round's
        return replace(done, held_by=_held_by(topic.log(partition)))

    def _look(self, topic: CleanedTopic, partition: int, point: int) -> Cleanable:
        at = (self._kit.believed_ms(), self._kit.context.clock.monotonic_s())
        facts = CleaningFacts(self._kit.context.fs, self._kit.ledger)
        return facts.decide(topic, partition, point, at=at, by_time=True)

    def begin(
        self,
        topic: CleanedTopic,
        partition: int,
        offsets: tuple[int, int],
        erase: frozenset[bytes] | None = None,
    ) -> CleaningRun:
        """Start on a partition. The caller is inside the topic, and has reserved it."""
        self._kit.ledger.forgive((topic.entry.topic_id, partition))
        while True:
            run = self._kit.start(topic, partition, offsets, by_hand=True, erase=erase)
            if run is not None:
                return run
            self._kit.context.check_usable()
            topic.end_cleaning()  # one of the background that was just about to see that it is not wanted

    def drive(self, run: CleaningRun) -> Steps[CleanResult]:
        """To its end, at full speed. Errors: those of a cleaning; StoreClosedError, ClientClosedError."""
        place = TopicPartition(run.topic.name, run.partition)
        clock = self._kit.context.clock
        try:
            while True:
                self._kit.context.check_usable()
                result = run.slice(SLICE_S)
                yield place, run.progress
                if result is not None:
                    return result
                run.topic.breathe()
                if run.ended and run.topic.shared:
                    raise _EndedEarlyError
                if run.ended:
                    raise ClientClosedError(
                        f"cleaning {run.where} was ended early: the topic was deleted or given up",
                        hint="start it again if the topic is still there",
                    )
        except LogStoreError as error:
            if run.ended and not isinstance(error, ClientClosedError):
                self._kit.ledger.failed(run.place, error, clock.monotonic_s())
            raise
        finally:
            run.end_early()  # after an error, or where the caller does not go on


def _held_by(log: OwnedLog) -> OpenTransaction | None:
    """The oldest open transaction, if closed segments at its offset or behind it had to be left alone for it."""
    stable = log.bounds().last_stable_offset
    open_ones = log.producers.states.open_transactions()
    if not open_ones or not any(one.closed and one.next_offset > stable for one in log.segments.segments):
        return None
    producer_id, first = min(open_ones.items(), key=lambda item: item[1])
    return OpenTransaction(first, producer_id)


def joined(done: CompactedPartition, result: CleanResult) -> CompactedPartition:
    """Of all rounds together. Each goes through what the one before left and some segments more, so what it found
    beyond that is what the earlier rounds had not counted. Retention may have come between: never less than 0."""
    return CompactedPartition(
        partition=done.partition,
        cleaned_to=result.cleaned_to,
        bytes_before=done.bytes_before + max(result.bytes_before - done.bytes_after, 0),
        bytes_after=result.bytes_after,
        records_before=done.records_before + max(result.records_before - done.records_after, 0),
        records_after=result.records_after,
        segments_before=done.segments_before + max(result.segments_before - done.segments_after, 0),
        segments_after=result.segments_after,
        rounds=done.rounds + 1,
        tombstones=result.tombstones,
        removed_tombstones=done.removed_tombstones + result.removed_tombstones,
    )
