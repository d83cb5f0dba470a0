"""Kind (h): a comparison, a check or a wait that keeps two things apart is left out."""

from __future__ import annotations

import random
import shutil
import tempfile
import threading
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from logstore.errors import LockLostError
from logstore.format.batch import BatchHeader, encode_batch
from logstore.log.cleaning.compaction import AbortedRanges
from logstore.log.commit_policy import CommitPolicy
from logstore.log.owned_log import OwnedLog
from logstore.log.producers import producer_recovery
from logstore.log.producers.producer_state import Marker
from logstore.log.synced_log import SyncedLog
from logstore.ownership.lock_mechanism import RangeLocks
from logstore.ownership.locks import FileLocks
from logstore.partition import committer
from logstore.partition.committer import Committer
from logstore.seams.clock import ManualClock, SystemClock
from logstore.seams.memory_fs import MemoryFileSystem
from logstore.store import LogStore
from tests.log.logs import FOLDER, NOW_MS, Desk, append, batch, checked
from tests.log.replicas import ReplicaDesk
from tests.partition.test_committer import FakeLog
from tests.partition.test_failed_close import test_nothing_is_shown_past_what_was_synced as failed_close
from tests.plants.hunts import once, seeded
from tests.plants.plant import Patch, Run, plant

_DEADLINE_S = 30.0


def committed_stays(seed: int) -> None:
    """What a producer committed stays through a compaction, whatever it aborted before and after."""
    source = random.Random(seed)
    clock = ManualClock(NOW_MS)
    with LogStore("/s", fs=MemoryFileSystem(), clock=clock, threads=False) as store:
        store.create_topic("t", config={"cleanup.policy": "compact", "segment.bytes": "1024"})
        wanted: dict[bytes, bytes] = {}
        with store.producer(transactional_id="copy", clock=clock) as producer:
            for number in range(source.randrange(6, 12)):
                transaction = producer.begin()
                key, value = b"%d" % source.randrange(4), b"%d" % number + bytes(300)
                transaction.send("t", value, key=key).result()
                if source.random() < 0.5:
                    transaction.commit()
                    wanted[key] = value
                else:
                    transaction.abort()
        store.partition("t", 0).append([(b"last", bytes(800))])
        wanted[b"last"] = bytes(800)
        store.admin.compact("t")
        records = store.partition("t", 0).records(0)
        found = {record.key or b"": record.value or b"" for record in records}
        assert found == wanted, f"{sorted(found)}, not {sorted(wanted)}"


@plant(
    "abort takes committed data",
    "an abort covers what its producer committed before it",
    seeded(committed_stays),
    4,
)
def _(patch: Patch) -> None:
    def planted(self: AbortedRanges, header: BatchHeader) -> bool:
        rows = self._rows.get(header.producer_id, ())
        is_data = header.is_transactional and not header.is_control
        return is_data and any(header.base_offset <= row.last_offset for row in rows)

    patch.setattr(AbortedRanges, "covers", planted)


def second_writer() -> None:
    """Whose lock file was removed writes nothing more beside the next owner."""
    with tempfile.TemporaryDirectory() as folder:
        first = LogStore(f"{folder}/store")
        first.create_topic("t")
        first.partition("t", 0).append([(None, b"first")])
        shutil.rmtree(Path(folder, "store", ".locks"))
        with LogStore(f"{folder}/store") as second:
            second.partition("t", 0).append([(None, b"second")])
            try:
                first.partition("t", 0).append([(None, b"beside")])
            except LockLostError:
                return
            finally:
                first.abandon()
        raise AssertionError("a process wrote beside the topic's owner")


@plant("lost locks not noticed", "the identity of the lock file is not looked at", once(second_writer), 1)
def _(patch: Patch) -> None:
    patch.setattr(FileLocks, "check", lambda self, *, now=False: None)
    patch.setattr(RangeLocks, "is_in_place", lambda self: True)


def followers_sync() -> None:
    """A follower's sync makes durable, and commits nothing; the commit index does."""
    log = ReplicaDesk().start()
    for number in range(3):
        log.append_as_follower(checked(batch(b"%d" % number, base_offset=number, epoch=1)))
    log.sync()
    assert (log.flushed_offset, log.high_watermark) == (3, 0), "a sync committed"
    assert log.advance_high_watermark(2) == 2


@plant("follower commits by itself", "a follower's sync moves the high watermark", once(followers_sync), 1)
def _(patch: Patch) -> None:
    synced_up_to = SyncedLog._synced_up_to

    def planted(self: SyncedLog, target: int) -> None:
        synced_up_to(self, target)
        if self.commit_policy is CommitPolicy.INDEX:
            self._advance_high_watermark(self.flushed_offset)

    patch.setattr(SyncedLog, "_synced_up_to", planted)


def acknowledged_in_time() -> None:
    """Of several that wait in one group each is told once its own log is durable."""
    group = Committer(SystemClock(), threads=True)
    blocked, logs = FakeLog(), [FakeLog() for _ in range(3)]
    early: list[int] = []
    told = threading.Semaphore(0)

    def tell(number: int, error: object) -> None:
        if error is not None or logs[number].flushed_offset < logs[number].end:
            early.append(number)
        told.release()

    blocked.gate.clear()
    blocked.end = 1
    group.commit_later([(blocked, 1)], lambda error: None)  # type: ignore[list-item]
    try:
        assert blocked.entered.acquire(timeout=_DEADLINE_S)
        for number, log in enumerate(logs):
            log.end = number + 1
            group.commit_later([(log, log.end)], partial(tell, number))  # type: ignore[list-item]
    finally:
        blocked.gate.set()
        group.close()
    assert all(told.acquire(timeout=_DEADLINE_S) for _ in logs)
    assert not early, f"tickets {early} were told before their sync"


@plant(
    "tickets mixed up",
    "a group's later tickets are acknowledged with its first one",
    once(acknowledged_in_time),
    1,
)
def _(patch: Patch) -> None:
    sync_group = committer._sync_group
    patch.setattr(committer, "_sync_group", lambda group: sync_group(group[:1]))


def rows_of_the_future(seed: int) -> None:
    """A power loss took batches, and left the transaction index's rows of them: what comes there later counts."""
    source = random.Random(seed)
    desk = Desk()
    log = desk.open()
    append(log, *[b"kept"] * source.randrange(1, 4))
    log.checkpoint()
    end, point = log.end_position[1], log.recovery_point
    _transaction(log, b"lost", 0)
    log.append_marker(Marker(7, 0, 0, False, NOW_MS))
    log.checkpoint()
    file = desk.fs.open(f"{FOLDER}/{0:020d}.log", "rw")
    file.truncate(end)
    file.close()
    again = Desk(desk.fs).open(recovery_point=point)
    _transaction(again, b"counts", 0)
    again.append_marker(Marker(7, 0, 0, True, NOW_MS))
    again.sync()
    rows = again.aborted(0, again.log_end_offset)
    assert rows == [], f"{rows} of before the power loss hide what was committed since"


def _transaction(log: OwnedLog, value: bytes, sequence: int) -> None:
    data = encode_batch(
        [(None, value)],
        now_ms=NOW_MS,
        producer_id=7,
        producer_epoch=0,
        base_sequence=sequence,
        transactional=True,
    )
    log.append(checked(data))


@plant(
    "abort rows of the future believed",
    "recovery leaves rows of a transaction index that pass the log's end",
    seeded(rows_of_the_future),
    2,
)
def _(patch: Patch) -> None:
    patch.setattr(producer_recovery, "_put_right", lambda *arguments: None)


def failed_closes() -> Sequence[Run]:
    return [Run(how, partial(failed_close, how, False)) for how in ("close", "release")]


@plant("close shows before it syncs", "a sync that fails was shown as done", failed_closes, 1)
def _(patch: Patch) -> None:
    sync = SyncedLog._sync_now

    def planted(self: SyncedLog) -> None:
        with self._lock:
            if self.dirty:
                before = self.flushed_offset
                self._synced_up_to(self.log_end_offset)
                self.flushed_offset = before
        sync(self)

    patch.setattr(SyncedLog, "_sync_now", planted)
