"""``Engine``: a store as a broker serves it: both planes, the two calls that wait without a thread, and transactions
whose calls come over a network."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol, runtime_checkable

from logstore.api.backend import Backend
from logstore.api.groups import GroupMembership, JoinRequest, MemberIdentity
from logstore.api.records import FetchRequest, FetchResult, ProduceItem, ProduceResult
from logstore.api.transactions import PreparedTransaction, TransactionLease
from logstore.machine import TransactionalWriter
from logstore.types import Acks, Isolation, OffsetAndMetadata, TopicPartition


class SharedLease(TransactionLease, Protocol):
    """A lease whose calls come from elsewhere, late or twice perhaps.

    ``writer``: under what the caller believes the transaction to run. A call for a transaction that is over is
    TransactionStateError and touches no other; the same end again gives the same answer. None: not checked.
    """

    @property
    def is_closed(self) -> bool:
        """Whether it was released, by whomever."""
        ...

    def begin(self, writer: TransactionalWriter | None = None) -> None: ...

    def add_partitions(
        self,
        places: Collection[TopicPartition],
        *,
        offsets: bool = False,
        writer: TransactionalWriter | None = None,
    ) -> None: ...

    def send_offsets(
        self,
        group: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        member: MemberIdentity | None = None,
        writer: TransactionalWriter | None = None,
    ) -> None: ...

    def prepare(self, writer: TransactionalWriter | None = None) -> PreparedTransaction | None: ...

    def end(
        self,
        *,
        commit: bool,
        prepared: Collection[PreparedTransaction] = (),
        writer: TransactionalWriter | None = None,
    ) -> None: ...


class Engine(Backend, Protocol):
    """Thread-safe. The embedded store's backend is one; a node of a cluster is another."""

    def init_transactions(
        self,
        transactional_id: str,
        timeout_ms: int,
        *,
        coordinator: str | None = None,
        keep_prepared: bool = False,
    ) -> SharedLease:
        """See ``Backend.init_transactions``."""
        ...

    def start_produce(
        self,
        items: Sequence[ProduceItem],
        acks: Acks,
        timeout_s: float,
        tell: Callable[[list[ProduceResult]], None],
    ) -> None:
        """As ``produce``, but returns when the batches are written; ``tell`` is called with the results when all are
        decided, from any thread. Not after an error."""
        ...

    def collect(
        self, requests: Sequence[FetchRequest], isolation: Isolation, min_bytes: int, max_bytes: int
    ) -> tuple[list[FetchResult], bool]:
        """What a fetch finds now, and whether it is worth an answer."""
        ...

    def when_more(self, places: Collection[TopicPartition], tell: Callable[[], None]) -> Callable[[], None]:
        """``tell`` is called, from any thread, when there may be more in one of the partitions; what is returned
        ends that."""
        ...


@runtime_checkable
class Resuming(Protocol):
    """An engine whose coordinators move to other nodes, and take up there what clients hold.

    A membership or a lease whose coordinator is another node now has ended here, for good: ``ended_by`` says
    NotLeaderError, a change of ``view`` is told, and what is asked of it raises NotLeaderError and changes nothing. The
    broker drops it then without leaving or releasing; so it does when it stops.
    """

    def resume_transactions(
        self,
        transactional_id: str,
        timeout_ms: int,
        producer_id: int,
        epoch: int,
        coordinator: str | None = None,
    ) -> SharedLease:
        """The opening that the coordinator's log has under this producer id and epoch, as it stands: no new epoch, and
        what it has under way goes on. They may also be those of the opening's last transaction, whose end has got no
        answer: the same end again then tells how it ended. ProducerFencedError: there is a newer opening."""
        ...

    def resume_member(self, group: str, member_id: str, request: JoinRequest) -> GroupMembership:
        """The member that the coordinator's log has, with its assignment; its session begins anew.
        UnknownMemberError, MemberFencedError: the group has it no more."""
        ...
