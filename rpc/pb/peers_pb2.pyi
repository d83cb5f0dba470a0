from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class PeerFrame(_message.Message):
    __slots__ = ("messages",)
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    messages: bytes
    def __init__(self, messages: _Optional[bytes] = ...) -> None: ...

class PeerFrameEnd(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class PeerCall(_message.Message):
    __slots__ = ("operation", "request")
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    operation: str
    request: bytes
    def __init__(self, operation: _Optional[str] = ..., request: _Optional[bytes] = ...) -> None: ...

class PeerAnswer(_message.Message):
    __slots__ = ("answer",)
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    answer: bytes
    def __init__(self, answer: _Optional[bytes] = ...) -> None: ...
