from rpc.pb import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class AllocateProducerIdRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class AllocateProducerIdResponse(_message.Message):
    __slots__ = ("producer_id",)
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    producer_id: int
    def __init__(self, producer_id: _Optional[int] = ...) -> None: ...

class OpenProducerRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class OpenProducerResponse(_message.Message):
    __slots__ = ("lease_id", "producer_id", "epoch")
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    lease_id: str
    producer_id: int
    epoch: int
    def __init__(
        self, lease_id: _Optional[str] = ..., producer_id: _Optional[int] = ..., epoch: _Optional[int] = ...
    ) -> None: ...

class GetProducerIdRequest(_message.Message):
    __slots__ = ("lease_id", "era")
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    ERA_FIELD_NUMBER: _ClassVar[int]
    lease_id: str
    era: int
    def __init__(self, lease_id: _Optional[str] = ..., era: _Optional[int] = ...) -> None: ...

class GetProducerIdResponse(_message.Message):
    __slots__ = ("producer_id",)
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    producer_id: int
    def __init__(self, producer_id: _Optional[int] = ...) -> None: ...

class GetLastSequenceRequest(_message.Message):
    __slots__ = ("lease_id", "place")
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    PLACE_FIELD_NUMBER: _ClassVar[int]
    lease_id: str
    place: _common_pb2.Place
    def __init__(
        self, lease_id: _Optional[str] = ..., place: _Optional[_Union[_common_pb2.Place, _Mapping]] = ...
    ) -> None: ...

class GetLastSequenceResponse(_message.Message):
    __slots__ = ("records",)
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    records: int
    def __init__(self, records: _Optional[int] = ...) -> None: ...

class GetSpreadRequest(_message.Message):
    __slots__ = ("lease_id", "topic")
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    lease_id: str
    topic: str
    def __init__(self, lease_id: _Optional[str] = ..., topic: _Optional[str] = ...) -> None: ...

class GetSpreadResponse(_message.Message):
    __slots__ = ("partitions",)
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    partitions: int
    def __init__(self, partitions: _Optional[int] = ...) -> None: ...

class ListProducersRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListProducersResponse(_message.Message):
    __slots__ = ("producers",)
    PRODUCERS_FIELD_NUMBER: _ClassVar[int]
    producers: _containers.RepeatedCompositeFieldContainer[ProducerSummary]
    def __init__(self, producers: _Optional[_Iterable[_Union[ProducerSummary, _Mapping]]] = ...) -> None: ...

class ProducerSummary(_message.Message):
    __slots__ = ("name", "producer_ids", "epoch", "holder")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_IDS_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    name: str
    producer_ids: _containers.RepeatedScalarFieldContainer[int]
    epoch: int
    holder: str
    def __init__(
        self,
        name: _Optional[str] = ...,
        producer_ids: _Optional[_Iterable[int]] = ...,
        epoch: _Optional[int] = ...,
        holder: _Optional[str] = ...,
    ) -> None: ...

class DeleteProducerRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class DeleteProducerResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
