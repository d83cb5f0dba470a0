"""``with consumer.committing(records):`` commits what the block has worked through, or goes back to its start."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from logstore.client.consumer.fetch_state import FetchState
from logstore.errors import InvalidArgumentError
from logstore.types import OffsetAndMetadata, Record, TopicPartition


class Span:
    """The records of one partition in a block: the first offset, and where to go on behind the last."""

    __slots__ = ("behind", "first")

    def __init__(self, first: int) -> None:
        self.first = first
        self.behind = first + 1


def spans(records: Iterable[Record[Any, Any]]) -> dict[TopicPartition, Span]:
    """By partition. InvalidArgumentError for what is no record."""
    if not isinstance(records, Iterable):
        raise InvalidArgumentError(
            f"committing({type(records).__name__}) is not about records", hint="pass what poll() gave"
        )
    found: dict[TopicPartition, Span] = {}
    for record in records:
        if not isinstance(record, Record):
            raise InvalidArgumentError(
                f"committing({type(record).__name__}) is not about records", hint="pass what poll() gave"
            )
        where = TopicPartition(record.topic, record.partition)
        span = found.get(where)
        if span is None:
            found[where] = Span(record.offset)
        else:
            span.first = min(span.first, record.offset)
            span.behind = max(span.behind, record.offset + 1)
    return found


def points(
    found: dict[TopicPartition, Span], states: dict[TopicPartition, FetchState]
) -> dict[TopicPartition, int | OffsetAndMetadata]:
    """What to commit: behind the last record of each partition, or further, where only gaps follow it."""
    committed: dict[TopicPartition, int | OffsetAndMetadata] = {}
    for where, span in found.items():
        state = states.get(where)
        if state is not None and state.behind == span.behind:
            committed[where] = state.commit_point()
        else:
            committed[where] = OffsetAndMetadata(span.behind, -1 if state is None else state.epoch)
    return committed


@contextmanager
def going_back(found: dict[TopicPartition, Span], states: dict[TopicPartition, FetchState]) -> Iterator[None]:
    """On an error every partition's position goes back to the first record of the block, then it is raised."""
    try:
        yield
    except BaseException:
        for where, span in found.items():
            state = states.get(where)
            if state is not None:
                state.seek(span.first)
        raise
