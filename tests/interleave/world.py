"""One machine with two processes on it, the facts that its actions were promised, and the checks of them."""

from __future__ import annotations

import copy
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from logstore.errors import LogStoreError
from logstore.ownership.live import LiveSlot, MemoryLive
from logstore.ownership.locks import LockTable, MemoryLocks
from logstore.seams.clock import ManualClock
from logstore.seams.memory_crash import KeepAll, KeepNothing
from logstore.seams.memory_fs import MemoryFileSystem
from logstore.store import LogStore
from logstore.types import TopicPartition
from tests.interleave.gate import Gate, GatedFileSystem

ROOT: Final = "/store"
PLAIN, SPREAD, COMPACTED, DOOMED = "plain", "spread", "compacted", "doomed"
PLACES: Final = [TopicPartition(PLAIN, 0), TopicPartition(SPREAD, 0), TopicPartition(SPREAD, 1)]
LOCK_TIMEOUT_S: Final = 0.05


class BrokenError(AssertionError):
    """A promise was not kept."""


class Written(NamedTuple):
    place: TopicPartition
    offset: int
    value: bytes


@dataclass(slots=True)
class Facts:
    """What was promised so far. ``begun``: values by transaction, before its commit was asked for; ``committed``:
    transactions whose commit returned; ``aborted``: those that were aborted or failed before the commit;
    ``trimmed``: log starts that were asked for; ``offsets``: by group, the last offset whose commit returned;
    ``latest``: the value that each compacted key had when its append returned; ``remade``: offsets that groups
    committed in a new topic of the deleted one's name; ``partitions``, ``settings``: what a topic was changed to;
    ``copies``: directories of backups that returned, and what was promised when they began."""

    acked: list[Written] = field(default_factory=list)
    seen: list[Written] = field(default_factory=list)
    begun: dict[str, set[bytes]] = field(default_factory=dict)
    committed: set[str] = field(default_factory=set)
    aborted: set[str] = field(default_factory=set)
    trimmed: dict[TopicPartition, int] = field(default_factory=dict)
    offsets: dict[str, int] = field(default_factory=dict)
    latest: dict[bytes, int] = field(default_factory=dict)
    made: set[str] = field(default_factory=set)
    doomed: bool = False  # its deletion was asked for
    deleted: bool = False  # and has returned
    remade: dict[str, int] = field(default_factory=dict)
    partitions: dict[str, int] = field(default_factory=dict)
    settings: dict[tuple[str, str], str] = field(default_factory=dict)
    copies: list[tuple[str, Facts]] = field(default_factory=list)

    def now(self) -> Facts:
        """What is promised so far."""
        return copy.deepcopy(self)


class World:
    """``one`` and ``two`` are stores of two processes on the gated disk."""

    def __init__(self) -> None:
        self.gate = Gate()
        self.disk = MemoryFileSystem()
        self.fs = GatedFileSystem(self.disk, self.gate)
        self.clock = ManualClock(
            time.time_ns() // 1_000_000
        )  # producers stamp their records with the system's
        self.facts = Facts()
        self._table = LockTable()
        self._live: dict[int, LiveSlot] = {}
        self._pause = threading.Event()
        self.one = self.process()
        self.two = self.process()

    def process(self) -> LogStore:
        return LogStore(
            ROOT,
            fs=self.fs,
            clock=self.clock,
            locks=MemoryLocks(self._table, clock=self.clock, sleep=self._sleep),
            live=MemoryLive(self._live),
            threads=False,
            lock_timeout_s=LOCK_TIMEOUT_S,
        )

    def _sleep(self, seconds: float) -> None:
        self._pause.wait(0.0005)  # another thread's turn
        self.clock.advance(max(round(seconds * 1000), 1))

    def close(self) -> None:
        self.one.abandon()
        self.two.abandon()

    # --- checks -------------------------------------------------------------------------------------

    def check_images(self) -> None:
        """A power loss right now, with nothing and with all of the unsynced kept, and a kill of both processes:
        each promise holds, in the store and in its copies."""
        for choose in (KeepNothing(), KeepAll()):
            image = self.disk.clone().crash(choose)
            self._check_image(image, ROOT, self.facts, "boot-1")
            for path, facts in self.facts.copies:
                now = replace(
                    facts, trimmed=self.facts.trimmed
                )  # what was removed while it ran is not in the copy
                self._check_image(image, path, now, "boot-1")
        killed = self.disk.clone().process_crash()
        self._check_image(killed, ROOT, self.facts, self.clock.boot_id(), MemoryLive(dict(self._live)))

    def _check_image(
        self, image: MemoryFileSystem, root: str, facts: Facts, boot_id: str, live: MemoryLive | None = None
    ) -> None:
        clock = ManualClock(self.clock.wall_ms(), boot_id)
        store = LogStore(root, fs=image, clock=clock, live=live, threads=False, lock_timeout_s=LOCK_TIMEOUT_S)
        try:
            for _ in range(3):  # past every timeout of a transaction
                store.step()
                clock.advance(70_000)
            _end_prepared(store)
            shown = {place: read(store, place) for place in PLACES}
            _check_writes(shown, facts, facts.acked, "acked")
            _check_writes(shown, facts, facts.seen, "seen by a reader")
            _check_transactions(shown, facts if root == ROOT else self.facts, facts.committed, facts.trimmed)
            _check_compacted(store, facts)
            for group, offset in facts.offsets.items():
                found = store.committed_offsets(group).get(TopicPartition(PLAIN, 0))
                require(
                    found is not None and found.offset >= offset, f"{group} is at {found}, not at {offset}"
                )
            require(facts.made <= set(store.list_topics()), f"a created topic is gone: {store.list_topics()}")
            _check_topics(store, facts, image, root)
            for place in PLACES:
                after = store.partition(*place).append([(None, b"after")])
                require(after.offset >= max(shown[place], default=-1), f"{place}: offsets went back")
        finally:
            store.abandon()


def _end_prepared(store: LogStore) -> None:
    """As whoever opens a coordinator's id next: what it has decided is finished, what not is aborted."""
    prepared = [one for one in store.admin.list_transactions() if one.state == "PREPARED"]
    for name in sorted({one.coordinator for one in prepared if one.coordinator is not None}):
        store.backend.init_transactions(name, 60_000).release()


def _check_writes(
    shown: dict[TopicPartition, dict[int, bytes]], facts: Facts, wanted: list[Written], what: str
) -> None:
    for place, offset, value in list(wanted):
        if offset < facts.trimmed.get(place, 0):
            continue
        found = shown[place].get(offset)
        require(found == value, f"{place}: {value!r} was {what} at {offset}; found {found!r}")
    for place, records in shown.items():
        twice = [value for value, times in Counter(records.values()).items() if times > 1]
        require(not twice, f"{place}: twice in the log: {twice}")


def _check_transactions(
    shown: dict[TopicPartition, dict[int, bytes]],
    facts: Facts,
    committed: set[str],
    trimmed: dict[TopicPartition, int],
) -> None:
    """``facts`` say what was begun, ``committed`` what has to be there: in a copy less than in its store."""
    there = {value for records in shown.values() for value in records.values()}
    for name, values in list(facts.begun.items()):
        found = values & there
        if name in facts.aborted:
            require(not found, f"transaction {name} was aborted, and shows {found}")
        elif name in committed:
            kept = values if not trimmed else found
            require(
                found == kept and bool(found),
                f"transaction {name} is committed, and shows {found} of {values}",
            )
        elif not facts.trimmed:
            require(found in (set(), values), f"transaction {name} shows a part: {found} of {values}")


def _check_compacted(store: LogStore, facts: Facts) -> None:
    log = store.partition(COMPACTED, 0)
    values: dict[bytes, int] = {}
    for record in log.records(log.log_start_offset):
        if record.key is not None and record.value is not None:
            values[record.key] = int(record.value)
    for key, value in list(facts.latest.items()):
        require(
            values.get(key, -1) >= value,
            f"{key!r} was {value} when it was acked; found {values.get(key)}",
        )


def _check_topics(store: LogStore, facts: Facts, image: MemoryFileSystem, root: str) -> None:
    """Topics that were made, changed and deleted, and the offsets in one that has a deleted one's name."""
    topics = store.list_topics()
    if facts.deleted and not facts.remade:
        require(DOOMED not in topics, "a deleted topic is back")
        require(not store.committed_offsets("doomed"), "offsets of a deleted topic are alive")
    if DOOMED not in topics:
        left = [name for name in image.listdir(root) if name.startswith(f"{DOOMED}-")]
        require(not left, f"of a deleted topic there are still {left}")
    for group, offset in facts.remade.items():
        require(not store.committed_offsets("doomed"), "a new topic has the offsets of the deleted one")
        found = store.committed_offsets(group).get(TopicPartition(DOOMED, 0))
        require(found is not None and found.offset == offset, f"{group} is at {found}, not at {offset}")
        values = [record.value for record in store.partition(DOOMED, 0).records(0)]
        require(values == [group.encode()], f"a new topic holds {values}")
    for name, count in facts.partitions.items():
        there = store.admin.describe_topic(name).partitions
        require(len(there) >= count, f"{name} has {len(there)} partitions, not {count}")
    for (name, key), value in facts.settings.items():
        said = store.admin.describe_topic(name).config.get(key)
        require(said == value, f"{key} of {name} is {said}, not {value}")


def read(store: LogStore, place: TopicPartition) -> dict[int, bytes]:
    """What ``read_committed`` shows of a partition, forwards, and the same backwards."""
    log = store.partition(*place)
    start, end = log.log_start_offset, log.last_stable_offset
    forwards = {record.offset: record.value or b"" for record in log.records(start, end)}
    backwards = {record.offset: record.value or b"" for record in log.records(start, end, reverse=True)}
    require(forwards == backwards, f"{place}: backwards {backwards}, forwards {forwards}")
    return forwards


def require(holds: bool, what: str) -> None:
    if not holds:
        raise BrokenError(what)


class Actor:
    """A thread that carries out one action; its error is kept."""

    def __init__(self, action: Callable[[], None]) -> None:
        self.error: BaseException | None = None
        self._action = action
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._action()
        except LogStoreError as error:
            self.error = error
        except BaseException as error:  # noqa: BLE001 - told by the test's thread
            self.error = error

    def done(self, timeout_s: float) -> bool:
        self._thread.join(timeout_s)
        return not self._thread.is_alive()
