"""A log seen by who does not own it: beside a writer, after one, and after the machine restarted."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from logstore.directory.topic_state import PartitionState
from logstore.errors import CorruptBatchError, SegmentVanishedError, StorageError
from logstore.log.owned_log import OwnedLog
from logstore.log.read_only_log import ReadOnlyLog
from logstore.log.segments.file_pool import FilePool
from logstore.log.segments.segment import Segment
from logstore.ownership.live import MemoryLive
from logstore.partition.state_rows import row_of
from logstore.seams.faults import FaultKind
from logstore.seams.fs import OsFileSystem, read_file, replace_file, write_all
from logstore.seams.memory_crash import KeepAll
from logstore.seams.memory_fs import MemoryFileSystem
from tests.log.logs import FOLDER, NOW_MS, Desk, append, batch, checked, records, values

ONE = len(batch(b"." * 10))


def ten(number: int) -> bytes:
    return b"%010d" % number


class Beside:
    """A writer and a reader of one folder, as in two processes: each with its own pool, one live board."""

    def __init__(self, **settings: Any) -> None:
        self.live = MemoryLive()
        self.state: PartitionState | None = None
        self.desk = Desk(**({"segment_bytes": 4 * ONE, "index_interval_bytes": 0} | settings))
        self.desk._publish = self._publish  # type: ignore[method-assign]
        self.log = self.desk.open()
        self.reader = self.observe(self.desk.fs)

    def observe(self, fs: MemoryFileSystem) -> ReadOnlyLog:
        return ReadOnlyLog(
            where="t-0",
            directory=FOLDER,
            pool=FilePool(fs),
            live=self.live,
            live_slot=3,
            state=lambda: self.state,
        )

    def _publish(self, log: OwnedLog) -> None:
        bounds = log.bounds()
        base, position = log.end_position
        self.live.publish(
            3,
            log_start_offset=bounds.log_start_offset,
            high_watermark=bounds.high_watermark,
            last_stable_offset=bounds.last_stable_offset,
            log_end_offset=bounds.log_end_offset,
            segment_base=base,
            end_position=position,
            leader_epoch=bounds.leader_epoch,
        )

    def seen(self, reader: ReadOnlyLog | None = None) -> list[bytes]:
        reader = reader or self.reader
        return values(reader, end=reader.bounds().high_watermark)


def test_it_sees_what_was_synced_and_no_more() -> None:
    both = Beside()
    assert both.reader.bounds() == (0, 0, 0, 0, -1)
    append(both.log, ten(0))
    append(both.log, ten(1))
    assert both.seen() == []
    both.log.sync()
    assert both.seen() == [ten(0), ten(1)]
    append(both.log, ten(2))
    assert both.seen() == [ten(0), ten(1)]
    assert both.reader.bounds().leader_epoch == 0


def test_it_follows_through_rolls_every_record_once_and_in_order() -> None:
    both = Beside()
    offset = 0
    for number in range(40):
        append(both.log, ten(number))
        if number % 3 == 0:
            both.log.sync()
        high = both.reader.bounds().high_watermark
        assert high <= both.log.flushed_offset
        for record in records(both.reader, offset, high, max_bytes=ONE):
            assert (record.offset, record.value) == (offset, ten(offset))
            offset += 1
        assert offset == high
    both.log.sync()
    assert both.seen() == [ten(number) for number in range(40)]
    both.reader.refresh()
    assert len(both.reader.segments) == len(both.log.segments) == 10


def test_visible_at_once_where_the_topic_says_so() -> None:
    both = Beside(visible_after="append")
    append(both.log, ten(0))
    assert both.seen() == [ten(0)]


def test_a_writer_that_died_leaves_its_last_word() -> None:
    both = Beside()
    for number in range(6):
        append(both.log, ten(number))
    both.log.sync()
    append(both.log, ten(6))
    reader = both.observe(both.desk.fs.process_crash())
    assert both.seen(reader) == [ten(number) for number in range(6)]


def test_the_epoch_table_as_the_writer_wrote_it() -> None:
    both = Beside()
    assert both.reader.epoch_table().entries == ()
    append(both.log, ten(0))
    assert both.reader.epoch_table().entries == ((0, 0),)


# --- after a reboot ---------------------------------------------------------------------------------


def test_after_a_reboot_it_reads_to_the_first_bad_batch() -> None:
    both = Beside()
    for number in range(7):
        append(both.log, ten(number))
    both.log.checkpoint()
    append(both.log, ten(7))
    both.state = PartitionState(both.log.recovery_point, 0, 7, 7)
    fs = both.desk.fs.crash(KeepAll())
    both.live.reboot()
    reader = both.observe(fs)
    assert reader.bounds() == (0, 8, 8, 8, 0)
    assert both.seen(reader) == [ten(number) for number in range(8)]
    for damage, where in ((b"\xee", 3 * ONE + 65), (b"\xee", 3 * ONE + 5)):  # a payload, an offset
        twin = fs.clone()
        file = twin.open(f"{FOLDER}/{4:020d}.log", "rw")
        write_all(file, [damage], where)
        reader = both.observe(twin)
        assert reader.bounds().high_watermark == 7
        assert both.seen(reader) == [ten(number) for number in range(7)]


@pytest.mark.parametrize("tail", [b"", bytes(300), b"\0" * 7, b"\xee" * 100])
def test_a_torn_tail_right_behind_the_recovery_point(tail: bytes) -> None:
    both = Beside()
    for number in range(6):
        append(both.log, ten(number))
    both.log.checkpoint()
    both.state = PartitionState(6, 0, 6, 6)
    fs = both.desk.fs.crash(KeepAll())
    both.live.reboot()
    file = fs.open(f"{FOLDER}/{4:020d}.log", "rw")
    if tail:
        write_all(file, [tail], 2 * ONE)
    for reader in (both.observe(fs), both.observe(fs)):
        assert reader.bounds().high_watermark == 6
        assert both.seen(reader) == [ten(number) for number in range(6)]


def test_without_any_state_the_last_segment_is_scanned() -> None:
    both = Beside()
    for number in range(6):
        append(both.log, ten(number))
    fs = both.desk.fs.crash(KeepAll())
    both.live.reboot()
    assert both.seen(both.observe(fs)) == [ten(number) for number in range(6)]


@pytest.mark.parametrize("committed", [0, 2, 4, 5, 6])
@pytest.mark.parametrize("durable", [0, 4, 6])
def test_of_a_replica_it_sees_what_was_durably_committed_and_no_more(committed: int, durable: int) -> None:
    live, desk = MemoryLive(), Desk(segment_bytes=4 * ONE, index_interval_bytes=0)
    log = desk.replica()
    for number in range(6):
        append(log, ten(number))
    log.sync()
    log.advance_high_watermark(committed)
    state = replace(row_of(log), recovery_point=durable)
    assert state.replica
    pool = FilePool(desk.fs)
    reader = ReadOnlyLog(
        where="t-0", directory=FOLDER, pool=pool, live=live, live_slot=3, state=lambda: state
    )
    assert reader.bounds().high_watermark == committed
    assert values(reader) == [ten(number) for number in range(committed)]
    log.truncate_to(committed)  # another leader's records come in their place
    log.append(checked(batch(b"of another leader")), term=5)
    log.sync()
    assert values(reader) == [ten(number) for number in range(committed)]
    log.advance_high_watermark(committed + 1)
    state = row_of(log)
    assert values(reader) == [*(ten(number) for number in range(committed)), b"of another leader"]


def test_a_scan_goes_on_where_the_last_one_ended() -> None:
    both = Beside(segment_bytes=1 << 20)
    for number in range(50):
        append(both.log, ten(number))
    fs = both.desk.fs.process_crash()
    both.live.reboot()
    reader = both.observe(fs)
    assert reader.bounds().high_watermark == 50
    read: list[str] = []
    fs.faults.observer = lambda op: read.append(op.path) if op.name == "pread" else None
    assert reader.bounds().high_watermark == 50
    assert [path for path in read if path.endswith(".log")] == []
    file = fs.open(f"{FOLDER}/{0:020d}.log", "rw")
    write_all(file, [batch(b"more", base_offset=50, epoch=0)], file.size())
    assert reader.bounds().high_watermark == 51


def test_nothing_was_ever_written() -> None:
    both = Beside()
    both.live.reboot()
    reader = ReadOnlyLog(
        where="t-1",
        directory="/t-1",
        pool=FilePool(both.desk.fs),
        live=both.live,
        live_slot=9,
        state=lambda: None,
    )
    assert reader.bounds() == (0, 0, 0, 0, -1)
    assert reader.read(0, 100, 0) is None
    with pytest.raises(SegmentVanishedError, match="t-1: no segment in /t-1 holds offset 0"):
        reader.read(0, 100, 1)
    reader.refresh()
    assert len(reader.segments) == 0


# --- files that move under it -----------------------------------------------------------------------


def test_a_segment_that_vanished_is_named_with_the_lost_range() -> None:
    both = Beside()
    for number in range(10):
        append(both.log, ten(number))
    both.log.sync()
    assert both.seen()[0] == ten(0)
    for suffix in (".log", ".index", ".timeindex"):
        both.desk.fs.remove(f"{FOLDER}/{0:020d}{suffix}")
    reader = both.observe(both.desk.fs)
    with pytest.raises(SegmentVanishedError, match="offsets 1 to 3 are gone") as caught:
        reader.read(1, 1 << 20, 10)
    assert caught.value.lost == (1, 4)
    assert values(reader, start=4, end=10) == [ten(number) for number in range(4, 10)]


def test_a_log_that_vanishes_whole() -> None:
    both = Beside()
    for number in range(5):
        append(both.log, ten(number))
    both.log.sync()
    reader = both.observe(both.desk.fs)
    reader.refresh()
    for name in both.desk.fs.listdir(FOLDER):
        both.desk.fs.remove(f"{FOLDER}/{name}")
    with pytest.raises(SegmentVanishedError) as caught:
        both.seen(reader)
    assert caught.value.lost == (0, 5)


def test_damage_is_read_again_before_it_is_reported() -> None:
    """A batch that is being put in place may look torn for a moment."""
    both = Beside(segment_bytes=1 << 20)
    for number in range(3):
        append(both.log, ten(number))
    both.log.sync()
    path = f"{FOLDER}/{0:020d}.log"
    good = read_file(both.desk.fs, path)
    bad = good[: ONE + 8] + bytes(4) + good[ONE + 12 :]
    reader = both.observe(both.desk.fs)
    replace_file(both.desk.fs, path, bad)
    calls = 0

    def mend(operation: Any) -> None:
        nonlocal calls
        if operation.name == "listdir":
            calls += 1
            if calls == 2:
                both.desk.fs.faults.observer = None
                replace_file(both.desk.fs, path, good)

    both.desk.fs.faults.observer = mend
    assert values(reader, end=3) == [ten(0), ten(1), ten(2)]
    replace_file(both.desk.fs, path, bad)
    with pytest.raises(CorruptBatchError, match="at byte"):
        values(both.observe(both.desk.fs), end=3)


def test_indexes_are_hints_also_while_they_are_written() -> None:
    both = Beside(segment_bytes=1 << 20, index_interval_bytes=0)
    for number in range(30):
        append(both.log, ten(number))
    both.log.checkpoint()
    index = f"{FOLDER}/{0:020d}.index"
    whole = read_file(both.desk.fs, index)
    for content in (b"", whole[:50], whole[:-3], b"\x77" * len(whole), whole[80:]):
        replace_file(both.desk.fs, index, content)
        reader = both.observe(both.desk.fs)
        assert [values(reader, start, 30)[0] for start in range(30)] == [ten(n) for n in range(30)]
    both.desk.fs.remove(index)
    assert values(both.observe(both.desk.fs), 17, 30)[0] == ten(17)


def test_lookup_by_time_beside_a_writer() -> None:
    both = Beside()
    for number in range(14):
        append(both.log, ten(number), at_ms=NOW_MS + number)
    both.log.sync()
    append(both.log, ten(14), at_ms=NOW_MS + 14)
    both.reader.refresh()
    high = both.reader.bounds().high_watermark
    assert both.reader.segments.max_timestamp(high) == NOW_MS + 13
    for wanted in range(15):
        floors = [f.base_offset for f in both.reader.segments.first_at_or_after(NOW_MS + wanted, high)]
        assert floors[:1] == ([wanted] if wanted < 14 else [])


def test_a_failing_disk_is_a_named_error() -> None:
    both = Beside()
    append(both.log, ten(0))
    both.log.sync()
    both.live.reboot()
    both.desk.fs.faults.on("listdir", FaultKind.EIO)
    with pytest.raises(StorageError, match="cannot list /t-0"):
        both.reader.bounds()
    both.desk.fs.faults.on("open", FaultKind.EIO, path_ends="leader-epoch-checkpoint")
    with pytest.raises(StorageError, match="leader-epoch-checkpoint"):
        both.reader.epoch_table()


def test_a_symbolic_link_in_the_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / f"{0:020d}.log").write_bytes(batch(b"not ours", base_offset=0))
    os.symlink(tmp_path / "elsewhere", tmp_path / "t-0")
    reader = ReadOnlyLog(
        where="t-0",
        directory=str(tmp_path / "t-0"),
        pool=FilePool(OsFileSystem()),
        live=MemoryLive(),
        live_slot=0,
        state=lambda: None,
    )
    with pytest.raises(StorageError, match="symbolic links are refused"):
        reader.bounds()


def test_a_read_goes_on_where_the_last_one_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    both = Beside()
    for number in range(10):
        append(both.log, ten(number))
    both.log.sync()
    located: list[int] = []
    locate = Segment.locate

    def counted(segment: Segment, offset: int) -> int | None:
        located.append(offset)
        return locate(segment, offset)

    monkeypatch.setattr(Segment, "locate", counted)
    for start in (0, 3):
        found = records(both.reader, start, 10, max_bytes=ONE)
        assert [record.value for record in found] == list(map(ten, range(start, 10)))
    assert located == [0, 4, 8, 3, 4, 8]  # the first batch that is read of each segment


@pytest.mark.parametrize("position", [0, ONE, 3 * ONE - 1, 5 * ONE, 6 * ONE, 100 * ONE])
def test_what_lies_where_the_last_read_ended_has_to_confirm(position: int) -> None:
    both = Beside(segment_bytes=1 << 20)
    for number in range(6):
        append(both.log, ten(number))
    both.log.sync()
    chunk = both.reader.read(0, 3 * ONE, 6)
    assert chunk is not None
    assert chunk.next_offset == 3
    segment = both.reader.segments.segments[0]
    assert both.reader._went_on == (segment, 3, 3 * ONE)
    both.reader._went_on = segment, 3, position  # as if the file had been written anew
    found = records(both.reader, 3, 6, max_bytes=ONE)
    assert [record.value for record in found] == [ten(3), ten(4), ten(5)]


def test_without_transactions_their_index_is_not_read() -> None:
    both = Beside()
    append(both.log, ten(0))
    both.log.sync()
    chunk = both.reader.read(0, ONE, 1)
    assert chunk is not None
    both.desk.fs.faults.on("open", FaultKind.EIO)
    assert both.reader.aborted(0, 1, chunk.data) == []
