"""``RemoteTransactionLease``: a transactional id, open at the broker."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from google.protobuf.message import Message

from logstore.api.groups import MemberIdentity
from logstore.api.transactions import PreparedTransaction
from logstore.arguments import whole
from logstore.errors import LogStoreError, OutcomeUnknownError
from logstore.types import OffsetAndMetadata, TopicPartition
from rpc.client.arguments import transactional_id as checked_id
from rpc.client.connection import Connection
from rpc.client.leases import LeaseKeeper
from rpc.errors import BrokerTimeoutError, BrokerUnavailableError
from rpc.pb import transactions_pb2 as pb
from rpc.wire.offsets import committed_to_wire
from rpc.wire.values import fill, read


class RemoteTransactionLease:
    """A ``TransactionLease``. Thread-safe."""

    def __init__(
        self,
        connection: Connection,
        keeper: LeaseKeeper,
        transactional_id: str,
        timeout_ms: int,
        *,
        coordinator: str | None = None,
        keep_prepared: bool = False,
    ) -> None:
        self._connection = connection
        self._keeper = keeper
        self.transactional_id = transactional_id
        request = pb.InitTransactionsRequest(
            transactional_id=checked_id(transactional_id),
            timeout_ms=whole(timeout_ms, "transaction_timeout_ms", 1, 2**31 - 1),
            coordinator=None if coordinator is None else checked_id(coordinator),
            keep_prepared=keep_prepared,
        )
        # Opened twice, the second opening fences the first: it may be tried again.
        opened = connection.call("TransactionService/InitTransactions", request, pb.TransactionLease)
        self._lease_id, self.producer_id, self.epoch = opened.lease_id, opened.producer_id, opened.epoch
        keeper.add(self._lease_id)

    @property
    def _writer(self) -> pb.TransactionWriter:
        """In every call: one that comes late must not touch the next transaction."""
        return pb.TransactionWriter(producer_id=self.producer_id, epoch=self.epoch)

    def _call(self, method: str, request: Message, *, again: bool = True) -> pb.TransactionLease:
        path = f"TransactionService/{method}"
        return self._connection.call(path, request, pb.TransactionLease, again=again)

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
        answer = self._connection.call(
            "TransactionService/PrepareTransaction", request, pb.PrepareTransactionResponse
        )
        return read(answer.prepared, PreparedTransaction) if answer.HasField("prepared") else None

    def end(self, *, commit: bool, prepared: Collection[PreparedTransaction] = ()) -> None:
        request = pb.EndTransactionRequest(lease_id=self._lease_id, commit=commit, writer=self._writer)
        for one in prepared:
            fill(request.prepared.add(), one)
        try:
            self._note(self._call("EndTransaction", request, again=not commit))
        except (BrokerUnavailableError, BrokerTimeoutError) as error:
            raise OutcomeUnknownError(
                f"the connection broke before the broker said how transaction {self.transactional_id!r} ended: "
                f"{error.message}",
                hint="end it again in the same way: the broker then says how it ended",
            ) from error

    def ended_by(self) -> LogStoreError | None:
        return self._keeper.ended_by(self._lease_id)

    def release(self) -> None:
        self._keeper.forget(self._lease_id)
        request = pb.ReleaseTransactionsRequest(lease_id=self._lease_id)
        self._connection.call(
            "TransactionService/ReleaseTransactions", request, pb.ReleaseTransactionsResponse
        )
