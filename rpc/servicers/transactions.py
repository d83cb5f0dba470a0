"""``TransactionService``: transactions and their administration."""

from __future__ import annotations

from typing import TypeAlias

from logstore.api.groups import MemberIdentity
from logstore.api.transactions import (
    HangingTransaction,
    PreparedTransaction,
    TransactionLease,
    prepared_handles,
)
from logstore.machine import TransactionalWriter
from rpc.handlers.caller import Caller
from rpc.handlers.transactions import TransactionHandler
from rpc.pb import transactions_pb2 as pb
from rpc.servicers.service import Identify, Observer, Service
from rpc.wire.offsets import committed_from_wire
from rpc.wire.values import fill, places, read


class TransactionService(Service):
    def __init__(self, handler: TransactionHandler, identify: Identify, observe: Observer) -> None:
        super().__init__("TransactionService", identify, observe)
        self._handler = handler
        self.once("InitTransactions", pb.InitTransactionsRequest, self._open)
        self.once("BeginTransaction", pb.BeginTransactionRequest, self._begin)
        self.once("AddPartitionsToTransaction", pb.AddPartitionsToTransactionRequest, self._add_partitions)
        self.once("SendOffsets", pb.SendOffsetsRequest, self._send_offsets)
        self.once("PrepareTransaction", pb.PrepareTransactionRequest, self._prepare)
        self.once("EndTransaction", pb.EndTransactionRequest, self._end)
        self.once("ReleaseTransactions", pb.ReleaseTransactionsRequest, self._release)
        self.unary("ListTransactions", pb.ListTransactionsRequest, self._list)
        self.once("AbortTransaction", pb.AbortTransactionRequest, self._abort)
        self.unary("FindHanging", pb.FindHangingRequest, self._find_hanging)
        self.once("EndHanging", pb.EndHangingRequest, self._end_hanging)

    async def _open(self, caller: Caller, request: pb.InitTransactionsRequest) -> pb.TransactionLease:
        coordinator = request.coordinator if request.HasField("coordinator") else None
        if request.HasField("resume"):
            under = TransactionalWriter(request.resume.producer_id, request.resume.epoch)
            resumed = await self._handler.resume(
                caller, request.transactional_id, request.timeout_ms, under, coordinator=coordinator
            )
            return _lease(*resumed)
        opened = await self._handler.open(
            caller,
            request.transactional_id,
            request.timeout_ms,
            coordinator=coordinator,
            keep_prepared=request.keep_prepared,
        )
        return _lease(*opened)

    async def _begin(self, caller: Caller, request: pb.BeginTransactionRequest) -> pb.TransactionLease:
        return _lease(request.lease_id, await self._handler.begin(caller, request.lease_id, _writer(request)))

    async def _add_partitions(
        self, caller: Caller, request: pb.AddPartitionsToTransactionRequest
    ) -> pb.TransactionLease:
        lease = await self._handler.add_partitions(
            caller, request.lease_id, places(request.places), _writer(request), offsets=request.offsets
        )
        return _lease(request.lease_id, lease)

    async def _send_offsets(self, caller: Caller, request: pb.SendOffsetsRequest) -> pb.TransactionLease:
        named = request.member if request.HasField("member") else None
        member = None if named is None else MemberIdentity(named.member_id, named.epoch)
        offsets = committed_from_wire(request.offsets)
        lease = await self._handler.send_offsets(
            caller, request.lease_id, request.group, offsets, member, _writer(request)
        )
        return _lease(request.lease_id, lease)

    async def _prepare(
        self, caller: Caller, request: pb.PrepareTransactionRequest
    ) -> pb.PrepareTransactionResponse:
        message = pb.PrepareTransactionResponse()
        found = await self._handler.prepare(caller, request.lease_id, _writer(request))
        if found is not None:
            fill(message.prepared, found)
        return message

    async def _end(self, caller: Caller, request: pb.EndTransactionRequest) -> pb.TransactionLease:
        prepared = prepared_handles([read(one, PreparedTransaction) for one in request.prepared])
        lease = await self._handler.end(
            caller, request.lease_id, _writer(request), commit=request.commit, prepared=prepared
        )
        return _lease(request.lease_id, lease)

    async def _release(
        self, caller: Caller, request: pb.ReleaseTransactionsRequest
    ) -> pb.ReleaseTransactionsResponse:
        await self._handler.release(caller, request.lease_id)
        return pb.ReleaseTransactionsResponse()

    async def _list(self, caller: Caller, request: pb.ListTransactionsRequest) -> pb.ListTransactionsResponse:
        del request
        message = pb.ListTransactionsResponse()
        for one in await self._handler.list(caller):
            fill(message.transactions.add(), one)
        return message

    async def _abort(
        self, caller: Caller, request: pb.AbortTransactionRequest
    ) -> pb.AbortTransactionResponse:
        found = await self._handler.abort(caller, request.transactional_id)
        return pb.AbortTransactionResponse(transaction=fill(pb.TransactionSummary(), found))

    async def _find_hanging(self, caller: Caller, request: pb.FindHangingRequest) -> pb.FindHangingResponse:
        message = pb.FindHangingResponse()
        for one in await self._handler.find_hanging(caller, list(request.topics)):
            fill(message.hanging.add(), one)
        return message

    async def _end_hanging(self, caller: Caller, request: pb.EndHangingRequest) -> pb.EndHangingResponse:
        await self._handler.end_hanging(caller, read(request.hanging, HangingTransaction))
        return pb.EndHangingResponse()


_InTransaction: TypeAlias = (
    pb.BeginTransactionRequest
    | pb.AddPartitionsToTransactionRequest
    | pb.SendOffsetsRequest
    | pb.PrepareTransactionRequest
    | pb.EndTransactionRequest
)


def _writer(request: _InTransaction) -> TransactionalWriter | None:
    if not request.HasField("writer"):
        return None
    return TransactionalWriter(request.writer.producer_id, request.writer.epoch)


def _lease(lease_id: str, lease: TransactionLease) -> pb.TransactionLease:
    return pb.TransactionLease(lease_id=lease_id, producer_id=lease.producer_id, epoch=lease.epoch)
