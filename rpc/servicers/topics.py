"""``TopicService``: metadata and administration of topics."""

from __future__ import annotations

from logstore.api.topics import TopicMetadata
from rpc.handlers.caller import Caller
from rpc.handlers.topics import TopicHandler
from rpc.pb import topics_pb2 as pb
from rpc.servicers.service import Identify, Observer, Service
from rpc.wire.values import fill


class TopicService(Service):
    def __init__(
        self, handler: TopicHandler, identify: Identify, observe: Observer, longest_wait_s: float
    ) -> None:
        super().__init__("TopicService", identify, observe)
        self._handler = handler
        self._longest_wait_s = longest_wait_s
        self.unary("GetMetadata", pb.GetMetadataRequest, self._get_metadata)
        self.unary("WatchMetadata", pb.WatchMetadataRequest, self._watch_metadata)
        self.once("CreateTopic", pb.CreateTopicRequest, self._create)
        self.once("AddPartitions", pb.AddPartitionsRequest, self._add_partitions)
        self.once("AlterTopic", pb.AlterTopicRequest, self._alter)
        self.once("DeleteTopic", pb.DeleteTopicRequest, self._delete)
        self.unary("DescribeTopic", pb.DescribeTopicRequest, self._describe)

    async def _get_metadata(self, caller: Caller, request: pb.GetMetadataRequest) -> pb.GetMetadataResponse:
        return _metadata(*await self._handler.metadata(caller, list(request.names)))

    async def _watch_metadata(
        self, caller: Caller, request: pb.WatchMetadataRequest
    ) -> pb.GetMetadataResponse:
        wait_s = min(max(request.max_wait_ms, 0) / 1000, self._longest_wait_s)
        return _metadata(*await self._handler.wait_for_metadata(caller, request.known_version, wait_s))

    async def _create(self, caller: Caller, request: pb.CreateTopicRequest) -> pb.CreateTopicResponse:
        factor = request.replication_factor or None
        made = await self._handler.create(
            caller, request.name, request.partitions, dict(request.config), factor
        )
        return pb.CreateTopicResponse(topic=fill(pb.TopicMetadata(), made))

    async def _add_partitions(
        self, caller: Caller, request: pb.AddPartitionsRequest
    ) -> pb.AddPartitionsResponse:
        await self._handler.add_partitions(
            caller, request.name, request.total, allow_keyed=request.allow_keyed
        )
        return pb.AddPartitionsResponse()

    async def _alter(self, caller: Caller, request: pb.AlterTopicRequest) -> pb.AlterTopicResponse:
        config: dict[str, str | None] = {**request.set, **dict.fromkeys(request.unset)}
        await self._handler.alter(caller, request.name, config)
        return pb.AlterTopicResponse()

    async def _delete(self, caller: Caller, request: pb.DeleteTopicRequest) -> pb.DeleteTopicResponse:
        await self._handler.delete(caller, request.name)
        return pb.DeleteTopicResponse()

    async def _describe(self, caller: Caller, request: pb.DescribeTopicRequest) -> pb.DescribeTopicResponse:
        found = await self._handler.describe(caller, request.name)
        return pb.DescribeTopicResponse(topic=fill(pb.TopicDescription(), found))


def _metadata(version: int, topics: list[TopicMetadata]) -> pb.GetMetadataResponse:
    message = pb.GetMetadataResponse(version=version)
    for topic in topics:
        fill(message.topics.add(), topic)
    return message
