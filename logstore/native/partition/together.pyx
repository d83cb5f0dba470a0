"""Batches of several partitions that are written in one stretch without the interpreter's lock: the compiled twin of
partition/together.py.

Each partition's log is locked for itself, and no lock is waited for while another one is held: a log that is not free is
left to the usual way. What fails in one log is nothing to the others.
"""

cimport cython
from cpython.exc cimport PyErr_SetFromErrno
from cpython.mem cimport PyMem_Calloc, PyMem_Free
from libc.errno cimport EINTR, errno

from itertools import chain

from logstore.native.format.varints cimport fingerprint
from logstore.native.log.appending cimport AppendPath, Run, let_go, put_out
from logstore.native.log.checking cimport as_leader
from logstore.native.partition.topic_users cimport TopicUsers

FINGERPRINT = fingerprint()

cdef extern from "Python.h":
    object whole_view "PyMemoryView_FromObject" (object buffer)

cdef enum:
    MOST_LOGS = 32  # of one stretch; the others are left to the usual way
    BATCH_AT = 2  # places in a ``ProduceItem``
    HEADER_AT = 3
    EXPECTED_AT = 4

cdef object _CheckedBatch = None
cdef object _LocalAppend = None
cdef object _LocalPartition = None
cdef object _LogStoreError = None
cdef object _OwnedLog = None
cdef object _ProduceItem = None
cdef object _ProduceResult = None
cdef object _wait_all = None
cdef object _write_all = None


cdef int _import() except -1:
    """Asked for late: what defines some of them imports this module."""
    global _CheckedBatch, _LocalAppend, _LocalPartition, _LogStoreError, _OwnedLog, _ProduceItem, _ProduceResult
    global _wait_all, _write_all
    if _write_all is None:
        from logstore.api.records import ProduceItem, ProduceResult
        from logstore.errors import LogStoreError
        from logstore.log.append_validation import CheckedBatch
        from logstore.log.owned_log import OwnedLog
        from logstore.partition.local_append import LocalAppend
        from logstore.partition.local_partition import LocalPartition
        from logstore.partition.partition import wait_all
        from logstore.seams.fs import write_all

        _CheckedBatch, _LogStoreError, _OwnedLog = CheckedBatch, LogStoreError, OwnedLog
        _LocalAppend, _LocalPartition = LocalAppend, LocalPartition
        _ProduceItem, _ProduceResult = ProduceItem, ProduceResult
        _wait_all, _write_all = wait_all, write_all
    return 0


@cython.final
cdef class Place:
    """Batches of one partition, from its topic's door to its outcome. ``first``: the number of their first item;
    ``run``: lent by the caller."""

    cdef object topic, partition, where, context, config, now_ms, file
    cdef Py_ssize_t first
    cdef list batches, parts
    cdef TopicUsers users
    cdef AppendPath log
    cdef Run* run
    cdef ssize_t done  # bytes that were written at once
    cdef int failure  # ... or the error of the operating system
    cdef bint inside, locked

    cdef bint begin(self, Run* run) except -1:
        """Take what the write needs; False: the usual way is due, and nothing is held."""
        cdef bint begun = False
        self.run = run
        run.held = 0
        try:
            begun = self.taken()
        except (_LogStoreError, OSError):
            pass  # the usual way meets the same, and its result tells
        finally:
            if not begun:
                self.left(None)
        return begun

    cdef bint taken(self) except -1:
        # As every append, and not once for all: the batches of a flight may be more than one stretch takes.
        self.context.check_writable()
        if not self.users.try_enter():
            return False
        self.inside = True
        log = self.users._logs.get(self.partition)
        if type(log) is not _OwnedLog:
            return False
        self.log = <AppendPath?>log
        self.config = self.users.config
        self.now_ms = self.context.clock.wall_ms()
        self.batches = as_leader(self.batches, self.config, self.now_ms, self.where)
        if not self.log._lock.acquire(False):
            return False
        self.locked = True
        if not self.log.begun(self.batches, 1, self.run):
            return False
        self.parts = self.log.laid_out(self.batches, self.run)
        self.file = self.log._held.file
        return True

    cdef int finish(self, acks, list results, list pending) except -1:
        """The write is over: count what is in, and give the results."""
        cdef list placed = []
        cdef Py_ssize_t number
        cdef Run* run = self.run
        try:
            try:
                if run.fd < 0:
                    _write_all(self.file, list(chain.from_iterable(self.parts)), run.position)
                elif self.failure:
                    (&errno)[0] = self.failure
                    PyErr_SetFromErrno(OSError)
                elif self.done < run.size:
                    rest = memoryview(b"".join(chain.from_iterable(self.parts)))[self.done :]
                    _write_all(self.file, [rest], run.position + self.done)
            except BaseException as error:
                file, self.file = self.file, None
                self.log._take_back_written(self.log.segments.active, file, error)
                raise
            self.file = None
            self.log.note_run(self.batches, run, self.parts, placed)
        finally:
            self.unlocked()
        append_time_ms = self.now_ms if self.config.timestamp_type == "LogAppendTime" else -1
        promised = acks == "all"
        unsynced, flush_messages = self.log.unsynced_records, self.config.flush_messages
        end_offset = placed[len(placed) - 1][1]
        for number in range(len(placed)):
            base_offset, next_offset = placed[number]
            results[self.first + number] = tuple.__new__(_ProduceResult, (base_offset, append_time_ms, None, False))
            must_sync = promised or unsynced - (end_offset - next_offset) >= flush_messages
            if must_sync:
                append = _LocalAppend(
                    self.context, self.users, self.log, placed[number], append_time_ms, True, promised
                )
                self.users.stay(1)
                pending.append((self.first + number, append))
        return 0

    cdef int unlocked(self) except -1:
        let_go(self.run)
        if self.locked:
            self.locked = False
            self.log._lock.release()
        return 0

    cdef int left(self, cut) except -1:
        """Nothing is held any more. What was laid out and not counted is taken back: ``cut`` is why."""
        file, self.file = self.file, None
        if self.run is not NULL:
            if file is not None and self.locked:
                cut = RuntimeError(f"a write beside it was cut short by {cut!r}")
                try:
                    self.log._take_back_written(self.log.segments.active, file, cut)
                except BaseException:
                    pass  # the log is poisoned if its file could not be cut; what cut this short goes on
            self.unlocked()
        if self.inside:
            self.inside = False
            self.users.go(True)
        return 0


cdef list places_of(items, partition, failed):
    """Those whose batches may be written together; None: some partition comes twice."""
    cdef Py_ssize_t at = 0, end, count = len(items)
    cdef list places = []
    cdef set seen = set()
    cdef Place place
    while at < count:
        topic, number = items[at][0], items[at][1]
        end = at + 1
        while end < count and items[end][1] == number and items[end][0] == topic:
            end += 1
        key = (topic, number)
        if key in seen:
            return None
        seen.add(key)
        place = None if key in failed or len(places) == MOST_LOGS else place_of(items[at:end], partition)
        if place is not None:
            place.first = at
            places.append(place)
        at = end
    return places


cdef Place place_of(items, partition):
    cdef Place place
    cdef list batches = []
    for item in items:
        if (
            type(item) is not _ProduceItem or item[HEADER_AT] is None or item[EXPECTED_AT] is not None
            or type(item[BATCH_AT]) is not bytes
        ):
            return None
        batches.append(tuple.__new__(_CheckedBatch, (whole_view(item[BATCH_AT]), item[HEADER_AT])))
    try:
        held = partition(items[0][0], items[0][1])
    except _LogStoreError:
        return None
    if type(held) is not _LocalPartition or not isinstance(held._topic, TopicUsers):
        return None
    place = Place.__new__(Place)
    place.topic, place.partition = items[0][0], items[0][1]
    place.users, place.context, place.where, place.batches = held._topic, held._context, held.where, batches
    return place


cdef int refused(Place place, items, failed, error, list results) except -1:
    """None of the partition's batches is in, or that is not known: as the error says."""
    cdef Py_ssize_t at = place.first
    failed[place.topic, place.partition] = error
    while at < len(items) and items[at][1] == place.partition and items[at][0] == place.topic:
        results[at] = tuple.__new__(_ProduceResult, (-1, -1, error, False))
        at += 1
    return 0


def append_together(items, partition, acks, dict failed not None):
    """See partition/together.py."""
    cdef list places, taken = [], results, pending = []
    cdef Place place
    cdef Run* runs
    cdef Py_ssize_t number, count = 0
    cdef ssize_t done[MOST_LOGS]
    cdef int failures[MOST_LOGS]
    _import()
    places = places_of(items, partition, failed)
    if places is None or len(places) < 2:
        return None
    results = [None] * len(items)
    runs = <Run*>PyMem_Calloc(len(places), sizeof(Run))
    if runs is NULL:
        raise MemoryError()
    try:
        for place in places:
            if place.begin(&runs[count]):
                taken.append(place)
                count += 1
        with nogil:
            for number in range(count):
                written(&runs[number], &done[number], &failures[number])
        for number in range(count):
            place = taken[number]
            place.done, place.failure = done[number], failures[number]
            try:
                place.finish(acks, results, pending)
            except _LogStoreError as error:
                refused(place, items, failed, error, results)
            place.left(None)
        if count:
            context = (<Place>taken[0]).context
            if context.pool.crowded:
                context.make_room()
    except BaseException as error:
        for place in taken:
            place.left(error)
        _wait_all([append for _, append in pending])
        raise
    finally:
        PyMem_Free(runs)
    return results, pending


cdef void written(const Run* run, ssize_t* done, int* failure) noexcept nogil:
    """Write the run, up to the first short write; nothing of a file that is not the operating system's."""
    done[0], failure[0] = 0, 0
    while run.fd >= 0:
        done[0] = put_out(run.fd, run.written, run.count, run.position)
        if done[0] >= 0:
            return
        failure[0] = errno
        if failure[0] != EINTR:
            return
        failure[0] = 0
