"""Opening a partition: what is trusted, what is cut, what is refused, and that it can all be cut short."""

from __future__ import annotations

from typing import Any

import pytest

from logstore.errors import DamagedStoreError, LogStoreError
from logstore.log.checkpoints import decode_pairs
from logstore.log.owned_log import OwnedLog
from logstore.seams.faults import FaultKind, SimulatedCrash
from logstore.seams.fs import read_file, replace_file, write_all
from logstore.seams.memory_crash import KeepAll, KeepNothing
from logstore.seams.memory_fs import MemoryFileSystem
from tests.log.logs import FOLDER, NOW_MS, Desk, append, batch, records, values

ONE = len(batch(b"." * 10))
SETTINGS: dict[str, Any] = {"segment_bytes": 6 * ONE, "index_interval_bytes": 0, "tail_cache_bytes": 0}
ACTIVE = f"{FOLDER}/{12:020d}.log"


def ten(number: int) -> bytes:
    return b"%010d" % number


def written(synced: int = 14, total: int = 17) -> Desk:
    """Segments 0 and 6 are closed; 12 has ``total`` - 12 batches of which those below ``synced`` are durable."""
    desk = Desk(**SETTINGS)
    log = desk.open()
    for number in range(synced):
        append(log, ten(number), at_ms=NOW_MS + number)
    log.checkpoint()
    for number in range(synced, total):
        append(log, ten(number), at_ms=NOW_MS + number)
    return desk


def reopened(fs: MemoryFileSystem, **rules: Any) -> tuple[Desk, OwnedLog]:
    desk = Desk(fs, **SETTINGS)
    return desk, desk.open(**rules)


def edited(fs: MemoryFileSystem, path: str, at: int, content: bytes) -> None:
    file = fs.open(path, "rw")
    write_all(file, [content], at)
    file.sync()
    file.close()


def indexes(desk: Desk) -> dict[str, bytes]:
    return {name: read_file(desk.fs, f"{FOLDER}/{name}") for name in desk.names("index")}


# --- nothing is wrong -------------------------------------------------------------------------------


def test_a_clean_partition_is_read_from_its_newest_index_entry_on() -> None:
    desk = written(17, 17)
    fs = desk.fs.crash(KeepNothing())
    again = Desk(fs, **SETTINGS)
    loaded = again.load(recovery_point=17, clean=True)
    assert loaded.log_end_offset == 17
    assert loaded.report.scanned_bytes < 4 * ONE
    assert (loaded.report.cut_bytes, loaded.report.indexes_rebuilt) == (0, 0)
    assert loaded.epochs.entries == ((0, 0),)
    assert [segment.closed for segment in loaded.segments.segments] == [True, True, False]


def test_an_empty_folder() -> None:
    loaded = Desk().load()
    assert (loaded.log_end_offset, len(loaded.segments), loaded.epochs.latest) == (0, 0, -1)


def test_after_a_kill_all_is_there_and_the_epoch_goes_up() -> None:
    _, log = reopened(written().fs.process_crash(), recovery_point=14)
    assert values(log) == [ten(number) for number in range(17)]
    assert log.epochs.entries == ((0, 0), (1, 17))
    append(log, b"next")
    assert log.bounds().leader_epoch == 1


def test_what_a_kill_left_is_durable_after_recovery() -> None:
    desk, log = reopened(written().fs.process_crash(), recovery_point=14)
    assert log.high_watermark == 17
    _, later = reopened(desk.fs.crash(KeepNothing()), recovery_point=17, same_boot=False)
    assert values(later) == [ten(number) for number in range(17)]


def test_pages_that_only_look_clean_are_written_again() -> None:
    """After a failed sync the cache reads well, and a later sync would write nothing."""
    desk = written()
    desk.fs.faults.on("sync", FaultKind.FAILED_SYNC, path_ends=".log")
    file = desk.fs.open(ACTIVE, "rw")
    with pytest.raises(OSError, match="Input/output"):
        file.sync()
    again, log = reopened(desk.fs.process_crash(), recovery_point=14)
    assert log.log_end_offset == 17
    _, later = reopened(again.fs.crash(KeepNothing()), recovery_point=17, same_boot=False)
    assert values(later) == [ten(number) for number in range(17)]


# --- the same boot ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kept", [0, 1, 11, 12, 60, ONE - 1])
def test_an_incomplete_last_write_is_cut_in_the_same_boot(kept: int) -> None:
    desk = written()
    fs = desk.fs.process_crash()
    last = batch(ten(17), base_offset=17)[:kept]
    edited(fs, ACTIVE, 5 * ONE, last)
    again = Desk(fs, **SETTINGS)
    loaded = again.load(recovery_point=14)
    assert loaded.log_end_offset == 17
    assert loaded.report.cut_bytes == kept
    assert len(again.content(12)) == 5 * ONE
    if any(last):
        assert [read_file(fs, path) for path in loaded.report.cut_files] == [last]
        assert loaded.report.cut_files[0] == f"{ACTIVE}.cut-{NOW_MS}"
        assert loaded.report.cut_reason is not None
        assert loaded.report.cut_reason.startswith(f"byte {5 * ONE}: ")
    else:
        assert loaded.report.cut_files == ()


@pytest.mark.parametrize("at", [5, 16, 25, 63])
def test_damage_in_the_same_boot_is_refused(at: int) -> None:
    """The page cache has survived: no power loss explains a batch that is whole and wrong."""
    fs = written().fs.process_crash()
    edited(fs, ACTIVE, 3 * ONE + at, b"\xee")
    with pytest.raises(DamagedStoreError, match="has not restarted") as caught:
        reopened(fs, recovery_point=14)
    assert (caught.value.path, caught.value.position) == (ACTIVE, 3 * ONE)


def test_zeros_in_the_same_boot_are_refused() -> None:
    fs = written().fs.process_crash()
    edited(fs, ACTIVE, 5 * ONE, bytes(200))
    with pytest.raises(DamagedStoreError, match="has not restarted"):
        reopened(fs, recovery_point=14)


# --- after a power loss -----------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [14, 15, 16])
def test_a_power_loss_cuts_at_the_first_bad_batch(bad: int) -> None:
    desk = written()
    fs = desk.fs.crash(KeepAll())
    content = read_file(fs, ACTIVE)
    position = (bad - 12) * ONE
    damaged = bytearray(content)
    damaged[position + 65] ^= 0xFF
    edited(fs, ACTIVE, 0, bytes(damaged))
    again = Desk(fs, **SETTINGS)
    loaded = again.load(recovery_point=14, same_boot=False)
    assert loaded.log_end_offset == bad
    assert again.content(12) == content[:position]
    (cut,) = loaded.report.cut_files
    assert read_file(fs, cut) == bytes(damaged[position:])
    assert loaded.report.cut_bytes == len(damaged) - position
    assert loaded.report.end_offset == bad
    assert loaded.epochs.entries == ((0, 0), (1, bad))


def test_unsynced_tail_gone_without_a_trace() -> None:
    _, log = reopened(written().fs.crash(KeepNothing()), recovery_point=14, same_boot=False)
    assert values(log) == [ten(number) for number in range(14)]
    assert log.epochs.entries == ((0, 0), (1, 14))


@pytest.mark.parametrize("zeros", [1, 61, 5_000])
def test_a_tail_of_zeros_holds_nothing_to_keep(zeros: int) -> None:
    fs = written(17, 17).fs.crash(KeepNothing())
    edited(fs, ACTIVE, 5 * ONE, bytes(zeros))
    again = Desk(fs, **SETTINGS)
    loaded = again.load(recovery_point=17, same_boot=False)
    assert (loaded.log_end_offset, loaded.report.cut_bytes, loaded.report.cut_files) == (17, zeros, ())
    assert len(again.content(12)) == 5 * ONE


def test_segments_behind_the_cut_are_set_aside() -> None:
    """Their blocks came to the disk, those before them did not, and the recovery point is older than both."""
    fs = written(17, 17).fs.crash(KeepNothing())
    edited(fs, f"{FOLDER}/{6:020d}.log", 4 * ONE, b"\xee" * 10)
    whole = read_file(fs, ACTIVE)
    again = Desk(fs, **SETTINGS)
    loaded = again.load(recovery_point=6, same_boot=False)
    assert loaded.log_end_offset == 10
    assert again.names() == [f"{0:020d}.log", f"{6:020d}.log"]
    assert again.names(".index") == [f"{0:020d}.index", f"{6:020d}.index"]
    assert whole in [read_file(fs, path) for path in loaded.report.cut_files]
    assert loaded.report.cut_bytes == 2 * ONE + len(whole)
    log = again.open(recovery_point=10, clean=True)
    append(log, b"on")
    assert records(log)[-1].offset == 10


def test_two_cuts_at_the_same_time_get_two_files() -> None:
    fs = written(14, 14).fs.crash(KeepNothing())
    for number in range(3):
        edited(fs, ACTIVE, 2 * ONE, b"\xee" * 70)
        Desk(fs, **SETTINGS).load(recovery_point=14, same_boot=False)
        assert sorted(name[-13:] for name in fs.listdir(FOLDER) if ".cut-" in name) == [
            str(NOW_MS + n) for n in range(number + 1)
        ]


# --- below the recovery point nothing is cut --------------------------------------------------------


@pytest.mark.parametrize("same_boot", [True, False])
@pytest.mark.parametrize("clean", [True, False])
def test_damage_below_the_recovery_point_is_an_error(same_boot: bool, clean: bool) -> None:
    fs = written(17, 17).fs.crash(KeepNothing())
    for name in (f"{12:020d}.index", f"{12:020d}.timeindex"):
        fs.remove(f"{FOLDER}/{name}")  # so that the whole segment is read
    edited(fs, ACTIVE, ONE + 65, b"\xee\xee")
    before = {name: read_file(fs, f"{FOLDER}/{name}") for name in fs.listdir(FOLDER)}
    with pytest.raises(DamagedStoreError, match="below the durable recovery point 17") as caught:
        reopened(fs, recovery_point=17, same_boot=same_boot, clean=clean)
    assert (caught.value.path, caught.value.position) == (ACTIVE, ONE)
    assert {name: read_file(fs, f"{FOLDER}/{name}") for name in fs.listdir(FOLDER)} == before


@pytest.mark.parametrize("kept", [0, ONE, 2 * ONE - 1])
def test_a_shorter_log_than_was_durable_is_an_error(kept: int) -> None:
    fs = written(14, 14).fs.crash(KeepNothing())
    file = fs.open(ACTIVE, "rw")
    file.truncate(kept)
    file.sync()
    with pytest.raises(DamagedStoreError, match="14"):
        reopened(fs, recovery_point=14, same_boot=False)


def test_segments_that_are_gone_are_an_error() -> None:
    fs = written(14, 14).fs.crash(KeepNothing())
    fs.remove(ACTIVE)
    with pytest.raises(DamagedStoreError, match="ends at offset 12, but records up to 14 were durable"):
        reopened(fs, recovery_point=14, same_boot=False)
    for name in fs.listdir(FOLDER):
        fs.remove(f"{FOLDER}/{name}")
    with pytest.raises(DamagedStoreError, match="holds no segment, but records up to offset 14"):
        reopened(fs, recovery_point=14, same_boot=False)
    fs.rmdir(FOLDER)
    with pytest.raises(DamagedStoreError, match=f"{FOLDER} is gone"):
        reopened(fs, recovery_point=14)


def test_segments_with_a_hole_between_them() -> None:
    """Only compaction leaves holes, and only below the recovery point."""
    fs = written(14, 14).fs.crash(KeepNothing())
    middle = f"{FOLDER}/{6:020d}.log"
    edited(fs, middle, 0, read_file(fs, middle)[: 4 * ONE])
    file = fs.open(middle, "rw")
    file.truncate(4 * ONE)
    file.sync()
    with pytest.raises(DamagedStoreError, match="next segment starts at offset 12, 10 was due"):
        reopened(fs, recovery_point=8)
    survivor = fs.process_crash()
    _, log = reopened(survivor, recovery_point=14, same_boot=False)
    assert [record.offset for record in records(log)] == [*range(10), 12, 13]
    again, log = reopened(survivor.process_crash(), recovery_point=8, same_boot=False)
    assert values(log) == [ten(number) for number in range(10)]
    assert any(name.startswith(f"{12:020d}.log.cut-") for name in again.fs.listdir(FOLDER))


def test_segments_that_overlap_are_an_error() -> None:
    fs = written(14, 14).fs.crash(KeepNothing())
    replace_file(fs, f"{FOLDER}/{9:020d}.log", read_file(fs, ACTIVE))
    with pytest.raises(DamagedStoreError, match="ends at offset 12, but the next segment starts at 9"):
        reopened(fs, recovery_point=6, same_boot=False)


# --- without the state file -------------------------------------------------------------------------


def test_without_a_state_only_the_last_segment_may_be_unfinished() -> None:
    fs = written().fs.process_crash()
    edited(fs, ACTIVE, 5 * ONE, b"\0\0")
    _, log = reopened(fs, recovery_point=None, same_boot=False)
    assert values(log) == [ten(number) for number in range(17)]
    fs = written().fs.process_crash()
    edited(fs, f"{FOLDER}/{6:020d}.log", 65, b"\xee")
    _, log = reopened(fs, recovery_point=None, same_boot=False)
    assert log.log_end_offset == 17  # not looked at: a reader will name the damage


# --- indexes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("which", ["missing", "empty", "garbage", "padded", "swapped rows", "half a row"])
def test_indexes_are_rebuilt_identically(which: str, clean: bool) -> None:
    desk = written(17, 17)
    expected = indexes(desk)
    assert all(expected.values())
    fs = desk.fs.crash(KeepNothing())
    for name, content in expected.items():
        path = f"{FOLDER}/{name}"
        row = 8 if name.endswith(".index") else 12
        spoilt = {
            "missing": b"",
            "empty": b"",
            "garbage": b"\x99" * len(content),
            "padded": content + bytes(50 * row),
            "swapped rows": content[row : 2 * row] + content[:row] + content[2 * row :],
            "half a row": content + b"\x01\x02",
        }[which]
        if name.startswith(f"{12:020d}") or which in ("missing", "padded"):
            replace_file(fs, path, spoilt)
            if which == "missing":
                fs.remove(path)
    again = Desk(fs, **SETTINGS)
    loaded = again.load(recovery_point=17, clean=clean, same_boot=clean)
    assert values(again.open(recovery_point=17, clean=True)) == [ten(number) for number in range(17)]
    for name, content in indexes(again).items():
        if which == "padded" and not name.startswith(f"{12:020d}"):
            content = content.rstrip(b"\0")
            assert expected[name].rstrip(b"\0") == content
        else:
            assert content == expected[name], name
    assert loaded.report.indexes_rebuilt > 0 or which == "padded"


def test_rows_past_the_cut_go_with_it() -> None:
    desk = written(14, 17)
    for segment in desk.load().segments.segments:
        segment.store_indexes()
    fs = desk.fs.crash(KeepAll())
    edited(fs, ACTIVE, 2 * ONE + 65, b"\xee")
    again, log = reopened(fs, recovery_point=14, same_boot=False)
    append(log, ten(14), at_ms=NOW_MS + 14)
    append(log, ten(15), at_ms=NOW_MS + 15)
    append(log, ten(16), at_ms=NOW_MS + 16)
    log.checkpoint()
    assert indexes(again) == indexes(written(17, 17))


def test_indexes_of_a_roll_that_was_cut_short_go() -> None:
    fs = written(14, 14).fs.process_crash()
    for suffix in (".index", ".timeindex"):
        fs.open(f"{FOLDER}/{14:020d}{suffix}", "create").close()
    fs.open(f"{FOLDER}/{12:020d}.index.tmp", "create").close()
    again, _ = reopened(fs, recovery_point=14)
    assert not any(
        name.startswith(f"{14:020d}") or name.endswith(".tmp") for name in again.fs.listdir(FOLDER)
    )


def test_files_of_an_empty_next_segment_are_taken_over() -> None:
    fs = written(14, 14).fs.process_crash()
    for suffix in (".index", ".timeindex", ".log"):
        fs.open(f"{FOLDER}/{14:020d}{suffix}", "create").close()
    again, log = reopened(fs, recovery_point=14)
    append(log, ten(14))
    log.sync()
    assert values(log) == [ten(number) for number in range(15)]
    assert len(again.content(14)) == ONE


# --- epochs -----------------------------------------------------------------------------------------


def test_the_epoch_goes_up_at_every_unclean_open_only() -> None:
    fs = written(14, 14).fs
    for clean, expected in [(False, 1), (True, 1), (False, 2), (False, 3), (True, 3)]:
        desk, log = reopened(fs, recovery_point=14, clean=clean)
        assert log.leader_epoch == expected
        fs = desk.fs.process_crash()
    path = f"{FOLDER}/leader-epoch-checkpoint"
    assert decode_pairs(read_file(fs, path), path) == [(0, 0), (3, 14)]  # those without records are gone


def test_an_epoch_whose_records_were_cut_is_never_given_again() -> None:
    fs = written(14, 14).fs
    desk, log = reopened(fs.process_crash(), recovery_point=14)
    append(log, b"under epoch 1")
    assert log.leader_epoch == 1
    _, later = reopened(desk.fs.crash(KeepNothing()), recovery_point=14, same_boot=False)
    assert later.log_end_offset == 14
    assert later.epochs.entries == ((0, 0), (2, 14))


def test_a_lost_checkpoint_is_made_from_the_batches() -> None:
    desk, log = reopened(written(14, 14).fs.process_crash(), recovery_point=14)
    append(log, b"under 1")
    log.checkpoint()
    fs = desk.fs.crash(KeepNothing())
    path = f"{FOLDER}/leader-epoch-checkpoint"
    fs.remove(path)
    _, again = reopened(fs, recovery_point=15, clean=True)
    assert again.epochs.entries == ((0, 0), (1, 14))
    assert decode_pairs(read_file(fs, path), path) == [(0, 0), (1, 14)]


def test_a_damaged_checkpoint_is_an_error() -> None:
    fs = written(14, 14).fs.process_crash()
    replace_file(fs, f"{FOLDER}/leader-epoch-checkpoint", b"0\n9\n")
    with pytest.raises(DamagedStoreError, match="leader-epoch-checkpoint is not a checkpoint"):
        reopened(fs, recovery_point=14)


def test_an_empty_log_gets_no_epoch() -> None:
    desk, log = reopened(Desk(**SETTINGS).fs.process_crash())
    assert log.leader_epoch == -1
    assert desk.names("checkpoint") == []


# --- recovery itself is cut short -------------------------------------------------------------------


def broken() -> MemoryFileSystem:
    """After a power loss: a bad batch in the middle of three segments that are all past the recovery point,
    indexes gone, a temporary file left."""
    fs = written(17, 17).fs.crash(KeepNothing())
    edited(fs, f"{FOLDER}/{6:020d}.log", 4 * ONE, b"\xee" * 10)
    fs.remove(f"{FOLDER}/{0:020d}.index")
    fs.open(f"{FOLDER}/{0:020d}.index.tmp", "create").close()
    fs.sync_dir(FOLDER)
    return fs


RULES: dict[str, Any] = {"recovery_point": 3, "same_boot": False}


def outcome(fs: MemoryFileSystem) -> tuple[list[bytes], dict[str, bytes], set[bytes]]:
    desk = Desk(fs, **SETTINGS)
    log = desk.open(**RULES)
    cut = {read_file(fs, f"{FOLDER}/{name}") for name in fs.listdir(FOLDER) if ".cut-" in name}
    return values(log), indexes(desk), cut


def test_recovery_that_crashes_at_any_call_can_be_run_again() -> None:
    clean = broken()
    start = clean.faults.calls
    expected = outcome(clean)
    total = clean.faults.calls - start
    assert expected[0] == [ten(number) for number in range(10)]
    for call in range(1, total + 1):
        fs = broken()
        fs.faults.at(fs.faults.calls + call, FaultKind.CRASH)
        with pytest.raises(SimulatedCrash):
            outcome(fs)
        for survivor in (fs.process_crash(), fs.crash(KeepNothing()), fs.crash(KeepAll())):
            found, rebuilt, cut = outcome(survivor)
            assert found == expected[0], call
            assert rebuilt == expected[1], call
            assert cut >= expected[2], call  # nothing that was cut is lost; a copy may be there twice


def test_recovery_meets_a_full_or_failing_disk_with_a_named_error() -> None:
    clean = broken()
    start = clean.faults.calls
    outcome(clean)
    total = clean.faults.calls - start
    for kind in (FaultKind.EIO, FaultKind.ENOSPC, FaultKind.SHORT_WRITE, FaultKind.FAILED_SYNC):
        for call in range(1, total + 1):
            fs = broken()
            fs.faults.at(fs.faults.calls + call, kind)
            try:
                outcome(fs)
            except (LogStoreError, OSError):
                fs.faults.clear()
                assert outcome(fs)[0] == [ten(number) for number in range(10)]
