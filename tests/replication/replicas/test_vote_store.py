"""Term and vote on disk: after any crash, with either copy damaged, what was spoken of is there."""

from __future__ import annotations

import pytest

from logstore.errors import InvariantError, LogStoreError, PartitionPoisonedError, StorageError
from logstore.seams.faults import FaultKind, SimulatedCrash
from logstore.seams.memory_fs import MemoryFileSystem
from replication.errors import DamagedVoteError
from replication.raft.types import VoteState
from replication.replicas.vote_store import COPY_BYTES, FILE_NAME, VoteStore, decode, encode

STATES = [VoteState(1), VoteState(1, 2), VoteState(7), VoteState(7, 0), VoteState(2**62, 2**31 - 1)]


@pytest.fixture
def fs() -> MemoryFileSystem:
    fs = MemoryFileSystem()
    fs.mkdir("/r")
    fs.sync_dir("/")
    return fs


def reopened(fs: MemoryFileSystem) -> VoteState:
    store = VoteStore.open(fs, "/r")
    state = store.state
    store.close()
    return state


def test_a_state_is_there_after_a_restart(fs: MemoryFileSystem) -> None:
    VoteStore.create(fs, "/r").close()
    assert reopened(fs) == VoteState()
    for state in STATES:
        store = VoteStore.open(fs, "/r")
        store.store(state)
        store.store(state)
        store.close()
        assert reopened(fs) == state
    with pytest.raises(FileExistsError):
        VoteStore.create(fs, "/r")


def test_the_bytes_are_as_the_page_says() -> None:
    data = encode(5, VoteState(3, 1))
    assert data[:24].hex() == "4c535631" + "0000000000000005" + "0000000000000003" + "00000001"
    assert decode(data) == (5, VoteState(3, 1))
    assert len(data) == 28


def test_every_flipped_bit_and_every_shorter_copy_is_noticed() -> None:
    data = encode(5, VoteState(3, 1))
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        assert decode(bytes(flipped)) is None
    assert all(decode(data[:length]) is None for length in range(len(data)))
    assert decode(bytes(28)) is None


@pytest.mark.parametrize("copy", [0, COPY_BYTES])
def test_either_copy_may_be_damaged_and_is_made_good(fs: MemoryFileSystem, copy: int) -> None:
    store = VoteStore.create(fs, "/r")
    store.store(VoteState(4, 2))
    store.close()
    path = f"/r/{FILE_NAME}"
    with_damage = fs.open(path, "rw")
    with_damage.pwritev([b"\xff" * 8], copy)
    with_damage.close()
    assert reopened(fs) == VoteState(4, 2)
    other = fs.open(path, "rw")
    other.pwritev([b"\xff" * 8], COPY_BYTES - copy)
    other.close()
    assert reopened(fs) == VoteState(4, 2), "the damaged one was written anew"


def test_without_a_copy_it_must_not_vote(fs: MemoryFileSystem) -> None:
    with pytest.raises(DamagedVoteError, match="gone"):
        VoteStore.open(fs, "/r")
    VoteStore.create(fs, "/r").close()
    file = fs.open(f"/r/{FILE_NAME}", "rw")
    file.pwritev([bytes(28)], 0)
    file.pwritev([bytes(28)], COPY_BYTES)
    file.close()
    with pytest.raises(DamagedVoteError, match="neither"):
        VoteStore.open(fs, "/r")


def test_a_crash_anywhere_leaves_what_was_spoken_of_or_newer(fs: MemoryFileSystem) -> None:
    """A crash before each call, and every way in which a disk may keep what was not synced."""
    VoteStore.create(fs, "/r").close()
    start = fs.clone()
    images = 0
    for call in range(1, 60):
        disk = start.clone()
        disk.faults.at(disk.faults.calls + call, FaultKind.CRASH)
        spoken = VoteState()
        try:
            store = VoteStore.open(disk, "/r")
            for state in STATES:
                store.store(state)
                spoken = state
            break
        except SimulatedCrash:
            pass
        for image in disk.crash_states(200):
            images += 1
            for copy in (None, 0, COPY_BYTES):
                found = after_damage(image, copy)
                assert found in [VoteState(), *STATES]
                assert found >= spoken, "also where the disk damages a copy on top of it"
    assert images > 20


def after_damage(image: MemoryFileSystem, copy: int | None) -> VoteState:
    """The state with one copy damaged, unless the crash itself had torn the other one."""
    twin = image.clone()
    if copy is not None:
        file = twin.open(f"/r/{FILE_NAME}", "rw")
        whole = all(decode(file.pread(28, at)) is not None for at in (0, COPY_BYTES))
        if whole:
            file.pwritev([b"\xff" * 8], copy)
        file.close()
    return reopened(twin)


@pytest.mark.parametrize("kind", [FaultKind.EIO, FaultKind.ENOSPC])
def test_after_an_error_nothing_more_is_stored(fs: MemoryFileSystem, kind: FaultKind) -> None:
    store = VoteStore.create(fs, "/r")
    store.store(VoteState(1, 1))
    fs.faults.on("pwritev" if kind is FaultKind.ENOSPC else "sync", kind)
    with pytest.raises(LogStoreError):
        store.store(VoteState(2, 2))
    assert store.state == VoteState(1, 1)
    with pytest.raises(PartitionPoisonedError):
        store.store(VoteState(3))
    store.close()
    assert reopened(fs) in (VoteState(1, 1), VoteState(2, 2))


def test_a_vote_is_never_taken_back(fs: MemoryFileSystem) -> None:
    store = VoteStore.create(fs, "/r")
    store.store(VoteState(5, 1))
    with pytest.raises(InvariantError):
        store.store(VoteState(4, 1))
    with pytest.raises(InvariantError):
        store.store(VoteState(5))
    assert store.state == VoteState(5, 1)


def test_a_disk_that_fails_is_named(fs: MemoryFileSystem) -> None:
    fs.faults.on("sync", FaultKind.EIO)
    with pytest.raises(StorageError, match=FILE_NAME):
        VoteStore.create(fs, "/r")
