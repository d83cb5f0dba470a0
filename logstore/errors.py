"""Every error of the project, one tree: name, Kafka error code, whether a retry can help, and a hint.

``LogStoreError`` -> ``RetriableError`` (the same call may succeed later) or ``FatalError`` (it will not
until something is changed). Each message says what was tried and where; ``hint`` says what to change.
Codes are Apache Kafka's protocol codes (kafka.apache.org/protocol, "Error Codes"); errors that exist only
in this project carry codes from 10000 on.
"""

from __future__ import annotations

import errno
from typing import ClassVar


class LogStoreError(Exception):
    """Root of all errors raised by this project.

    ``code``: Kafka's protocol code or ours (>= 10000); ``hint``: what to change, appended to the message;
    ``request_id``: of the call to a broker that failed, as the broker's logs have it.
    """

    code: ClassVar[int] = -1
    retriable: ClassVar[bool] = False
    hint: ClassVar[str] = ""
    request_id: str = ""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        self.message = message
        self.advice = self.hint if hint is None else hint
        super().__init__(f"{message} ({self.advice})" if self.advice else message)

    def __reduce__(self) -> tuple[object, ...]:
        """Keep errors picklable: they cross process borders in Spark and in tests."""
        return (_rebuild, (type(self), self.message, self.advice, self.__dict__.copy()))


def _rebuild(kind: type[LogStoreError], message: str, advice: str, state: dict[str, object]) -> LogStoreError:
    error = kind.__new__(kind)
    LogStoreError.__init__(error, message, hint=advice)
    error.__dict__.update(state)
    return error


class RetriableError(LogStoreError):
    """The same call may succeed later, unchanged. ``retry_after_ms``: not before; 0: whenever the caller sees fit.
    ``passes``: it ends by itself, mostly within moments: who meets it in the background has nothing to report."""

    retriable = True
    passes: ClassVar[bool] = False
    retry_after_ms: int = 0


class FatalError(LogStoreError):
    """The same call will fail again until something is changed."""


class InvariantError(FatalError):
    """A programmer's mistake inside logstore: something that must always hold did not."""

    code = 10000
    hint = "this is a bug in logstore; please report it with the message"


# --- the caller's arguments -------------------------------------------------------------------------


class InvalidArgumentError(FatalError, ValueError):
    code = 42


class UnknownSettingError(InvalidArgumentError, TypeError):
    """A keyword that a call does not know."""


class InvalidTopicError(FatalError, ValueError):
    code = 17
    hint = "use 1 to 249 characters of a-z A-Z 0-9 . _ -, and neither '.' nor '..'"


class InvalidConfigError(FatalError, ValueError):
    code = 40


class InvalidPartitionsError(FatalError, ValueError):
    code = 37


class InvalidGroupError(FatalError, ValueError):
    code = 24
    hint = "a group name is 1 to 249 characters and holds no NUL"


class InvalidTransactionIdError(FatalError, ValueError):
    code = 42
    hint = "a transactional id is 1 to 249 characters and holds no NUL"


class RecordTypeError(FatalError, TypeError):
    """A key, value, header or row is not of the type that the call takes."""

    code = 10001
    hint = "keys and values are bytes or None; pass key_serializer/value_serializer for other types"


class InvalidRecordError(FatalError):
    """A batch or record breaks a rule of the format or of its topic."""

    code = 87


class InvalidTimestampError(FatalError):
    code = 32


class RecordTooLargeError(FatalError):
    code = 10
    hint = "raise the topic's max.message.bytes or send smaller records"


class NotAvailableYetError(FatalError):
    """A documented feature that this version does not have yet."""

    code = 10002


# --- topics and offsets -----------------------------------------------------------------------------


class UnknownTopicError(FatalError, LookupError):
    code = 3
    hint = "create it first: store.create_topic(name) or `logstore topic create NAME`"


class UnknownPartitionError(FatalError, LookupError):
    code = 3


class TopicExistsError(FatalError):
    code = 36


class TopicDiffersError(TopicExistsError):
    """``exist_ok=True``, and the topic that is there has other partitions or settings."""

    hint = "ask for what is there, or change the topic with alter_topic and add_partitions first"


class OffsetOutOfRangeError(FatalError):
    """The offset lies outside [log start offset, end visible to this reader]."""

    code = 1
    hint = "seek to an offset in range, or choose on_reset='earliest' or 'latest'"

    def __init__(
        self,
        message: str,
        *,
        hint: str | None = None,
        log_start_offset: int = -1,
        end_offset: int = -1,
    ) -> None:
        super().__init__(message, hint=hint)
        self.log_start_offset = log_start_offset
        self.end_offset = end_offset


class OffsetMismatchError(FatalError):
    """A conditional append found the log's end elsewhere: there was another append. Nothing was written.

    ``end_offset``: the log's end that was found. Readers see all records before it when the error is raised (those
    of an open transaction under ``read_uncommitted`` only).
    """

    code = 10024
    hint = "read what was appended since, decide again, and append with the new end as expected_offset"

    def __init__(
        self, message: str, *, hint: str | None = None, expected_offset: int = -1, end_offset: int = -1
    ) -> None:
        super().__init__(message, hint=hint)
        self.expected_offset = expected_offset
        self.end_offset = end_offset


class OutOfOrderSequenceError(FatalError):
    """A batch of an idempotent producer does not go on where the last one of that producer ended: a batch in
    between is missing. Nothing was written."""

    code = 45
    hint = "a batch before this one was not stored; begin again under a new epoch"

    def __init__(
        self, message: str, *, hint: str | None = None, expected_sequence: int = -1, found_sequence: int = -1
    ) -> None:
        super().__init__(message, hint=hint)
        self.expected_sequence = expected_sequence
        self.found_sequence = found_sequence


class DuplicateSequenceError(FatalError):
    """The batch is in the log already, but so long ago that its offset is not remembered any more."""

    code = 46
    hint = "it is stored once; nothing is left to do"


class ProducerFencedError(FatalError):
    """A newer instance of this producer has taken over: its epoch is higher."""

    code = 47
    hint = "close this producer; the newer instance goes on"

    def __init__(
        self, message: str, *, hint: str | None = None, expected_epoch: int = -1, found_epoch: int = -1
    ) -> None:
        super().__init__(message, hint=hint)
        self.expected_epoch = expected_epoch
        self.found_epoch = found_epoch


class TransactionStateError(FatalError):
    """The request does not fit the state of the producer's transaction."""

    code = 48


class TransactionAbortedError(FatalError):
    """The record's transaction was aborted before it was sent, or while it was on its way."""

    code = 10040
    hint = "send it again in another transaction"


class TransactionTimedOutError(TransactionStateError):
    """The transaction has outlived its timeout: it takes nothing more and can only be aborted."""

    code = 10050
    hint = "abort it and begin another one; a higher transaction_timeout_ms gives more time"


class UnknownTransactionError(FatalError, LookupError):
    """No producer has opened this transactional id, or it was forgotten after long disuse."""

    code = 105
    hint = "`logstore transaction list` shows the transactional ids"


class FencedLeaderEpochError(FatalError):
    """An append under a leader's term that a newer leader has ended: ``term`` against ``newest_term``."""

    code = 74
    hint = "this node does not lead the partition any more: look for the newest leader"

    def __init__(
        self, message: str, *, hint: str | None = None, term: int = -1, newest_term: int = -1
    ) -> None:
        super().__init__(message, hint=hint)
        self.term = term
        self.newest_term = newest_term


class CoordinatorFencedError(FatalError):
    """A marker came from a transaction coordinator that a newer one has replaced."""

    code = 52
    hint = "only the newest coordinator may end transactions"


class ProducerBusyError(RetriableError):
    """Another live producer has this name."""

    code = 10025
    hint = "close the other one, or wait until its process has ended"


class DataLossError(FatalError):
    """Records that this reader had reached are gone: their epoch ended before its position."""

    code = 10003
    hint = "a crash took unsynced records that were shown; seek to `lost_from` to go on"

    def __init__(
        self, message: str, *, hint: str | None = None, lost_from: int = -1, position: int = -1
    ) -> None:
        super().__init__(message, hint=hint)
        self.lost_from = lost_from
        self.position = position


class NoCommittedOffsetError(FatalError):
    code = 10004
    hint = "start='earliest', 'latest', an offset or a datetime reads without a committed offset"


class UnknownGroupError(FatalError, LookupError):
    code = 69


class GroupBusyError(RetriableError):
    """The group has members, and the call is for a group without."""

    code = 10005


class UnknownMemberError(FatalError):
    """The group has no such member: it left, or its session ended."""

    code = 25
    hint = "join the group again; what was not committed is read again by the partitions' new owners"


class MemberFencedError(FatalError):
    """Another member joined with the same instance_id and took this one's partitions over."""

    code = 82
    hint = "an instance_id is for one running consumer at a time: close this one, or give it another id"


class StaleGenerationError(FatalError):
    """A call under a generation of the member that is not, or no longer, good for the partition."""

    code = 113
    hint = "the partition has moved since: look at the assignment again before committing"

    def __init__(self, message: str, *, hint: str | None = None, expected: int = -1, found: int = -1) -> None:
        super().__init__(message, hint=hint)
        self.expected = expected
        self.found = found


# --- the format -------------------------------------------------------------------------------------


class CorruptBatchError(FatalError):
    """Bytes that are not the batch they claim to be: wrong CRC, length, count or record structure.

    ``path`` and ``position`` (bytes) say where, when the batch came from a file.
    """

    code = 2

    def __init__(
        self, message: str, *, hint: str | None = None, path: str | None = None, position: int = -1
    ) -> None:
        super().__init__(message, hint=hint)
        self.path = path
        self.position = position

    def found_in(self, where: str) -> CorruptBatchError:
        """The same, with the partition that a reader met it in: bytes alone do not know where they came from."""
        hint = self.advice or "run `logstore log verify`; `logstore log salvage` copies what is readable"
        return CorruptBatchError(
            f"{where}: {self.message}", hint=hint, path=self.path, position=self.position
        )


class UnsupportedMagicError(FatalError):
    code = 43
    hint = "only record batches of magic 2 are supported; convert older ones with a Kafka broker"


class UnsupportedCodecError(FatalError):
    code = 76
    hint = "use none, gzip, snappy, lz4 or zstd"


class MissingExtraError(FatalError, ImportError):
    """A feature needs a package that is not installed; the message names the extra."""

    code = 10006


class DecompressionBombError(FatalError):
    """A compressed batch would grow past the bound on decompressed size."""

    code = 10007


# --- the directory and its disk ---------------------------------------------------------------------


class StorageError(FatalError):
    """The operating system refused an input or output operation."""

    code = 56


class DiskFullError(RetriableError):
    """No space (or quota) left; nothing of the refused append stays, reads go on."""

    code = 56
    hint = "free space on the disk; appends work again at once when there is room"


class PermissionDeniedError(StorageError):
    hint = "give this user access to the directory, or open it with mode='r'"


class PartitionPoisonedError(FatalError):
    """A write or fsync failed before; the log accepts nothing more until it is reopened and recovered."""

    code = 56
    hint = "find out why the disk failed, then close and open the store: recovery decides what is kept"


class ErasureIncompleteError(FatalError):
    """Records of an erased key are still there, or it could not be proved that they are not; ``path``: where."""

    code = 10026
    hint = "end open transactions and other users of the topic, then erase again"

    def __init__(self, message: str, *, hint: str | None = None, path: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.path = path


class BatchChangedError(FatalError):
    """A batch of a Spark query comes again under its number, with other rows than those that are in."""

    code = 10081
    hint = "begin a new query with a checkpoint of its own, or say what becomes of such a batch: option changedBatch"


class OutcomeUnknownError(FatalError):
    """A failed fsync: the records may or may not be durable."""

    code = 10008
    hint = "reopen the store and read the end of the partition to see what was kept"


class StoreNotFoundError(FatalError, FileNotFoundError):
    code = 10009


class StoreReplacedError(FatalError):
    """The directory holds another store than the one that was opened: it was removed and made anew."""

    code = 10080
    hint = "close this store and open the directory again"


class ForeignDirectoryError(FatalError):
    """The directory holds something, but no log store."""

    code = 10010
    hint = "choose an empty or new directory"


class DamagedStoreError(FatalError):
    """A file the store depends on is missing or unreadable; ``path`` and ``position`` say where."""

    code = 10011
    hint = "run `logstore log verify`; `logstore log salvage` copies what is readable into a new store"

    def __init__(
        self, message: str, *, hint: str | None = None, path: str | None = None, position: int = -1
    ) -> None:
        super().__init__(message, hint=hint)
        self.path = path
        self.position = position


class UnsupportedStoreVersionError(FatalError):
    code = 35
    hint = "open it with the version of logstore that wrote it, or a newer one"


class UnsupportedPlatformError(FatalError):
    code = 10012


class ReadOnlyStoreError(FatalError):
    code = 10013
    hint = "open the store with mode='rw' to write"


class TopicLockedError(RetriableError):
    """Another process owns the topic, or holds the catalogue, past ``lock_timeout_s``."""

    code = 10014
    passes = True


class LockLostError(FatalError):
    """The file of a lock that this store holds was removed or replaced: the lock keeps no other process out."""

    code = 10051
    hint = (
        "close the store and open it again; leave the folder .locks alone while a process has the store open"
    )


class StoreClosedError(FatalError):
    code = 10015
    hint = "open the store again with logstore.open(path)"


class NoConsistentCutError(RetriableError):
    """A backup found no moment at which it could see all partitions as they stood then; nothing was copied."""

    code = 10060
    hint = "try again when less is being written"


class ForkedStoreError(FatalError):
    code = 10016
    hint = "open the store after os.fork(), in the process that uses it"


class SegmentVanishedError(RetriableError):
    """Offsets that a reader asked for were removed while it read; ``lost`` is [first, end)."""

    code = 10017

    def __init__(self, message: str, *, hint: str | None = None, lost: tuple[int, int] = (-1, -1)) -> None:
        super().__init__(message, hint=hint)
        self.lost = lost


class RemoteSegmentError(FatalError):
    """Offsets of a Kafka broker's topic that only its remote (tiered) storage holds; the directory begins at
    ``local_start_offset``."""

    code = 10027

    def __init__(self, message: str, *, hint: str | None = None, local_start_offset: int = -1) -> None:
        super().__init__(message, hint=hint)
        self.local_start_offset = local_start_offset


# --- clients ----------------------------------------------------------------------------------------


class BufferFullError(RetriableError):
    code = 10018
    hint = "raise buffer_bytes or max_block_ms, or send more slowly"


class DeliveryTimeoutError(FatalError):
    """No outcome within ``delivery_timeout_ms`` or within the time the caller gave."""

    code = 7


class ClientClosedError(FatalError):
    """A producer or consumer was used after its close."""

    code = 10019


class WakeupError(RetriableError):
    """``consumer.wakeup()`` ended a waiting poll."""

    code = 10020


class OperationCancelledError(FatalError):
    """An administrator's operation was ended early by its caller."""

    code = 10091


class ConsumerThreadError(FatalError):
    """A consumer belongs to one thread."""

    code = 10021
    hint = "give each thread its own consumer; only wakeup() may be called from another thread"


class PoisonRecordError(FatalError):
    """A record's key or value could not be deserialized; ``topic``, ``partition``, ``offset`` say which."""

    code = 10022
    hint = "fix the deserializer, or choose on_poison='skip' or a dead-letter topic"

    def __init__(
        self, message: str, *, hint: str | None = None, topic: str = "", partition: int = -1, offset: int = -1
    ) -> None:
        super().__init__(message, hint=hint)
        self.topic = topic
        self.partition = partition
        self.offset = offset


class BackendNotInstalledError(FatalError):
    code = 10023


class NotCompactedError(FatalError):
    """A table of a topic that does not compact: its records are no states of their keys."""

    code = 10043
    hint = "set cleanup.policy=compact on the topic, or pass any_policy=True"


class CompactedAwayError(FatalError):
    """Compaction removed records that a former state needs. ``exact_from``: from there on states are exact."""

    code = 10041

    def __init__(
        self,
        message: str,
        *,
        hint: str | None = None,
        partition: int = -1,
        offset: int = -1,
        exact_from: int = -1,
    ) -> None:
        super().__init__(message, hint=hint)
        self.partition = partition
        self.offset = offset
        self.exact_from = exact_from


class TableTooLargeError(FatalError):
    """The keys of a table take more memory than ``max_memory_bytes``."""

    code = 10042
    hint = (
        "raise max_memory_bytes (about 120 bytes a key, and the key), or spread the keys over several topics"
    )


def from_os_error(error: OSError, action: str, path: str) -> LogStoreError:
    """The named error for a failed system call. ``action``: what was tried, e.g. "append to"."""
    text = f"cannot {action} {path}: {error.strerror or error}"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFullError(text)
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return PermissionDeniedError(text)
    if error.errno == errno.EFBIG:
        return StorageError(text, hint="raise the limit on file sizes (ulimit -f), or lower segment.bytes")
    if error.errno in (errno.ELOOP, errno.EINVAL, errno.EISDIR, errno.ENOTDIR) and error.filename == path:
        return StorageError(text, hint="a store holds plain files and folders: put back what belongs there")
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return StorageError(text, hint="raise the limit on open files (ulimit -n) or lower max_open_files")
    return StorageError(text)
