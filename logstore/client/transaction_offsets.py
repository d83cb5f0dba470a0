"""A consumer's part in a transaction: the positions that go into it, and the way back when it is aborted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from logstore.errors import InvalidArgumentError
from logstore.types import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from logstore.client.consumer import Consumer


def commit_points(
    consumer: Consumer[Any, Any],
) -> tuple[str, tuple[str, int] | None, dict[TopicPartition, OffsetAndMetadata]]:
    """(group, (member id, epoch), the next offset to read of each partition, as handed out so far)."""
    consumer._enter()
    group = consumer._need_group("send_offsets()")
    points: dict[TopicPartition, OffsetAndMetadata] = {}
    for where, state in consumer._assignment.states.items():
        point = consumer._point(state)
        if state.committed != (point.offset, point.leader_epoch):
            points[where] = point
    return group, None, points


def note_committed(consumer: Consumer[Any, Any], points: dict[TopicPartition, OffsetAndMetadata]) -> None:
    """The transaction counts: positions that do not move need not be sent with the next one."""
    for where, point in points.items():
        state = consumer._assignment.states.get(where)
        if state is not None:
            state.committed = (point.offset, point.leader_epoch)


def rewind(consumer: Consumer[Any, Any]) -> None:
    """Every position goes back to the committed one, or to where ``start`` says if there is none."""
    consumer._enter()
    consumer._settle()
    group = consumer._need_group("rewind")
    states = consumer._assignment.states
    committed = consumer._backend.committed_offsets(group)
    fresh = [where for where in states if where not in committed]
    starts = consumer._assignment._start_positions(fresh)
    for where, state in states.items():
        point = committed.get(where)
        if point is None:
            state.seek(starts[where])
        else:
            state.seek(point.offset, point.leader_epoch)


def check_rewind(consumer: Consumer[Any, Any]) -> None:
    if consumer._group is None:
        raise InvalidArgumentError(
            "rewind to a consumer without a group: it has no committed positions", hint="pass group=NAME"
        )
