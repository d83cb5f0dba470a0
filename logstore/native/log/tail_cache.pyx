"""The newest batches of each log in memory: the compiled twin of log/segments/tail_cache.py."""

from cpython.list cimport PyList_GET_SIZE
from libc.stdint cimport int64_t

from logstore.native.format.varints cimport fingerprint

FINGERPRINT = fingerprint()

cdef extern from "Python.h":
    ctypedef void* PyThread_type_lock
    PyThread_type_lock PyThread_allocate_lock()
    void PyThread_free_lock(PyThread_type_lock lock)
    int PyThread_acquire_lock(PyThread_type_lock lock, int wait) nogil
    void PyThread_release_lock(PyThread_type_lock lock)


cdef class Guard:
    """A lock that compiled code takes without a call of Python's; nothing is waited for while it is held."""

    cdef PyThread_type_lock lock

    def __cinit__(self):
        self.lock = PyThread_allocate_lock()
        if self.lock is NULL:
            raise MemoryError()

    def __dealloc__(self):
        if self.lock is not NULL:
            PyThread_free_lock(self.lock)

    cdef void take(self) noexcept:
        if not PyThread_acquire_lock(self.lock, 0):
            with nogil:
                PyThread_acquire_lock(self.lock, 1)

    cdef void give(self) noexcept:
        PyThread_release_lock(self.lock)


cdef class TailBudget:
    """Bytes that all tails of a store may hold together."""

    cdef public int64_t limit_bytes
    cdef public int64_t used_bytes
    cdef public Py_ssize_t entries  # held by all caches together
    cdef public object _order  # (cache, number of its entry), oldest first
    cdef Guard guard

    def __init__(self, int64_t limit_bytes=32 << 20):
        from collections import deque

        self.limit_bytes = limit_bytes
        self._order = deque()
        self.guard = Guard()

    cdef int added(self, TailCache cache, int64_t number, int64_t size) except -1:
        """Count a new entry and make room for it; the guard is held."""
        cdef TailCache oldest
        self.used_bytes += size
        self.entries += 1
        self._order.append((cache, number))
        if len(self._order) > 2 * self.entries + 64:
            # Caches drop entries by themselves, too; what is noted of those must not pile up.
            self._order = type(self._order)(
                [item for item in self._order if item[1] >= (<TailCache>item[0]).first_number]
            )
        while self.used_bytes > self.limit_bytes and self._order:
            item = self._order.popleft()
            oldest = <TailCache>item[0]
            if item[1] >= oldest.first_number:  # else the cache dropped it by itself
                oldest.dropped_first()
        return 0


cdef tuple _DROPPED = (-1, -1, -1, (), 0)
cdef object _MOST_BYTES = 1 << 62


cdef class TailCache:
    """The tail of one log. ``read`` is safe beside the appending thread."""

    cdef TailBudget budget
    cdef public int64_t limit_bytes
    cdef public int64_t used_bytes
    cdef public int64_t first_number  # entries are numbered for ever; this one is at `head`
    # Replaced, never cut in place, so that a reader that took the lists sees whole ones; the writer only appends to
    # them (entries first: a base that is seen has its entry).
    cdef list bases
    cdef list entries
    cdef Py_ssize_t head

    def __init__(self, TailBudget budget not None, int64_t limit_bytes):
        self.budget = budget
        self.limit_bytes = limit_bytes
        self.bases, self.entries = [], []

    @property
    def _state(self):
        return self.bases, self.entries, self.head

    def add(self, base_offset, next_offset, end_position, parts, int64_t size):
        """``parts``: one whole batch of ``size`` bytes, which ends at byte ``end_position``."""
        self.put((base_offset, next_offset, end_position, parts, size), size)

    cdef int put(self, tuple entry, int64_t size) except -1:
        cdef TailBudget budget = self.budget
        if size > self.limit_bytes:
            self.clear()  # the tail must not have a hole
            return 0
        budget.guard.take()
        try:
            self.entries.append(entry)
            self.bases.append(entry[0])
            self.used_bytes += size
            budget.added(self, self.first_number + PyList_GET_SIZE(self.bases) - 1 - self.head, size)
            while self.used_bytes > self.limit_bytes:
                self.dropped_first()
        finally:
            budget.guard.give()
        return 0

    def drop_first(self):
        """Forget the oldest entry; the budget's guard is held."""
        self.dropped_first()

    cdef int dropped_first(self) except -1:
        cdef int64_t size = (<tuple>self.entries[self.head])[4]
        self.used_bytes -= size
        self.budget.used_bytes -= size
        self.budget.entries -= 1
        self.first_number += 1
        self.head += 1
        if self.head > 64 and self.head * 2 > PyList_GET_SIZE(self.bases):
            self.bases, self.entries = self.bases[self.head :], self.entries[self.head :]
            self.head = 0
        else:
            self.entries[self.head - 1] = _DROPPED  # let the bytes go now
        return 0

    def clear(self):
        cdef TailBudget budget = self.budget
        budget.guard.take()
        try:
            self.first_number += PyList_GET_SIZE(self.bases) - self.head
            budget.used_bytes -= self.used_bytes
            budget.entries -= PyList_GET_SIZE(self.bases) - self.head
            self.used_bytes = 0
            self.bases, self.entries, self.head = [], [], 0
        finally:
            budget.guard.give()

    def read(self, offset, max_bytes, int64_t limit_offset):
        """(batches, next offset, end position) from the batch holding ``offset`` on, or None if not cached."""
        cdef list bases = self.bases, entries = self.entries, parts = []
        cdef Py_ssize_t low = self.head, high = PyList_GET_SIZE(bases), head = low, middle, number
        cdef int64_t size = 0, wanted = offset
        cdef object bound = max_bytes if max_bytes < _MOST_BYTES else _MOST_BYTES  # of a caller: any number
        cdef int64_t most = bound if bound > 0 else 0
        cdef tuple entry
        while low < high:
            middle = (low + high) // 2
            if wanted < <int64_t>bases[middle]:
                high = middle
            else:
                low = middle + 1
        number = low - 1
        if number < head:
            return None
        entry = entries[number]
        next_offset, end_position = entry[1], entry[2]
        if offset >= next_offset:
            return None
        while number < PyList_GET_SIZE(bases):
            entry = entries[number]
            if entry is _DROPPED:
                return None  # dropped while we looked: the file has the same bytes
            if <int64_t>entry[0] >= limit_offset or (parts and size + <int64_t>entry[4] > most):
                break
            next_offset, end_position = entry[1], entry[2]
            parts.extend(entry[3])
            size += <int64_t>entry[4]
            number += 1
        return (b"".join(parts), next_offset, end_position) if parts else None
