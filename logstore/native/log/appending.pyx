"""What an append and its sync touch of a log: the compiled twin of log/append_path.py.

Its fields are a compiled class's: an append reads and changes them without a step of Python's. Whatever is unusual
is left to methods of the Python classes above it.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.exc cimport PyErr_CheckSignals, PyErr_SetFromErrno
from cpython.ref cimport PyObject
from libc.errno cimport EINTR, errno
from libc.stdint cimport int64_t, uint8_t

from itertools import chain

from logstore.native.format.batch_header cimport HEADER_BYTES
from logstore.native.log.file_pins cimport HeldFile
from logstore.native.partition.live cimport LivePublisher, Shown, SlotPublisher
from logstore.native.log.segment_tail cimport LARGEST_ROW, SegmentTail
from logstore.native.format.varints cimport fingerprint, put_big

FINGERPRINT = fingerprint()

cdef extern from "Python.h":
    PyObject* tuple_item "PyTuple_GET_ITEM" (PyObject* items, Py_ssize_t at) noexcept

cdef extern from *:
    """
    #include <unistd.h>
    #if defined(__APPLE__)
    #define sync_data fsync
    #else
    #define sync_data fdatasync
    #endif
    """
    int sync_data(int fd) nogil

cdef enum:
    STAMP_BYTES = 16
    COPIED_BYTES = 2048  # a batch up to this is written as one buffer
    INT32_MOST = 0x7FFFFFFF
    LONE_TERM = -1

cdef object _Appended = None
cdef object _BegunSync = None
cdef object _CheckedBatch = None
cdef object _InvariantError = None
cdef object _LogOffsets = None
cdef object _OsFile = None
cdef object _index_policy = None
cdef object _sync_file = None
cdef object _write_all = None


cdef int _import() except -1:
    global _Appended, _BegunSync, _CheckedBatch, _InvariantError, _LogOffsets, _OsFile, _index_policy, _sync_file
    global _write_all
    if _write_all is None:
        from logstore.errors import InvariantError
        from logstore.log.append_validation import CheckedBatch
        from logstore.log.commit_policy import CommitPolicy
        from logstore.log.log_offsets import Appended, LogOffsets
        from logstore.log.synced_log import BegunSync
        from logstore.seams.fs import OWN_SYNC, OsFile, write_all

        _Appended, _CheckedBatch, _InvariantError, _LogOffsets = Appended, CheckedBatch, InvariantError, LogOffsets
        _BegunSync, _index_policy = BegunSync, CommitPolicy.INDEX
        _OsFile, _sync_file, _write_all = OsFile, OWN_SYNC, write_all
    return 0


cdef class AppendPath:
    """The positions of a log, its quick append and its sync. ``_lock`` is held wherever one of these fields changes;
    ``_sync_lock`` lets one sync run at a time."""

    def __init__(self):
        self.store_rows = 256  # index rows kept back before they are written to the file
        _import()

    @property
    def config(self):
        return self.settings

    @config.setter
    def config(self, config):
        self.settings = config
        self.segment_bytes, self.segment_ms = config.segment_bytes, config.segment_ms
        self.segment_index_bytes = config.segment_index_bytes

    @property
    def commit_policy(self):
        return self.policy

    @commit_policy.setter
    def commit_policy(self, policy):
        self.policy = policy

    @property
    def dirty(self):
        return self.flushed_offset < self.log_end_offset

    cdef int64_t stable(self, int64_t high_watermark) except? -1:
        cdef int64_t unstable
        found = self.producers.first_unstable
        if found is None:
            return high_watermark
        unstable = found
        return unstable if unstable < high_watermark else high_watermark

    def bounds(self):
        cdef int64_t high_watermark = self.high_watermark  # before the other: a transaction that ends moves it first
        cdef int64_t stable = self.stable(high_watermark)
        return tuple.__new__(
            _LogOffsets,
            (self.log_start_offset, high_watermark, stable, self.log_end_offset, self.epochs.latest),
        )

    def shown(self):
        """What other processes are to know, in the order of ``LiveBoard.publish``."""
        cdef Shown shown
        self.tell(&shown)
        return (
            shown.log_start, shown.high_watermark, shown.last_stable, shown.log_end, shown.segment_base,
            shown.end_position, shown.leader_epoch,
        )

    cdef int tell(self, Shown* shown) except -1:
        shown.log_start, shown.high_watermark = self.log_start_offset, self.high_watermark
        shown.last_stable = self.stable(shown.high_watermark)
        shown.log_end = shown.segment_base = self.log_end_offset
        shown.end_position = 0
        shown.leader_epoch = self.epochs.latest
        active = self.segments.active
        if active is not None:
            shown.segment_base, shown.end_position = (<SegmentTail?>active).base_offset, (<SegmentTail>active).size
        return 0

    cdef int show(self) except -1:
        """Publish what other processes are to know: as ``StoreContext.show``, where a file is published to."""
        cdef Shown shown
        publish = self._publish
        if type(publish) is SlotPublisher:
            context = (<SlotPublisher>publish).context
            live = context.live
            if isinstance(live, LivePublisher):
                context.locks.check()
                self.tell(&shown)
                return (<LivePublisher>live).show((<SlotPublisher>publish).slot, &shown)
        publish(self)
        return 0

    def append(self, batches, expected_offset=None, int64_t term=LONE_TERM):
        """As leader: give offsets and the epoch, write, index. One write call for all batches of a segment.

        The batches were checked (``append_validation``). ``expected_offset``: append only if the log ends
        there, else ``OffsetMismatchError``. ``term``: under which the caller leads, else the log's own;
        ``FencedLeaderEpochError`` if the log knows a newer one. Other errors: ``DiskFullError`` or ``StorageError``
        (the log is as before), ``PartitionPoisonedError``; ``StorageError`` or ``OutcomeUnknownError`` that say so
        when batches that take more than one segment got in only in part.
        """
        cdef int64_t base
        self._lock.acquire()
        try:
            base = self.log_end_offset
            if (
                self._failure is not None or term != LONE_TERM or len(batches) != 1
                or not (expected_offset is None or expected_offset == base)
            ):
                return self._append_carefully(batches, expected_offset, term)
            lone = batches[0]
            if type(lone) is not _CheckedBatch:
                return self._append_carefully(batches, expected_offset, term)
            header = <object>tuple_item(<PyObject*>lone, 1)
            if number_at(<PyObject*>header, PRODUCER_ID_AT) >= 0:
                known = self.producers.repeated_one(header)
                if known is not None:
                    return known  # it was stored before, and only the answer got lost
            self.append_one(lone, header)
            return tuple.__new__(_Appended, (base, self.log_end_offset))
        finally:
            self._lock.release()

    def _append_one(self, batch):
        """The way of one data batch, which most appends are: as that of several, without their loops."""
        self.append_one(batch, batch[1])

    cdef SegmentTail segment_for(self, lone, header, int64_t size):
        """The active segment, unless the batch is to roll it (``rolling.must_roll``)."""
        cdef SegmentTail segment
        active = self.segments.active
        if active is None:
            return self._segment_for(lone)
        segment = <SegmentTail?>active
        if segment.closed or (
            segment.size != 0
            and (
                segment.size + size > self.segment_bytes
                or number_at(<PyObject*>header, MAX_TIMESTAMP_AT) - segment.first_timestamp_ms
                > self.segment_ms - self._roll_jitter_ms
                or segment.index_bytes + LARGEST_ROW > self.segment_index_bytes
                or self.log_end_offset + number_at(<PyObject*>header, LAST_OFFSET_DELTA_AT) - segment.base_offset
                > INT32_MOST
            )
        ):
            return self._segment_for(lone)
        return segment

    def append_run(self, list batches not None):
        """As leader of a lone node: as many batches as the active segment takes, from the first on, with one write; where
        each of them is. None of them, where ``append`` has more to ask: of one batch, of a repeated one, of a roll. Errors
        as ``append``; then none is in."""
        cdef Run run
        cdef list placed = []
        run.held = 0
        self._lock.acquire()
        try:
            if self.begun(batches, 2, &run):
                parts = self.laid_out(batches, &run)
                segment, file = self.segments.active, self._held.file
                try:
                    if run.fd >= 0:
                        self.write(file, run.written, run.count, run.position, run.size, tuple(chain.from_iterable(parts)))
                    else:
                        _write_all(file, list(chain.from_iterable(parts)), run.position)
                except BaseException as error:
                    self._take_back_written(segment, file, error)
                    raise
                self.note_run(batches, &run, parts, placed)
            return placed
        finally:
            let_go(&run)
            self._lock.release()

    cdef bint begun(self, list batches, int least, Run* run) except -1:
        """Whether so many batches at least, from the first on, may be written together now; their bytes are lent then. The
        lock is held. Errors as ``append``, where the first one is not its producer's next."""
        run.held = 0
        if self._failure is None and self.epochs.latest >= 0 and self.segments.active is not None:
            run.held = self.run_of(batches, <SegmentTail?>self.segments.active, run.views)
        return run.held >= least and self.is_next(batches[0])

    cdef bint is_next(self, first) except -1:
        """Whether the batch is not stored yet: of a producer without an id, or its next one. Errors as ``append``."""
        header = <object>tuple_item(<PyObject*>first, 1)
        if number_at(<PyObject*>header, PRODUCER_ID_AT) < 0:
            return True
        return self.producers.repeated_one(header) is None

    cdef int run_of(self, list batches, SegmentTail segment, Py_buffer* views) except -1:
        """How many of the batches go into the segment together. Their bytes are lent to ``views``."""
        cdef int number = 0
        cdef int64_t size = segment.size, offset = self.log_end_offset, first_ms = segment.first_timestamp_ms
        before = None
        if segment.closed:
            return 0
        try:
            while number < MOST_TOGETHER and number < len(batches):
                batch = batches[number]
                if type(batch) is not _CheckedBatch:
                    break
                header = <object>tuple_item(<PyObject*>batch, 1)
                if not goes_with(<PyObject*>header, <PyObject*>before):
                    break
                before = header
                PyObject_GetBuffer(<object>tuple_item(<PyObject*>batch, 0), &views[number], PyBUF_SIMPLE)
                number += 1
                if size == 0:
                    first_ms = number_at(<PyObject*>header, MAX_TIMESTAMP_AT)
                elif (
                    size + views[number - 1].len > self.segment_bytes
                    or number_at(<PyObject*>header, MAX_TIMESTAMP_AT) - first_ms
                    > self.segment_ms - self._roll_jitter_ms
                    or segment.index_bytes + number * LARGEST_ROW > self.segment_index_bytes  # one for each batch
                    or offset + number_at(<PyObject*>header, LAST_OFFSET_DELTA_AT) - segment.base_offset > INT32_MOST
                ):
                    number -= 1
                    PyBuffer_Release(&views[number])
                    break
                if views[number - 1].len < HEADER_BYTES:
                    raise _InvariantError("invariant broken: a checked batch has its header")
                size += views[number - 1].len
                offset += number_at(<PyObject*>header, LAST_OFFSET_DELTA_AT) + 1
        except BaseException:
            while number:
                number -= 1
                PyBuffer_Release(&views[number])
            raise
        return number

    cdef list laid_out(self, list batches, Run* run):
        """What is to be written of the batches that have begun, stamped, into the file that is held from now on; the parts
        of each batch. ``fd`` is -1 where that is no file of the operating system's."""
        cdef int64_t epoch = self.epochs.latest, offset = self.log_end_offset
        cdef SegmentTail segment = <SegmentTail?>self.segments.active
        cdef int number
        cdef Py_ssize_t copied
        cdef Py_buffer* view
        cdef uint8_t* to
        cdef list parts = []
        run.count, run.position, run.size, run.fd = 0, segment.size, 0, -1
        for number in range(run.held):
            batch, view = batches[number], &run.views[number]
            copied = view.len if view.len <= COPIED_BYTES else STAMP_BYTES
            stamped = PyBytes_FromStringAndSize(<const char*>view.buf, copied)
            to = <uint8_t*>PyBytes_AS_STRING(stamped)
            put_big(to, offset, 8)
            put_big(to + 12, epoch, 4)
            run.written[run.count].iov_base, run.written[run.count].iov_len = to, copied
            run.count += 1
            if copied < view.len:
                parts.append((stamped, (<object>tuple_item(<PyObject*>batch, 0))[STAMP_BYTES:]))
                run.written[run.count].iov_base = <uint8_t*>view.buf + STAMP_BYTES
                run.written[run.count].iov_len = view.len - STAMP_BYTES
                run.count += 1
            else:
                parts.append((stamped,))
            run.size += view.len
            offset += number_at(tuple_item(<PyObject*>batch, 1), LAST_OFFSET_DELTA_AT) + 1
        file = self._held.file
        if file is None:
            file = self.hold(segment)
        if type(file) is _OsFile:
            run.fd = file._fd
        return parts

    cdef int note_run(self, list batches, Run* run, list parts, list placed) except -1:
        """The batches are in the file: count them, and where each of them is."""
        cdef SegmentTail segment = <SegmentTail?>self.segments.active
        cdef int64_t offset = self.log_end_offset, position = run.position, last
        cdef bint was_dirty = self.flushed_offset < self.log_end_offset, entered = False
        cdef PyObject* header
        cdef int number
        for number in range(run.held):
            header = tuple_item(<PyObject*>batches[number], 1)
            last = offset + number_at(header, LAST_OFFSET_DELTA_AT)
            if number_at(header, PRODUCER_ID_AT) >= 0:
                self.producers.note(<object>header, <object>tuple_item(<PyObject*>batches[number], 0), offset)
            entered |= segment.noted(position, run.views[number].len, last, number_at(header, MAX_TIMESTAMP_AT))
            position += run.views[number].len
            self.tail.add(offset, last + 1, position, parts[number], run.views[number].len)
            placed.append(tuple.__new__(_Appended, (offset, last + 1)))
            offset = last + 1
        self.count(segment, offset, was_dirty, entered)
        return 0

    cdef int append_one(self, lone, header) except -1:
        cdef int64_t epoch = self.epochs.latest, offset, position, last, newest_ms
        cdef Py_buffer view
        cdef Py_ssize_t size
        cdef bint was_dirty, entered
        cdef SegmentTail segment
        cdef uint8_t* to
        cdef iovec written[2]
        cdef int count = 1
        if epoch < 0:
            epoch = self._writing_epoch(LONE_TERM)
        data = <object>tuple_item(<PyObject*>lone, 0)
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            size = view.len
            if size < HEADER_BYTES:
                raise _InvariantError("invariant broken: a checked batch has its header")
            segment = self.segment_for(lone, header, size)
            offset, position = self.log_end_offset, segment.size
            was_dirty = self.flushed_offset < self.log_end_offset
            # One buffer is written faster than two, and is one object in the tail cache instead of four.
            copied = size if size <= COPIED_BYTES else STAMP_BYTES
            stamped = PyBytes_FromStringAndSize(<const char*>view.buf, copied)
            to = <uint8_t*>PyBytes_AS_STRING(stamped)
            put_big(to, offset, 8)
            put_big(to + 12, epoch, 4)
            written[0].iov_base, written[0].iov_len = to, copied
            if size > COPIED_BYTES:
                parts = (stamped, data[STAMP_BYTES:])
                written[1].iov_base = <uint8_t*>view.buf + STAMP_BYTES
                written[1].iov_len = size - STAMP_BYTES
                count = 2
            else:
                parts = (stamped,)
            file = self._held.file
            if file is None:
                file = self.hold(segment)
            try:
                if type(file) is _OsFile:
                    self.write(file, written, count, position, size, parts)
                else:
                    _write_all(file, parts, position)  # behind what is valid: it may be cut back to that
            except BaseException as error:
                self._take_back_written(segment, file, error)
                raise
        finally:
            PyBuffer_Release(&view)
        last = offset + number_at(<PyObject*>header, LAST_OFFSET_DELTA_AT)
        newest_ms = number_at(<PyObject*>header, MAX_TIMESTAMP_AT)
        if number_at(<PyObject*>header, PRODUCER_ID_AT) >= 0:
            self.producers.note(header, data, offset)
        entered = segment.noted(position, size, last, newest_ms)
        self.tail.add(offset, last + 1, position + size, parts, size)
        self.count(segment, last + 1, was_dirty, entered)
        return 0

    cdef int write(
        self, file, iovec* written, int count, int64_t position, Py_ssize_t size, tuple parts
    ) except -1:
        """As ``write_all`` of ``parts``, into a file of the operating system."""
        cdef int fd = file._fd
        cdef ssize_t done
        while True:
            with nogil:
                done = put_out(fd, written, count, position)
            if done >= 0:
                break
            if errno != EINTR:
                PyErr_SetFromErrno(OSError)
            PyErr_CheckSignals()
        if done < size:
            _write_all(file, [memoryview(b"".join(parts))[done:]], position + done)
        return 0

    def _write(self, segment, buffers):
        file = self._held.file
        if file is None:
            file = self.hold(segment)
        try:
            _write_all(file, buffers, segment.size)  # behind what is valid: it may be cut back to that
        except BaseException as error:
            self._take_back_written(segment, file, error)
            raise

    cdef object hold(self, segment):
        """The segment's file, which stays open until what is written to it is synced."""
        file = self._held.held(segment)
        self.dirty_since_s = self._clock.monotonic_s()
        return file

    def _count(self, segment, int64_t offset, bint was_dirty, bint entered):
        """The log reaches to ``offset`` now; ``entered``: the segment's indexes have got new rows."""
        self.count(segment, offset, was_dirty, entered)

    cdef int count(self, SegmentTail segment, int64_t offset, bint was_dirty, bint entered) except -1:
        self.unsynced_records += offset - self.log_end_offset
        self.log_end_offset = offset
        if not was_dirty:
            self._on_dirty(self)
        if entered and segment.unstored() >= self.store_rows:
            try:
                segment.store_indexes()
            except OSError:
                pass  # the batches are in; the rows wait in memory for the next try, a checkpoint or a roll
        if self.shows_appended:
            self.advance(offset)
            self.show()  # else nothing that other processes may see has changed before the sync
        return 0

    def _advance_high_watermark(self, int64_t offset):
        """The one place where the high watermark moves. The lock is held; ``offset`` lies between two batches."""
        self.advance(offset)

    cdef int advance(self, int64_t offset) except -1:
        if offset > self.high_watermark:
            self.high_watermark = offset
            if self.producers.first_unstable is not None:
                self.producers.settle(offset)
            if self._waiters:
                self.wake_waiters()
        return 0

    # --- sync ---

    def sync(self):
        """Make everything appended so far durable, then visible. ``OutcomeUnknownError`` if the disk refuses
        (the log is poisoned then), ``PartitionPoisonedError`` if it was refused before."""
        self._sync_lock.acquire()
        try:
            if not self.synced_quickly():
                self._sync_now()
        finally:
            self._sync_lock.release()

    cdef bint synced_quickly(self) except -1:
        """As ``_sync_now``, for a file of the operating system about which nothing is unusual; False: not done."""
        cdef int64_t target
        cdef int fd, refused
        self._lock.acquire()
        try:
            target, file = self.log_end_offset, self._held.file
            if (
                self._failure is not None or target == self.flushed_offset
                or type(file) is not _OsFile or _OsFile.sync is not _sync_file
            ):
                return False
            segment = self.segments.active
            if segment is None:
                return False
            self._held.lent()
        finally:
            self._lock.release()
        fd = file._fd
        while True:
            with nogil:
                refused = sync_data(fd)
            if not refused:
                break
            if errno != EINTR:
                try:
                    PyErr_SetFromErrno(OSError)
                except OSError as error:
                    raise self.failed_sync(_BegunSync(target, segment, file), error) from error
            PyErr_CheckSignals()
        self._lock.acquire()
        try:
            self._held.taken_back()
            self.synced_up_to(target)
        finally:
            self._lock.release()
        return True

    def _synced_up_to(self, int64_t target):
        """The lock is held; ``target`` was the end when the sync began."""
        self.synced_up_to(target)

    cdef int synced_up_to(self, int64_t target) except -1:
        self.syncs += 1
        if target > self.flushed_offset:
            self.flushed_offset = target
        self.unsynced_records = self.log_end_offset - self.flushed_offset
        if self.flushed_offset >= self.log_end_offset:
            self._held.gone()
        else:
            self.dirty_since_s = self._clock.monotonic_s()
        if self.policy is not _index_policy:
            self.advance(self.flushed_offset)
        self.show()
        return 0
