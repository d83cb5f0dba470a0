# Files in use, as the append and the sync see them.
cdef class PoolEntry:
    cdef public object file, view, identity
    cdef public Py_ssize_t pins


cdef class FilePins:
    cdef public object _lock, _entries
    cdef public list _doomed
    cdef public Py_ssize_t _pinned, _capacity

    cdef object pinned_file(self, tuple key, identity)
    cdef int unpinned(self, file, tuple key) except -1


cdef class HeldFile:
    cdef public object file
    cdef object _pool, _lent
    cdef bint _let_go_while_lent

    cdef object held(self, segment)
    cdef int gone(self) except -1
    cdef object lent(self)
    cdef int taken_back(self) except -1
    cdef int unpin(self, file) except -1
