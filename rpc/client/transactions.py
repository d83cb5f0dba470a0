"""``RemoteTransactionLease``: a transactional id, open at the broker that coordinates.

In a cluster that may become another one. The opening is then taken up there as it is, with what is under way, and the
call that met the change is made again: calls of a transaction say under what it runs, and take effect once.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Final, TypeAlias

from logstore.api.groups import MemberIdentity
from logstore.api.transactions import PreparedTransaction
from logstore.arguments import whole
from logstore.errors import LogStoreError, OutcomeUnknownError, ProducerFencedError
from logstore.types import OffsetAndMetadata, TopicPartition
from replication.errors import NotLeaderError
from rpc.client.arguments import transactional_id as checked_id
from rpc.client.leases import LeaseKeepers
from rpc.client.routing.role import Answer, Role
from rpc.errors import BrokerTimeoutError, BrokerUnavailableError, UnknownLeaseError, UnsupportedFeatureError
from rpc.pb import transactions_pb2 as pb
from rpc.wire.offsets import committed_to_wire
from rpc.wire.values import fill, read

_RESUMPTIONS: Final = 4
"""How often a call is made again behind a change of the coordinator."""
_END_S: Final = 10.0
"""How long one coordinator may take to end a transaction, where another one can be asked."""


class RemoteTransactionLease:
    """A ``TransactionLease``. Thread-safe."""

    def __init__(
        self,
        coordinator_role: Role,
        keepers: LeaseKeepers,
        transactional_id: str,
        timeout_ms: int,
        *,
        coordinator: str | None = None,
        keep_prepared: bool = False,
    ) -> None:
        self._coordinator = coordinator_role
        self._keepers = keepers
        self._resuming = threading.Lock()
        self.transactional_id = transactional_id
        self._opening = request = pb.InitTransactionsRequest(
            transactional_id=checked_id(transactional_id),
            timeout_ms=whole(timeout_ms, "transaction_timeout_ms", 1, 2**31 - 1),
            coordinator=None if coordinator is None else checked_id(coordinator),
            keep_prepared=keep_prepared,
        )
        # Opened twice, the second opening fences the first: it may be tried again.
        self._open(request)

    def _open(self, request: pb.InitTransactionsRequest) -> None:
        opened, at = self._coordinator.call_at(
            "TransactionService/InitTransactions", request, pb.TransactionLease
        )
        self._lease_id, self.producer_id, self.epoch = opened.lease_id, opened.producer_id, opened.epoch
        self._at, self._keeper = at, self._keepers.at(at)
        self._keeper.add(self._lease_id)

    def _resume(self, lease_id: str) -> None:
        """Have the coordinator of now take the opening up, unless another thread has. Errors of
        ``Resuming.resume_transactions``."""
        with self._resuming:
            if self._lease_id != lease_id:
                return
            request = pb.InitTransactionsRequest()
            request.CopyFrom(self._opening)
            request.resume.CopyFrom(self._writer)
            keeper = self._keeper
            self._open(request)
            keeper.forget(lease_id)

    @property
    def _writer(self) -> pb.TransactionWriter:
        """In every call: one that comes late must not touch the next transaction."""
        return pb.TransactionWriter(producer_id=self.producer_id, epoch=self.epoch)

    def _call(self, method: str, request: _InTransaction, *, again: bool = True) -> pb.TransactionLease:
        return self._ask(method, request, pb.TransactionLease, again=again)

    def _ask(
        self,
        method: str,
        request: _InTransaction,
        kind: type[Answer],
        *,
        again: bool = True,
        timeout_s: float | None = None,
    ) -> Answer:
        path = f"TransactionService/{method}"
        for turn in range(_RESUMPTIONS + 1):
            lease_id = request.lease_id = self._lease_id
            try:
                return self._coordinator.call(path, request, kind, again=again, timeout_s=timeout_s)
            except UnknownLeaseError:
                if not self._coordinator.moves or turn == _RESUMPTIONS:
                    raise
                self._resume(lease_id)
        raise AssertionError("unreachable: the last turn returns or raises")

    def _note(self, answer: pb.TransactionLease) -> None:
        """Under what the next transaction runs. The one under way keeps what it began with: where the coordinator has
        aborted it meanwhile, its next batches have to be refused."""
        self.producer_id, self.epoch = answer.producer_id, answer.epoch

    def begin(self) -> None:
        request = pb.BeginTransactionRequest(lease_id=self._lease_id, writer=self._writer)
        self._note(self._call("BeginTransaction", request))

    def add_partitions(self, places: Collection[TopicPartition], *, offsets: bool = False) -> None:
        request = pb.AddPartitionsToTransactionRequest(
            lease_id=self._lease_id, offsets=offsets, writer=self._writer
        )
        for place in places:
            fill(request.places.add(), place)
        self._call("AddPartitionsToTransaction", request)

    def send_offsets(
        self,
        group: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        member: MemberIdentity | None = None,
    ) -> None:
        request = pb.SendOffsetsRequest(
            lease_id=self._lease_id,
            group=group,
            offsets=committed_to_wire(offsets),
            writer=self._writer,
        )
        if member is not None:
            request.member.member_id, request.member.epoch = member
        self._call("SendOffsets", request)

    def prepare(self) -> PreparedTransaction | None:
        request = pb.PrepareTransactionRequest(lease_id=self._lease_id, writer=self._writer)
        answer = self._ask("PrepareTransaction", request, pb.PrepareTransactionResponse)
        return read(answer.prepared, PreparedTransaction) if answer.HasField("prepared") else None

    def end(self, *, commit: bool, prepared: Collection[PreparedTransaction] = ()) -> None:
        request = pb.EndTransactionRequest(lease_id=self._lease_id, commit=commit, writer=self._writer)
        for one in prepared:
            fill(request.prepared.add(), one)
        try:
            self._note(self._end(request))
        except (BrokerUnavailableError, BrokerTimeoutError) as error:
            raise OutcomeUnknownError(
                f"the connection broke before the broker said how transaction {self.transactional_id!r} ended: "
                f"{error.message}",
                hint="end it again in the same way: the broker then says how it ended",
            ) from error

    def _end(self, request: pb.EndTransactionRequest) -> pb.TransactionLease:
        """A commit whose answer is lost, or that its coordinator was not sure of, is asked for again where another
        broker can tell how it ended; the error of the lost call is raised where none can."""
        if not (request.commit and self._coordinator.moves):
            return self._call("EndTransaction", request, again=not request.commit)
        lost: LogStoreError | None = None
        for _ in range(_RESUMPTIONS):
            try:
                return self._ask(
                    "EndTransaction", request, pb.TransactionLease, again=False, timeout_s=_END_S
                )
            except (BrokerUnavailableError, BrokerTimeoutError, OutcomeUnknownError) as error:
                lost = error
            except (ProducerFencedError, UnknownLeaseError) as error:
                raise lost or error from error
        raise lost or UnknownLeaseError("the opening's coordinator keeps changing")

    def _is_lost(self) -> bool:
        """Whether the opening is not at the coordinator any more, as far as its last one has said."""
        reason = self._keeper.ended_by(self._lease_id)
        return isinstance(reason, UnknownLeaseError | NotLeaderError)

    def ended_by(self) -> LogStoreError | None:
        reason = self._keeper.ended_by(self._lease_id)
        return None if self._coordinator.moves and self._is_lost() else reason

    def release(self) -> None:
        if self._coordinator.moves and (self._is_lost() or self._coordinator.connection() is not self._at):
            with suppress(ProducerFencedError, UnsupportedFeatureError):  # then nothing of it is open
                self._resume(self._lease_id)
        self._keeper.forget(self._lease_id)
        request = pb.ReleaseTransactionsRequest(lease_id=self._lease_id)
        self._coordinator.call(
            "TransactionService/ReleaseTransactions", request, pb.ReleaseTransactionsResponse
        )


_InTransaction: TypeAlias = (
    pb.BeginTransactionRequest
    | pb.AddPartitionsToTransactionRequest
    | pb.SendOffsetsRequest
    | pb.PrepareTransactionRequest
    | pb.EndTransactionRequest
)
