from rpc.pb import common_pb2 as _common_pb2
from rpc.pb import offsets_pb2 as _offsets_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class InitTransactionsRequest(_message.Message):
    __slots__ = ("transactional_id", "timeout_ms", "coordinator", "keep_prepared", "resume")
    TRANSACTIONAL_ID_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    COORDINATOR_FIELD_NUMBER: _ClassVar[int]
    KEEP_PREPARED_FIELD_NUMBER: _ClassVar[int]
    RESUME_FIELD_NUMBER: _ClassVar[int]
    transactional_id: str
    timeout_ms: int
    coordinator: str
    keep_prepared: bool
    resume: TransactionWriter
    def __init__(
        self,
        transactional_id: _Optional[str] = ...,
        timeout_ms: _Optional[int] = ...,
        coordinator: _Optional[str] = ...,
        keep_prepared: _Optional[bool] = ...,
        resume: _Optional[_Union[TransactionWriter, _Mapping]] = ...,
    ) -> None: ...

class PreparedTransaction(_message.Message):
    __slots__ = ("transactional_id", "producer_id", "epoch")
    TRANSACTIONAL_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    transactional_id: str
    producer_id: int
    epoch: int
    def __init__(
        self,
        transactional_id: _Optional[str] = ...,
        producer_id: _Optional[int] = ...,
        epoch: _Optional[int] = ...,
    ) -> None: ...

class TransactionLease(_message.Message):
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

class TransactionWriter(_message.Message):
    __slots__ = ("producer_id", "epoch")
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    producer_id: int
    epoch: int
    def __init__(self, producer_id: _Optional[int] = ..., epoch: _Optional[int] = ...) -> None: ...

class BeginTransactionRequest(_message.Message):
    __slots__ = ("lease_id", "writer")
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    WRITER_FIELD_NUMBER: _ClassVar[int]
    lease_id: str
    writer: TransactionWriter
    def __init__(
        self, lease_id: _Optional[str] = ..., writer: _Optional[_Union[TransactionWriter, _Mapping]] = ...
    ) -> None: ...

class AddPartitionsToTransactionRequest(_message.Message):
    __slots__ = ("lease_id", "places", "offsets", "writer")
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    PLACES_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    WRITER_FIELD_NUMBER: _ClassVar[int]
    lease_id: str
    places: _containers.RepeatedCompositeFieldContainer[_common_pb2.Place]
    offsets: bool
    writer: TransactionWriter
    def __init__(
        self,
        lease_id: _Optional[str] = ...,
        places: _Optional[_Iterable[_Union[_common_pb2.Place, _Mapping]]] = ...,
        offsets: _Optional[bool] = ...,
        writer: _Optional[_Union[TransactionWriter, _Mapping]] = ...,
    ) -> None: ...

class SendOffsetsRequest(_message.Message):
    __slots__ = ("lease_id", "group", "offsets", "member", "writer")
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    WRITER_FIELD_NUMBER: _ClassVar[int]
    lease_id: str
    group: str
    offsets: _containers.RepeatedCompositeFieldContainer[_offsets_pb2.CommittedOffset]
    member: _offsets_pb2.Member
    writer: TransactionWriter
    def __init__(
        self,
        lease_id: _Optional[str] = ...,
        group: _Optional[str] = ...,
        offsets: _Optional[_Iterable[_Union[_offsets_pb2.CommittedOffset, _Mapping]]] = ...,
        member: _Optional[_Union[_offsets_pb2.Member, _Mapping]] = ...,
        writer: _Optional[_Union[TransactionWriter, _Mapping]] = ...,
    ) -> None: ...

class PrepareTransactionRequest(_message.Message):
    __slots__ = ("lease_id", "writer")
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    WRITER_FIELD_NUMBER: _ClassVar[int]
    lease_id: str
    writer: TransactionWriter
    def __init__(
        self, lease_id: _Optional[str] = ..., writer: _Optional[_Union[TransactionWriter, _Mapping]] = ...
    ) -> None: ...

class PrepareTransactionResponse(_message.Message):
    __slots__ = ("prepared",)
    PREPARED_FIELD_NUMBER: _ClassVar[int]
    prepared: PreparedTransaction
    def __init__(self, prepared: _Optional[_Union[PreparedTransaction, _Mapping]] = ...) -> None: ...

class EndTransactionRequest(_message.Message):
    __slots__ = ("lease_id", "commit", "writer", "prepared")
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    COMMIT_FIELD_NUMBER: _ClassVar[int]
    WRITER_FIELD_NUMBER: _ClassVar[int]
    PREPARED_FIELD_NUMBER: _ClassVar[int]
    lease_id: str
    commit: bool
    writer: TransactionWriter
    prepared: _containers.RepeatedCompositeFieldContainer[PreparedTransaction]
    def __init__(
        self,
        lease_id: _Optional[str] = ...,
        commit: _Optional[bool] = ...,
        writer: _Optional[_Union[TransactionWriter, _Mapping]] = ...,
        prepared: _Optional[_Iterable[_Union[PreparedTransaction, _Mapping]]] = ...,
    ) -> None: ...

class ReleaseTransactionsRequest(_message.Message):
    __slots__ = ("lease_id",)
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    lease_id: str
    def __init__(self, lease_id: _Optional[str] = ...) -> None: ...

class ReleaseTransactionsResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListTransactionsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListTransactionsResponse(_message.Message):
    __slots__ = ("transactions",)
    TRANSACTIONS_FIELD_NUMBER: _ClassVar[int]
    transactions: _containers.RepeatedCompositeFieldContainer[TransactionSummary]
    def __init__(
        self, transactions: _Optional[_Iterable[_Union[TransactionSummary, _Mapping]]] = ...
    ) -> None: ...

class TransactionSummary(_message.Message):
    __slots__ = (
        "transactional_id",
        "state",
        "producer_id",
        "epoch",
        "timeout_ms",
        "started_ms",
        "places",
        "holder",
        "coordinator",
    )
    TRANSACTIONAL_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    STARTED_MS_FIELD_NUMBER: _ClassVar[int]
    PLACES_FIELD_NUMBER: _ClassVar[int]
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    COORDINATOR_FIELD_NUMBER: _ClassVar[int]
    transactional_id: str
    state: str
    producer_id: int
    epoch: int
    timeout_ms: int
    started_ms: int
    places: _containers.RepeatedCompositeFieldContainer[_common_pb2.Place]
    holder: str
    coordinator: str
    def __init__(
        self,
        transactional_id: _Optional[str] = ...,
        state: _Optional[str] = ...,
        producer_id: _Optional[int] = ...,
        epoch: _Optional[int] = ...,
        timeout_ms: _Optional[int] = ...,
        started_ms: _Optional[int] = ...,
        places: _Optional[_Iterable[_Union[_common_pb2.Place, _Mapping]]] = ...,
        holder: _Optional[str] = ...,
        coordinator: _Optional[str] = ...,
    ) -> None: ...

class AbortTransactionRequest(_message.Message):
    __slots__ = ("transactional_id",)
    TRANSACTIONAL_ID_FIELD_NUMBER: _ClassVar[int]
    transactional_id: str
    def __init__(self, transactional_id: _Optional[str] = ...) -> None: ...

class AbortTransactionResponse(_message.Message):
    __slots__ = ("transaction",)
    TRANSACTION_FIELD_NUMBER: _ClassVar[int]
    transaction: TransactionSummary
    def __init__(self, transaction: _Optional[_Union[TransactionSummary, _Mapping]] = ...) -> None: ...

class FindHangingRequest(_message.Message):
    __slots__ = ("topics",)
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, topics: _Optional[_Iterable[str]] = ...) -> None: ...

class FindHangingResponse(_message.Message):
    __slots__ = ("hanging",)
    HANGING_FIELD_NUMBER: _ClassVar[int]
    hanging: _containers.RepeatedCompositeFieldContainer[HangingTransaction]
    def __init__(self, hanging: _Optional[_Iterable[_Union[HangingTransaction, _Mapping]]] = ...) -> None: ...

class HangingTransaction(_message.Message):
    __slots__ = ("topic", "partition", "producer_id", "epoch", "start_offset", "transactional_id")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    TRANSACTIONAL_ID_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    producer_id: int
    epoch: int
    start_offset: int
    transactional_id: str
    def __init__(
        self,
        topic: _Optional[str] = ...,
        partition: _Optional[int] = ...,
        producer_id: _Optional[int] = ...,
        epoch: _Optional[int] = ...,
        start_offset: _Optional[int] = ...,
        transactional_id: _Optional[str] = ...,
    ) -> None: ...

class EndHangingRequest(_message.Message):
    __slots__ = ("hanging",)
    HANGING_FIELD_NUMBER: _ClassVar[int]
    hanging: HangingTransaction
    def __init__(self, hanging: _Optional[_Union[HangingTransaction, _Mapping]] = ...) -> None: ...

class EndHangingResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
