"""What a power loss and a kill leave, case by case, and as laws under random calls."""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from logstore.seams.faults import FaultKind, SimulatedCrash
from logstore.seams.fs import File, exists, read_file, write_all
from logstore.seams.memory_crash import KeepAll, KeepNothing, RandomChooser
from logstore.seams.memory_fs import MemoryFileSystem

SECTOR = 512


def made(fs: MemoryFileSystem, path: str, content: bytes = b"", *, synced: bool = False) -> File:
    file = fs.open(path, "create")
    write_all(file, [content], 0)
    if synced:
        file.sync()
        fs.sync_dir(path.rpartition("/")[0] or "/")
    return file


def contents(fs: MemoryFileSystem, path: str) -> set[bytes | None]:
    """What a crash here and now may leave at ``path``; None: no such name."""
    return {
        read_file(after, path) if exists(after, path) else None for after in fs.crash_states(limit=10_000)
    }


class TestPowerLoss:
    def test_what_was_synced_survives(self) -> None:
        fs = MemoryFileSystem()
        made(fs, "/a", b"synced", synced=True)
        assert contents(fs, "/a") == {b"synced"}

    def test_a_synced_file_needs_its_directory_synced(self) -> None:
        fs = MemoryFileSystem()
        made(fs, "/a", b"synced").sync()
        assert contents(fs, "/a") == {None, b"synced"}

    def test_a_synced_directory_does_not_sync_the_file(self) -> None:
        fs = MemoryFileSystem()
        made(fs, "/a", b"x")
        fs.sync_dir("/")
        assert contents(fs, "/a") == {b"", b"\0", b"x"}

    def test_every_folder_above_needs_its_own_sync(self) -> None:
        fs = MemoryFileSystem()
        fs.mkdir("/d")
        made(fs, "/d/a", b"x", synced=True)
        assert contents(fs, "/d/a") == {None, b"x"}
        fs.sync_dir("/")
        assert contents(fs, "/d/a") == {b"x"}

    def test_size_and_content_are_kept_apart(self) -> None:
        fs = MemoryFileSystem()
        file = made(fs, "/a", b"old", synced=True)
        file.pwritev([b"new"], 3)
        assert contents(fs, "/a") == {b"old", b"old\0\0\0", b"oldnew"}

    def test_writes_are_reordered(self) -> None:
        fs = MemoryFileSystem()
        file = made(fs, "/a", b"", synced=True)
        file.pwritev([b"1" * SECTOR], 0)
        file.pwritev([b"2" * SECTOR], SECTOR)
        assert b"\0" * SECTOR + b"2" * SECTOR in contents(fs, "/a")

    def test_a_write_is_torn_at_sectors_of_the_disk(self) -> None:
        fs = MemoryFileSystem()
        file = made(fs, "/a", b"-" * 2_000, synced=True)
        file.pwritev([b"x" * 1_500], 100)  # sectors 0 to 3, the first and the last in part
        kept = {content for content in contents(fs, "/a") if content is not None}
        cuts = {content.count(b"x") for content in kept}
        assert {0, 412, 412 + 2 * SECTOR, 1_500} <= cuts
        assert all(len(content) == 2_000 for content in kept)

    def test_an_overwrite_that_is_lost_leaves_the_old_bytes(self) -> None:
        fs = MemoryFileSystem()
        file = made(fs, "/a", b"old!", synced=True)
        file.pwritev([b"new"], 0)
        assert contents(fs, "/a") == {b"old!", b"new!"}

    def test_a_truncate_may_be_lost(self) -> None:
        fs = MemoryFileSystem()
        file = made(fs, "/a", b"abcdef", synced=True)
        file.truncate(2)
        assert contents(fs, "/a") == {b"abcdef", b"ab"}
        file.sync()
        assert contents(fs, "/a") == {b"ab"}

    def test_cut_bytes_never_come_back_once_the_file_grew_again(self) -> None:
        fs = MemoryFileSystem()
        file = made(fs, "/a", b"abcdef", synced=True)
        file.truncate(2)
        file.pwritev([b"XY"], 2)
        left = contents(fs, "/a")
        assert left >= {b"abcdef", b"ab", b"abXY", b"ab\0\0"}
        assert not any(content and len(content) == 4 and content.endswith(b"cd") for content in left)

    def test_a_rename_inside_a_directory_is_one_change(self) -> None:
        fs = MemoryFileSystem()
        made(fs, "/a", b"old", synced=True)
        made(fs, "/a.tmp", b"new", synced=True)
        fs.rename("/a.tmp", "/a")
        states = {(exists(s, "/a.tmp"), read_file(s, "/a")) for s in fs.crash_states()}
        assert states == {(True, b"old"), (False, b"new")}

    def test_a_rename_between_directories_is_two_changes(self) -> None:
        fs = MemoryFileSystem()
        fs.mkdir("/d")
        made(fs, "/a", b"x", synced=True)
        fs.rename("/a", "/d/a")
        states = {(exists(s, "/a"), exists(s, "/d/a")) for s in fs.crash_states()}
        assert states == {(True, False), (False, True), (True, True), (False, False)}

    def test_a_renamed_file_that_was_never_synced_is_empty(self) -> None:
        fs = MemoryFileSystem()
        made(fs, "/a.tmp", b"new")
        fs.rename("/a.tmp", "/a")
        fs.sync_dir("/")
        assert b"" in contents(fs, "/a")

    def test_a_remove_may_be_lost(self) -> None:
        fs = MemoryFileSystem()
        made(fs, "/a", b"x", synced=True)
        fs.remove("/a")
        assert contents(fs, "/a") == {None, b"x"}
        fs.sync_dir("/")
        assert contents(fs, "/a") == {None}

    def test_two_names_of_one_file_stay_one_file(self) -> None:
        fs = MemoryFileSystem()
        file = made(fs, "/a", b"x", synced=True)
        fs.link("/a", "/b")
        fs.sync_dir("/")
        file.pwritev([b"y"], 0)
        for after in fs.crash_states():
            assert after.stat("/a").inode == after.stat("/b").inode
            after.open("/a", "rw").pwritev([b"z"], 0)
            assert read_file(after, "/b") == b"z"

    def test_outcomes_differ_and_are_bounded(self) -> None:
        fs = MemoryFileSystem()
        file = made(fs, "/a", b"", synced=True)
        for index in range(20):
            file.pwritev([b"%02d" % index], 2 * index)
        states = [state.fingerprint() for state in fs.crash_states(limit=15)]
        assert len(states) == len(set(states)) == 15

    def test_the_crashed_system_is_halted_and_unchanged(self) -> None:
        fs = MemoryFileSystem()
        file = made(fs, "/a", b"x")
        first = fs.crash(KeepNothing())
        with pytest.raises(SimulatedCrash):
            file.pread(1, 0)
        with pytest.raises(SimulatedCrash):
            fs.listdir("/")
        file.close()
        assert not exists(first, "/a")
        assert read_file(fs.crash(KeepAll()), "/a") == b"x"

    def test_outcomes_are_apart_from_each_other_and_from_the_original(self) -> None:
        fs = MemoryFileSystem()
        file = made(fs, "/a", b"x" * 10, synced=True)
        one, other = fs.crash(KeepAll()), fs.crash(KeepAll())
        one.open("/a", "rw").pwritev([b"one"], 0)
        other.open("/a", "rw").truncate(1)
        assert read_file(one, "/a") == b"onexxxxxxx"
        assert read_file(other, "/a") == b"x"
        assert read_file(fs.crash(KeepAll()), "/a") == b"x" * 10
        file.close()

    def test_the_same_seed_leaves_the_same(self) -> None:
        fs = MemoryFileSystem()
        file = made(fs, "/a", b"", synced=True)
        for index in range(30):
            file.pwritev([bytes([index]) * 700], index * 700)
            made(fs, f"/{index}", b"x")
        marks = [fs.crash(RandomChooser(random.Random(seed))).fingerprint() for seed in (1, 1, 2)]
        assert marks[0] == marks[1] != marks[2]


class TestProcessCrash:
    def test_keeps_the_page_cache_and_leaves_it_undurable(self) -> None:
        fs = MemoryFileSystem()
        file = made(fs, "/a", b"old", synced=True)
        file.pwritev([b"new"], 0)
        fs.mkdir("/d")
        after = fs.process_crash()
        assert (read_file(after, "/a"), exists(after, "/d")) == (b"new", True)
        again = after.crash(KeepNothing())
        assert (read_file(again, "/a"), exists(again, "/d")) == (b"old", False)

    def test_a_later_sync_covers_what_the_killed_process_wrote(self) -> None:
        fs = MemoryFileSystem()
        made(fs, "/a", b"", synced=True).pwritev([b"killed"], 0)
        after = fs.process_crash()
        after.open("/a", "r").sync()
        assert contents(after, "/a") == {b"killed"}

    def test_open_files_of_the_killed_process_are_invalid(self) -> None:
        fs = MemoryFileSystem()
        file = made(fs, "/a", b"x")
        fs.process_crash()
        with pytest.raises(SimulatedCrash):
            file.pwritev([b"y"], 0)


class TestFailedSync:
    def failed(self) -> tuple[MemoryFileSystem, File]:
        fs = MemoryFileSystem()
        file = made(fs, "/a", b"", synced=True)
        file.pwritev([b"lost"], 0)
        fs.faults.on("sync", FaultKind.FAILED_SYNC)
        with pytest.raises(OSError, match="Input/output error"):
            file.sync()
        return fs, file

    def test_reads_go_on_and_a_retry_promises_what_it_does_not_hold(self) -> None:
        fs, file = self.failed()
        assert file.pread(4, 0) == b"lost"
        file.sync()
        assert contents(fs, "/a") == {b"\0" * 4, b"lost"}

    def test_without_a_retry_the_size_is_in_doubt_too(self) -> None:
        fs, _file = self.failed()
        assert contents(fs, "/a") == {b"", b"\0" * 4, b"lost"}

    def test_what_is_written_after_it_is_synced(self) -> None:
        fs, file = self.failed()
        file.pwritev([b"kept"], 4)
        file.sync()
        assert contents(fs, "/a") == {b"\0" * 4 + b"kept", b"lostkept"}

    def test_written_anew_it_can_be_synced(self) -> None:
        fs, file = self.failed()
        file.pwritev([b"lost"], 0)
        file.sync()
        assert contents(fs, "/a") == {b"lost"}

    def test_a_kill_does_not_make_the_lost_pages_dirty_again(self) -> None:
        fs, _file = self.failed()
        after = fs.process_crash()
        after.open("/a", "r").sync()
        assert b"\0" * 4 in contents(after, "/a")

    def test_of_a_directory_makes_nothing_durable_and_can_be_tried_again(self) -> None:
        fs = MemoryFileSystem()
        made(fs, "/a", b"x").sync()
        fs.faults.on("sync_dir", FaultKind.EIO)
        with pytest.raises(OSError, match="Input/output error"):
            fs.sync_dir("/")
        assert contents(fs, "/a") == {None, b"x"}
        fs.sync_dir("/")
        assert contents(fs, "/a") == {b"x"}


class DurabilityLaws(RuleBasedStateMachine):
    """Files in one durable folder: what is known to be durable is there after any crash, with any seed."""

    def __init__(self) -> None:
        super().__init__()
        self.fs = MemoryFileSystem()
        self.fs.mkdir("/d")
        self.fs.sync_dir("/")
        self.files: dict[str, File] = {}
        self.synced: dict[str, bytes] = {}  # content at the last sync, while nothing was written since
        self.named: set[str] = set()  # names made durable
        self.unnamed: set[str] = set()  # names removed, made durable

    @rule(name=st.sampled_from("abc"))
    def create(self, name: str) -> None:
        if name not in self.files:
            self.files[name] = self.fs.open(f"/d/{name}", "create")
            self.unnamed.discard(name)
            self.synced.pop(name, None)

    @rule(name=st.sampled_from("abc"), data=st.binary(min_size=1, max_size=1_300))
    def append(self, name: str, data: bytes) -> None:
        if name in self.files:
            self.files[name].pwritev([data], self.files[name].size())
            self.synced.pop(name, None)

    @rule(name=st.sampled_from("abc"), size=st.integers(0, 600))
    def truncate(self, name: str, size: int) -> None:
        if name in self.files:
            self.files[name].truncate(size)
            self.synced.pop(name, None)

    @rule(name=st.sampled_from("abc"))
    def sync(self, name: str) -> None:
        if name in self.files:
            self.files[name].sync()
            self.synced[name] = read_file(self.fs, f"/d/{name}")

    @rule(name=st.sampled_from("abc"))
    def remove(self, name: str) -> None:
        if name in self.files:
            self.fs.remove(f"/d/{name}")
            self.files.pop(name).close()
            self.named.discard(name)
            self.synced.pop(name, None)

    @rule()
    def sync_dir(self) -> None:
        self.fs.sync_dir("/d")
        self.named = set(self.files)
        self.unnamed = set("abc") - self.named

    @rule(seed=st.integers(0, 1_000_000))
    def crash_and_go_on(self, seed: int) -> None:
        self.fs = self.fs.crash(RandomChooser(random.Random(seed)))
        self.check(self.fs)
        left = self.fs.listdir("/d")
        self.files = {name: self.fs.open(f"/d/{name}", "rw") for name in left}
        self.synced = {name: read_file(self.fs, f"/d/{name}") for name in left}
        self.named, self.unnamed = set(left), set("abc") - set(left)
        before = self.fs.fingerprint()
        assert self.fs.clone().crash(KeepNothing()).fingerprint() == before

    @rule(seed=st.integers(0, 1_000_000))
    def crash_a_twin(self, seed: int) -> None:
        self.check(self.fs.clone().crash(RandomChooser(random.Random(seed))))

    @rule()
    def kill_and_go_on(self) -> None:
        before = self.fs.fingerprint()
        self.fs = self.fs.process_crash()
        assert self.fs.fingerprint() == before
        self.files = {name: self.fs.open(f"/d/{name}", "rw") for name in self.files}

    def check(self, after: MemoryFileSystem) -> None:
        left = set(after.listdir("/d"))
        assert self.named <= left
        assert not self.unnamed & left
        for name in self.named & self.synced.keys():
            assert read_file(after, f"/d/{name}") == self.synced[name]


TestDurabilityLaws = DurabilityLaws.TestCase
TestDurabilityLaws.settings = settings(
    derandomize=True,
    deadline=None,
    max_examples=150,
    stateful_step_count=40,
    suppress_health_check=[HealthCheck.too_slow],
)
