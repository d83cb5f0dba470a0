"""Locks between real processes, threads and forks; holders; where locks hold."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from logstore.errors import (
    DiskFullError,
    ForkedStoreError,
    InvariantError,
    LogStoreError,
    PermissionDeniedError,
    StorageError,
    StoreClosedError,
    TopicLockedError,
    UnsupportedPlatformError,
)
from logstore.ownership import lock_mechanism, locks
from logstore.ownership.lock import LockHolder, Locks, this_process
from logstore.ownership.lock_mechanism import SLOT_BYTES, RangeLocks, WholeFileLocks
from logstore.ownership.locks import (
    FileLocks,
    LockTable,
    MemoryLocks,
    file_system_type,
    refuse_network_file_system,
)
from logstore.seams.clock import ManualClock
from logstore.seams.fs import PRIVATE, Access

# From 3.12 on Python warns of a fork beside threads (the test runner has some); forks are the subject here.
pytestmark = pytest.mark.filterwarnings("ignore:.*use of fork.*:DeprecationWarning")

HOLD = (
    "import sys\n"
    "from logstore.ownership.locks import FileLocks\n"
    "from logstore.ownership import lock_mechanism\n"
    "locks = FileLocks(sys.argv[1], mechanism=getattr(lock_mechanism, sys.argv[2]))\n"
    "print('held' if locks.try_acquire(3) else 'refused', flush=True)\n"
    "sys.stdin.readline()\n"
)
MECHANISMS = [pytest.param(RangeLocks, id="ofd"), pytest.param(WholeFileLocks, id="flock")]
Opener = Callable[[], Locks]


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / ".locks")


@pytest.fixture(params=["ofd", "flock", "memory"])
def opener(request: pytest.FixtureRequest, path: str) -> Opener:
    """Opens one more view of the same locks, as another process would."""
    table = LockTable()
    openers: dict[str, Opener] = {
        "ofd": lambda: FileLocks(path, mechanism=RangeLocks),
        "flock": lambda: FileLocks(path, mechanism=WholeFileLocks),
        "memory": lambda: MemoryLocks(table),
    }
    return openers[request.param]


@pytest.fixture(params=MECHANISMS)
def mechanism(request: pytest.FixtureRequest) -> type[RangeLocks] | type[WholeFileLocks]:
    chosen: type[RangeLocks] | type[WholeFileLocks] = request.param
    return chosen


class Holder:
    """A process that holds slot 3 until its standard input ends."""

    def __init__(self, path: str, mechanism: str) -> None:
        command = [sys.executable, "-c", HOLD, path, mechanism]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.said = self.process.stdout.readline().strip()

    def end(self) -> None:
        if self.process.stdin is not None and not self.process.stdin.closed:
            self.process.communicate("", timeout=30)


@pytest.fixture
def holder(path: str, mechanism: type) -> Iterator[Holder]:
    holder = Holder(path, mechanism.__name__)
    yield holder
    holder.end()


# --- what every kind of locks does ------------------------------------------------------------------


def test_a_slot_has_one_holder(opener: Opener) -> None:
    mine, theirs = opener(), opener()
    assert mine.try_acquire(1)
    assert not theirs.try_acquire(1)
    assert not mine.try_acquire(1)  # not reentrant
    assert theirs.try_acquire(2)
    assert (mine.held(1), mine.held(2), theirs.held(1), theirs.held(2)) == (True, False, False, True)
    mine.release(1)
    assert not mine.held(1)
    assert theirs.try_acquire(1)
    mine.close()
    theirs.close()


def test_holders_are_known_from_both_sides(opener: Opener) -> None:
    mine, theirs = opener(), opener()
    assert theirs.holder(1) is None
    mine.acquire(1, 0, "topic 'a'")
    for view in (mine, theirs):
        found = view.holder(1)
        assert found is not None
        assert found.pid == os.getpid()
        assert found.command == this_process(ManualClock()).command
    mine.release(1)
    assert theirs.holder(1) is None
    assert mine.holder(1) is None
    mine.close()
    theirs.close()


def test_slots_far_apart(opener: Opener) -> None:
    mine, theirs = opener(), opener()
    for slot in (0, 1, 255, 256, 70_000):
        assert mine.try_acquire(slot)
        assert not theirs.try_acquire(slot)
    mine.close()
    theirs.close()


@pytest.mark.parametrize("end", ["close", "abandon"])
def test_the_end_of_a_view_frees_all_it_held(opener: Opener, end: str) -> None:
    mine, theirs = opener(), opener()
    assert mine.try_acquire(1)
    assert mine.try_acquire(2)
    assert theirs.try_acquire(3)
    getattr(mine, end)()
    getattr(mine, end)()
    assert theirs.try_acquire(1)
    assert theirs.try_acquire(2)
    assert theirs.held(3)
    assert not mine.held(1)
    for use in (lambda: mine.try_acquire(9), lambda: mine.release(1), lambda: mine.holder(1)):
        with pytest.raises(StoreClosedError):
            use()
    theirs.close()


def test_only_the_holder_releases(opener: Opener) -> None:
    mine, theirs = opener(), opener()
    assert mine.try_acquire(1)
    with pytest.raises(InvariantError, match="lock slot 1 is released by its holder"):
        theirs.release(1)
    assert mine.held(1)
    assert not theirs.try_acquire(1)
    mine.close()
    theirs.close()


def test_threads_of_one_view_take_turns(opener: Opener) -> None:
    view = opener()
    inside: list[int] = []
    most: list[int] = []

    def work() -> None:
        for _ in range(20):
            view.acquire(4, 30, "topic 'a'")
            inside.append(1)
            most.append(len(inside))
            inside.pop()
            view.release(4)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(most), max(most)) == (80, 1)
    view.close()


# --- waiting ----------------------------------------------------------------------------------------


class Sleeps:
    """A sleep that moves a manual clock, and lets something happen at the n-th call."""

    def __init__(self, clock: ManualClock, at: int = -1, event: Callable[[], None] = lambda: None) -> None:
        self.clock = clock
        self.pauses_s: list[float] = []
        self.at = at
        self.event = event

    def __call__(self, pause_s: float) -> None:
        self.pauses_s.append(pause_s)
        self.clock.advance(round(pause_s * 1000))
        if len(self.pauses_s) == self.at:
            self.event()


@pytest.mark.parametrize("kind", ["file", "memory"])
def test_waiting_backs_off_and_ends_in_an_error_that_names_the_holder(path: str, kind: str) -> None:
    clock, table = ManualClock(), LockTable()
    sleeps = Sleeps(clock)
    mine: Locks = FileLocks(path) if kind == "file" else MemoryLocks(table)
    theirs: Locks = (
        FileLocks(path, clock=clock, sleep=sleeps)
        if kind == "file"
        else MemoryLocks(table, clock=clock, sleep=sleeps)
    )
    assert mine.try_acquire(1)
    with pytest.raises(TopicLockedError) as caught:
        theirs.acquire(1, 0.3, "topic 'flights' of /data")
    assert str(caught.value).startswith(f"topic 'flights' of /data is locked by pid {os.getpid()} on ")
    assert "waited 0.3 s for it (let its holder finish or release it" in str(caught.value)
    assert caught.value.retriable
    assert sleeps.pauses_s[:6] == [0.001, 0.002, 0.004, 0.008, 0.016, 0.032]
    assert max(sleeps.pauses_s) == 0.05
    assert round(sum(sleeps.pauses_s), 3) == 0.3
    sleeps.pauses_s.clear()
    with pytest.raises(TopicLockedError, match=r"waited 0\.0 s"):
        theirs.acquire(1, 0, "topic 'flights'")
    assert sleeps.pauses_s == []
    mine.close()
    theirs.close()


def test_waiting_ends_when_the_slot_is_free(path: str) -> None:
    clock = ManualClock()
    mine = FileLocks(path)
    sleeps = Sleeps(clock, at=3, event=lambda: mine.release(1))
    theirs = FileLocks(path, clock=clock, sleep=sleeps)
    assert mine.try_acquire(1)
    theirs.acquire(1, 30, "topic 'a'")
    assert theirs.held(1)
    assert len(sleeps.pauses_s) == 3
    mine.close()
    theirs.close()


# --- real processes ---------------------------------------------------------------------------------


def test_another_process_is_refused_and_named(path: str, mechanism: type, holder: Holder) -> None:
    assert holder.said == "held"
    mine = FileLocks(path, mechanism=mechanism)
    with pytest.raises(TopicLockedError, match=rf"locked by pid {holder.process.pid} on \S+ \(python -c\)"):
        mine.acquire(3, 0.05, "topic 'a'")
    assert mine.try_acquire(2)
    third = Holder(path, mechanism.__name__)
    assert third.said == "refused"
    third.end()
    mine.close()


def test_a_killed_holder_frees_its_locks(path: str, mechanism: type, holder: Holder) -> None:
    mine = FileLocks(path, mechanism=mechanism)
    assert not mine.try_acquire(3)
    holder.process.send_signal(signal.SIGKILL)
    holder.process.wait(30)
    mine.acquire(3, 30, "topic 'a'")
    found = mine.holder(3)
    assert found is not None
    assert found.pid == os.getpid()
    mine.close()


def test_an_ended_holder_frees_its_locks(path: str, mechanism: type, holder: Holder) -> None:
    mine = FileLocks(path, mechanism=mechanism)
    holder.end()
    assert mine.holder(3) is None
    assert mine.try_acquire(3)
    mine.close()


# --- forks ------------------------------------------------------------------------------------------


def in_child(work: Callable[[], str]) -> str:
    """What ``work`` returns, or the name of its error, in a forked child."""
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        said = "an error that is none of ours"
        try:
            said = work()
        except LogStoreError as error:
            said = f"{type(error).__name__}: {error}"
        finally:
            os.write(write_end, said.encode())
            os._exit(0)  # whatever happened: this process is not to go on with the tests
    os.close(write_end)
    with open(read_end, "rb") as pipe:
        said = pipe.read().decode()
    os.waitpid(pid, 0)
    return said


@pytest.mark.parametrize("use", ["try_acquire", "release", "holder"])
def test_a_child_cannot_use_what_it_inherited(path: str, mechanism: type, use: str) -> None:
    mine = FileLocks(path, mechanism=mechanism)
    assert mine.try_acquire(1)
    assert not mine.forked
    said = in_child(lambda: str(getattr(mine, use)(1)))
    assert said.startswith("ForkedStoreError: process ")
    assert f"opened by process {os.getpid()}" in said
    assert in_child(lambda: f"{mine.forked} {mine.held(1)}") == "True False"
    mine.check_fork()
    mine.close()


def test_a_child_closes_what_it_inherited_and_the_parent_keeps_it(path: str, mechanism: type) -> None:
    mine = FileLocks(path, mechanism=mechanism)
    assert mine.try_acquire(1)

    def child() -> str:
        listed = [f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd")]
        names = [os.readlink(fd) for fd in listed if os.path.lexists(fd)]
        mine.close()
        theirs = FileLocks(path, mechanism=mechanism)
        return f"{[name for name in names if '.locks' in name]} {theirs.try_acquire(1)}"

    assert in_child(child) == "[] False"
    other = FileLocks(path, mechanism=mechanism)
    assert not other.try_acquire(1)
    mine.release(1)
    assert other.try_acquire(1)
    mine.close()
    other.close()


def test_a_living_child_does_not_keep_its_parents_locks(path: str, mechanism: type) -> None:
    """The child here closes nothing, like one that C code forked: unlocking must come before closing."""
    mine, other = FileLocks(path, mechanism=mechanism), FileLocks(path, mechanism=mechanism)
    locks._instances.discard(mine)
    assert mine.try_acquire(1)
    assert mine.try_acquire(2)
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(write_end)
        os.read(read_end, 1)
        os._exit(0)
    mine.release(1)
    assert other.try_acquire(1)
    mine.close()
    assert other.try_acquire(2)
    os.close(write_end)
    os.close(read_end)
    os.waitpid(pid, 0)
    other.close()


def test_memory_locks_do_not_cross_a_fork() -> None:
    mine = MemoryLocks()
    assert not mine.forked
    assert in_child(lambda: str(mine.try_acquire(1))).startswith("ForkedStoreError")
    mine._me = mine._me._replace(pid=1)
    with pytest.raises(ForkedStoreError, match="made by process 1"):
        mine.check_fork()


# --- the file ---------------------------------------------------------------------------------------


def test_the_holders_record(path: str) -> None:
    clock = ManualClock(wall_ms=1_700_000_000_123)
    mine = FileLocks(path, clock=clock, access=Access(0o640), mechanism=RangeLocks)
    assert mine.try_acquire(2)
    expected = this_process(clock)
    assert mine.holder(2) == expected
    data = Path(path).read_bytes()
    assert len(data) == 3 * SLOT_BYTES
    assert not any(data[: 2 * SLOT_BYTES])
    assert int.from_bytes(data[2 * SLOT_BYTES :][:4], "big") == os.getpid()
    assert os.stat(path).st_mode & 0o777 == 0o640
    theirs = FileLocks(path, mechanism=RangeLocks)
    assert theirs.holder(2) == expected
    mine.close()
    theirs.close()


@pytest.mark.parametrize("damage", [b"\xff" * 256, b"", b"\0" * 256])
def test_a_record_that_is_none_leaves_the_holder_unknown(path: str, damage: bytes) -> None:
    mine, theirs = FileLocks(path, mechanism=RangeLocks), FileLocks(path, mechanism=RangeLocks)
    assert mine.try_acquire(0)
    with open(path, "r+b") as file:
        file.truncate(0)
        file.write(damage)
    assert theirs.holder(0) is None
    with pytest.raises(TopicLockedError, match="is locked by another process; waited"):
        theirs.acquire(0, 0, "the catalogue of /data")
    mine.close()
    theirs.close()


def test_long_names_are_cut_to_fit() -> None:
    holder = LockHolder(7, "h" * 500, "ü" * 500, 5)
    record = locks._encode_holder(holder)
    assert len(record) == 240
    tail = locks._HOLDER_TAIL.pack(5, zlib.crc32(record + (5).to_bytes(8, "big")))
    found = locks.decode_holder(record + tail)
    assert found is not None
    assert (found.pid, found.host, found.since_ms) == (7, "h" * 64, 5)
    assert found.command.startswith("ü" * 83)


def test_describing_a_holder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    text = LockHolder(71, "host7", "python import.py", 1_700_000_002_000).describe()
    assert text == "pid 71 on host7 (python import.py), since 2023-11-14 22:13:22"
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("argv", "command"),
    [
        (["/usr/bin/logstore", "produce", "--password=x"], "logstore"),
        (["/home/me/import.py", "secret"], "python import.py"),
        (["-c", "x"], "python -c"),
        ([""], "python -"),
        ([], "python -"),
        (["/lib/python/pytest/__main__.py"], "python -m pytest"),
    ],
)
def test_commands_are_named_without_arguments(
    monkeypatch: pytest.MonkeyPatch, argv: list[str], command: str
) -> None:
    monkeypatch.setattr(sys, "argv", argv)
    assert this_process(ManualClock()).command == command


def test_files_that_cannot_be_opened_are_named(tmp_path: Path, path: str) -> None:
    with pytest.raises(StorageError, match=r"cannot open the locks .*: No such file"):
        FileLocks(str(tmp_path / "nowhere" / ".locks"), mechanism=RangeLocks)
    os.symlink("elsewhere", path)
    with pytest.raises(StorageError, match="cannot open the locks"):
        FileLocks(path, mechanism=RangeLocks)

    def refuse(path: str, mode_bits: int) -> RangeLocks:
        raise PermissionError(13, "Permission denied", path)

    with pytest.raises(PermissionDeniedError):
        FileLocks(path, mechanism=refuse)


def test_a_lock_whose_record_cannot_be_written_is_not_kept(path: str) -> None:
    class Full(RangeLocks):
        def write_record(self, slot: int, record: bytes) -> None:
            raise OSError(28, "No space left on device")

    mine, theirs = FileLocks(path, mechanism=Full), FileLocks(path, mechanism=RangeLocks)
    with pytest.raises(DiskFullError, match="lock slot 1 of"):
        mine.try_acquire(1)
    assert not mine.held(1)
    assert theirs.try_acquire(1)
    mine.close()
    theirs.close()


# --- where locks hold -------------------------------------------------------------------------------

MOUNTS = """\
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard
30 25 0:27 / /dev/shm rw,relatime shared:4 - tmpfs tmpfs rw
40 27 0:50 / /home rw - nfs4 server:/home rw,vers=4.2
41 40 0:51 / /home/me/local\\040disk rw - xfs /dev/vdb rw
42 27 0:52 / /mnt/c rw - 9p drvfs rw
43 27 0:53 / /mnt/over rw - nfs server:/x rw
44 43 0:54 / /mnt/over rw - btrfs /dev/vdc rw
45 27 0:55 / /mnt/ssh rw - fuse.sshfs me@host: rw
46 27 0:56 / /mnt/ntfs rw - fuseblk /dev/vdd rw
47 27 0:57 / /mnt/bucket rw - fuse.rclone-v1 x rw
48 27 0:58 / /mnt/dfs rw - fuse.mergerfs x rw
garbage
"""


@pytest.mark.parametrize(
    ("path", "kind", "refused"),
    [
        ("/data", "ext4", False),
        ("/", "ext4", False),
        ("/home", "nfs4", True),
        ("/home/me/store", "nfs4", True),
        ("/homely", "ext4", False),
        ("/home/me/local disk/store", "xfs", False),
        ("/mnt/c/store", "9p", True),
        ("/mnt/over/store", "btrfs", False),
        ("/mnt/ssh/x", "fuse.sshfs", True),
        ("/mnt/ntfs/x", "fuseblk", False),
        ("/mnt/bucket/x", "fuse.rclone-v1", True),
        ("/mnt/dfs/x", "fuse.mergerfs", False),
    ],
)
def test_network_file_systems(monkeypatch: pytest.MonkeyPatch, path: str, kind: str, refused: bool) -> None:
    assert file_system_type(path, MOUNTS) == kind
    monkeypatch.setattr(locks, "_mounts", lambda: MOUNTS)
    monkeypatch.setattr(os.path, "realpath", lambda path: path)
    if refused:
        with pytest.raises(UnsupportedPlatformError, match=rf"{path} is on a network file system \({kind}\)"):
            refuse_network_file_system(path)
    else:
        refuse_network_file_system(path)


def test_a_file_system_that_cannot_be_told_is_allowed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert file_system_type("/data", "") is None
    refuse_network_file_system(str(tmp_path / "not" / "yet"))
    monkeypatch.setattr(locks, "_mounts", lambda: "")
    refuse_network_file_system("/data")


def test_windows_is_refused_with_a_sentence(monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(UnsupportedPlatformError, match=r"does not run on Windows.*':memory:'"):
        FileLocks(path)
    assert not os.path.exists(path)


def test_the_mechanism_is_the_platforms_own(monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    best = lock_mechanism.choose_mechanism(path, PRIVATE)
    assert type(best) is RangeLocks
    best.close()
    monkeypatch.setattr(sys, "platform", "darwin")
    assert type(lock_mechanism.choose_mechanism(path, PRIVATE)) is WholeFileLocks


def test_a_close_in_the_middle_of_another_threads_call_is_a_named_error(tmp_path: Path) -> None:
    """Never a look at a descriptor that is closed, or another file's by now."""
    errors: set[type[BaseException]] = set()

    def use(locks: FileLocks, calls: list[Callable[[], object]], started: threading.Event) -> None:
        try:
            while True:
                for call in calls:
                    call()
                    started.set()
        except (LogStoreError, OSError) as error:
            errors.add(type(error))

    for number in range(60):
        locks = FileLocks(str(tmp_path / f"locks-{number}"))
        calls = [
            lambda locks=locks: locks.check(now=True),
            lambda locks=locks: locks.wanted(3),
            locks.any_wanted,
            lambda locks=locks: locks.holder(3),
            lambda locks=locks: locks.taken(3),
            lambda locks=locks: locks.try_acquire(3) and locks.release(3),
            lambda locks=locks: locks.try_turn(3) and locks.end_turn(3),
        ]
        started = threading.Event()
        thread = threading.Thread(target=use, args=(locks, calls, started))
        thread.start()
        started.wait()
        locks.close()
        thread.join()
    assert errors == {StoreClosedError}
