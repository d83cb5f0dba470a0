"""``ProducerLease`` at a broker: the identities of idempotent and of named producers."""

from __future__ import annotations

import threading
from typing import Final, TypeAlias

from logstore.arguments import whole
from logstore.errors import InvalidArgumentError, LogStoreError, ProducerFencedError
from replication.errors import NotLeaderError
from rpc.client.arguments import known_topic, producer_name
from rpc.client.leases import LeaseKeepers
from rpc.client.routing.role import Answer, Role
from rpc.errors import UnknownLeaseError
from rpc.pb import common_pb2
from rpc.pb import producers_pb2 as pb

LAST_EPOCH: Final = 2**15 - 1
_REOPENINGS: Final = 3
"""How often a call is made again behind a change of the controller."""


class RemoteUnnamedLease:
    """An id of its own, and epochs that live in memory: nothing of it is held at the broker. Thread-safe."""

    name = None

    def __init__(self, controller: Role) -> None:
        self._controller = controller
        self.producer_id = self._allocate()
        self.epoch = 0

    def _allocate(self) -> int:
        request = pb.AllocateProducerIdRequest()
        return self._controller.call(
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
    Thread-safe. ProducerBusyError names the holder.

    Where the cluster's controller moves, the name is opened again at the new one, under the next epoch: its numbers go
    on. ProducerFencedError: another producer has opened it in between."""

    def __init__(self, controller: Role, keepers: LeaseKeepers, name: str) -> None:
        self._controller = controller
        self._keepers = keepers
        self._opening = threading.Lock()
        self.name = name
        opened = self._open()
        self.producer_id = opened.producer_id
        self.epoch = opened.epoch
        self._ids = {0: opened.producer_id}

    def _open(self) -> pb.OpenProducerResponse:
        # A second try would find the name open, by the first.
        opened, at = self._controller.call_at(
            "ProducerService/OpenProducer",
            pb.OpenProducerRequest(name=producer_name(self.name)),
            pb.OpenProducerResponse,
            again=False,
        )
        self._lease_id = opened.lease_id
        self._keeper = self._keepers.at(at)
        self._keeper.add(self._lease_id)
        return opened

    def _check(self) -> None:
        lease_id = self._lease_id
        ended = self._keeper.ended_by(lease_id)
        if ended is not None:
            self._reopen(lease_id, ended)

    def _reopen(self, lease_id: str, ended: LogStoreError) -> None:
        """Open the name again, unless another thread has. Raises ``ended`` where it is over for good."""
        if not self._controller.moves or not isinstance(ended, UnknownLeaseError | NotLeaderError):
            raise ended
        with self._opening:
            if self._lease_id != lease_id:
                return
            self._keeper.abandon(lease_id)
            opened = self._open()
            if opened.epoch != self.epoch + 1:
                self.release()
                raise ProducerFencedError(
                    f"producer {self.name!r} was opened elsewhere while its controller moved",
                    found_epoch=self.epoch,
                ) from ended
            self.epoch = opened.epoch

    def _ask(self, method: str, request: _OfLease, kind: type[Answer]) -> Answer:
        self._check()
        for turn in range(_REOPENINGS + 1):
            lease_id = request.lease_id = self._lease_id
            try:
                return self._controller.call(f"ProducerService/{method}", request, kind)
            except UnknownLeaseError as error:
                if turn == _REOPENINGS:
                    raise
                self._reopen(lease_id, error)
        raise AssertionError("unreachable: the last turn returns or raises")

    def producer_id_of(self, era: int) -> int:
        self._check()
        found = self._ids.get(era)
        if found is None:
            request = pb.GetProducerIdRequest(era=era)
            answer = self._ask("GetProducerId", request, pb.GetProducerIdResponse)
            found = self._ids[era] = answer.producer_id
        return found

    def bump(self) -> None:
        raise InvalidArgumentError(
            f"producer {self.name!r} has a name: its sequences go on, and never restart"
        )

    def last_sequence(self, topic: str, partition: int) -> int:
        place = common_pb2.Place(
            topic=known_topic(topic), partition=whole(partition, "partition", high=2**31 - 1)
        )
        request = pb.GetLastSequenceRequest(place=place)
        return self._ask("GetLastSequence", request, pb.GetLastSequenceResponse).records

    def spread(self, topic: str) -> int:
        request = pb.GetSpreadRequest(topic=known_topic(topic))
        return self._ask("GetSpread", request, pb.GetSpreadResponse).partitions

    def release(self) -> None:
        if self._controller.moves:
            self._keeper.abandon(self._lease_id)  # that broker may be gone for long
        else:
            self._keeper.release(self._lease_id)


_OfLease: TypeAlias = pb.GetProducerIdRequest | pb.GetLastSequenceRequest | pb.GetSpreadRequest
