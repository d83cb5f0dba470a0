"""A consumer's part in a transaction: the positions that go into it, and the way back when it is aborted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from logstore.api.backend import Backend, MemberIdentity
from logstore.arguments import shown
from logstore.errors import InvalidArgumentError
from logstore.types import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from logstore.client.consumer.consumer import Consumer


def commit_points(
    consumer: Consumer[Any, Any], backend: Backend
) -> tuple[str, MemberIdentity | None, dict[TopicPartition, OffsetAndMetadata]]:
    """(group, who commits in it, the next offset to read of each partition, as handed out so far). ``backend``: the
    producer's."""
    _check_consumer(consumer, "send_offsets()", backend)
    group, member_id, epoch = consumer.group_metadata()
    member = None if member_id is None else MemberIdentity(member_id, epoch)
    return group, member, consumer._commits.to_send(consumer._point)


def note_committed(consumer: Consumer[Any, Any], points: dict[TopicPartition, OffsetAndMetadata]) -> None:
    """The transaction counts: positions that do not move need not be sent with the next one."""
    for where, point in points.items():
        state = consumer._assignment.states.get(where)
        if state is not None:
            state.committed = (point.offset, point.leader_epoch)


def rewind(consumer: Consumer[Any, Any]) -> None:
    """Every position goes back to the committed one, or to where this consumer began if there is none."""
    group = consumer.group_metadata().group
    consumer._settle()
    consumer._commits.forget_gone()
    committed = consumer._backend.committed_offsets(group)
    for where, state in consumer._assignment.states.items():
        point = committed.get(where)
        if point is None:
            state.seek(state.started_at)
        else:
            state.seek(point.offset, point.leader_epoch)


def check_rewind(consumer: Consumer[Any, Any], backend: Backend) -> None:
    _check_consumer(consumer, "rewind", backend)
    if consumer._group is None:
        raise InvalidArgumentError(
            "rewind to a consumer without a group: it has no committed positions", hint="pass group=NAME"
        )


def _check_consumer(consumer: object, call: str, backend: Backend) -> None:
    """InvalidArgumentError unless it is a consumer of the store that the transaction is in."""
    theirs = getattr(consumer, "_backend", None)
    if theirs is None or not hasattr(consumer, "group_metadata"):
        raise InvalidArgumentError(
            f"{call} of {shown(consumer)}: it is no consumer",
            hint="pass what store.consumer(..., group=NAME) gave",
        )
    if theirs is not backend:
        raise InvalidArgumentError(
            f"{call} of a consumer of another store: a transaction is of one store alone",
            hint="make producer and consumer from the same store object; across two, commit offsets after the "
            "transaction, and expect records twice",
        )
