"""``OffsetService``: offsets of partitions, and those that groups have committed."""

from __future__ import annotations

from logstore.api.groups import MemberIdentity
from rpc.handlers.caller import Caller
from rpc.handlers.offsets import OffsetHandler
from rpc.pb import offsets_pb2 as pb
from rpc.pb import topics_pb2
from rpc.servicers.service import Identify, Observer, Service
from rpc.wire.enums import isolation_from_wire, spec_of
from rpc.wire.offsets import committed_from_wire
from rpc.wire.values import fill, places


class OffsetService(Service):
    def __init__(self, handler: OffsetHandler, identify: Identify, observe: Observer) -> None:
        super().__init__("OffsetService", identify, observe)
        self._handler = handler
        self.unary("ListOffsets", pb.ListOffsetsRequest, self._list)
        self.unary("DescribePartitions", pb.DescribePartitionsRequest, self._describe)
        self.once("CommitOffsets", pb.CommitOffsetsRequest, self._commit)
        self.unary("CommittedOffsets", pb.CommittedOffsetsRequest, self._committed)

    async def _list(self, caller: Caller, request: pb.ListOffsetsRequest) -> pb.ListOffsetsResponse:
        found = await self._handler.list_offsets(
            caller, places(request.partitions), spec_of(request), isolation_from_wire(request.isolation)
        )
        message = pb.ListOffsetsResponse()
        for (topic, partition), one in found.items():
            fill(message.offsets.add(), one, topic=topic, partition=partition)
        return message

    async def _describe(
        self, caller: Caller, request: pb.DescribePartitionsRequest
    ) -> pb.DescribePartitionsResponse:
        message = pb.DescribePartitionsResponse()
        for (topic, partition), one in (
            await self._handler.describe(caller, places(request.partitions))
        ).items():
            description = fill(topics_pb2.PartitionDescription(), one)
            message.partitions.add(topic=topic, partition=partition, description=description)
        return message

    async def _commit(self, caller: Caller, request: pb.CommitOffsetsRequest) -> pb.CommitOffsetsResponse:
        offsets = committed_from_wire(request.offsets)
        await self._handler.commit(caller, request.group, offsets, member_of(request))
        return pb.CommitOffsetsResponse()

    async def _committed(
        self, caller: Caller, request: pb.CommittedOffsetsRequest
    ) -> pb.CommittedOffsetsResponse:
        committed, unstable = await self._handler.committed(caller, request.group)
        message = pb.CommittedOffsetsResponse()
        for (topic, partition), one in committed.items():
            fill(message.offsets.add(), one, topic=topic, partition=partition)
        for place in unstable:
            fill(message.unstable.add(), place)
        return message


def member_of(request: pb.CommitOffsetsRequest) -> MemberIdentity | None:
    """The member that the request names."""
    if not request.HasField("member"):
        return None
    return MemberIdentity(request.member.member_id, request.member.epoch)
