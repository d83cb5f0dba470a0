"""The right to write: one lock per topic, one for the catalogue, held across processes.

``FileLocks`` keeps all locks of a store in one file, on one descriptor. Slot n is the region of 256 bytes at
256 * n: the region's first byte is what is locked, its content names the holder:

     0  pid          u32
     4  host length  u16     6  command length  u16
     8  host, command        UTF-8, cut to fit, zero-padded
   240  since        i64     ms since 1970 UTC
   248  crc32        u32     of the 248 bytes before; a record caught half-written is no record
   252  zeros

Slot 0 is the catalogue's. On Linux the lock is an open-file-description lock (``F_OFD_SETLK``): it conflicts
between two descriptors of one process too, so a second store in the same process is refused like any other,
it goes away with the process however that ends, and it conflicts with what a Kafka broker takes (``flock``
does not). Elsewhere on POSIX it is ``flock`` on one file per slot. Waiting polls, with pauses of 1 to 50 ms.

A lock is not reentrant: taking a slot that the same object holds waits like for any other holder. The
objects may be shared by threads. They never cross a fork: the child closes what it inherited (closing does
not unlock, the parent's descriptor keeps the lock) and gets ForkedStoreError at the next use.
"""

from __future__ import annotations

import os
import struct
import sys
import threading
import time
import weakref
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from logstore.errors import (
    ForkedStoreError,
    LockLostError,
    StoreClosedError,
    UnsupportedPlatformError,
    from_os_error,
)
from logstore.invariants import invariant
from logstore.ownership.lock import MOMENTS, LockHolder, TurnPauses, this_process
from logstore.ownership.lock_check import LockCheck
from logstore.ownership.lock_mechanism import SLOT_BYTES, LockMechanism, choose_mechanism
from logstore.ownership.lock_turns import wait, wait_in_turn
from logstore.seams.clock import Clock, SystemClock
from logstore.seams.fs import PRIVATE, Access

_HOLDER_HEAD = struct.Struct(">IHH")
_HOLDER_TAIL = struct.Struct(">qI4x")
_HOLDER_FIXED_BYTES: Final = SLOT_BYTES - _HOLDER_TAIL.size
_LONGEST_HOST_BYTES: Final = 64
_SWEEP_TRIES: Final = 3
_SWEEP_PAUSE_S: Final = 0.0005

# --- the locks of a directory -----------------------------------------------------------------------

_instances: weakref.WeakSet[FileLocks] = weakref.WeakSet()


class FileLocks(LockCheck):
    """``Locks`` on the file ``path``, shared by all processes that open the same store.

    ``clock``, ``sleep``: time, for waiting and for the holder's record; ``access``: permissions of a new file;
    ``mechanism`` makes the locks, for tests of the one that this platform does not choose. ``disposable``: a file
    with slot 0 alone, which its holder removes when it gives the slot up, and which is made again when needed.
    UnsupportedPlatformError on Windows; StorageError, PermissionDeniedError when the file cannot be opened.
    """

    def __init__(
        self,
        path: str,
        *,
        clock: Clock | None = None,
        sleep: Callable[[float], None] = time.sleep,
        access: Access = PRIVATE,
        mechanism: Callable[[str, Access], LockMechanism] = choose_mechanism,
        disposable: bool = False,
    ) -> None:
        refuse_platform_without_locks()
        self.path = path
        self.access = access
        self._make = mechanism
        self._disposable = disposable
        super().__init__(SystemClock() if clock is None else clock)
        self._sleep = sleep
        self._pid = os.getpid()
        self._guard = threading.Lock()
        self._held: dict[int, int] = {}  # slot -> since when, in ms
        self._turns: set[int] = set()
        self._me = this_process(self._clock)
        self._record = _encode_holder(self._me)
        self._record_crc = zlib.crc32(self._record)
        try:
            self._mechanism: LockMechanism | None = mechanism(path, access)
        except OSError as error:
            raise from_os_error(error, "open the locks", path) from error
        _instances.add(self)

    @property
    def forked(self) -> bool:
        """Whether this is a child of the process that opened the locks."""
        return os.getpid() != self._pid

    def check_fork(self) -> None:
        """ForkedStoreError in a child of the process that opened the locks. About 0.1 us."""
        if os.getpid() != self._pid:
            raise ForkedStoreError(
                f"process {os.getpid()} uses the store of {self.path}, opened by process {self._pid}"
            )

    def try_acquire(self, slot: int) -> bool:
        self._usable()  # a forked child must not wait for the guard
        with self._guard:
            mechanism = self._usable()
            if slot in self._held:
                return False
            try:
                if self._disposable:
                    taken = self._lock_disposable(slot)
                    mechanism = self._usable()  # perhaps another one: of a file made anew
                else:
                    taken = mechanism.lock(slot)
                if not taken:
                    return False
                if not mechanism.is_in_place():
                    mechanism.unlock(slot)
                    raise self._lost_error()
                since_ms = self._clock.wall_ms()
                crc = zlib.crc32(since_ms.to_bytes(8, "big"), self._record_crc)
                mechanism.write_record(slot, self._record + _HOLDER_TAIL.pack(since_ms, crc))
            except OSError as error:
                self._undo(mechanism, slot)
                raise from_os_error(error, f"lock slot {slot} of", self.path) from error
            self._held[slot] = since_ms
            return True

    def _lock_disposable(self, slot: int) -> bool:
        """The guard is held. Lock the file that has the path now: one that its holder removed meanwhile is made
        anew. A sweep (``name_lock.py``) holds such a file for a moment, so a refusal is not believed at once."""
        refusals = 0
        while True:
            mechanism = self._usable()
            if not mechanism.lock(slot):
                refusals += 1
                if refusals > _SWEEP_TRIES:
                    return False
                self._sleep(_SWEEP_PAUSE_S)
                continue
            if mechanism.is_in_place():
                return True
            mechanism.unlock(slot)
            mechanism.close()
            self._mechanism = self._make(self.path, self.access)

    def _look(self) -> None:
        """See ``check``."""
        self._usable()  # `_using` spelled out: every durable append comes here
        with self._guard:
            try:
                in_place = self._usable().is_in_place()
            except OSError as error:
                raise from_os_error(error, "look at", self.path) from error
            if self._lost or not in_place:
                raise self._lost_error()

    def _lost_error(self) -> LockLostError:
        self._lost = not self._disposable  # a file of its own is made again; what is known of topics is stale
        return LockLostError(
            f"the lock file {self.path} was removed or replaced while process {os.getpid()} had it open: another "
            "process may write the same store, so this one writes nothing more"
        )

    def wanted(self, slot: int) -> bool:
        with self._using(f"look at the turn of lock slot {slot} of") as mechanism:
            return mechanism.turn_taken(slot)

    def any_wanted(self) -> bool:
        with self._using("look at the turns of") as mechanism:
            return mechanism.any_turn_taken()

    def acquire(self, slot: int, timeout_s: float, what: str) -> None:
        wait(self, slot, timeout_s, what, self._clock, self._sleep)

    def acquire_in_turn(self, slot: int, timeout_s: float, what: str, pauses: TurnPauses = MOMENTS) -> None:
        if not self.wanted(slot) and self.try_acquire(slot):
            return
        wait_in_turn(self, slot, timeout_s, what, self._clock, self._sleep, pauses)

    def try_turn(self, slot: int) -> bool:
        with self._using(f"take the turn of lock slot {slot} of") as mechanism:
            if slot in self._turns:
                return False
            taken = mechanism.lock_turn(slot)
            if taken:
                self._turns.add(slot)
            return taken

    def end_turn(self, slot: int) -> None:
        try:
            with self._using(f"end the turn of lock slot {slot} of") as mechanism:
                self._turns.discard(slot)
                mechanism.unlock_turn(slot)
        except StoreClosedError:
            pass  # closed meanwhile, which frees it

    def release(self, slot: int) -> None:
        with self._using(f"unlock slot {slot} of") as mechanism:
            invariant(self._held.pop(slot, None) is not None, f"lock slot {slot} is released by its holder")
            if self._disposable and mechanism.is_in_place():
                mechanism.remove(slot)
            mechanism.unlock(slot)

    def held(self, slot: int) -> bool:
        return slot in self._held

    def holder(self, slot: int) -> LockHolder | None:
        with self._using(f"look at lock slot {slot} of") as mechanism:
            since_ms = self._held.get(slot)
            if since_ms is not None:
                return self._me._replace(since_ms=since_ms)
            return decode_holder(mechanism.read_record(slot)) if mechanism.locked_by_other(slot) else None

    def taken(self, slot: int) -> bool:
        with self._using(f"look at lock slot {slot} of") as mechanism:
            return slot in self._held or mechanism.locked_by_other(slot)

    def close(self) -> None:
        """Give up all slots. Unlocked before the descriptor is closed: in a child that C code forked the
        description lives on, and its locks with it."""
        if self.forked:
            self._drop()
            return
        with self._guard:
            mechanism, self._mechanism = self._mechanism, None
            if mechanism is None:
                return
            try:
                self._remove_unused(mechanism)
                for slot in self._held:
                    mechanism.unlock(slot)
                for slot in self._turns:
                    mechanism.unlock_turn(slot)
            except OSError as error:
                raise from_os_error(error, "unlock", self.path) from error
            finally:
                self._held.clear()
                self._turns.clear()
                mechanism.close()

    def _remove_unused(self, mechanism: LockMechanism) -> None:
        """A file of its own goes with its last user."""
        if self._disposable and (self._held or mechanism.lock(0)):
            self._held[0] = 0
            if mechanism.is_in_place():
                mechanism.remove(0)

    def abandon(self) -> None:
        self._disposable = False  # a killed process removes nothing
        self.close()

    @contextmanager
    def _using(self, doing: str) -> Iterator[LockMechanism]:
        """The mechanism, which no other thread closes in the block: its descriptor's number may be another file's
        soon. StoreClosedError, ForkedStoreError; an ``OSError`` of the block becomes a StorageError."""
        self._usable()
        with self._guard:
            try:
                yield self._usable()
            except OSError as error:
                raise from_os_error(error, doing, self.path) from error

    def _usable(self) -> LockMechanism:
        if os.getpid() != self._pid:
            self.check_fork()
        mechanism = self._mechanism
        if mechanism is None:
            raise StoreClosedError(f"the locks {self.path} are used after their store was closed")
        return mechanism

    def _undo(self, mechanism: LockMechanism, slot: int) -> None:
        """The record could not be written: a lock without a holder's record must not stay."""
        try:
            mechanism.unlock(slot)
        except (OSError, KeyError):
            pass  # it was not taken; the error that is being raised says what went wrong

    def _drop(self) -> None:
        """In a child: let go of the descriptors, whose locks the parent keeps. Takes no guard: the thread
        that may hold it does not exist here."""
        mechanism, self._mechanism = self._mechanism, None
        self._held, self._turns = {}, set()
        if mechanism is not None:
            mechanism.close()


def _close_inherited() -> None:
    for locks in list(_instances):
        locks._drop()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_inherited)


def _encode_holder(holder: LockHolder) -> bytes:
    """The record up to ``since``."""
    host = holder.host.encode(errors="replace")[:_LONGEST_HOST_BYTES]
    command = holder.command.encode(errors="replace")
    command = command[: _HOLDER_FIXED_BYTES - _HOLDER_HEAD.size - len(host)]
    head = _HOLDER_HEAD.pack(holder.pid, len(host), len(command))
    return (head + host + command).ljust(_HOLDER_FIXED_BYTES, b"\0")


def decode_holder(record: bytes) -> LockHolder | None:
    """The holder that a slot's region names; None if it is no whole record."""
    if len(record) != SLOT_BYTES:
        return None
    since_ms, crc = _HOLDER_TAIL.unpack_from(record, _HOLDER_FIXED_BYTES)
    if zlib.crc32(record[: _HOLDER_FIXED_BYTES + 8]) != crc:
        return None
    pid, host_length, command_length = _HOLDER_HEAD.unpack_from(record)
    start = _HOLDER_HEAD.size
    host = record[start : start + host_length].decode(errors="replace")
    start += host_length
    return LockHolder(pid, host, record[start : start + command_length].decode(errors="replace"), since_ms)


# --- the twin ---------------------------------------------------------------------------------------


class LockTable:
    """What several ``MemoryLocks`` share, as processes share a file: slot -> view and holder."""

    def __init__(self) -> None:
        self.guard = threading.Lock()
        self.taken: dict[int, tuple[MemoryLocks, LockHolder]] = {}
        self.turns: dict[int, MemoryLocks] = {}


class MemoryLocks:
    """``Locks`` in memory, for ``:memory:`` stores and simulators. Each view of a table is a process of its
    own; a ``sleep`` that moves a manual clock makes waiting deterministic."""

    def __init__(
        self,
        table: LockTable | None = None,
        *,
        clock: Clock | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._table = LockTable() if table is None else table
        self._clock = SystemClock() if clock is None else clock
        self._sleep = sleep
        self._me = this_process(self._clock)
        self._closed = False

    @property
    def forked(self) -> bool:
        return os.getpid() != self._me.pid

    def check_fork(self) -> None:
        """ForkedStoreError in a child of the process that made the locks."""
        if os.getpid() != self._me.pid:
            raise ForkedStoreError(
                f"process {os.getpid()} uses a store in memory made by process {self._me.pid}"
            )

    def try_acquire(self, slot: int) -> bool:
        self._check_usable()
        with self._table.guard:
            if slot in self._table.taken:
                return False
            self._table.taken[slot] = (self, self._me._replace(since_ms=self._clock.wall_ms()))
            return True

    def acquire(self, slot: int, timeout_s: float, what: str) -> None:
        wait(self, slot, timeout_s, what, self._clock, self._sleep)

    def check(self, *, now: bool = False) -> None:
        """Memory is not removed."""

    def wanted(self, slot: int) -> bool:
        return self._table.turns.get(slot, self) is not self

    def any_wanted(self) -> bool:
        return any(view is not self for view in tuple(self._table.turns.values()))

    def acquire_in_turn(self, slot: int, timeout_s: float, what: str, pauses: TurnPauses = MOMENTS) -> None:
        if slot not in self._table.turns and self.try_acquire(slot):
            return
        wait_in_turn(self, slot, timeout_s, what, self._clock, self._sleep, pauses)

    def try_turn(self, slot: int) -> bool:
        self._check_usable()
        with self._table.guard:
            if slot in self._table.turns:
                return False
            self._table.turns[slot] = self
            return True

    def end_turn(self, slot: int) -> None:
        with self._table.guard:
            if self._table.turns.get(slot) is self:
                del self._table.turns[slot]

    def release(self, slot: int) -> None:
        self._check_usable()
        with self._table.guard:
            invariant(self.held(slot), f"lock slot {slot} is released by its holder")
            del self._table.taken[slot]

    def held(self, slot: int) -> bool:
        entry = self._table.taken.get(slot)
        return entry is not None and entry[0] is self

    def holder(self, slot: int) -> LockHolder | None:
        self._check_usable()
        entry = self._table.taken.get(slot)
        return None if entry is None else entry[1]

    def taken(self, slot: int) -> bool:
        self._check_usable()
        return slot in self._table.taken

    def close(self) -> None:
        self._closed = True
        with self._table.guard:
            for slot in [slot for slot, entry in self._table.taken.items() if entry[0] is self]:
                del self._table.taken[slot]
            for slot in [slot for slot, view in self._table.turns.items() if view is self]:
                del self._table.turns[slot]

    def abandon(self) -> None:
        self.close()

    def _check_usable(self) -> None:
        self.check_fork()
        if self._closed:
            raise StoreClosedError("locks in memory are used after their store was closed")


# --- where locks hold -------------------------------------------------------------------------------

# Types as in /proc/filesystems. Shared-disk file systems (gfs2, ocfs2) are here because several hosts may
# write one directory there; virtiofs is not, because nearly always one guest alone uses it.
_NETWORK_TYPES: Final = frozenset(
    ("9p", "acfs", "afs", "beegfs", "ceph", "cifs", "coda", "davfs", "gfs", "gfs2", "glusterfs", "gpfs")
    + ("lustre", "ncpfs", "nfs", "nfs4", "ocfs2", "orangefs", "panfs", "pvfs2", "smb3", "smbfs", "vboxsf")
)
_NETWORK_FUSE: Final = (  # what stands behind "fuse.", as a prefix: some add their version or bucket
    *("blobfuse", "ceph", "curlftpfs", "davfs", "gcsfuse", "glusterfs", "goofys", "juicefs", "mount-s3"),
    *("mountpoint-s3", "rclone", "s3fs", "sshfs"),
)


def refuse_platform_without_locks() -> None:
    """UnsupportedPlatformError where there are neither OFD locks nor flock."""
    if sys.platform == "win32":
        raise UnsupportedPlatformError(
            "logstore does not run on Windows: it needs POSIX file locks and directory syncs",
            hint="use Linux (WSL2 on its own disk will do) or macOS; ':memory:' stores work anywhere",
        )


def file_system_type(path: str, mountinfo: str) -> str | None:
    """The type of the file system that holds ``path`` (absolute, resolved), e.g. ``ext4``; None if unknown.

    ``mountinfo``: text as in /proc/self/mountinfo (proc(5)); of mounts on one point the last one is seen.
    """
    best: tuple[int, str] | None = None
    for line in mountinfo.splitlines():
        before, separator, after = line.partition(" - ")
        fields = before.split(" ")
        if not separator or len(fields) < 5:
            continue
        point = _unescape(fields[4])
        inside = path == point or path.startswith(point if point.endswith("/") else point + "/")
        if inside and (best is None or len(point) >= best[0]):
            best = (len(point), after.split(" ")[0])
    return None if best is None else best[1]


def _unescape(field: str) -> str:
    for octal, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        field = field.replace(octal, character)
    return field


def _mounts() -> str:
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
            return file.read()
    except OSError:
        return ""  # no Linux, or no /proc: it cannot be told


def refuse_network_file_system(path: str) -> None:
    """UnsupportedPlatformError, naming the type, when ``path`` (there or not yet) is on a network file
    system: locks and mappings do not hold between hosts. A type that cannot be told is allowed."""
    found = file_system_type(os.path.realpath(path), _mounts())
    if found is None:
        return
    driver = found.removeprefix("fuse.")
    if driver in _NETWORK_TYPES or (found != driver and driver.startswith(_NETWORK_FUSE)):
        raise UnsupportedPlatformError(
            f"{path} is on a network file system ({found}), where file locks and mappings do not hold",
            hint="put the store on a local disk",
        )
