"""``RecordService``: deletion of records, compaction and erasure."""

from __future__ import annotations

from logstore.types import ErasureReport, TopicPartition
from rpc.handlers.caller import Caller
from rpc.handlers.records import RecordHandler, StartedWork
from rpc.pb import records_pb2 as pb
from rpc.pb import topics_pb2
from rpc.servicers.service import Identify, Observer, Service
from rpc.wire.errors import to_wire
from rpc.wire.values import fill


class RecordService(Service):
    def __init__(self, handler: RecordHandler, identify: Identify, observe: Observer) -> None:
        super().__init__("RecordService", identify, observe)
        self._handler = handler
        self.once("DeleteRecords", pb.DeleteRecordsRequest, self._delete)
        self.once("StartCompaction", pb.StartCompactionRequest, self._compact)
        self.once("StartErasure", pb.StartErasureRequest, self._erase)
        self.unary("WaitOperation", pb.WaitOperationRequest, self._wait)
        self.once("CancelOperation", pb.CancelOperationRequest, self._cancel)

    async def _delete(self, caller: Caller, request: pb.DeleteRecordsRequest) -> pb.DeleteRecordsResponse:
        before = {TopicPartition(row.topic, row.partition): row.offset for row in request.before}
        message = pb.DeleteRecordsResponse()
        for (topic, partition), offset in (await self._handler.delete_records(caller, before)).items():
            message.starts.add(topic=topic, partition=partition, offset=offset)
        return message

    async def _compact(self, caller: Caller, request: pb.StartCompactionRequest) -> pb.StartedOperation:
        partition = request.partition if request.HasField("partition") else None
        found = await self._handler.start_compaction(caller, request.topic, partition, roll=request.roll)
        return pb.StartedOperation(operation_id=found)

    async def _erase(self, caller: Caller, request: pb.StartErasureRequest) -> pb.StartedOperation:
        found = await self._handler.start_erasure(caller, request.topic, list(request.keys))
        return pb.StartedOperation(operation_id=found)

    async def _wait(self, caller: Caller, request: pb.WaitOperationRequest) -> pb.OperationState:
        wait_s = max(request.max_wait_ms, 0) / 1000
        return _state(await self._handler.wait(caller, request.operation_id, request.known_version, wait_s))

    async def _cancel(self, caller: Caller, request: pb.CancelOperationRequest) -> pb.CancelOperationResponse:
        await self._handler.cancel(caller, request.operation_id)
        return pb.CancelOperationResponse()


def _state(started: StartedWork) -> pb.OperationState:
    message = pb.OperationState(version=started.version, done=started.ended_s is not None)
    for (topic, partition), progress in started.state.progress.items():
        row = message.progress.add(topic=topic, partition=partition)
        row.progress.CopyFrom(fill(topics_pb2.CleaningProgress(), progress))
    if started.error is not None:
        message.error.CopyFrom(to_wire(started.error))
    if isinstance(started.outcome, ErasureReport):
        fill(message.erased, started.outcome)
    elif started.outcome is not None:
        for outcome in started.outcome:
            fill(message.compacted.add(), outcome)
    return message
