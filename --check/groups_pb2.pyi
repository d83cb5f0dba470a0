from rpc.pb import common_pb2 as _common_pb2
from rpc.pb import offsets_pb2 as _offsets_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class JoinGroupRequest(_message.Message):
    __slots__ = (
        "group",
        "topics",
        "pattern",
        "instance_id",
        "assignor",
        "session_timeout_ms",
        "heartbeat_interval_ms",
        "max_poll_interval_ms",
        "member_id",
    )
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    PATTERN_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    ASSIGNOR_FIELD_NUMBER: _ClassVar[int]
    SESSION_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_INTERVAL_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_POLL_INTERVAL_MS_FIELD_NUMBER: _ClassVar[int]
    MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
    group: str
    topics: _containers.RepeatedScalarFieldContainer[str]
    pattern: str
    instance_id: str
    assignor: str
    session_timeout_ms: int
    heartbeat_interval_ms: int
    max_poll_interval_ms: int
    member_id: str
    def __init__(
        self,
        group: _Optional[str] = ...,
        topics: _Optional[_Iterable[str]] = ...,
        pattern: _Optional[str] = ...,
        instance_id: _Optional[str] = ...,
        assignor: _Optional[str] = ...,
        session_timeout_ms: _Optional[int] = ...,
        heartbeat_interval_ms: _Optional[int] = ...,
        max_poll_interval_ms: _Optional[int] = ...,
        member_id: _Optional[str] = ...,
    ) -> None: ...

class HeartbeatRequest(_message.Message):
    __slots__ = ("group", "member_id", "known_version", "polled_ms_ago", "max_wait_ms")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
    KNOWN_VERSION_FIELD_NUMBER: _ClassVar[int]
    POLLED_MS_AGO_FIELD_NUMBER: _ClassVar[int]
    MAX_WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    group: str
    member_id: str
    known_version: int
    polled_ms_ago: int
    max_wait_ms: int
    def __init__(
        self,
        group: _Optional[str] = ...,
        member_id: _Optional[str] = ...,
        known_version: _Optional[int] = ...,
        polled_ms_ago: _Optional[int] = ...,
        max_wait_ms: _Optional[int] = ...,
    ) -> None: ...

class MemberState(_message.Message):
    __slots__ = (
        "member_id",
        "version",
        "epoch",
        "group_epoch",
        "assigned",
        "revoking",
        "initial",
        "settled",
        "ended_by",
    )
    class InitialEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...

    MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    GROUP_EPOCH_FIELD_NUMBER: _ClassVar[int]
    ASSIGNED_FIELD_NUMBER: _ClassVar[int]
    REVOKING_FIELD_NUMBER: _ClassVar[int]
    INITIAL_FIELD_NUMBER: _ClassVar[int]
    SETTLED_FIELD_NUMBER: _ClassVar[int]
    ENDED_BY_FIELD_NUMBER: _ClassVar[int]
    member_id: str
    version: int
    epoch: int
    group_epoch: int
    assigned: _containers.RepeatedCompositeFieldContainer[_common_pb2.Place]
    revoking: _containers.RepeatedCompositeFieldContainer[_common_pb2.Place]
    initial: _containers.ScalarMap[str, int]
    settled: bool
    ended_by: _common_pb2.Error
    def __init__(
        self,
        member_id: _Optional[str] = ...,
        version: _Optional[int] = ...,
        epoch: _Optional[int] = ...,
        group_epoch: _Optional[int] = ...,
        assigned: _Optional[_Iterable[_Union[_common_pb2.Place, _Mapping]]] = ...,
        revoking: _Optional[_Iterable[_Union[_common_pb2.Place, _Mapping]]] = ...,
        initial: _Optional[_Mapping[str, int]] = ...,
        settled: _Optional[bool] = ...,
        ended_by: _Optional[_Union[_common_pb2.Error, _Mapping]] = ...,
    ) -> None: ...

class SyncMemberRequest(_message.Message):
    __slots__ = ("group", "member_id", "epoch", "owned")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    OWNED_FIELD_NUMBER: _ClassVar[int]
    group: str
    member_id: str
    epoch: int
    owned: _containers.RepeatedCompositeFieldContainer[_common_pb2.Place]
    def __init__(
        self,
        group: _Optional[str] = ...,
        member_id: _Optional[str] = ...,
        epoch: _Optional[int] = ...,
        owned: _Optional[_Iterable[_Union[_common_pb2.Place, _Mapping]]] = ...,
    ) -> None: ...

class UpdateMemberRequest(_message.Message):
    __slots__ = ("group", "member_id", "topics")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    group: str
    member_id: str
    topics: _containers.RepeatedScalarFieldContainer[str]
    def __init__(
        self,
        group: _Optional[str] = ...,
        member_id: _Optional[str] = ...,
        topics: _Optional[_Iterable[str]] = ...,
    ) -> None: ...

class LeaveGroupRequest(_message.Message):
    __slots__ = ("group", "member_id")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
    group: str
    member_id: str
    def __init__(self, group: _Optional[str] = ..., member_id: _Optional[str] = ...) -> None: ...

class LeaveGroupResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListGroupsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListGroupsResponse(_message.Message):
    __slots__ = ("groups",)
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    groups: _containers.RepeatedCompositeFieldContainer[GroupSummary]
    def __init__(self, groups: _Optional[_Iterable[_Union[GroupSummary, _Mapping]]] = ...) -> None: ...

class GroupSummary(_message.Message):
    __slots__ = ("group", "state", "members", "offsets", "assignor", "epoch")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    ASSIGNOR_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    group: str
    state: str
    members: _containers.RepeatedCompositeFieldContainer[MemberDescription]
    offsets: _containers.RepeatedCompositeFieldContainer[_offsets_pb2.CommittedOffset]
    assignor: str
    epoch: int
    def __init__(
        self,
        group: _Optional[str] = ...,
        state: _Optional[str] = ...,
        members: _Optional[_Iterable[_Union[MemberDescription, _Mapping]]] = ...,
        offsets: _Optional[_Iterable[_Union[_offsets_pb2.CommittedOffset, _Mapping]]] = ...,
        assignor: _Optional[str] = ...,
        epoch: _Optional[int] = ...,
    ) -> None: ...

class MemberDescription(_message.Message):
    __slots__ = (
        "member_id",
        "instance_id",
        "client",
        "topics",
        "pattern",
        "epoch",
        "assigned",
        "revoking",
        "target",
        "session_timeout_ms",
        "left",
    )
    MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    PATTERN_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    ASSIGNED_FIELD_NUMBER: _ClassVar[int]
    REVOKING_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    SESSION_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    LEFT_FIELD_NUMBER: _ClassVar[int]
    member_id: str
    instance_id: str
    client: str
    topics: _containers.RepeatedScalarFieldContainer[str]
    pattern: str
    epoch: int
    assigned: _containers.RepeatedCompositeFieldContainer[_common_pb2.Place]
    revoking: _containers.RepeatedCompositeFieldContainer[_common_pb2.Place]
    target: _containers.RepeatedCompositeFieldContainer[_common_pb2.Place]
    session_timeout_ms: int
    left: bool
    def __init__(
        self,
        member_id: _Optional[str] = ...,
        instance_id: _Optional[str] = ...,
        client: _Optional[str] = ...,
        topics: _Optional[_Iterable[str]] = ...,
        pattern: _Optional[str] = ...,
        epoch: _Optional[int] = ...,
        assigned: _Optional[_Iterable[_Union[_common_pb2.Place, _Mapping]]] = ...,
        revoking: _Optional[_Iterable[_Union[_common_pb2.Place, _Mapping]]] = ...,
        target: _Optional[_Iterable[_Union[_common_pb2.Place, _Mapping]]] = ...,
        session_timeout_ms: _Optional[int] = ...,
        left: _Optional[bool] = ...,
    ) -> None: ...

class DeleteGroupRequest(_message.Message):
    __slots__ = ("group",)
    GROUP_FIELD_NUMBER: _ClassVar[int]
    group: str
    def __init__(self, group: _Optional[str] = ...) -> None: ...

class DeleteGroupResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
