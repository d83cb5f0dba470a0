from rpc.pb import common_pb2 as _common_pb2
from rpc.pb import topics_pb2 as _topics_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class OffsetPosition(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    EARLIEST: _ClassVar[OffsetPosition]
    LATEST: _ClassVar[OffsetPosition]
    MAX_TIMESTAMP: _ClassVar[OffsetPosition]

EARLIEST: OffsetPosition
LATEST: OffsetPosition
MAX_TIMESTAMP: OffsetPosition

class ListOffsetsRequest(_message.Message):
    __slots__ = ("partitions", "isolation", "position", "timestamp_ms")
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    ISOLATION_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    partitions: _containers.RepeatedCompositeFieldContainer[_common_pb2.Place]
    isolation: _common_pb2.Isolation
    position: OffsetPosition
    timestamp_ms: int
    def __init__(
        self,
        partitions: _Optional[_Iterable[_Union[_common_pb2.Place, _Mapping]]] = ...,
        isolation: _Optional[_Union[_common_pb2.Isolation, str]] = ...,
        position: _Optional[_Union[OffsetPosition, str]] = ...,
        timestamp_ms: _Optional[int] = ...,
    ) -> None: ...

class ListOffsetsResponse(_message.Message):
    __slots__ = ("offsets",)
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    offsets: _containers.RepeatedCompositeFieldContainer[ListedOffset]
    def __init__(self, offsets: _Optional[_Iterable[_Union[ListedOffset, _Mapping]]] = ...) -> None: ...

class ListedOffset(_message.Message):
    __slots__ = ("topic", "partition", "offset", "timestamp_ms", "leader_epoch")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    leader_epoch: int
    def __init__(
        self,
        topic: _Optional[str] = ...,
        partition: _Optional[int] = ...,
        offset: _Optional[int] = ...,
        timestamp_ms: _Optional[int] = ...,
        leader_epoch: _Optional[int] = ...,
    ) -> None: ...

class DescribePartitionsRequest(_message.Message):
    __slots__ = ("partitions",)
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    partitions: _containers.RepeatedCompositeFieldContainer[_common_pb2.Place]
    def __init__(
        self, partitions: _Optional[_Iterable[_Union[_common_pb2.Place, _Mapping]]] = ...
    ) -> None: ...

class DescribePartitionsResponse(_message.Message):
    __slots__ = ("partitions",)
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    partitions: _containers.RepeatedCompositeFieldContainer[DescribedPartition]
    def __init__(
        self, partitions: _Optional[_Iterable[_Union[DescribedPartition, _Mapping]]] = ...
    ) -> None: ...

class DescribedPartition(_message.Message):
    __slots__ = ("topic", "partition", "description")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    description: _topics_pb2.PartitionDescription
    def __init__(
        self,
        topic: _Optional[str] = ...,
        partition: _Optional[int] = ...,
        description: _Optional[_Union[_topics_pb2.PartitionDescription, _Mapping]] = ...,
    ) -> None: ...

class CommittedOffset(_message.Message):
    __slots__ = ("topic", "partition", "offset", "leader_epoch", "metadata")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    offset: int
    leader_epoch: int
    metadata: str
    def __init__(
        self,
        topic: _Optional[str] = ...,
        partition: _Optional[int] = ...,
        offset: _Optional[int] = ...,
        leader_epoch: _Optional[int] = ...,
        metadata: _Optional[str] = ...,
    ) -> None: ...

class CommitOffsetsRequest(_message.Message):
    __slots__ = ("group", "offsets", "member")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    group: str
    offsets: _containers.RepeatedCompositeFieldContainer[CommittedOffset]
    member: Member
    def __init__(
        self,
        group: _Optional[str] = ...,
        offsets: _Optional[_Iterable[_Union[CommittedOffset, _Mapping]]] = ...,
        member: _Optional[_Union[Member, _Mapping]] = ...,
    ) -> None: ...

class Member(_message.Message):
    __slots__ = ("member_id", "epoch")
    MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    member_id: str
    epoch: int
    def __init__(self, member_id: _Optional[str] = ..., epoch: _Optional[int] = ...) -> None: ...

class CommitOffsetsResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class CommittedOffsetsRequest(_message.Message):
    __slots__ = ("group",)
    GROUP_FIELD_NUMBER: _ClassVar[int]
    group: str
    def __init__(self, group: _Optional[str] = ...) -> None: ...

class CommittedOffsetsResponse(_message.Message):
    __slots__ = ("offsets", "unstable")
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    UNSTABLE_FIELD_NUMBER: _ClassVar[int]
    offsets: _containers.RepeatedCompositeFieldContainer[CommittedOffset]
    unstable: _containers.RepeatedCompositeFieldContainer[_common_pb2.Place]
    def __init__(
        self,
        offsets: _Optional[_Iterable[_Union[CommittedOffset, _Mapping]]] = ...,
        unstable: _Optional[_Iterable[_Union[_common_pb2.Place, _Mapping]]] = ...,
    ) -> None: ...
