"""Batches of producers into the logs of this store: topics taken in turn, appends, one commit for all of a call."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from itertools import groupby
from typing import Final, TypeAlias

from logstore.api.records import ProduceItem, ProduceResult
from logstore.arguments import whole
from logstore.errors import LogStoreError, TopicLockedError
from logstore.log.append_validation import CheckedBatch, split_checked
from logstore.partition.context import StoreContext
from logstore.partition.fan_out import MANY, fan_out
from logstore.partition.local_append import LocalAppend
from logstore.partition.local_partition import LocalPartition
from logstore.partition.partition import Partition, PendingAppend, SendsOn, wait_all
from logstore.partition.partition_log import check_acks
from logstore.partition.together import append_together
from logstore.partition.topic_registry import TopicRegistry
from logstore.types import Acks

Results: TypeAlias = list[ProduceResult]
_Failed: TypeAlias = dict[tuple[str, int], LogStoreError]  # by topic and partition
_Pending: TypeAlias = list[tuple[int, PendingAppend]]  # with the numbers of their items
_SHORT_WAIT_S: Final = 1.0  # more than a topic takes to be passed on


class Appends:
    """Thread-safe. ``partition``: one that a batch is for, by topic and number."""

    def __init__(
        self, context: StoreContext, registry: TopicRegistry, partition: Callable[[str, int], Partition]
    ) -> None:
        self._context = context
        self._registry = registry
        self._partition = partition

    def produce(
        self,
        items: Sequence[ProduceItem],
        acks: Acks,
        timeout_s: float,
    ) -> Results:
        """``timeout_s`` bounds the wait for topics that other processes hold (so does ``lock_timeout_s``); the disk
        takes its time. With batches of several topics no topic is held while another is waited for, and what can
        be written at once is; the wait for each of the rest is short, as the caller tries again."""
        check_acks(acks)
        self._context.check_writable()
        until_s = self._context.clock.monotonic_s() + min(timeout_s, self._context.lock_timeout_s)
        if len(items) == 1:
            return [self._produce_one(items[0], acks, until_s)]
        if all(item.topic == items[0].topic for item in items):
            return self._produce(items, acks, until_s)
        results = self._produce(items, acks, 0.0)
        locked: dict[str, list[int]] = {}
        for number, result in enumerate(results):
            if isinstance(result.error, TopicLockedError):
                locked.setdefault(items[number].topic, []).append(number)
        for numbers in locked.values():
            once_s = min(until_s, self._context.clock.monotonic_s() + _SHORT_WAIT_S)
            again = self._produce([items[number] for number in numbers], acks, once_s)
            for number, result in zip(numbers, again, strict=True):
                results[number] = result
        return results

    def start(
        self, items: Sequence[ProduceItem], acks: Acks, timeout_s: float, tell: Callable[[Results], None]
    ) -> None:
        """Write the batches, and have ``tell`` called with the results when all are decided: at once, or later by the
        thread that decides the last one. Nothing is told after an error. For owners of all topics: a topic that
        another process holds is waited for while others are held."""
        check_acks(acks)
        self._context.check_writable()
        until_s = self._context.clock.monotonic_s() + min(timeout_s, self._context.lock_timeout_s)
        if len(items) >= self._most() and not self._are_sent_on(items):
            tell(self._produce(items, acks, until_s))
            return
        results, pending = self._write_all(items, acks, until_s, {})
        countdown = _Countdown(results, pending, acks, tell)
        for _, append in pending:
            append.then(countdown.decided)
        countdown.decided(None)

    def _are_sent_on(self, items: Sequence[ProduceItem]) -> bool:
        """Whether the batches go on to other nodes, which all partitions of a store do or none does. A wait here would
        keep the requests behind this one from those nodes."""
        with suppress(LogStoreError):  # the append meets the same, and its result tells
            return isinstance(self._partition(*items[0][:2]), SendsOn)
        return False

    def _most(self) -> int:
        """Batches that may be under way at once: an unsynced partition keeps a file open."""
        return min(MANY, max(self._context.pool.capacity // 2, 1))

    def _produce_one(self, item: ProduceItem, acks: Acks, until_s: float) -> ProduceResult:
        """``_produce`` for a producer whose caller waits for each record: without lists of one."""
        try:
            append = self._append(item, acks, until_s)
        except LogStoreError as error:
            return ProduceResult(-1, -1, error)
        if not append.done:
            append.wait_with((append,))
        if append.error is not None:
            return ProduceResult(-1, -1, append.error)
        return ProduceResult(-1 if acks == 0 else append.base_offset, append.append_time_ms)

    def _produce(self, items: Sequence[ProduceItem], acks: Acks, until_s: float) -> Results:
        """``until_s``: how long topics may be waited for. An unsynced partition keeps a file open: hence chunks."""
        failed: _Failed = {}  # what is behind a failed batch is not tried
        if len(items) < self._most():
            return self._append_all(items, acks, until_s, failed)
        most = max(self._context.pool.capacity // 2, 1)
        results: Results = []
        for start in range(0, len(items), most):
            chunk = items[start : start + most]
            self._open_ahead(chunk, until_s)
            results += self._append_all(chunk, acks, until_s, failed)
        return results

    def _open_ahead(self, items: Sequence[ProduceItem], until_s: float) -> None:
        """Partitions written for the first time are made side by side: their syncs share journal commits."""
        wanted: dict[str, dict[int, None]] = {}
        for topic, partition in dict.fromkeys(item[:2] for item in items):
            if not self._is_open(topic, partition):
                wanted.setdefault(topic, {})[partition] = None
        if sum(map(len, wanted.values())) < MANY:
            return

        def open_all(name: str) -> None:
            topic = self._registry.get(name)
            topic.enter(until_s)
            try:
                topic.open_many(wanted[name])
            finally:
                topic.leave()

        try:
            fan_out(open_all, list(wanted), self._context.recovery_threads)
        except LogStoreError:
            return  # the append that comes next meets the same, and its result tells

    def _is_open(self, topic: str, partition: int) -> bool:
        try:
            return self._registry.get(topic).owned_log(partition) is not None
        except LogStoreError:
            return True  # ... as will the append

    def _append_all(
        self, items: Sequence[ProduceItem], acks: Acks, until_s: float, failed: _Failed
    ) -> Results:
        results, pending = self._write_all(items, acks, until_s, failed)
        wait_all([append for _, append in pending])
        return _settled(results, pending, acks)

    def _write_all(
        self, items: Sequence[ProduceItem], acks: Acks, until_s: float, failed: _Failed
    ) -> tuple[Results, _Pending]:
        """What can be said at once, and the appends that are to be decided, with the numbers of their items."""
        ahead = append_together(items, self._partition, acks, failed) if len(items) > 1 else None
        if ahead is None:
            return self._write_in_turn(items, acks, until_s, failed)
        found, pending = ahead
        left = [number for number, result in enumerate(found) if result is None]
        if left:
            try:
                late, more = self._write_in_turn([items[number] for number in left], acks, until_s, failed)
            except BaseException:
                wait_all([append for _, append in pending])
                raise
            for number, result in zip(left, late, strict=True):
                found[number] = result
            pending += [(left[number], append) for number, append in more]
        return [result for result in found if result is not None], pending

    def _write_in_turn(
        self, items: Sequence[ProduceItem], acks: Acks, until_s: float, failed: _Failed
    ) -> tuple[Results, _Pending]:
        """``_write_all``, one partition after the other."""
        results: Results = []
        pending: _Pending = []
        try:
            for _, group in groupby(items, _place_of):
                run = list(group)
                if len(run) > 1 and self._write_run(run, acks, until_s, failed, results, pending):
                    continue
                with self._together(run):
                    for item in run:
                        self._write(item, acks, until_s, failed, results, pending)
        except BaseException:
            wait_all([append for _, append in pending])
            raise
        return results, pending

    def _write_run(
        self,
        run: Sequence[ProduceItem],
        acks: Acks,
        until_s: float,
        failed: _Failed,
        results: Results,
        pending: _Pending,
    ) -> bool:
        """Write batches of one partition of this directory that were encoded in this process. False: there is more to
        be asked of them, so they go one by one."""
        place = run[0][:2]
        batches = [
            CheckedBatch(memoryview(item.batch), item.header)
            for item in run
            if item.header is not None and item.expected_offset is None
        ]
        held: Partition | None = None
        if len(batches) == len(run) and place not in failed:
            with suppress(LogStoreError):  # the append meets the same, and its result tells
                held = self._partition(*place)
        if not isinstance(held, LocalPartition):
            return False
        made: list[LocalAppend] = []
        try:
            held.append_each(batches, acks, until_s, made)
        except LogStoreError as error:
            failed[place] = error
        finally:
            for append in made:
                pending.append((len(results), append))
                results.append(ProduceResult(append.base_offset, append.append_time_ms))
        if len(made) < len(run):
            results += [ProduceResult(-1, -1, failed[place])] * (len(run) - len(made))
        return True

    def _together(self, run: Sequence[ProduceItem]) -> AbstractContextManager[None]:
        """Around the batches of one partition that follow each other."""
        if len(run) > 1:
            with suppress(LogStoreError):  # the append meets the same, and its result tells
                held = self._registry.get(run[0].topic).partition(run[0].partition)
                if isinstance(held, SendsOn):
                    return held.together()
        return nullcontext()

    def _write(
        self,
        item: ProduceItem,
        acks: Acks,
        until_s: float,
        failed: _Failed,
        results: Results,
        pending: _Pending,
    ) -> None:
        held_up = failed.get(item[:2])
        if held_up is None:
            try:
                append = self._append(item, acks, until_s)
            except LogStoreError as error:
                held_up = failed[item[:2]] = error
            else:
                pending.append((len(results), append))
                results.append(ProduceResult(append.base_offset, append.append_time_ms))
                return
        results.append(ProduceResult(-1, -1, held_up))

    def _append(self, item: ProduceItem, acks: Acks, until_s: float) -> PendingAppend:
        """One batch into its partition."""
        held = self._partition(item.topic, item.partition)
        header, expected = item.header, item.expected_offset
        if expected is not None:
            expected = whole(expected, "expected_offset")
        if header is None:
            batches = split_checked(item.batch, held.where)
        else:
            batches = [CheckedBatch(memoryview(item.batch), header)]
        return held.append(batches, acks, expected_offset=expected, until_s=until_s)


def _place_of(item: ProduceItem) -> tuple[str, int]:
    return item[:2]


class _Countdown:
    """Tells the results of one call when the last of its appends is decided."""

    def __init__(
        self, results: Results, pending: _Pending, acks: Acks, tell: Callable[[Results], None]
    ) -> None:
        self._results = results
        self._pending = pending
        self._acks = acks
        self._tell = tell
        self._lock = threading.Lock()
        self._left = len(pending) + 1  # the call itself: nothing is told before all have been asked

    def decided(self, error: LogStoreError | None) -> None:
        """One of them is; its own ``error`` is asked at the end."""
        del error
        with self._lock:
            self._left -= 1
            last = self._left == 0
        if last:
            self._tell(_settled(self._results, self._pending, self._acks))


def _settled(results: Results, pending: _Pending, acks: Acks) -> Results:
    """The results of a call whose appends are all decided."""
    for number, append in pending:
        if append.error is not None:
            results[number] = ProduceResult(-1, -1, append.error)
    if acks == 0:
        return [result._replace(base_offset=-1) for result in results]
    return results
