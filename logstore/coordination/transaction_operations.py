"""``TransactionOperations``: what the opening of a transactional id asks of its manager."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager
from typing import Protocol, TypeVar

from logstore.api.groups import MemberIdentity
from logstore.coordination.coordinator import Coordinator
from logstore.errors import LogStoreError
from logstore.machine import TransactionalWriter
from logstore.transactions.coordinator import (
    EndedTransaction,
    InitReply,
    TransactionCoordinator,
    TransactionState,
)
from logstore.types import OffsetAndMetadata, TopicPartition

LeaseT_contra = TypeVar("LeaseT_contra", contravariant=True)


class TransactionOperations(Protocol[LeaseT_contra]):
    """See ``TransactionManager``."""

    def now_ms(self) -> int: ...

    @property
    def era(self) -> int: ...

    def coordinator(self) -> Coordinator[TransactionCoordinator]: ...

    def guard(self, transactional_id: str) -> AbstractContextManager[None]: ...

    def forget(self, lease: LeaseT_contra) -> None: ...

    def initialise(
        self,
        transactional_id: str,
        timeout_ms: int,
        continuing: tuple[int, int] | None = None,
        *,
        coordinator: str | None = None,
        keep_prepared: bool = False,
    ) -> InitReply: ...

    def is_spent(self, epoch: int) -> bool: ...

    @property
    def only_offsets_place(self) -> TopicPartition | None: ...

    def offsets_place(self, group: str) -> TopicPartition: ...

    def add_partitions(
        self,
        transactional_id: str,
        writer: TransactionalWriter,
        places: Collection[TopicPartition],
        marked: EndedTransaction | None,
    ) -> None: ...

    def send_offsets(
        self,
        group: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        writer: TransactionalWriter,
        member: MemberIdentity | None,
    ) -> None: ...

    def finish(self, ended: EndedTransaction, *, wait: bool, told: bool = True) -> None: ...

    def tell(self, marked: Collection[tuple[EndedTransaction, Collection[TopicPartition]]]) -> None: ...

    def has_participants(self, transactional_id: str) -> bool: ...

    def state_of(self, transactional_id: str) -> TransactionState | None: ...

    def outcome_of(self, transactional_id: str, producer_id: int, epoch: int) -> bool | None: ...

    def moved_on(self, lease: LeaseT_contra) -> LogStoreError | None: ...
