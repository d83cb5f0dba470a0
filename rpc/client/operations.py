"""``RemoteOperation``: an administrator's long work, which the broker does; the client asks how far it is."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from logstore.api.operations import OperationState
from logstore.types import CleaningProgress, TopicPartition
from rpc.client.channel.connection import Connection
from rpc.pb import records_pb2 as pb
from rpc.wire.errors import from_wire
from rpc.wire.values import read

Result = TypeVar("Result")


class RemoteOperation(Generic[Result]):
    """An ``Operation``. ``take``: the result from the last state."""

    def __init__(
        self, connection: Connection, operation_id: str, take: Callable[[pb.OperationState], Result]
    ) -> None:
        self._connection = connection
        self._operation_id = operation_id
        self._take = take
        self._lock = threading.Lock()
        self._newest = pb.OperationState()

    def state(self) -> OperationState:
        newest = self._newest
        progress = {
            TopicPartition(row.topic, row.partition): read(row.progress, CleaningProgress)
            for row in newest.progress
        }
        return OperationState(newest.done, progress)

    def wait(self, timeout_s: float) -> bool:
        until_s = time.monotonic() + timeout_s
        with self._lock:
            if not self._newest.done:
                left_s = max(until_s - time.monotonic(), 0.0)
                request = pb.WaitOperationRequest(
                    operation_id=self._operation_id,
                    known_version=self._newest.version,
                    max_wait_ms=int(left_s * 1000),
                )
                self._newest = self._connection.call(
                    "RecordService/WaitOperation",
                    request,
                    pb.OperationState,
                    timeout_s=left_s + self._connection.settings.request_timeout_s,
                )
            return self._newest.done

    def result(self) -> Result:
        while not self.wait(10.0):
            pass
        if self._newest.HasField("error"):
            raise from_wire(self._newest.error)
        return self._take(self._newest)

    def cancel(self) -> None:
        request = pb.CancelOperationRequest(operation_id=self._operation_id)
        self._connection.call("RecordService/CancelOperation", request, pb.CancelOperationResponse)
