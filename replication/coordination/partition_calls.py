"""Calls between nodes about partitions: a leader is asked to write markers, and for producers and ends.

They carry JSON, many partitions in one call; each has its own answer or error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from logstore.coordination.transactional_offsets import OFFSETS_TOPIC
from logstore.directory.catalogue import Catalogue
from logstore.errors import LogStoreError
from logstore.format.json_document import items, table, text, truth, whole
from logstore.log.log_offsets import LogOffsets
from logstore.log.producers.producer_state import Marker, ProducerEntry, RememberedBatch
from logstore.partition.open_transactions import OpenTransaction, first_open
from logstore.partition.partition import Partition, PendingAppend, wait_all
from logstore.partition.partition_log import description_of
from logstore.types import PartitionDescription, TopicPartition
from replication.coordination.call_json import WHERE, error_of, fields_of, place_of, places_of, to_bytes, told
from replication.errors import LeaderNotReadyError
from replication.partition import ReplicatedPartition
from replication.raft.types import NodeId
from replication.transport import PeerNetwork

MARKERS: Final = "partition.markers"
PRODUCERS: Final = "partition.producers"
ENDS: Final = "partition.ends"
KEYED: Final = "partition.keyed"
OPEN: Final = "partition.open"
DESCRIBE: Final = "partition.describe"
_CONFIRM_S: Final = 1.0
"""How long a leader that is asked waits for a majority's word."""
_DESCRIBED: Final = (*LogOffsets._fields, "segments", "size_bytes")

Ends: TypeAlias = LogOffsets | LogStoreError


class MarkerRequest(NamedTuple):
    """``topic_id``: of the topic that is meant, which may have been deleted and made anew meanwhile."""

    place: TopicPartition
    topic_id: str
    marker: Marker
    once: bool
    open_since: int = -1


class PartitionCalls:
    """Thread-safe. ``catalogue``: as this node knows it now; ``partition``: one of those in it, as this node has it;
    ``is_keyed``: whether the first record of a partition that this node leads has a key; ``mark_offsets``: writes the
    marker of a partition where groups' offsets lie, through its coordinator."""

    def __init__(
        self,
        network: PeerNetwork,
        catalogue: Callable[[], Catalogue],
        partition: Callable[[str, int], Partition],
        is_keyed: Callable[[str, int], bool],
        mark_offsets: Callable[[MarkerRequest], None],
    ) -> None:
        self._network = network
        self._catalogue = catalogue
        self._partition = partition
        self._is_keyed = is_keyed
        self._mark_offsets = mark_offsets

    def serve(self) -> None:
        """Answer other nodes. Before the network is started."""
        for operation, answer in (
            (MARKERS, self._answer_markers),
            (PRODUCERS, self._answer_producers),
            (ENDS, self._answer_ends),
            (KEYED, self._answer_keyed),
            (OPEN, self._answer_open),
            (DESCRIBE, self._answer_describe),
        ):
            self._network.serve(
                operation,
                lambda _, request, answer=answer: to_bytes(answer(fields_of(request))),  # type: ignore[misc]
            )

    # --- markers ---

    def mark(
        self, node: NodeId, requests: Sequence[MarkerRequest], timeout_s: float
    ) -> list[LogStoreError | None]:
        """For each why it is not committed, None: it is. PeerUnavailableError: nothing is known."""
        rows = [
            {
                "topic": one.place.topic,
                "partition": one.place.partition,
                "topic_id": one.topic_id,
                "once": one.once,
                "open_since": one.open_since,
                **one.marker._asdict(),
            }
            for one in requests
        ]
        answer = self._network.call(node, MARKERS, to_bytes({"markers": rows}), timeout_s)
        errors = items(fields_of(answer).get("errors"), "errors", WHERE, len(requests))
        return [None if error is None else error_of(error) for error in errors]

    def _answer_markers(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        rows = items(fields.get("markers"), "markers", WHERE)
        return {"errors": [told(error) for error in self.mark_here([_marker_request(row) for row in rows])]}

    def mark_here(self, requests: Sequence[MarkerRequest]) -> list[LogStoreError | None]:
        """As ``mark``, of partitions that this node is to lead."""
        begun = {
            number: self._begin(one)
            for number, one in enumerate(requests)
            if one.place.topic != OFFSETS_TOPIC
        }
        errors = [self._end_offsets(one) if one.place.topic == OFFSETS_TOPIC else None for one in requests]
        wait_all([one for one in begun.values() if not isinstance(one, LogStoreError)])
        for number, one in begun.items():
            errors[number] = one if isinstance(one, LogStoreError) else one.error
        return errors

    def _end_offsets(self, request: MarkerRequest) -> LogStoreError | None:
        try:
            self._check_known(request.place.topic, request.topic_id)
            self._mark_offsets(request)
        except LogStoreError as error:
            return error
        return None

    def _begin(self, request: MarkerRequest) -> PendingAppend | LogStoreError:
        topic, partition = request.place
        try:
            self._check_known(topic, request.topic_id)
            return self._partition(topic, partition).append_marker(
                request.marker, once=request.once, open_since=request.open_since, wait=False
            )
        except LogStoreError as error:
            return error

    def _check_known(self, topic: str, topic_id: str) -> None:
        """Who asks has the newest catalogue: this node is about to have it, too."""
        entry = self._catalogue().topics.get(topic)
        if entry is None or entry.topic_id != topic_id:
            raise LeaderNotReadyError(f"this node does not know topic {topic!r} ({topic_id}) yet")

    # --- producers ---

    def producers(
        self, node: NodeId, place: TopicPartition, ids: Sequence[int], timeout_s: float
    ) -> dict[int, ProducerEntry]:
        """See ``PartitionWriter.producer_entries``; of each its newest batch alone."""
        request = {"topic": place.topic, "partition": place.partition, "ids": list(ids)}
        answer = self._network.call(node, PRODUCERS, to_bytes(request), timeout_s)
        rows = items(fields_of(answer).get("producers"), "producers", WHERE)
        entries = [_entry(items(row, "a producer", WHERE, 5)) for row in rows]
        return {entry.producer_id: entry for entry in entries}

    def _answer_producers(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        ids = [whole(one, "an id", WHERE) for one in items(fields.get("ids"), "ids", WHERE)]
        found = self.producers_here(place_of(fields), ids)
        return {
            "producers": [
                [key, one.epoch, one.coordinator_epoch, one.transaction_start, one.last_sequence]
                for key, one in found.items()
            ]
        }

    def producers_here(self, place: TopicPartition, ids: Sequence[int]) -> dict[int, ProducerEntry]:
        return self._confirmed(place).producer_entries(ids)

    def _confirmed(self, place: TopicPartition) -> Partition:
        """A partition that this node is to lead, once a majority has confirmed that it does: a leader that was deposed
        and has not heard of it lacks what was acknowledged since."""
        partition = self._partition(*place)
        if isinstance(partition, ReplicatedPartition):
            partition.confirm_leader(_CONFIRM_S)
        return partition

    # --- ends ---

    def ends(
        self, node: NodeId, places: Sequence[TopicPartition], timeout_s: float, *, confirmed: bool = False
    ) -> list[Ends]:
        """What readers may see of each; ``confirmed``: by a leader that a majority has confirmed since it was asked.
        PeerUnavailableError."""
        request = {"places": [list(one) for one in places], "confirmed": confirmed}
        answer = self._network.call(node, ENDS, to_bytes(request), timeout_s)
        rows = items(fields_of(answer).get("ends"), "ends", WHERE, len(places))
        return [
            error_of(row)
            if isinstance(row, dict)
            else LogOffsets(*(whole(one, "an offset", WHERE, -1) for one in items(row, "ends", WHERE, 5)))
            for row in rows
        ]

    def _answer_ends(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        places = places_of(items(fields.get("places"), "places", WHERE))
        confirmed = truth(fields.get("confirmed", False), "confirmed", WHERE)
        found = self.ends_here(places, confirmed=confirmed)
        return {"ends": [told(one) if isinstance(one, LogStoreError) else list(one) for one in found]}

    def ends_here(self, places: Sequence[TopicPartition], *, confirmed: bool = False) -> list[Ends]:
        """As ``ends``, of partitions that this node is to lead."""
        found: list[Ends] = []
        for place in places:
            try:
                partition = self._confirmed(place) if confirmed else self._partition(*place)
                found.append(partition.reader().bounds())
            except LogStoreError as error:
                found.append(error)
        return found

    def describe(self, node: NodeId, place: TopicPartition, timeout_s: float) -> PartitionDescription:
        """The partition as its leader has it. PeerUnavailableError; NotLeaderError."""
        answer = self._network.call(node, DESCRIBE, to_bytes(place._asdict()), timeout_s)
        fields = fields_of(answer)
        numbers = [whole(fields.get(name), name, WHERE, -1) for name in _DESCRIBED]
        *offsets, segments, size_bytes = numbers
        bounds = LogOffsets(*offsets)._asdict()
        return PartitionDescription(
            partition=place.partition, **bounds, segments=segments, size_bytes=size_bytes
        )

    def _answer_describe(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        place = place_of(fields)
        found = description_of(self._partition(*place).reader(), place.partition)
        return {name: getattr(found, name) for name in _DESCRIBED}

    # --- keys ---

    def is_keyed(self, node: NodeId, place: TopicPartition, timeout_s: float) -> bool:
        """Whether the partition's first record has a key."""
        answer = self._network.call(node, KEYED, to_bytes(place._asdict()), timeout_s)
        return truth(fields_of(answer).get("keyed"), "keyed", WHERE)

    def _answer_keyed(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        return {"keyed": self.keyed_here(place_of(fields))}

    def keyed_here(self, place: TopicPartition) -> bool:
        self._confirmed(place)
        return self._is_keyed(*place)

    # --- open transactions ---

    def first_open(self, node: NodeId, place: TopicPartition, timeout_s: float) -> OpenTransaction | None:
        """The first transaction that the partition holds open."""
        answer = self._network.call(node, OPEN, to_bytes(place._asdict()), timeout_s)
        found = fields_of(answer).get("open")
        if found is None:
            return None
        return OpenTransaction(*(whole(one, "a number", WHERE, -1) for one in items(found, "open", WHERE, 3)))

    def _answer_open(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        return {"open": self.open_here(place_of(fields))}

    def open_here(self, place: TopicPartition) -> OpenTransaction | None:
        return first_open(self._confirmed(place).reader())


def _marker_request(row: object) -> MarkerRequest:
    fields = table(row, "a marker", WHERE)

    def number(name: str) -> int:
        return whole(fields.get(name), name, WHERE, -1)

    marker = Marker(
        number("producer_id"),
        number("epoch"),
        number("coordinator_epoch"),
        truth(fields.get("committed"), "committed", WHERE),
        number("timestamp_ms"),
    )
    topic_id = text(fields.get("topic_id"), "topic_id", WHERE)
    once = truth(fields.get("once"), "once", WHERE)
    return MarkerRequest(place_of(fields), topic_id, marker, once, number("open_since"))


def _entry(row: Sequence[object]) -> ProducerEntry:
    producer_id, epoch, coordinator_epoch, start, last = (whole(one, "a number", WHERE, -1) for one in row)
    batches = [] if last < 0 else [RememberedBatch(last, last, -1, -1, -1)]
    return ProducerEntry(producer_id, epoch, batches, coordinator_epoch, start)
