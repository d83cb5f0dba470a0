"""One pass of maintenance over a whole store, on the caller's thread and within a bound.

What the housekeeper does bit by bit while a store is open is done here in one go: before a store is closed, so that
processes that live for a second each leave their topics retained and compacted; and by ``store.maintain`` (`logstore
maintain` from a timer). Topics that no process owns are taken for as long as the work takes, if their lock is free.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from typing import Final, Protocol

from logstore.directory import maintenance_note
from logstore.errors import LogStoreError, StoreClosedError, StoreNotFoundError, StoreReplacedError
from logstore.log.cleaning.cleaning import CleanResult
from logstore.partition.cleaned_topic import CleanedTopic
from logstore.partition.context import StoreContext
from logstore.partition.topic import Topic
from logstore.partition.topic_registry import TopicRegistry
from logstore.types import CompactedPartition, MaintainedTopic, MaintenanceReport
from logstore.upkeep.cleaner import Cleaner
from logstore.upkeep.cleaning_run import CleaningKit, CleaningRun
from logstore.upkeep.compactor import joined
from logstore.upkeep.retention_task import RetentionTask

logger = logging.getLogger(__name__)

# What a cleaning gets through, at the least: a larger one is not begun where it could not come to its end.
_BYTES_A_SECOND: Final = 16 << 20
_EXPIRY_EVERY_MS: Final = 600_000


class OffsetLook(Protocol):
    """Expired offsets: ``expired`` counts them; ``look_now`` looks, False if time was up first."""

    expired: int

    def look_now(self, until_s: float) -> bool: ...


class Maintenance:
    """``transactions``: ends what a process that died left open; ``before_close_s``: bound of the pass before a close.
    Any thread, one call at a time."""

    def __init__(
        self,
        context: StoreContext,
        registry: TopicRegistry,
        retention: RetentionTask,
        kit: CleaningKit,
        transactions: Callable[[], object],
        offsets: OffsetLook,
        *,
        before_close_s: float,
    ) -> None:
        self._before_close_s = before_close_s
        self._context = context
        self._registry = registry
        self._retention = retention
        self._kit = kit
        self._transactions = transactions
        self._offsets = offsets

    def before_close(self, cleaner: Cleaner) -> None:
        """What is due, for ``before_close_s`` at the most. ``cleaner``: the background's, which no thread drives any
        more: a cleaning that is under way goes on. Nothing that fails here keeps a store from being closed."""
        owned = any(topic.owned for topic in self._registry.opened())
        if self._before_close_s <= 0 or not (owned or self._registry.retains):
            return
        try:
            self._registry.look_around()
        except (StoreNotFoundError, StoreReplacedError):
            return  # the directory was removed: there is nothing to maintain
        except LogStoreError as error:
            logger.info("the catalogue of %s cannot be read before its close: %s", self._context.root, error)
        try:
            report = self._pass(self._before_close_s, None, cleaner, thorough=False)
        except LogStoreError as error:
            logger.warning("maintenance of %s before its close failed: %s", self._context.root, error)
            return
        for row in report.topics:
            if row.left:
                logger.info(
                    "topic %s: compaction is due and takes longer than a close may (%s): `logstore maintain` has time",
                    row.topic,
                    row.left,
                )

    def run(self, limit_s: float, names: Collection[str] | None) -> MaintenanceReport:
        """All that is due, of ``names`` or of all topics. ``UnknownTopicError``; what fails for one topic is said
        in its row."""
        topics = self._registry.catalogue.topics
        for name in names or ():
            self._registry.entry(name)
        chosen = [name for name in topics if names is None or name in names]
        for place in self._kit.ledger.failures():
            self._kit.ledger.forgive(place)  # what failed in the background is tried again at once
        cleaner = Cleaner(self._kit, lambda: [*self._cleaned(chosen)], check_s=0.0)
        return self._pass(limit_s, chosen, cleaner, thorough=True)

    def _pass(
        self, limit_s: float, names: Collection[str] | None, cleaner: Cleaner, *, thorough: bool
    ) -> MaintenanceReport:
        clock = self._context.clock
        started_s = clock.monotonic_s()
        until_s = started_s + limit_s
        by_time = self._retention.look_at_clock()
        rows = {row.topic: row for row in self._retained(names, until_s, by_time)}
        expired = self._offsets.expired
        if thorough or self._expiry_is_due():
            self._guarded(rows, "transactions", self._transactions)
            self._guarded(rows, "committed offsets", lambda: self._offsets.look_now(until_s))
            self._guarded(rows, "the note", self._note_expiry)

        def observe(run: CleaningRun, result: CleanResult) -> None:
            row = rows.get(run.topic.name, MaintainedTopic(topic=run.topic.name))
            done = joined(CompactedPartition(partition=run.partition, cleaned_to=0), result)
            rows[row.topic] = replace(row, compacted=(*row.compacted, done))

        largest_bytes = math.inf if thorough else max(until_s - clock.monotonic_s(), 0.0) * _BYTES_A_SECOND
        failures = self._kit.ledger.failures()
        unfinished = cleaner.drain(until_s, observe, largest_bytes=largest_bytes)
        reasons = [(name, "too large") for name in cleaner.too_large]
        reasons += [(name, "another process waits for it") for name in cleaner.passed_on]
        for name, left in [*reasons, (unfinished, "time")]:
            if name is not None:
                rows[name] = replace(rows.get(name, MaintainedTopic(topic=name)), left=left)
        self._note_failures(rows, failures)
        self._retention.sweep()
        return MaintenanceReport(
            topics=tuple(rows[name] for name in sorted(rows)),
            expired_offsets=self._offsets.expired - expired,
            by_time=by_time,
            took_s=clock.monotonic_s() - started_s,
        )

    def _expiry_is_due(self) -> bool:
        """Internal topics have to be read for it: one process does so every ten minutes."""
        context = self._context
        note = maintenance_note.load(context.fs, context.root) if self._registry.has_internal else None
        return note is not None and not 0 <= context.clock.wall_ms() - note.expired_ms < _EXPIRY_EVERY_MS

    def _note_expiry(self) -> None:
        context = self._context
        note = maintenance_note.load(context.fs, context.root)
        if note is not None:
            note = note._replace(expired_ms=context.clock.wall_ms())
            maintenance_note.save(context.fs, context.root, note)

    def _note_failures(self, rows: dict[str, MaintainedTopic], before: dict[tuple[str, int], int]) -> None:
        """Cleanings that failed in this pass, by the ledger that counts them."""
        names = {entry.topic_id: name for name, entry in self._registry.catalogue.topics.items()}
        for place, count in self._kit.ledger.failures().items():
            trouble, name = self._kit.ledger.trouble(place), names.get(place[0])
            if trouble is not None and name is not None and count > before.get(place, 0):
                rows[name] = replace(rows.get(name, MaintainedTopic(topic=name)), error=trouble.message)

    # --- retention ---

    def _retained(
        self, names: Collection[str] | None, until_s: float, by_time: bool
    ) -> Iterator[MaintainedTopic]:
        """A row for each topic that was looked at. Those of this process come first; of the others each time another
        one, so that all have their turn where time is short."""
        clock = self._context.clock
        owned = [
            topic
            for topic in self._registry.opened()
            if topic.owned and (names is None or topic.name in names)
        ]
        if names is None:
            others = [topic for topic in self._registry.looked_after() if not topic.owned]
        else:
            others = [topic for topic in self._found(names) if not topic.owned]
        turn = clock.wall_ms() // 1000 % max(len(others), 1)
        for topic in [*owned, *others[turn:], *others[:turn]]:
            if clock.monotonic_s() >= until_s:
                yield MaintainedTopic(topic=topic.name, left="time")
                continue
            yield self._retain(topic, by_time)

    def _retain(self, topic: Topic, by_time: bool) -> MaintainedTopic:
        holder = None if topic.owned else self._context.locks.holder(topic.entry.lock_slot)
        if holder is not None:
            return MaintainedTopic(topic=topic.name, owner=holder.describe())
        try:
            if topic.owned:
                retired = self._retention.pass_over(topic, by_time=by_time)
            else:
                retired = self._retention.look_after(topic, by_time=by_time)
        except StoreClosedError:
            raise
        except LogStoreError as error:
            logger.error("retention of topic %s failed: %s", topic.name, error)
            return MaintainedTopic(topic=topic.name, error=f"{type(error).__name__}: {error}")
        return MaintainedTopic(
            topic=topic.name, retired_segments=retired.segments, retired_bytes=retired.size_bytes
        )

    def _found(self, names: Collection[str]) -> list[Topic]:
        entries = self._registry.catalogue.topics
        return [self._registry.get(name) for name in names if name in entries and not entries[name].internal]

    def _cleaned(self, names: Collection[str]) -> Iterator[CleanedTopic]:
        return (topic for topic in self._registry.cleaned() if topic.name in names)

    def _guarded(self, rows: dict[str, MaintainedTopic], what: str, work: Callable[[], object]) -> None:
        try:
            work()
        except StoreClosedError:
            raise
        except LogStoreError as error:
            logger.error("maintenance of %s failed: %s", what, error)
            rows[what] = MaintainedTopic(topic=what, error=f"{type(error).__name__}: {error}")
