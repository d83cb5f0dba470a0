from rpc.pb import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class FetchRequest(_message.Message):
    __slots__ = ("isolation", "min_bytes", "max_bytes", "max_wait_ms", "partitions", "correlation_id")
    ISOLATION_FIELD_NUMBER: _ClassVar[int]
    MIN_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    CORRELATION_ID_FIELD_NUMBER: _ClassVar[int]
    isolation: _common_pb2.Isolation
    min_bytes: int
    max_bytes: int
    max_wait_ms: int
    partitions: _containers.RepeatedCompositeFieldContainer[FetchPartition]
    correlation_id: int
    def __init__(self, isolation: _Optional[_Union[_common_pb2.Isolation, str]] = ..., min_bytes: _Optional[int] = ..., max_bytes: _Optional[int] = ..., max_wait_ms: _Optional[int] = ..., partitions: _Optional[_Iterable[_Union[FetchPartition, _Mapping]]] = ..., correlation_id: _Optional[int] = ...) -> None: ...

class FetchPartition(_message.Message):
    __slots__ = ("topic", "partition", "offset", "leader_epoch", "max_bytes", "reverse", "rack")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    REVERSE_FIELD_NUMBER: _ClassVar[int]
    RACK_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    offset: int
    leader_epoch: int
    max_bytes: int
    reverse: bool
    rack: str
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., offset: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., max_bytes: _Optional[int] = ..., reverse: _Optional[bool] = ..., rack: _Optional[str] = ...) -> None: ...

class FetchStreamRequest(_message.Message):
    __slots__ = ("start", "credit_bytes")
    START_FIELD_NUMBER: _ClassVar[int]
    CREDIT_BYTES_FIELD_NUMBER: _ClassVar[int]
    start: FetchRequest
    credit_bytes: int
    def __init__(self, start: _Optional[_Union[FetchRequest, _Mapping]] = ..., credit_bytes: _Optional[int] = ...) -> None: ...

class FetchResponse(_message.Message):
    __slots__ = ("partitions", "correlation_id", "records")
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    CORRELATION_ID_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    partitions: _containers.RepeatedCompositeFieldContainer[FetchedPartition]
    correlation_id: int
    records: bytes
    def __init__(self, partitions: _Optional[_Iterable[_Union[FetchedPartition, _Mapping]]] = ..., correlation_id: _Optional[int] = ..., records: _Optional[bytes] = ...) -> None: ...

class FetchedPartition(_message.Message):
    __slots__ = ("topic", "partition", "size", "next_offset", "log_start_offset", "high_watermark", "last_stable_offset", "error", "preferred_replica")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LOG_START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    HIGH_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    LAST_STABLE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    PREFERRED_REPLICA_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    size: int
    next_offset: int
    log_start_offset: int
    high_watermark: int
    last_stable_offset: int
    error: _common_pb2.Error
    preferred_replica: int
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., size: _Optional[int] = ..., next_offset: _Optional[int] = ..., log_start_offset: _Optional[int] = ..., high_watermark: _Optional[int] = ..., last_stable_offset: _Optional[int] = ..., error: _Optional[_Union[_common_pb2.Error, _Mapping]] = ..., preferred_replica: _Optional[int] = ...) -> None: ...
