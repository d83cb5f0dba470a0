"""Salvage: all that is readable arrives at its offset, all that is not is listed, the copy is sound."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logstore.directory import topic_state
from logstore.directory.catalogue import CatalogueFile
from logstore.directory.topic_state import PartitionState
from logstore.errors import ForeignDirectoryError, StoreNotFoundError
from logstore.format.batch import read_header
from logstore.log.inspection.inspect import (
    BadSpan,
    PartitionFolder,
    dump_records,
    segment_base_offsets,
    segment_path,
)
from logstore.log.inspection.verify import Fault, Totals
from logstore.log.inspection.verify_store import verify_store
from logstore.log.recovery.salvage import SalvageReport, salvage
from logstore.log.segments.segment_writer import PartitionWriter, empty_batch
from logstore.seams.clock import ManualClock
from logstore.seams.fs import read_file, replace_file
from logstore.seams.memory_fs import MemoryFileSystem
from logstore.types import Record
from tests.log.hand_made import (
    BOOT,
    FOLDER,
    ROOT,
    TOPIC,
    TOPIC_ID,
    batch_positions,
    cut,
    flip,
    make_store,
    put_state,
    segment,
)

TARGET = "/copy"


def run(fs: MemoryFileSystem) -> SalvageReport:
    return salvage(fs, ROOT, TARGET, ManualClock(boot_id=BOOT), random_bytes=lambda count: bytes(count))


def faults(fs: MemoryFileSystem) -> list[Fault]:
    return list(verify_store(fs, TARGET, BOOT, Totals()))


def records(fs: MemoryFileSystem, root: str) -> list[Record]:
    path = f"{root}/{TOPIC}-0"
    folder = PartitionFolder(TOPIC, 0, path)
    return [
        record
        for base in segment_base_offsets(fs, path)
        for batch in dump_records(fs, folder, segment_path(path, base), base)
        if not isinstance(batch, BadSpan)
        for record in batch
    ]


def lost(report: SalvageReport) -> list[tuple[int, int]]:
    return [(gone.start, gone.end_exclusive) for gone in report.lost]


def test_a_sound_store_is_copied_whole() -> None:
    fs = make_store(codec="zstd", config={"index.interval.bytes": "200"})
    report = run(fs)
    assert (report.topics, report.partitions, report.batches, report.records) == (1, 1, 19, 73)
    assert report.lost == []
    assert report.notes == []
    assert records(fs, TARGET) == records(fs, ROOT)
    assert faults(fs) == []
    for base in segment_base_offsets(fs, FOLDER):
        for suffix in (".log", ".index", ".timeindex"):
            original = read_file(fs, segment_path(FOLDER, base, suffix))
            assert read_file(fs, segment_path(f"{TARGET}/{TOPIC}-0", base, suffix)) == original
    state = topic_state.load(fs, TARGET, TOPIC)
    assert state is not None
    assert state.clean
    assert state.partitions == {0: PartitionState(73, 0, 73, 73)}


def test_a_bad_batch_is_one_lost_range_and_nothing_moves() -> None:
    fs = make_store()
    flip(fs, segment(1), batch_positions(fs, segment(1))[2] + 70)
    report = run(fs)
    assert lost(report) == [(32, 36)]
    assert "wrong CRC-32C" in report.lost[0].reason
    assert segment(1) in report.lost[0].reason
    assert records(fs, TARGET) == [record for record in records(fs, ROOT) if not 32 <= record.offset < 36]
    assert faults(fs) == []


def test_lost_segments_and_ends_are_listed_as_far_as_is_known() -> None:
    fs = make_store()
    fs.remove(segment(1))
    cut(fs, segment(3), 10)
    report = run(fs)
    assert lost(report) == [(24, 48), (72, 73)]
    assert report.lost[0].reason == "no segment holds them"
    assert "the file ends 10 bytes" in report.lost[1].reason
    assert faults(fs) == []
    state = topic_state.load(fs, TARGET, TOPIC)
    assert state is not None
    assert state.partitions[0].log_end_offset == 73  # offsets that were given out are not given again


def test_an_end_that_nobody_knows_is_said_so() -> None:
    fs = make_store()
    put_state(fs, PartitionState(48, 0, 48, 48), clean=False)
    cut(fs, segment(3), 10)
    assert lost(run(fs)) == [(72, -1)]
    assert faults(fs) == []


def test_a_missing_first_segment_is_lost_from_the_log_start_on() -> None:
    fs = make_store()
    fs.remove(segment(0))
    assert lost(run(fs)) == [(0, 24)]
    assert [record.offset for record in records(fs, TARGET)] == list(range(24, 73))
    assert faults(fs) == []


def test_a_missing_folder_is_lost_whole() -> None:
    fs = make_store()
    for name in fs.listdir(FOLDER):
        fs.remove(f"{FOLDER}/{name}")
    fs.rmdir(FOLDER)
    report = run(fs)
    assert lost(report) == [(0, 73)]
    assert report.lost[0].reason == "the partition's folder is missing"
    assert faults(fs) == []


def test_a_damaged_catalogue_is_made_up_from_the_folders() -> None:
    fs = make_store(config={"segment.bytes": "4096"})
    flip(fs, f"{ROOT}/topics.json", 80)
    report = run(fs)
    assert any("guessed from folders" in text for text in report.notes)
    assert records(fs, TARGET) == records(fs, ROOT)
    file = CatalogueFile(fs, TARGET)
    entry = file.load().topic(TOPIC)
    file.close()
    assert (entry.topic_id, entry.partitions, dict(entry.config)) == (TOPIC_ID, 1, {})
    assert faults(fs) == []


def test_a_lost_catalogue_too() -> None:
    fs = make_store()
    fs.remove(f"{ROOT}/topics.json")
    assert run(fs).records == 73
    assert faults(fs) == []


def test_an_offset_outside_the_crc_is_put_right_by_the_files_order() -> None:
    fs = make_store()
    third, fourth = batch_positions(fs, segment(0))[2:4]
    flip(fs, segment(0), third + 7)
    flip(fs, segment(0), fourth)  # 2**56 further on
    flip(fs, segment(1), 15)  # the leader epoch
    report = run(fs)
    assert [text.split(": ")[1] for text in report.notes] == [
        "offset 9 put right, to 8",
        f"offset {2**56 + 12} put right, to 12",
        "epoch 0 put right, to 1",
    ]
    assert report.lost == []
    assert [record.offset for record in records(fs, TARGET)] == list(range(73))
    assert faults(fs) == []


def test_an_offset_that_nothing_confirms_is_not_believed() -> None:
    fs = make_store()
    first, second = batch_positions(fs, segment(0))[1:3]
    flip(fs, segment(0), first + 70)
    flip(fs, segment(0), second)
    report = run(fs)
    assert lost(report) == [(4, 12)]
    assert faults(fs) == []


def test_what_is_damaged_besides_segments_is_noted() -> None:
    fs = make_store()
    flip(fs, topic_state.state_path(ROOT, TOPIC), 60)
    replace_file(fs, f"{FOLDER}/leader-epoch-checkpoint", b"nonsense")
    report = run(fs)
    assert [text.split(":")[0] for text in report.notes] == [
        "where the logs of 'flights' ended is not known",
        f"epochs of {FOLDER} are those of its batches",
    ]
    assert faults(fs) == []


def test_the_newest_epoch_is_never_given_again() -> None:
    fs = make_store()
    replace_file(fs, f"{FOLDER}/leader-epoch-checkpoint", b"0\n2\n0 0\n9 73\n")
    run(fs)
    assert b"9 73" in read_file(fs, f"{TARGET}/{TOPIC}-0/leader-epoch-checkpoint")


def test_only_new_places_are_written_and_only_stores_are_read() -> None:
    fs = make_store()
    fs.mkdir(TARGET)
    replace_file(fs, f"{TARGET}/precious", b"x")
    with pytest.raises(ForeignDirectoryError, match="not empty"):
        run(fs)
    assert fs.listdir(TARGET) == ["precious"]
    with pytest.raises(StoreNotFoundError):
        salvage(MemoryFileSystem(), "/nowhere", TARGET, ManualClock())


@settings(derandomize=True, deadline=None, max_examples=120)
@given(st.data())
def test_what_is_copied_and_what_is_lost_make_up_the_whole(data: st.DataObject) -> None:
    """Any damage inside batches: each offset is either there, with its record, or in a lost range."""
    fs = make_store()
    before = {record.offset: record for record in records(fs, ROOT)}
    for _ in range(data.draw(st.integers(1, 5))):
        path = segment(data.draw(st.integers(0, 3)))
        size = len(read_file(fs, path))
        if size and data.draw(st.booleans()):
            flip(fs, path, data.draw(st.integers(0, size - 1)))
        elif size:
            cut(fs, path, data.draw(st.integers(0, size)))
    report = run(fs)
    gone = {offset for start, end in lost(report) for offset in range(start, end)}
    after = {record.offset: record for record in records(fs, TARGET)}
    assert gone | after.keys() == before.keys() | {offset for offset in after if offset > 73}
    assert not gone & after.keys()
    assert all(before.get(offset) == record for offset, record in after.items() if offset in before)
    assert faults(fs) == []


def test_lost_ranges_larger_than_a_batch_can_cover_take_several() -> None:
    fs = MemoryFileSystem()
    fs.mkdir(ROOT)
    writer = PartitionWriter(fs, FOLDER, TOPIC_ID, start_offset=5, index_interval_bytes=4096)
    writer.fill_to(2**33)
    writer.finish()
    bases = segment_base_offsets(fs, FOLDER)
    assert bases[0] == 5
    assert len(bases) >= 4
    at = 5
    for base in bases:
        content = read_file(fs, segment_path(FOLDER, base))
        assert base == at
        while content:
            header = read_header(content)
            assert header.base_offset == at
            assert header.last_offset - base < 2**31
            at = header.next_offset
            content = content[header.size :]
    assert at == 2**33


def test_an_empty_batch_covers_its_offsets() -> None:
    header = read_header(empty_batch(10, 15, 3))
    assert (header.base_offset, header.last_offset, header.records_count, header.leader_epoch) == (
        10,
        14,
        0,
        3,
    )
