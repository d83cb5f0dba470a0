"""Calls between nodes about groups and transactions: what coordinators have, and offsets committed in transactions.

They carry JSON. What is asked of several coordinators of a node has an answer, or an error, for each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol, TypeVar

from logstore.api.groups import GroupSummary, MemberDescription, MemberIdentity
from logstore.api.transactions import TransactionSummary
from logstore.coordination.transactional_offsets import PendingCommit
from logstore.embedded.hanging_transactions import ProducerOwner
from logstore.errors import LogStoreError
from logstore.format.json_document import items, table, text, truth, whole
from logstore.groups.offset_values import SeenEnds
from logstore.machine import TransactionalWriter
from logstore.types import OffsetAndMetadata, TopicPartition
from replication.coordination.call_json import WHERE, error_of, fields_of, places_of, to_bytes, told
from replication.raft.types import NodeId
from replication.transport import PeerNetwork

GROUPS: Final = "coordinator.groups"
TRANSACTIONS: Final = "coordinator.transactions"
OWNERS: Final = "coordinator.owners"
OFFSETS: Final = "coordinator.offsets"
FORGET: Final = "coordinator.forget"

_LEAST: Final = -(2**63)
Answer = TypeVar("Answer")
Offsets = Mapping[TopicPartition, OffsetAndMetadata]


class Coordinating(Protocol):
    """What runs the coordinators of this node. Each says ``NotLeaderError`` where another node runs it."""

    def groups_of(self, number: int) -> list[GroupSummary]: ...

    def forget_topic_of(self, number: int, topic: str) -> None: ...

    def transactions_of(self, number: int) -> list[TransactionSummary]: ...

    def owners_of(self, number: int, producer_ids: Sequence[int]) -> dict[int, ProducerOwner]: ...

    def commit_pending(self, commit: PendingCommit) -> None: ...


class CoordinatorCalls:
    """Thread-safe. ``serve`` before the network is started."""

    def __init__(self, network: PeerNetwork) -> None:
        self._network = network

    def serve(self, coordinating: Callable[[], Coordinating]) -> None:
        """Answer other nodes."""

        def each(take: Callable[[int, Mapping[str, Any]], Any]) -> Callable[[NodeId, bytes], bytes]:
            def answer(node: NodeId, request: bytes) -> bytes:
                del node
                fields = fields_of(request)
                numbers = [
                    whole(one, "a number", WHERE) for one in items(fields["numbers"], "numbers", WHERE)
                ]
                return to_bytes({"answers": [_answered(take, number, fields) for number in numbers]})

            return answer

        def groups(number: int, fields: Mapping[str, Any]) -> object:
            del fields
            return [_group_row(one) for one in coordinating().groups_of(number)]

        def transactions(number: int, fields: Mapping[str, Any]) -> object:
            del fields
            return [transaction_row(one) for one in coordinating().transactions_of(number)]

        def owners(number: int, fields: Mapping[str, Any]) -> object:
            ids = [whole(one, "an id", WHERE) for one in items(fields.get("ids"), "ids", WHERE)]
            found = coordinating().owners_of(number, ids)
            return [[key, one.transactional_id, sorted(one.places)] for key, one in found.items()]

        def forget(number: int, fields: Mapping[str, Any]) -> object:
            coordinating().forget_topic_of(number, text(fields.get("topic"), "topic", WHERE))
            return []

        self._network.serve(GROUPS, each(groups))
        self._network.serve(FORGET, each(forget))
        self._network.serve(TRANSACTIONS, each(transactions))
        self._network.serve(OWNERS, each(owners))
        self._network.serve(OFFSETS, lambda _, request: _take_offsets(coordinating(), fields_of(request)))

    # --- asked of another node ---

    def groups(
        self, node: NodeId, numbers: Sequence[int], timeout_s: float
    ) -> list[list[GroupSummary] | LogStoreError]:
        return self._each(node, GROUPS, numbers, {}, timeout_s, lambda rows: [_group(row) for row in rows])

    def forget_topic(
        self, node: NodeId, numbers: Sequence[int], topic: str, timeout_s: float
    ) -> list[LogStoreError | None]:
        """See ``EmbeddedGroups.forget_topic``."""
        return self._each(node, FORGET, numbers, {"topic": topic}, timeout_s, lambda _: None)

    def transactions(
        self, node: NodeId, numbers: Sequence[int], timeout_s: float
    ) -> list[list[TransactionSummary] | LogStoreError]:
        return self._each(
            node, TRANSACTIONS, numbers, {}, timeout_s, lambda rows: [transaction_of(row) for row in rows]
        )

    def owners(
        self, node: NodeId, numbers: Sequence[int], producer_ids: Sequence[int], timeout_s: float
    ) -> list[dict[int, ProducerOwner] | LogStoreError]:
        extra = {"ids": list(producer_ids)}
        return self._each(node, OWNERS, numbers, extra, timeout_s, lambda rows: dict(map(_owner, rows)))

    def _each(
        self,
        node: NodeId,
        operation: str,
        numbers: Sequence[int],
        extra: Mapping[str, Any],
        timeout_s: float,
        take: Callable[[list[Any]], Answer],
    ) -> list[Answer | LogStoreError]:
        request = to_bytes({"numbers": list(numbers), **extra})
        answer = fields_of(self._network.call(node, operation, request, timeout_s))
        return [
            error_of(row) if isinstance(row, dict) else take(items(row, "an answer", WHERE))
            for row in items(answer.get("answers"), "answers", WHERE, len(numbers))
        ]

    def commit_pending(self, node: NodeId, commit: PendingCommit, timeout_s: float) -> None:
        """See ``GroupManager.commit_pending``."""
        request = {
            "group": commit.group,
            "offsets": _offset_rows(commit.offsets),
            "writer": list(commit.writer),
            "member": None if commit.member is None else list(commit.member),
            "ends": [[*place, end] for place, end in commit.seen.ends.items()],
            "topic_ids": commit.seen.topic_ids,
        }
        self._network.call(node, OFFSETS, to_bytes(request), timeout_s)


def _answered(
    take: Callable[[int, Mapping[str, Any]], Any], number: int, fields: Mapping[str, Any]
) -> object:
    try:
        return take(number, fields)
    except LogStoreError as error:
        return told(error)


def _take_offsets(coordinating: Coordinating, fields: Mapping[str, Any]) -> bytes:
    producer_id, epoch = (
        whole(one, "a number", WHERE) for one in items(fields.get("writer"), "writer", WHERE, 2)
    )
    member, found = None, fields.get("member")
    if found is not None:
        member_id, generation = items(found, "member", WHERE, 2)
        member = MemberIdentity(text(member_id, "member", WHERE), whole(generation, "generation", WHERE))
    commit = PendingCommit(
        text(fields.get("group"), "group", WHERE),
        _offsets(items(fields.get("offsets"), "offsets", WHERE)),
        TransactionalWriter(producer_id, epoch),
        member,
        _seen(fields),
    )
    coordinating.commit_pending(commit)
    return to_bytes({})


# --- rows ---


def _offset_rows(offsets: Offsets) -> list[Any]:
    return [[*place, *position] for place, position in offsets.items()]


def _offsets(rows: Sequence[Any]) -> dict[TopicPartition, OffsetAndMetadata]:
    """Kinds alone: whether the numbers make sense is the coordinator's to say."""
    found = {}
    for row in rows:
        topic, partition, offset, epoch, metadata = items(row, "an offset", WHERE, 5)
        place = TopicPartition(text(topic, "a topic", WHERE), whole(partition, "a partition", WHERE, _LEAST))
        found[place] = OffsetAndMetadata(
            whole(offset, "an offset", WHERE, _LEAST),
            whole(epoch, "an epoch", WHERE, _LEAST),
            text(metadata, "metadata", WHERE),
        )
    return found


def _seen(fields: Mapping[str, Any]) -> SeenEnds:
    rows = [items(row, "an end", WHERE, 3) for row in items(fields.get("ends"), "ends", WHERE)]
    places = places_of([row[:2] for row in rows])
    ends = [whole(row[2], "an end", WHERE, -1) for row in rows]
    ids = table(fields.get("topic_ids"), "topic_ids", WHERE)
    return SeenEnds(
        dict(zip(places, ends, strict=True)), {name: text(one, "an id", WHERE) for name, one in ids.items()}
    )


def _group_row(one: GroupSummary) -> dict[str, Any]:
    members = [member._asdict() for member in one.members]
    return {**one._asdict(), "members": members, "offsets": _offset_rows(one.offsets)}


def _group(row: object) -> GroupSummary:
    fields = table(row, "a group", WHERE)
    return GroupSummary(
        text(fields.get("group"), "group", WHERE),
        fields["state"],
        tuple(_member(one) for one in items(fields.get("members"), "members", WHERE)),
        _offsets(items(fields.get("offsets"), "offsets", WHERE)),
        text(fields.get("assignor"), "assignor", WHERE),
        whole(fields.get("epoch"), "epoch", WHERE),
    )


def _member(row: object) -> MemberDescription:
    fields = table(row, "a member", WHERE)

    def places(name: str) -> tuple[TopicPartition, ...]:
        return tuple(places_of(items(fields.get(name), name, WHERE)))

    return MemberDescription(
        text(fields.get("member_id"), "member_id", WHERE),
        _maybe(fields.get("instance_id")),
        text(fields.get("client"), "client", WHERE),
        tuple(text(one, "a topic", WHERE) for one in items(fields.get("topics"), "topics", WHERE)),
        _maybe(fields.get("pattern")),
        whole(fields.get("epoch"), "epoch", WHERE),
        places("assigned"),
        places("revoking"),
        places("target"),
        whole(fields.get("session_timeout_ms"), "session_timeout_ms", WHERE),
        truth(fields.get("left"), "left", WHERE),
    )


def transaction_row(one: TransactionSummary) -> list[Any]:
    *rest, places, holder, coordinator = one
    return [*rest, [list(place) for place in places], holder, coordinator]


def transaction_of(row: object) -> TransactionSummary:
    name, state, *numbers, places, holder, coordinator = items(row, "a transaction", WHERE, 9)
    producer_id, epoch, timeout_ms, started_ms = (whole(one, "a number", WHERE, -1) for one in numbers)
    return TransactionSummary(
        text(name, "an id", WHERE),
        text(state, "a state", WHERE),
        producer_id,
        epoch,
        timeout_ms,
        started_ms,
        tuple(places_of(items(places, "places", WHERE))),
        _maybe(holder),
        _maybe(coordinator),
    )


def _owner(row: object) -> tuple[int, ProducerOwner]:
    producer_id, name, places = items(row, "an owner", WHERE, 3)
    found = frozenset(places_of(items(places, "places", WHERE)))
    return whole(producer_id, "a producer id", WHERE), ProducerOwner(text(name, "an id", WHERE), found)


def _maybe(value: object) -> str | None:
    return None if value is None else text(value, "a text", WHERE)
