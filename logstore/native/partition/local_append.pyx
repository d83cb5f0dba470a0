"""An append to a partition of this directory, from its topic's door to its outcome: the compiled twin of
partition/local_append.py.

The fields are a compiled class's. What waits, fails or is rare is left to methods of the Python classes above it.
"""

cimport cython
from cpython.bytes cimport PyBytes_CheckExact
from cpython.ref cimport PyObject
from libc.errno cimport errno
from libc.stdint cimport int64_t
from posix.time cimport CLOCK_REALTIME, clock_gettime, timespec

from logstore.native.log.checking cimport Rules, as_leader, batches_in, rules_of
from logstore.native.format.varints cimport fingerprint
from logstore.native.partition.lone_commits cimport LoneCommits
from logstore.native.partition.topic_users cimport TopicUsers, left

FINGERPRINT = fingerprint()

cdef extern from "Python.h":
    object whole_view "PyMemoryView_FromObject" (object buffer)
    PyObject* tuple_item "PyTuple_GET_ITEM" (object items, Py_ssize_t at) noexcept
    PyObject* list_item "PyList_GET_ITEM" (object items, Py_ssize_t at) noexcept

cdef enum:
    BASE_TIMESTAMP_AT = 7  # place in a ``BatchHeader``

cdef object _CheckedBatch = None
cdef object _LogAccess = None
cdef object _LogStoreError = None
cdef object _OffsetMismatchError = None
cdef object _RecordMetadata = None
cdef object _SystemClock = None
cdef object _encode_with_header = None
cdef object _wall_ms = None


cdef int _import() except -1:
    global _CheckedBatch, _LogAccess, _LogStoreError, _OffsetMismatchError, _RecordMetadata, _SystemClock
    global _encode_with_header, _wall_ms
    if _CheckedBatch is None:
        from logstore.errors import LogStoreError, OffsetMismatchError
        from logstore.format.batch import encode_with_header
        from logstore.log.append_validation import CheckedBatch
        from logstore.partition.log_access import LogAccess
        from logstore.seams.clock import OWN_WALL_MS, SystemClock
        from logstore.types import RecordMetadata

        _LogStoreError, _OffsetMismatchError = LogStoreError, OffsetMismatchError
        _CheckedBatch, _LogAccess, _RecordMetadata = CheckedBatch, LogAccess, RecordMetadata
        _encode_with_header = encode_with_header
        _SystemClock, _wall_ms = SystemClock, OWN_WALL_MS
    return 0


cdef object wall_ms(clock):
    """``clock.wall_ms()``; without a step of Python's where it is the system's."""
    cdef timespec now
    if type(clock) is not _SystemClock or _SystemClock.wall_ms is not _wall_ms:
        return clock.wall_ms()
    if clock_gettime(CLOCK_REALTIME, &now):
        raise OSError(errno, "the system has no clock")
    return <int64_t>now.tv_sec * 1000 + now.tv_nsec // 1_000_000


@cython.final
cdef class LocalAppend:
    """A ``PendingAppend`` that is decided by syncs of this process. ``must_sync``: it waits for one; ``promised``: its
    failure is the append's (``acks="all"``), and not just the next one's."""

    cdef object _context
    cdef object _topic
    cdef object _log
    cdef bint _must_sync
    cdef bint _promised
    cdef public object base_offset
    cdef public object next_offset
    cdef public object append_time_ms
    cdef public object error
    cdef public bint done

    def __init__(self, context, topic, log, appended, append_time_ms, bint must_sync, bint promised):
        _import()
        self._context, self._topic, self._log = context, topic, log
        self.base_offset, self.next_offset = appended
        self.append_time_ms = append_time_ms
        self._must_sync, self._promised = must_sync, promised

    def wait_with(self, others):
        cdef LocalAppend one
        cdef list mine, wants
        if len(others) == 1:
            self.wait()
            return
        mine = [other for other in others if type(other) is LocalAppend and not (<LocalAppend>other).done]
        wants = [
            ((<LocalAppend>other)._log, (<LocalAppend>other).next_offset)
            for other in mine
            if (<LocalAppend>other)._must_sync
        ]
        failure = None
        try:
            if wants:
                self._context.commit(wants)
        except _LogStoreError as error:
            failure = error
        finally:
            for one in mine:
                one.decide(failure)
                left(one._topic)

    cdef int wait(self) except -1:
        failure = None
        try:
            if self._must_sync:
                committer = self._context.committer
                if isinstance(committer, LoneCommits):
                    (<LoneCommits>committer).committed(self._log, self.next_offset)
                else:
                    committer.commit_one(self._log, self.next_offset)
        except _LogStoreError as error:
            failure = error
        finally:
            self.decide(failure)
            left(self._topic)
        return 0

    cdef int decide(self, failure) except -1:
        if failure is not None and self._promised and self._log.flushed_offset < self.next_offset:
            self.error = failure
        self.done = True
        return 0

    def _decide(self, failure):
        self.decide(failure)

    def then(self, tell):
        if not self.done and not self._must_sync:
            self.done = True
            left(self._topic)
        if self.done:
            tell(self.error)
            return
        leave = self._topic.leave_later()  # by the thread that syncs

        def decided(failure):
            self.decide(failure)
            leave()
            tell(self.error)

        self._context.committer.commit_later([(self._log, self.next_offset)], decided)


cdef class LocalAppends:
    """The appends of a partition whose only copy is in this directory."""

    cdef public object _context
    cdef public object _topic
    cdef public object partition
    cdef public object where

    def __init__(self, context, topic, partition, where):
        self._context, self._topic, self.partition, self.where = context, topic, partition, where
        _import()

    def append(self, batches, acks="all", *, expected_offset=None, now_ms=None, until_s=None):
        return self.appended(batches, acks, expected_offset, now_ms, until_s)

    def append_each(self, batches, acks, until_s, list made not None):
        """Append one batch after the other, each for itself, into ``made``; the first error ends it. Those that a log
        takes together are written together: then none of them is in after an error."""
        cdef Py_ssize_t at = 0, count = len(batches), written
        cdef bint together = count > 1
        now_ms = wall_ms(self._context.clock)
        while at < count:
            written = self.run(list(batches[at:]), acks, until_s, now_ms, made) if together else 0
            if not written:
                made.append(self.appended([batches[at]], acks, None, now_ms, until_s))
                written, together = 1, False
            at += written

    cdef Py_ssize_t run(self, list batches, acks, until_s, now_ms, list made) except -1:
        """Append as many of the batches as the log takes together; 0: they are to go one by one."""
        cdef LocalAppend one
        cdef list appended = []
        topic, context = self._topic, self._context
        if isinstance(topic, TopicUsers):
            (<TopicUsers>topic).come_in(until_s)
        else:
            topic.enter(until_s)
        try:
            log = (<TopicUsers>topic)._logs.get(self.partition) if isinstance(topic, TopicUsers) else None
            if log is None:
                log = topic.log_to_append(self.partition)
            config = topic.config
            try:
                checked = as_leader(batches, config, now_ms, self.where)
            except _LogStoreError:
                checked = None  # one of them is refused: those before it go in, one by one
            if checked:
                appended = log.append_run(checked)
            topic.stay(len(appended))
        finally:
            left(topic)
        if not appended:
            return 0
        if context.pool.crowded:
            context.make_room()
        append_time_ms = now_ms if config.timestamp_type == "LogAppendTime" else -1
        end_offset = appended[len(appended) - 1][1]
        for place in appended:
            one = LocalAppend.__new__(LocalAppend)
            one._context, one._topic, one._log = context, topic, log
            one.base_offset, one.next_offset = place
            one.append_time_ms = append_time_ms
            one._promised = acks == "all"
            one._must_sync = (
                one._promised or log.unsynced_records - (end_offset - one.next_offset) >= config.flush_messages
            )
            made.append(one)
        return len(appended)

    cdef LocalAppend appended(self, batches, acks, expected_offset, now_ms, until_s):
        cdef LocalAppend made
        cdef TopicUsers users = None
        topic, context = self._topic, self._context
        log = None
        if isinstance(topic, TopicUsers):
            users = <TopicUsers>topic
            users.come_in(until_s)
        else:
            topic.enter(until_s)
        try:
            if users is not None:
                log = users._logs.get(self.partition)
            if log is None:
                log = topic.log_to_append(self.partition)
            config = topic.config
            if now_ms is None:
                now_ms = wall_ms(context.clock)
            checked = as_leader(batches, config, now_ms, self.where)
            try:
                appended = log.append(checked, expected_offset)
            except _OffsetMismatchError as error:
                self._show_winner(log, error)
                raise
        except BaseException:
            left(topic)
            raise
        if context.pool.crowded:
            context.make_room()
        made = LocalAppend.__new__(LocalAppend)
        made._context, made._topic, made._log = context, topic, log
        made.base_offset, made.next_offset = appended
        made.append_time_ms = now_ms if config.timestamp_type == "LogAppendTime" else -1
        made._promised = acks == "all"
        made._must_sync = made._promised or log.unsynced_records >= config.flush_messages
        return made


# --- the facade of a partition's log ---


cdef inline bint are_acks(acks) except -1:
    return (type(acks) is str and acks == "all") or (type(acks) is int and (acks == 0 or acks == 1))


cdef inline bint is_payload(item) noexcept:
    return item is None or PyBytes_CheckExact(item)


cdef LocalAppends appends_of(log, acks):
    """Where ``log`` appends to, if that is a partition of this directory and ``acks`` are known; else None."""
    _import()
    held = log._held
    if isinstance(held, LocalAppends) and type(log._access) is _LogAccess and are_acks(acks):
        return held
    return None


cdef object landed(log, LocalAppend made, acks, timestamp_ms):
    """The metadata of the append, once it is decided. Raises its error."""
    if not made.done:
        made.wait()
    if made.error is not None:
        raise made.error
    return tuple.__new__(
        _RecordMetadata,
        (
            log.topic, log.partition, -1 if acks == 0 else made.base_offset,
            timestamp_ms if made.append_time_ms < 0 else made.append_time_ms,
        ),
    )


def append_row(log, rows, acks):
    """``PartitionLog.append`` of one plain row to a partition of this directory; None: nothing was done."""
    cdef LocalAppends held = appends_of(log, acks)
    cdef Rules rules
    if held is None or type(rows) is not list or len(<list>rows) != 1:
        return None
    row = <object>list_item(rows, 0)
    if (
        type(row) is not tuple or len(<tuple>row) != 2
        or not is_payload(<object>tuple_item(row, 0)) or not is_payload(<object>tuple_item(row, 1))
    ):
        return None
    rules = rules_of(held._topic.config)
    if not rules.plain:
        return None
    now_ms = wall_ms(held._context.clock)
    data, header = _encode_with_header(rows, now_ms)
    if len(data) > rules.most_bytes:
        return None
    batch = tuple.__new__(_CheckedBatch, (whole_view(data), header))
    return landed(log, held.appended([batch], acks, None, now_ms, None), acks, now_ms)


def append_proved(log, buffer, acks):
    """``PartitionLog.append_batch`` to a partition of this directory; None: nothing was done."""
    cdef LocalAppends held = appends_of(log, acks)
    if held is None or not isinstance(buffer, (bytes, bytearray, memoryview)):
        return None
    batches = batches_in(buffer, log.where)
    header = <object>tuple_item(<object>list_item(batches, 0), 1)
    made = held.appended(batches, acks, None, None, None)
    return landed(log, made, acks, <object>tuple_item(header, BASE_TIMESTAMP_AT))
