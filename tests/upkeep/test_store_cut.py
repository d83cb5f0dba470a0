"""The cut of a backup: all partitions at one moment, and nothing of it goes before it is copied."""

from __future__ import annotations

from pathlib import Path

import pytest

import logstore
from logstore.directory.backup import BackupReport, copy_store
from logstore.directory.backup_cut import PartitionCut, StoreCut
from logstore.errors import DamagedStoreError, NoConsistentCutError, SegmentVanishedError
from logstore.ownership.live import LiveFile, MemoryLive
from logstore.seams.clock import SystemClock
from logstore.types import OffsetAndMetadata, TopicPartition
from logstore.upkeep.store_cut import take_cut

KEYED = {"cleanup.policy": "compact", "segment.bytes": "2000", "min.cleanable.dirty.ratio": "0"}


def cut_of(store: logstore.LogStore) -> StoreCut:
    return take_cut(store._context, store.partition, patience_s=0.0)


def copy_of(store: logstore.LogStore, cut: StoreCut, target: Path) -> BackupReport:
    try:
        return copy_store(
            store.fs,
            store.root,
            str(target),
            SystemClock(),
            cut,
            log_start=lambda topic, partition: store.partition(topic, partition).log_start_offset,
        )
    finally:
        cut.close()


def values(root: Path, topic: str = "t") -> list[bytes]:
    with logstore.open(root, mode="r") as store:
        return [record.value for record in store.partition(topic, 0).records(0)]


def write(store: logstore.LogStore, first: int, end: int, keys: int = 5) -> None:
    log = store.partition("t", 0)
    for number in range(first, end):
        log.append([(b"key %d" % (number % keys), b"%d " % number + b"." * 100)])


def test_a_cleaning_behind_the_cut_takes_nothing_from_the_copy(tmp_path: Path) -> None:
    """The newest record of each key at the cut is older than what the cleaning keeps."""
    with logstore.open(tmp_path / "store", threads=False) as store:
        store.create_topic("t", config=KEYED)
        write(store, 0, 60)
        cut = cut_of(store)
        write(store, 60, 120)
        store.admin.compact("t")
        assert len(values(tmp_path / "store")) < 60
        copy_of(store, cut, tmp_path / "copy")
    assert values(tmp_path / "copy") == [b"%d " % number + b"." * 100 for number in range(60)]


def test_a_cleaning_of_committed_offsets_behind_the_cut_takes_nothing(tmp_path: Path) -> None:
    place = TopicPartition("t", 0)
    with logstore.open(tmp_path / "store", threads=False) as store:
        store.create_topic("t")
        write(store, 0, 10)
        for offset in range(1, 6):
            store.commit_offsets("g", {place: OffsetAndMetadata(offset)})
        cut = cut_of(store)
        store.commit_offsets("g", {place: OffsetAndMetadata(9)})
        store.admin.compact("__consumer_offsets")
        copy_of(store, cut, tmp_path / "copy")
    with logstore.open(tmp_path / "copy", mode="r") as copy:
        assert copy.committed_offsets("g") == {place: OffsetAndMetadata(5)}


def test_what_is_trimmed_behind_the_cut_is_no_loss(tmp_path: Path) -> None:
    with logstore.open(tmp_path / "store", threads=False) as store:
        store.create_topic("t", config={"segment.bytes": "2000"})
        write(store, 0, 60)
        whole, part = cut_of(store), cut_of(store)
        store.delete_records("t", {0: 40})
        copy_of(store, part, tmp_path / "part")
        write(store, 60, 90)
        store.delete_records("t", {0: 80})
        copy_of(store, whole, tmp_path / "whole")
    with logstore.open(tmp_path / "part", mode="r") as copy:
        log = copy.partition("t", 0)
        assert log.log_start_offset == 40
        assert [record.offset for record in log.records(40)] == list(range(40, 60))
    with logstore.open(tmp_path / "whole") as copy:
        assert copy.partition("t", 0).append([(None, b"next")]).offset == 60


def test_a_segment_that_is_gone_for_no_reason_is_an_error(tmp_path: Path) -> None:
    with logstore.open(tmp_path / "store", threads=False) as store:
        store.create_topic("t", config={"segment.bytes": "2000"})
        write(store, 0, 60)
        next(iter(sorted((tmp_path / "store" / "t-0").glob("*.log")))).unlink()
        with pytest.raises((SegmentVanishedError, DamagedStoreError), match="offsets 0 to"):
            store.backup(tmp_path / "copy")
    assert not (tmp_path / "copy" / "topics.json").exists()


def test_without_a_quiet_moment_it_is_refused(tmp_path: Path) -> None:
    class Busy(MemoryLive):
        def read_all(self, slots: object) -> None:
            return None

    with logstore.open(":memory:", live=Busy(), threads=False) as store:
        store.create_topic("t")
        with pytest.raises(NoConsistentCutError, match="published all the time"):
            cut_of(store)


def test_idle_partitions_end_where_recovery_would_let_them(tmp_path: Path) -> None:
    """Nobody has written since the machine started."""
    with logstore.open(tmp_path / "store") as store:
        store.create_topic("t", partitions=2)
        write(store, 0, 7)
    (tmp_path / "store" / ".live").unlink()
    with logstore.open(tmp_path / "store", mode="r") as store:
        cut = cut_of(store)
        cut.close()
    assert cut.partitions == {
        TopicPartition("t", 0): PartitionCut(0, 7),
        TopicPartition("t", 1): PartitionCut(0, 0),
    }


def publish(live: LiveFile, slot: int, end: int) -> None:
    live.publish(
        slot,
        log_start_offset=0,
        high_watermark=end,
        last_stable_offset=end,
        log_end_offset=end,
        segment_base=0,
        end_position=end,
        leader_epoch=0,
    )


def test_a_look_at_all_slots_sees_other_processes_files(tmp_path: Path) -> None:
    path = str(tmp_path / ".live")
    reader = LiveFile(path, "boot", writable=False)
    assert reader.read_all([0, 3]) == [None, None]
    writer = LiveFile(path, "boot", writable=True)
    publish(writer, 3, 10)
    shown = reader.read_all([0, 3, 9])
    assert shown is not None
    assert [slot and slot.high_watermark for slot in shown] == [None, 10, None]
    publish(writer, 3, 11)
    publish(writer, 0, 4)
    shown = reader.read_all([3, 0])
    assert shown is not None
    assert [slot and slot.high_watermark for slot in shown] == [11, 4]
    for live in (reader, writer):
        live.close()
