from rpc.pb import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ProduceRequest(_message.Message):
    __slots__ = ("acks", "timeout_ms", "batches", "correlation_id", "seen_correlation_id", "records")
    ACKS_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    CORRELATION_ID_FIELD_NUMBER: _ClassVar[int]
    SEEN_CORRELATION_ID_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    acks: _common_pb2.Acks
    timeout_ms: int
    batches: _containers.RepeatedCompositeFieldContainer[ProduceBatch]
    correlation_id: int
    seen_correlation_id: int
    records: bytes
    def __init__(
        self,
        acks: _Optional[_Union[_common_pb2.Acks, str]] = ...,
        timeout_ms: _Optional[int] = ...,
        batches: _Optional[_Iterable[_Union[ProduceBatch, _Mapping]]] = ...,
        correlation_id: _Optional[int] = ...,
        seen_correlation_id: _Optional[int] = ...,
        records: _Optional[bytes] = ...,
    ) -> None: ...

class ProduceBatch(_message.Message):
    __slots__ = ("topic", "partition", "size", "expected_offset")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_OFFSET_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    size: int
    expected_offset: int
    def __init__(
        self,
        topic: _Optional[str] = ...,
        partition: _Optional[int] = ...,
        size: _Optional[int] = ...,
        expected_offset: _Optional[int] = ...,
    ) -> None: ...

class ProduceResponse(_message.Message):
    __slots__ = ("results", "correlation_id")
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    CORRELATION_ID_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[ProduceResult]
    correlation_id: int
    def __init__(
        self,
        results: _Optional[_Iterable[_Union[ProduceResult, _Mapping]]] = ...,
        correlation_id: _Optional[int] = ...,
    ) -> None: ...

class ProduceResult(_message.Message):
    __slots__ = ("base_offset", "append_time_ms", "error")
    BASE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    APPEND_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    base_offset: int
    append_time_ms: int
    error: _common_pb2.Error
    def __init__(
        self,
        base_offset: _Optional[int] = ...,
        append_time_ms: _Optional[int] = ...,
        error: _Optional[_Union[_common_pb2.Error, _Mapping]] = ...,
    ) -> None: ...
