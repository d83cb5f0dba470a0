from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class Acks(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ACKS_ALL: _ClassVar[Acks]
    ACKS_NONE: _ClassVar[Acks]
    ACKS_LEADER: _ClassVar[Acks]

class Isolation(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    READ_COMMITTED: _ClassVar[Isolation]
    READ_UNCOMMITTED: _ClassVar[Isolation]

ACKS_ALL: Acks
ACKS_NONE: Acks
ACKS_LEADER: Acks
READ_COMMITTED: Isolation
READ_UNCOMMITTED: Isolation

class Error(_message.Message):
    __slots__ = ("code", "name", "message", "hint", "retriable", "numbers", "texts", "retry_after_ms")
    class NumbersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...

    class TextsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...

    CODE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    HINT_FIELD_NUMBER: _ClassVar[int]
    RETRIABLE_FIELD_NUMBER: _ClassVar[int]
    NUMBERS_FIELD_NUMBER: _ClassVar[int]
    TEXTS_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_MS_FIELD_NUMBER: _ClassVar[int]
    code: int
    name: str
    message: str
    hint: str
    retriable: bool
    numbers: _containers.ScalarMap[str, int]
    texts: _containers.ScalarMap[str, str]
    retry_after_ms: int
    def __init__(
        self,
        code: _Optional[int] = ...,
        name: _Optional[str] = ...,
        message: _Optional[str] = ...,
        hint: _Optional[str] = ...,
        retriable: _Optional[bool] = ...,
        numbers: _Optional[_Mapping[str, int]] = ...,
        texts: _Optional[_Mapping[str, str]] = ...,
        retry_after_ms: _Optional[int] = ...,
    ) -> None: ...

class Place(_message.Message):
    __slots__ = ("topic", "partition")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ...) -> None: ...
