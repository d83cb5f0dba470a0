"""Files in use: the compiled twins of log/segments/file_pins.py and log/segments/held_file.py. Fields are declared in
file_pins.pxd."""

from logstore.native.log.segment_tail cimport SegmentTail
from logstore.native.format.varints cimport fingerprint

FINGERPRINT = fingerprint()

cdef object _InvariantError = None
cdef object _OsFile = None
cdef object _from_os_error = None


cdef int _import() except -1:
    global _InvariantError, _OsFile, _from_os_error
    if _OsFile is None:
        from logstore.errors import InvariantError, from_os_error
        from logstore.seams.fs import OsFile

        _InvariantError, _from_os_error, _OsFile = InvariantError, from_os_error, OsFile
    return 0


cdef class PoolEntry:
    """An open file, or a mapping. ``identity``: None: nobody has asked yet; ``pins``: by how many it is used."""

    def __init__(self, file, view, identity=None):
        self.file, self.view, self.identity = file, view, identity


cdef class FilePins:
    """``_lock`` guards the fields. ``_pinned``: entries that are in use; ``_doomed``: forgotten while pinned: closed by
    their last unpin, never given out."""

    def __init__(self, Py_ssize_t capacity):
        from collections import OrderedDict
        from threading import RLock

        self._capacity = capacity
        self._lock = RLock()  # taken again where the file system asks for room while a file is opened
        self._entries = OrderedDict()
        self._doomed = []
        _import()

    def pin(self, path, writable=False, identity=None):
        """Open (or reuse) the file and keep it open until ``unpin``. Raises ``OSError``; with ``identity``
        ``FileNotFoundError`` when the file of that name is another one."""
        return self.pinned_file((path, "rw" if writable else "r"), identity)

    cdef object pinned_file(self, tuple key, identity):
        cdef PoolEntry entry
        self._lock.acquire()
        try:
            entry = self._entries.get(key) if identity is None else self._known(key, identity)
            if entry is None:
                entry = self._opened(key, identity)
            else:
                self._entries.move_to_end(key)
            if entry.pins == 0:
                self._pinned += 1
            entry.pins += 1
            if entry.file is None:
                raise _InvariantError("invariant broken: a pooled file is open")
            return entry.file
        finally:
            self._lock.release()

    def unpin(self, file, writable=False):
        """Give back what ``pin`` gave."""
        self.unpinned(file, (file.path, "rw" if writable else "r"))

    cdef int unpinned(self, file, tuple key) except -1:
        cdef PoolEntry entry
        self._lock.acquire()
        try:
            entry = self._entries.get(key)
            if entry is None or entry.file is not file:
                self._unpin_doomed(file)
                return 0
            entry.pins -= 1
            if entry.pins == 0:
                self._pinned -= 1
        finally:
            self._lock.release()
        return 0

    @property
    def crowded(self):
        """Whether most places are taken by files in use, unsynced ones above all: to sync them makes room."""
        return 4 * self._pinned >= 3 * self._capacity


cdef class HeldFile:
    """The active segment's file, kept open while it has unsynced bytes; see the Python twin."""

    def __init__(self, pool):
        self._pool = pool
        _import()

    def hold(self, segment):
        return self.held(segment)

    cdef object held(self, segment):
        path = (<SegmentTail>segment)._log_path if isinstance(segment, SegmentTail) else segment.path()
        try:
            if isinstance(self._pool, FilePins):
                self.file = (<FilePins>self._pool).pinned_file((path, "rw"), None)
            else:
                self.file = self._pool.pin(path, True)
        except OSError as error:
            raise _from_os_error(error, "open", path) from error
        return self.file

    def let_go(self):
        self.gone()

    cdef int gone(self) except -1:
        file, self.file = self.file, None
        if file is None:
            return 0
        if file is self._lent:
            self._let_go_while_lent = True
        else:
            self.unpin(file)
        return 0

    def lend(self):
        """The file, to be given back; None if none is held."""
        return self.lent()

    cdef object lent(self):
        if self._lent is not None:
            self.taken_back()  # of a sync that an interrupt cut short
        self._lent = self.file
        return self.file

    def take_back(self):
        """What was lent is in nobody's use any more."""
        self.taken_back()

    cdef int taken_back(self) except -1:
        file, self._lent = self._lent, None
        if self._let_go_while_lent and file is not None:
            self._let_go_while_lent = False
            self.unpin(file)
        return 0

    cdef int unpin(self, file) except -1:
        if isinstance(self._pool, FilePins):
            path = file._path if type(file) is _OsFile else file.path
            return (<FilePins>self._pool).unpinned(file, (path, "rw"))
        self._pool.unpin(file, True)
        return 0
