from rpc.pb import common_pb2 as _common_pb2
from rpc.pb import topics_pb2 as _topics_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class DeleteRecordsRequest(_message.Message):
    __slots__ = ("before",)
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    before: _containers.RepeatedCompositeFieldContainer[PartitionOffset]
    def __init__(self, before: _Optional[_Iterable[_Union[PartitionOffset, _Mapping]]] = ...) -> None: ...

class PartitionOffset(_message.Message):
    __slots__ = ("topic", "partition", "offset")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    offset: int
    def __init__(
        self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., offset: _Optional[int] = ...
    ) -> None: ...

class DeleteRecordsResponse(_message.Message):
    __slots__ = ("starts",)
    STARTS_FIELD_NUMBER: _ClassVar[int]
    starts: _containers.RepeatedCompositeFieldContainer[PartitionOffset]
    def __init__(self, starts: _Optional[_Iterable[_Union[PartitionOffset, _Mapping]]] = ...) -> None: ...

class StartCompactionRequest(_message.Message):
    __slots__ = ("topic", "partition", "roll")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    ROLL_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    roll: bool
    def __init__(
        self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., roll: _Optional[bool] = ...
    ) -> None: ...

class StartErasureRequest(_message.Message):
    __slots__ = ("topic", "keys")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    keys: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, topic: _Optional[str] = ..., keys: _Optional[_Iterable[bytes]] = ...) -> None: ...

class StartedOperation(_message.Message):
    __slots__ = ("operation_id",)
    OPERATION_ID_FIELD_NUMBER: _ClassVar[int]
    operation_id: str
    def __init__(self, operation_id: _Optional[str] = ...) -> None: ...

class WaitOperationRequest(_message.Message):
    __slots__ = ("operation_id", "known_version", "max_wait_ms")
    OPERATION_ID_FIELD_NUMBER: _ClassVar[int]
    KNOWN_VERSION_FIELD_NUMBER: _ClassVar[int]
    MAX_WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    operation_id: str
    known_version: int
    max_wait_ms: int
    def __init__(
        self,
        operation_id: _Optional[str] = ...,
        known_version: _Optional[int] = ...,
        max_wait_ms: _Optional[int] = ...,
    ) -> None: ...

class OperationState(_message.Message):
    __slots__ = ("version", "done", "progress", "error", "compacted", "erased")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    COMPACTED_FIELD_NUMBER: _ClassVar[int]
    ERASED_FIELD_NUMBER: _ClassVar[int]
    version: int
    done: bool
    progress: _containers.RepeatedCompositeFieldContainer[PartitionProgress]
    error: _common_pb2.Error
    compacted: _containers.RepeatedCompositeFieldContainer[CompactedPartition]
    erased: ErasureReport
    def __init__(
        self,
        version: _Optional[int] = ...,
        done: _Optional[bool] = ...,
        progress: _Optional[_Iterable[_Union[PartitionProgress, _Mapping]]] = ...,
        error: _Optional[_Union[_common_pb2.Error, _Mapping]] = ...,
        compacted: _Optional[_Iterable[_Union[CompactedPartition, _Mapping]]] = ...,
        erased: _Optional[_Union[ErasureReport, _Mapping]] = ...,
    ) -> None: ...

class PartitionProgress(_message.Message):
    __slots__ = ("topic", "partition", "progress")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    progress: _topics_pb2.CleaningProgress
    def __init__(
        self,
        topic: _Optional[str] = ...,
        partition: _Optional[int] = ...,
        progress: _Optional[_Union[_topics_pb2.CleaningProgress, _Mapping]] = ...,
    ) -> None: ...

class CompactedPartition(_message.Message):
    __slots__ = (
        "partition",
        "cleaned_to",
        "bytes_before",
        "bytes_after",
        "records_before",
        "records_after",
        "segments_before",
        "segments_after",
        "rounds",
        "tombstones",
        "removed_tombstones",
        "held_by",
    )
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    CLEANED_TO_FIELD_NUMBER: _ClassVar[int]
    BYTES_BEFORE_FIELD_NUMBER: _ClassVar[int]
    BYTES_AFTER_FIELD_NUMBER: _ClassVar[int]
    RECORDS_BEFORE_FIELD_NUMBER: _ClassVar[int]
    RECORDS_AFTER_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_BEFORE_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_AFTER_FIELD_NUMBER: _ClassVar[int]
    ROUNDS_FIELD_NUMBER: _ClassVar[int]
    TOMBSTONES_FIELD_NUMBER: _ClassVar[int]
    REMOVED_TOMBSTONES_FIELD_NUMBER: _ClassVar[int]
    HELD_BY_FIELD_NUMBER: _ClassVar[int]
    partition: int
    cleaned_to: int
    bytes_before: int
    bytes_after: int
    records_before: int
    records_after: int
    segments_before: int
    segments_after: int
    rounds: int
    tombstones: int
    removed_tombstones: int
    held_by: OpenTransaction
    def __init__(
        self,
        partition: _Optional[int] = ...,
        cleaned_to: _Optional[int] = ...,
        bytes_before: _Optional[int] = ...,
        bytes_after: _Optional[int] = ...,
        records_before: _Optional[int] = ...,
        records_after: _Optional[int] = ...,
        segments_before: _Optional[int] = ...,
        segments_after: _Optional[int] = ...,
        rounds: _Optional[int] = ...,
        tombstones: _Optional[int] = ...,
        removed_tombstones: _Optional[int] = ...,
        held_by: _Optional[_Union[OpenTransaction, _Mapping]] = ...,
    ) -> None: ...

class OpenTransaction(_message.Message):
    __slots__ = ("first_offset", "producer_id", "transactional_id")
    FIRST_OFFSET_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    TRANSACTIONAL_ID_FIELD_NUMBER: _ClassVar[int]
    first_offset: int
    producer_id: int
    transactional_id: str
    def __init__(
        self,
        first_offset: _Optional[int] = ...,
        producer_id: _Optional[int] = ...,
        transactional_id: _Optional[str] = ...,
    ) -> None: ...

class ErasureReport(_message.Message):
    __slots__ = ("topic", "keys", "partitions", "proven")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    PROVEN_FIELD_NUMBER: _ClassVar[int]
    topic: str
    keys: int
    partitions: _containers.RepeatedCompositeFieldContainer[ErasedPartition]
    proven: bool
    def __init__(
        self,
        topic: _Optional[str] = ...,
        keys: _Optional[int] = ...,
        partitions: _Optional[_Iterable[_Union[ErasedPartition, _Mapping]]] = ...,
        proven: _Optional[bool] = ...,
    ) -> None: ...

class ErasedPartition(_message.Message):
    __slots__ = ("partition", "records_removed", "segments_rewritten", "removed_files", "scanned_bytes")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    RECORDS_REMOVED_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_REWRITTEN_FIELD_NUMBER: _ClassVar[int]
    REMOVED_FILES_FIELD_NUMBER: _ClassVar[int]
    SCANNED_BYTES_FIELD_NUMBER: _ClassVar[int]
    partition: int
    records_removed: int
    segments_rewritten: int
    removed_files: _containers.RepeatedScalarFieldContainer[str]
    scanned_bytes: int
    def __init__(
        self,
        partition: _Optional[int] = ...,
        records_removed: _Optional[int] = ...,
        segments_rewritten: _Optional[int] = ...,
        removed_files: _Optional[_Iterable[str]] = ...,
        scanned_bytes: _Optional[int] = ...,
    ) -> None: ...

class CancelOperationRequest(_message.Message):
    __slots__ = ("operation_id",)
    OPERATION_ID_FIELD_NUMBER: _ClassVar[int]
    operation_id: str
    def __init__(self, operation_id: _Optional[str] = ...) -> None: ...

class CancelOperationResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
