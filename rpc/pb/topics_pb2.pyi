from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class GetMetadataRequest(_message.Message):
    __slots__ = ("names",)
    NAMES_FIELD_NUMBER: _ClassVar[int]
    names: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, names: _Optional[_Iterable[str]] = ...) -> None: ...

class WatchMetadataRequest(_message.Message):
    __slots__ = ("known_version", "max_wait_ms")
    KNOWN_VERSION_FIELD_NUMBER: _ClassVar[int]
    MAX_WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    known_version: int
    max_wait_ms: int
    def __init__(self, known_version: _Optional[int] = ..., max_wait_ms: _Optional[int] = ...) -> None: ...

class GetMetadataResponse(_message.Message):
    __slots__ = ("version", "topics")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    version: int
    topics: _containers.RepeatedCompositeFieldContainer[TopicMetadata]
    def __init__(self, version: _Optional[int] = ..., topics: _Optional[_Iterable[_Union[TopicMetadata, _Mapping]]] = ...) -> None: ...

class TopicMetadata(_message.Message):
    __slots__ = ("name", "topic_id", "partitions", "partitioner", "compression", "max_message_bytes", "internal", "compacts", "size_setting", "missing", "leaders", "leader_epochs")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    PARTITIONER_FIELD_NUMBER: _ClassVar[int]
    COMPRESSION_FIELD_NUMBER: _ClassVar[int]
    MAX_MESSAGE_BYTES_FIELD_NUMBER: _ClassVar[int]
    INTERNAL_FIELD_NUMBER: _ClassVar[int]
    COMPACTS_FIELD_NUMBER: _ClassVar[int]
    SIZE_SETTING_FIELD_NUMBER: _ClassVar[int]
    MISSING_FIELD_NUMBER: _ClassVar[int]
    LEADERS_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCHS_FIELD_NUMBER: _ClassVar[int]
    name: str
    topic_id: str
    partitions: int
    partitioner: str
    compression: str
    max_message_bytes: int
    internal: bool
    compacts: bool
    size_setting: str
    missing: _containers.RepeatedScalarFieldContainer[int]
    leaders: _containers.RepeatedScalarFieldContainer[int]
    leader_epochs: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, name: _Optional[str] = ..., topic_id: _Optional[str] = ..., partitions: _Optional[int] = ..., partitioner: _Optional[str] = ..., compression: _Optional[str] = ..., max_message_bytes: _Optional[int] = ..., internal: _Optional[bool] = ..., compacts: _Optional[bool] = ..., size_setting: _Optional[str] = ..., missing: _Optional[_Iterable[int]] = ..., leaders: _Optional[_Iterable[int]] = ..., leader_epochs: _Optional[_Iterable[int]] = ...) -> None: ...

class CreateTopicRequest(_message.Message):
    __slots__ = ("name", "partitions", "config", "replication_factor")
    class ConfigEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    REPLICATION_FACTOR_FIELD_NUMBER: _ClassVar[int]
    name: str
    partitions: int
    config: _containers.ScalarMap[str, str]
    replication_factor: int
    def __init__(self, name: _Optional[str] = ..., partitions: _Optional[int] = ..., config: _Optional[_Mapping[str, str]] = ..., replication_factor: _Optional[int] = ...) -> None: ...

class CreateTopicResponse(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: TopicMetadata
    def __init__(self, topic: _Optional[_Union[TopicMetadata, _Mapping]] = ...) -> None: ...

class AddPartitionsRequest(_message.Message):
    __slots__ = ("name", "total", "allow_keyed")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    ALLOW_KEYED_FIELD_NUMBER: _ClassVar[int]
    name: str
    total: int
    allow_keyed: bool
    def __init__(self, name: _Optional[str] = ..., total: _Optional[int] = ..., allow_keyed: _Optional[bool] = ...) -> None: ...

class AddPartitionsResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class AlterTopicRequest(_message.Message):
    __slots__ = ("name", "set", "unset")
    class SetEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    SET_FIELD_NUMBER: _ClassVar[int]
    UNSET_FIELD_NUMBER: _ClassVar[int]
    name: str
    set: _containers.ScalarMap[str, str]
    unset: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, name: _Optional[str] = ..., set: _Optional[_Mapping[str, str]] = ..., unset: _Optional[_Iterable[str]] = ...) -> None: ...

class AlterTopicResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DeleteTopicRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class DeleteTopicResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DescribeTopicRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class DescribeTopicResponse(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: TopicDescription
    def __init__(self, topic: _Optional[_Union[TopicDescription, _Mapping]] = ...) -> None: ...

class TopicDescription(_message.Message):
    __slots__ = ("name", "topic_id", "internal", "config", "owner", "partitions", "missing", "config_known")
    class ConfigEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    INTERNAL_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    MISSING_FIELD_NUMBER: _ClassVar[int]
    CONFIG_KNOWN_FIELD_NUMBER: _ClassVar[int]
    name: str
    topic_id: str
    internal: bool
    config: _containers.ScalarMap[str, str]
    owner: str
    partitions: _containers.RepeatedCompositeFieldContainer[PartitionDescription]
    missing: _containers.RepeatedScalarFieldContainer[int]
    config_known: bool
    def __init__(self, name: _Optional[str] = ..., topic_id: _Optional[str] = ..., internal: _Optional[bool] = ..., config: _Optional[_Mapping[str, str]] = ..., owner: _Optional[str] = ..., partitions: _Optional[_Iterable[_Union[PartitionDescription, _Mapping]]] = ..., missing: _Optional[_Iterable[int]] = ..., config_known: _Optional[bool] = ...) -> None: ...

class PartitionDescription(_message.Message):
    __slots__ = ("partition", "log_start_offset", "high_watermark", "last_stable_offset", "log_end_offset", "leader_epoch", "segments", "size_bytes", "compaction")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    LOG_START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    HIGH_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    LAST_STABLE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LOG_END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    COMPACTION_FIELD_NUMBER: _ClassVar[int]
    partition: int
    log_start_offset: int
    high_watermark: int
    last_stable_offset: int
    log_end_offset: int
    leader_epoch: int
    segments: int
    size_bytes: int
    compaction: PartitionCompaction
    def __init__(self, partition: _Optional[int] = ..., log_start_offset: _Optional[int] = ..., high_watermark: _Optional[int] = ..., last_stable_offset: _Optional[int] = ..., log_end_offset: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., segments: _Optional[int] = ..., size_bytes: _Optional[int] = ..., compaction: _Optional[_Union[PartitionCompaction, _Mapping]] = ...) -> None: ...

class PartitionCompaction(_message.Message):
    __slots__ = ("cleaner_point", "dirty_bytes", "dirty_ratio", "exact_from", "running", "last", "error", "retry_in_s")
    CLEANER_POINT_FIELD_NUMBER: _ClassVar[int]
    DIRTY_BYTES_FIELD_NUMBER: _ClassVar[int]
    DIRTY_RATIO_FIELD_NUMBER: _ClassVar[int]
    EXACT_FROM_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    RETRY_IN_S_FIELD_NUMBER: _ClassVar[int]
    cleaner_point: int
    dirty_bytes: int
    dirty_ratio: float
    exact_from: int
    running: CleaningProgress
    last: LastCleaning
    error: str
    retry_in_s: float
    def __init__(self, cleaner_point: _Optional[int] = ..., dirty_bytes: _Optional[int] = ..., dirty_ratio: _Optional[float] = ..., exact_from: _Optional[int] = ..., running: _Optional[_Union[CleaningProgress, _Mapping]] = ..., last: _Optional[_Union[LastCleaning, _Mapping]] = ..., error: _Optional[str] = ..., retry_in_s: _Optional[float] = ...) -> None: ...

class CleaningProgress(_message.Message):
    __slots__ = ("phase", "bytes_done", "bytes_total")
    PHASE_FIELD_NUMBER: _ClassVar[int]
    BYTES_DONE_FIELD_NUMBER: _ClassVar[int]
    BYTES_TOTAL_FIELD_NUMBER: _ClassVar[int]
    phase: str
    bytes_done: int
    bytes_total: int
    def __init__(self, phase: _Optional[str] = ..., bytes_done: _Optional[int] = ..., bytes_total: _Optional[int] = ...) -> None: ...

class LastCleaning(_message.Message):
    __slots__ = ("finished_ms", "took_ms", "cleaned_to", "bytes_before", "bytes_after", "records_before", "records_after")
    FINISHED_MS_FIELD_NUMBER: _ClassVar[int]
    TOOK_MS_FIELD_NUMBER: _ClassVar[int]
    CLEANED_TO_FIELD_NUMBER: _ClassVar[int]
    BYTES_BEFORE_FIELD_NUMBER: _ClassVar[int]
    BYTES_AFTER_FIELD_NUMBER: _ClassVar[int]
    RECORDS_BEFORE_FIELD_NUMBER: _ClassVar[int]
    RECORDS_AFTER_FIELD_NUMBER: _ClassVar[int]
    finished_ms: int
    took_ms: int
    cleaned_to: int
    bytes_before: int
    bytes_after: int
    records_before: int
    records_after: int
    def __init__(self, finished_ms: _Optional[int] = ..., took_ms: _Optional[int] = ..., cleaned_to: _Optional[int] = ..., bytes_before: _Optional[int] = ..., bytes_after: _Optional[int] = ..., records_before: _Optional[int] = ..., records_after: _Optional[int] = ...) -> None: ...
