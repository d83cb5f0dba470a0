"""``Leaders``: which node leads each partition: what the metadata says, and what brokers have said since."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, Protocol, TypeVar

from logstore.errors import LogStoreError, UnknownTopicError
from logstore.types import TopicPartition
from replication.errors import LeaderNotReadyError, NotLeaderError
from rpc.client.channel.connection import Connection
from rpc.client.routing.brokers import NOBODY, Brokers
from rpc.client.routing.metadata import Metadata
from rpc.errors import BrokerBusyError, BrokerTimeoutError, BrokerUnavailableError, SessionExpiredError

ANYBODY: Final = -2
"""For what no node leads, a topic that is not there for one: any broker says so."""
_REFRESH_S: Final = 0.1
"""The metadata is asked for again at most this often on account of errors."""
ROUTING: Final = (
    NotLeaderError,
    LeaderNotReadyError,
    BrokerUnavailableError,
    BrokerTimeoutError,
    BrokerBusyError,
    SessionExpiredError,
)
"""Errors of a broker that is not the one to ask, or not now."""


class Placed(Protocol):
    """What belongs to one partition."""

    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...


One = TypeVar("One", bound=Placed)


class _Hint(NamedTuple):
    """What a broker has said. ``epoch``: of the leader that the metadata knew then; a newer one counts before it."""

    node: int
    epoch: int


class Leaders:
    """Thread-safe."""

    def __init__(self, brokers: Brokers, metadata: Metadata) -> None:
        self._brokers = brokers
        self._metadata = metadata
        self._hints: dict[TopicPartition, _Hint] = {}
        self._refreshing = threading.Lock()
        self._refreshed_s = 0.0

    def of(self, topic: str, partition: int) -> int:
        """The node; NOBODY where none is known, ANYBODY where there is no such partition."""
        try:
            found = self._metadata.topic(topic)
        except UnknownTopicError:
            return ANYBODY
        if not 0 <= partition < found.partitions:
            return ANYBODY
        node, epoch = NOBODY, -1
        if partition < len(found.leaders):
            node = found.leaders[partition]
        if partition < len(found.leader_epochs):
            epoch = found.leader_epochs[partition]
        hint = self._hints.get(TopicPartition(topic, partition))
        if hint is not None and hint.epoch >= epoch:
            return hint.node
        return node

    def split(self, wanted: Iterable[One]) -> dict[int, list[int]]:
        """The places in ``wanted`` of what each node leads. What belongs to one partition is never torn apart, also
        when its leader moves meanwhile: two nodes would take it in any order."""
        led: dict[TopicPartition, int] = {}
        parts: dict[int, list[int]] = {}
        for index, one in enumerate(wanted):
            place = TopicPartition(one.topic, one.partition)
            node = led.get(place)
            if node is None:
                node = led[place] = self.of(*place)
            parts.setdefault(node, []).append(index)
        return parts

    def connection(self, node: int) -> Connection:
        """To the node, or to any broker for ANYBODY. NotLeaderError for NOBODY; BrokerUnavailableError."""
        if node == NOBODY:
            raise NotLeaderError("no broker knows who leads the partition now", hint="try again in a moment")
        return self._brokers.home() if node == ANYBODY else self._brokers.to(node)

    def note(self, place: TopicPartition, node: int, error: LogStoreError) -> None:
        """What a node has answered for a partition, or that it did not."""
        if not isinstance(error, ROUTING) or isinstance(error, BrokerBusyError | SessionExpiredError):
            return
        if isinstance(error, NotLeaderError) and error.leader_id not in (NOBODY, node):
            self._hints[place] = _Hint(error.leader_id, self._epoch_of(place))
        elif isinstance(error, BrokerUnavailableError | BrokerTimeoutError):
            # The metadata may name a node that is gone for long: others know who leads instead.
            self._hints[place] = _Hint(ANYBODY, self._epoch_of(place))
            if node == ANYBODY:
                self._brokers.move_home(self._brokers.home())
            else:
                self._brokers.note_away(node)
        else:
            hint = self._hints.get(place)
            if hint is not None and hint.node == node:
                del self._hints[place]  # the metadata counts again

    def _epoch_of(self, place: TopicPartition) -> int:
        try:
            epochs: Sequence[int] = self._metadata.topic(place.topic).leader_epochs
        except LogStoreError:
            return -1
        return epochs[place.partition] if place.partition < len(epochs) else -1

    def refresh(self) -> None:
        """Ask for the metadata, unless that was done a moment ago. What cannot be asked stays as it is.

        Each time another broker: one that is cut off from the others answers, and knows nothing of what they do."""
        if not self._refreshing.acquire(blocking=False):
            return  # another thread does
        try:
            if time.monotonic() - self._refreshed_s >= _REFRESH_S:
                self._brokers.move_home(self._brokers.home(), away=False)
                self._metadata.refresh_now()
                self._refreshed_s = time.monotonic()
        finally:
            self._refreshing.release()

    def is_deposed(self, node: int, places: Iterable[TopicPartition]) -> bool:
        """Whether the node leads none of the partitions any more, as far as is known, and others lead some: it may
        hang, or be cut off. One that leads some says itself which it does not, and its answer counts for the others."""
        leaders = {self.of(*place) for place in places}
        return node not in leaders and bool(leaders - {NOBODY, ANYBODY})
