"""Every kind of damage is named at its place; what a crash explains is a warning; a sound store is clean."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from logstore.directory import topic_state
from logstore.directory.topic_state import PartitionState
from logstore.errors import StoreNotFoundError, UnknownTopicError
from logstore.format.batch import encode_batch, pack_batch, read_header
from logstore.log.checkpoints import encode_metadata, encode_pairs
from logstore.log.inspection.verify import Fault, Totals
from logstore.log.inspection.verify_store import store_bytes, verify_store
from logstore.log.segments import offset_index, time_index
from logstore.seams.fs import read_file, replace_file
from logstore.seams.memory_fs import MemoryFileSystem
from tests.log.hand_made import (
    BOOT,
    FOLDER,
    ROOT,
    TOPIC,
    add,
    batch_positions,
    change,
    cut,
    flip,
    make_store,
    put_catalogue,
    put_state,
    rows,
    segment,
)


def verify(fs: MemoryFileSystem, boot_id: str = BOOT) -> list[Fault]:
    return list(verify_store(fs, ROOT, boot_id, Totals()))


def only(faults: list[Fault]) -> Fault:
    assert len(faults) == 1, faults
    return faults[0]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_a_sound_store_has_no_fault(codec: str) -> None:
    fs = make_store(codec=codec)
    steps: list[int] = []
    totals = Totals(progress=steps.append)
    assert list(verify_store(fs, ROOT, BOOT, totals)) == []
    assert (totals.partitions, totals.segments, totals.batches, totals.records) == (1, 4, 19, 73)
    assert totals.bytes == sum(steps) == store_bytes(fs, ROOT)


def _batch_without_a_right_record_count() -> bytes:
    header = read_header(encode_batch(rows(72, 1), now_ms=2_000_000, base_offset=72, leader_epoch=3))
    return pack_batch(header, b"\x00\x00\x00")


def drop_last_batch(fs: MemoryFileSystem, number: int) -> None:
    """As if it had never been appended: the index entries go, too."""
    cut(fs, segment(number), batch_positions(fs, segment(number))[-1])
    for suffix, row in ((".index", offset_index.ROW), (".timeindex", time_index.ROW)):
        cut(fs, segment(number, suffix), len(read_file(fs, segment(number, suffix))) - row.size)


Damage = Callable[[MemoryFileSystem], object]
CASES: dict[str, tuple[Damage, str, str, str]] = {
    # name: (what is done, file, kind, message)
    "bit flip in a closed segment": (
        lambda fs: flip(fs, segment(0), batch_positions(fs, segment(0))[1] + 70),
        segment(0),
        "crc",
        "wrong CRC-32C in the batch of offset 4",
    ),
    "magic": (
        lambda fs: change(fs, segment(1), lambda content: content.__setitem__(16, 1)),
        segment(1),
        "magic",
        "magic 1 where 2 was due",
    ),
    "cut end of a closed segment": (
        lambda fs: cut(fs, segment(1), len(read_file(fs, segment(1))) - 3),
        segment(1),
        "torn",
        "cannot be read, from offset 44 on",
    ),
    "missing last batch": (
        lambda fs: drop_last_batch(fs, 1),
        segment(2),
        "gap",
        "offsets 44 to 47 are missing",
    ),
    "missing segment": (
        lambda fs: [fs.remove(segment(1, suffix)) for suffix in (".log", ".index", ".timeindex")],
        segment(2),
        "gap",
        "offsets 24 to 47 are missing",
    ),
    "missing first segment": (
        lambda fs: [fs.remove(segment(0, suffix)) for suffix in (".log", ".index", ".timeindex")],
        segment(1),
        "gap",
        "offsets 0 to 23 are missing before this segment",
    ),
    "offsets go back": (
        lambda fs: change(fs, segment(1), lambda content: content.__setitem__(7, 10)),
        segment(1),
        "offset",
        "offset 10 where 24 was due",
    ),
    "records that do not decode": (
        lambda fs: replace_file(fs, segment(3), _batch_without_a_right_record_count()),
        segment(3),
        "records",
        "the batch of offset 72",
    ),
    "fewer records at the end than were durable": (
        lambda fs: cut(fs, segment(3), 0),
        segment(3),
        "end",
        "offsets 72 to 72 are missing at the end",
    ),
    "more records than the store closed with": (
        lambda fs: add(
            fs, segment(3), encode_batch(rows(73, 1), now_ms=2_000_001, base_offset=73, leader_epoch=3)
        ),
        segment(3),
        "end",
        "closed with the end at 73",
    ),
    "an epoch that goes back": (
        lambda fs: change(fs, segment(2), lambda content: content.__setitem__(15, 0)),
        segment(2),
        "epoch",
        "leader epoch 0",
    ),
    "epochs that do not grow": (
        lambda fs: replace_file(fs, f"{FOLDER}/leader-epoch-checkpoint", encode_pairs([(3, 5), (2, 9)])),
        f"{FOLDER}/leader-epoch-checkpoint",
        "epochs",
        "does not grow",
    ),
    "an epoch checkpoint that is none": (
        lambda fs: replace_file(fs, f"{FOLDER}/leader-epoch-checkpoint", b"0\n2\n1 1\n"),
        f"{FOLDER}/leader-epoch-checkpoint",
        "epochs",
        "is not a checkpoint",
    ),
    "index entry inside a batch": (
        lambda fs: change(fs, segment(0, ".index"), lambda content: content.__setitem__(7, content[7] + 1)),
        segment(0, ".index"),
        "index",
        "entry 0: position",
    ),
    "index entry with another offset": (
        lambda fs: change(fs, segment(0, ".index"), lambda content: content.__setitem__(3, content[3] - 1)),
        segment(0, ".index"),
        "index",
        "entry 0: offset",
    ),
    "index that does not grow": (
        lambda fs: add(fs, segment(0, ".index"), offset_index.ROW.pack(1, 1)),
        segment(0, ".index"),
        "index",
        "does not grow",
    ),
    "index past the log": (
        lambda fs: add(fs, segment(0, ".index"), offset_index.ROW.pack(1000, 100_000)),
        segment(0, ".index"),
        "index",
        "1 entries point past the end",
    ),
    "time index with a wrong time": (
        lambda fs: change(
            fs, segment(0, ".timeindex"), lambda content: content.__setitem__(7, content[7] + 1)
        ),
        segment(0, ".timeindex"),
        "index",
        "entry 0: timestamp",
    ),
    "time index with an offset inside a batch": (
        lambda fs: change(
            fs, segment(0, ".timeindex"), lambda content: content.__setitem__(11, content[11] - 1)
        ),
        segment(0, ".timeindex"),
        "index",
        "is not the last of a batch",
    ),
    "time index past the log": (
        lambda fs: add(fs, segment(0, ".timeindex"), time_index.ROW.pack(3_000_000, 1000)),
        segment(0, ".timeindex"),
        "index",
        "1 entries point past the end",
    ),
    "a stray file": (
        lambda fs: replace_file(fs, f"{FOLDER}/notes.txt", b"x"),
        f"{FOLDER}/notes.txt",
        "name",
        "no file of a partition",
    ),
    "a stray folder in a partition": (
        lambda fs: fs.mkdir(f"{FOLDER}/x"),
        f"{FOLDER}/x",
        "name",
        "no file of",
    ),
    "an index without its segment": (
        lambda fs: replace_file(fs, segment(9, ".index"), b""),
        segment(9, ".index"),
        "orphan",
        "without its segment",
    ),
    "a stray file in the root": (
        lambda fs: replace_file(fs, f"{ROOT}/README", b"x"),
        f"{ROOT}/README",
        "name",
        "nothing in a store",
    ),
    "partition.metadata of another topic": (
        lambda fs: replace_file(
            fs, f"{FOLDER}/partition.metadata", encode_metadata("AAAAAAAAAAAAAAAAAAAAAA")
        ),
        f"{FOLDER}/partition.metadata",
        "metadata",
        "belongs to the topic id",
    ),
    "partition.metadata gone": (
        lambda fs: fs.remove(f"{FOLDER}/partition.metadata"),
        f"{FOLDER}/partition.metadata",
        "metadata",
        "missing",
    ),
    "a damaged state": (
        lambda fs: flip(fs, topic_state.state_path(ROOT, TOPIC), 60),
        topic_state.state_path(ROOT, TOPIC),
        "state",
        "is damaged",
    ),
    "a damaged catalogue": (
        lambda fs: flip(fs, f"{ROOT}/topics.json", 60),
        f"{ROOT}/topics.json",
        "catalogue",
        "is damaged",
    ),
    "a setting of another time": (
        lambda fs: put_catalogue(fs, {"no.such.key": "1"}),
        f"{ROOT}/topics.json",
        "config",
        "unknown topic setting",
    ),
    "a log start past the end": (
        lambda fs: put_state(fs, PartitionState(73, 90, 73, 73), clean=True),
        segment(3),
        "end",
        "log start offset 90",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_damage_is_named_at_its_place(case: str) -> None:
    damage, path, kind, message = CASES[case]
    fs = make_store()
    damage(fs)
    faults = [fault for fault in verify(fs) if not fault.warning]
    assert any(
        fault.path == path and fault.kind == kind and re.search(re.escape(message), fault.message)
        for fault in faults
    ), faults
    assert {fault.path for fault in faults} == {path}, faults


def test_a_bad_batch_is_named_with_its_position() -> None:
    fs = make_store()
    position = batch_positions(fs, segment(0))[1]
    flip(fs, segment(0), position + 70)
    fault = only(verify(fs))
    assert (fault.path, fault.position, fault.kind) == (segment(0), position, "crc")


def test_what_layers_above_keep_beside_the_logs_is_no_fault() -> None:
    fs = make_store()
    for name in (".cache", ".staging"):
        fs.mkdir(f"{ROOT}/{name}")
    assert verify(fs) == []
    fs.mkdir(f"{ROOT}/.stagings")
    assert [(fault.path, fault.kind) for fault in verify(fs)] == [(f"{ROOT}/.stagings", "name")]


def test_a_missing_partition_folder() -> None:
    fs = make_store()
    for name in fs.listdir(FOLDER):
        fs.remove(f"{FOLDER}/{name}")
    fs.rmdir(FOLDER)
    fault = only(verify(fs))
    assert (fault.path, fault.kind) == (FOLDER, "missing")
    assert "offsets 0 to 72" in fault.message
    put_state(fs, PartitionState(0, 0, 0, 0), clean=True)  # never appended to: no folder is right
    assert verify(fs) == []


class TestUnclean:
    """A store that was not closed: above the recovery point only what no crash explains is a fault."""

    def store(self, recovery_point: int = 48) -> MemoryFileSystem:
        fs = make_store()
        put_state(fs, PartitionState(recovery_point, 0, recovery_point, recovery_point), clean=False)
        return fs

    def test_sound_but_unclean_is_no_fault(self) -> None:
        assert verify(self.store()) == []

    @pytest.mark.parametrize("boot_id", [BOOT, "another boot"])
    def test_a_torn_end_above_the_recovery_point_is_a_warning(self, boot_id: str) -> None:
        fs = self.store()
        cut(fs, segment(3), len(read_file(fs, segment(3))) - 1)
        fault = only(verify(fs, boot_id))
        assert fault.warning
        assert fault.kind == "torn"
        assert "the next open cuts the log here, at offset 72" in fault.message

    def test_a_torn_end_below_the_recovery_point_is_a_fault(self) -> None:
        fs = self.store(recovery_point=73)
        cut(fs, segment(3), len(read_file(fs, segment(3))) - 1)
        assert not only(verify(fs)).warning

    def test_bad_bytes_above_it_are_a_warning_after_a_power_loss_only(self) -> None:
        fs = self.store()
        flip(fs, segment(2), batch_positions(fs, segment(2))[1] + 70)
        fault = only(verify(fs, "another boot"))
        assert fault.warning
        assert "at offset 52" in fault.message
        assert not only(verify(fs, BOOT)).warning

    def test_bad_bytes_below_it_are_a_fault(self) -> None:
        fs = self.store()
        flip(fs, segment(1), batch_positions(fs, segment(1))[1] + 70)
        assert not only(verify(fs, "another boot")).warning

    def test_indexes_above_it_are_rebuilt_and_so_a_warning(self) -> None:
        fs = self.store()
        add(fs, segment(2, ".index"), offset_index.ROW.pack(1000, 100_000))
        assert only(verify(fs)).warning
        put_state(fs, PartitionState(73, 0, 73, 73), clean=False)
        assert not only(verify(fs)).warning

    def test_without_a_state_only_the_last_segment_may_be_unfinished(self) -> None:
        fs = self.store()
        topic_state.remove(fs, ROOT, TOPIC)
        cut(fs, segment(3), len(read_file(fs, segment(3))) - 1)
        assert only(verify(fs)).warning
        flip(fs, segment(2), batch_positions(fs, segment(2))[1] + 70)
        assert [fault.warning for fault in verify(fs)] == [False, True]


def test_leftovers_are_warnings() -> None:
    fs = make_store()
    replace_file(fs, f"{FOLDER}/leader-epoch-checkpoint.tmp", b"")
    replace_file(fs, f"{segment(3)}.cut-1700000000000", b"kept aside")
    fs.mkdir(f"{ROOT}/gone-0.{'a' * 22}-delete")
    fs.mkdir(f"{ROOT}/stray-0")
    assert [(fault.kind, fault.warning) for fault in verify(fs)] == [
        ("leftover", True),
        ("name", True),
        ("leftover", True),
    ]
    replace_file(fs, f"{ROOT}/stray-0/{0:020d}.log", b"records")
    assert any(fault.path == f"{ROOT}/stray-0" and not fault.warning for fault in verify(fs))


def test_missing_indexes_are_warnings() -> None:
    fs = make_store()
    fs.remove(segment(1, ".index"))
    fs.remove(segment(1, ".timeindex"))
    assert [(fault.kind, fault.warning) for fault in verify(fs)] == [("missing", True)] * 2


def test_gaps_are_faults_also_where_compaction_was() -> None:
    """Ours leaves batches without records where others went."""
    fs = make_store()
    drop_last_batch(fs, 1)
    assert only(verify(fs)).kind == "gap"
    put_catalogue(fs, {"cleanup.policy": "compact"})
    assert only(verify(fs)).kind == "gap"


def test_topics_can_be_chosen_and_must_exist() -> None:
    fs = make_store()
    replace_file(fs, f"{ROOT}/README", b"x")
    assert list(verify_store(fs, ROOT, BOOT, Totals(), topics=[TOPIC])) == []
    with pytest.raises(UnknownTopicError):
        list(verify_store(fs, ROOT, BOOT, Totals(), topics=["nope"]))


def test_no_store_is_an_error_and_no_fault() -> None:
    with pytest.raises(StoreNotFoundError):
        list(verify_store(MemoryFileSystem(), "/nowhere", BOOT, Totals()))
