"""``ProducerLease`` at a broker: the identities of idempotent and of named producers."""

from __future__ import annotations

from typing import Final

from logstore.errors import InvalidArgumentError
from rpc.client.connection import Connection
from rpc.client.leases import LeaseKeeper
from rpc.pb import common_pb2
from rpc.pb import producers_pb2 as pb

LAST_EPOCH: Final = 2**15 - 1


class RemoteUnnamedLease:
    """An id of its own, and epochs that live in memory: nothing of it is held at the broker. Thread-safe."""

    name = None

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.producer_id = self._allocate()
        self.epoch = 0

    def _allocate(self) -> int:
        request = pb.AllocateProducerIdRequest()
        return self._connection.call(
            "ProducerService/AllocateProducerId", request, pb.AllocateProducerIdResponse
        ).producer_id

    def producer_id_of(self, era: int) -> int:
        del era  # its sequences wrap
        return self.producer_id

    def bump(self) -> None:
        if self.epoch < LAST_EPOCH:
            self.epoch += 1
        else:
            self.producer_id, self.epoch = self._allocate(), 0

    def last_sequence(self, topic: str, partition: int) -> int:
        raise InvalidArgumentError(
            f"last_sequence({topic!r}, {partition}): this producer has no name, so nothing of it is remembered",
            hint='give it one: client.producer(name="import")',
        )

    def spread(self, topic: str) -> int:
        return self.last_sequence(topic, 0)

    def release(self) -> None:
        """Nothing is held: the id is never handed out again."""


class RemoteNamedLease:
    """A named producer, open at the broker until ``release``, or until the broker has not heard of it for too long.
    Thread-safe. ProducerBusyError names the holder."""

    def __init__(self, connection: Connection, keeper: LeaseKeeper, name: str) -> None:
        self._connection = connection
        self._keeper = keeper
        self.name = name
        # A second try would find the name open, by the first.
        opened = connection.call(
            "ProducerService/OpenProducer",
            pb.OpenProducerRequest(name=name),
            pb.OpenProducerResponse,
            again=False,
        )
        self._lease_id = opened.lease_id
        self.producer_id = opened.producer_id
        self.epoch = opened.epoch
        self._ids = {0: opened.producer_id}
        keeper.add(self._lease_id)

    def _check(self) -> None:
        ended = self._keeper.ended_by(self._lease_id)
        if ended is not None:
            raise ended

    def producer_id_of(self, era: int) -> int:
        self._check()
        found = self._ids.get(era)
        if found is None:
            request = pb.GetProducerIdRequest(lease_id=self._lease_id, era=era)
            found = self._ids[era] = self._connection.call(
                "ProducerService/GetProducerId", request, pb.GetProducerIdResponse
            ).producer_id
        return found

    def bump(self) -> None:
        raise InvalidArgumentError(
            f"producer {self.name!r} has a name: its sequences go on, and never restart"
        )

    def last_sequence(self, topic: str, partition: int) -> int:
        self._check()
        place = common_pb2.Place(topic=topic, partition=partition)
        request = pb.GetLastSequenceRequest(lease_id=self._lease_id, place=place)
        return self._connection.call(
            "ProducerService/GetLastSequence", request, pb.GetLastSequenceResponse
        ).records

    def spread(self, topic: str) -> int:
        self._check()
        request = pb.GetSpreadRequest(lease_id=self._lease_id, topic=topic)
        return self._connection.call("ProducerService/GetSpread", request, pb.GetSpreadResponse).partitions

    def release(self) -> None:
        self._keeper.release(self._lease_id)
