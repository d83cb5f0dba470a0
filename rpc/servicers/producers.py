"""``ProducerService``: ids and names of producers."""

from __future__ import annotations

from rpc.handlers.caller import Caller
from rpc.handlers.producers import ProducerHandler
from rpc.pb import producers_pb2 as pb
from rpc.servicers.service import Identify, Observer, Service
from rpc.wire.values import fill


class ProducerService(Service):
    def __init__(self, handler: ProducerHandler, identify: Identify, observe: Observer) -> None:
        super().__init__("ProducerService", identify, observe)
        self._handler = handler
        self.once("AllocateProducerId", pb.AllocateProducerIdRequest, self._allocate)
        self.once("OpenProducer", pb.OpenProducerRequest, self._open)
        self.unary("GetProducerId", pb.GetProducerIdRequest, self._producer_id)
        self.unary("GetLastSequence", pb.GetLastSequenceRequest, self._last_sequence)
        self.unary("GetSpread", pb.GetSpreadRequest, self._spread)
        self.unary("ListProducers", pb.ListProducersRequest, self._list)
        self.once("DeleteProducer", pb.DeleteProducerRequest, self._delete)

    async def _allocate(
        self, caller: Caller, request: pb.AllocateProducerIdRequest
    ) -> pb.AllocateProducerIdResponse:
        del request
        return pb.AllocateProducerIdResponse(producer_id=await self._handler.allocate(caller))

    async def _open(self, caller: Caller, request: pb.OpenProducerRequest) -> pb.OpenProducerResponse:
        lease_id, lease = await self._handler.open(caller, request.name)
        return pb.OpenProducerResponse(lease_id=lease_id, producer_id=lease.producer_id, epoch=lease.epoch)

    async def _producer_id(
        self, caller: Caller, request: pb.GetProducerIdRequest
    ) -> pb.GetProducerIdResponse:
        found = await self._handler.producer_id(caller, request.lease_id, request.era)
        return pb.GetProducerIdResponse(producer_id=found)

    async def _last_sequence(
        self, caller: Caller, request: pb.GetLastSequenceRequest
    ) -> pb.GetLastSequenceResponse:
        place = request.place
        found = await self._handler.last_sequence(caller, request.lease_id, place.topic, place.partition)
        return pb.GetLastSequenceResponse(records=found)

    async def _spread(self, caller: Caller, request: pb.GetSpreadRequest) -> pb.GetSpreadResponse:
        found = await self._handler.spread(caller, request.lease_id, request.topic)
        return pb.GetSpreadResponse(partitions=found)

    async def _list(self, caller: Caller, request: pb.ListProducersRequest) -> pb.ListProducersResponse:
        del request
        message = pb.ListProducersResponse()
        for one in await self._handler.list(caller):
            fill(message.producers.add(), one)
        return message

    async def _delete(self, caller: Caller, request: pb.DeleteProducerRequest) -> pb.DeleteProducerResponse:
        await self._handler.delete(caller, request.name)
        return pb.DeleteProducerResponse()
