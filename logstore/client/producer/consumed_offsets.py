"""A consumer in a transaction, as the producer sees it, and whether it may take part."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from logstore.api.backend import Backend
from logstore.api.groups import MemberIdentity
from logstore.arguments import shown
from logstore.errors import InvalidArgumentError
from logstore.types import OffsetAndMetadata, TopicPartition


class ConsumedOffsets(Protocol):
    """Positions of a consumer: those that go into a transaction, and the way back when it is aborted."""

    @property
    def backend(self) -> Backend: ...
    @property
    def group(self) -> str | None: ...
    def points(self) -> tuple[str, MemberIdentity | None, Mapping[TopicPartition, OffsetAndMetadata]]:
        """(group, the member that commits in it, the next offset to read of each partition, as handed out so
        far). InvalidArgumentError without a group."""
        ...

    def note_committed(self, points: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """The transaction counts: positions that do not move need not be sent with the next one."""
        ...

    def rewind(self) -> None:
        """Every position goes back to the committed one, or to where the consumer began if there is none."""
        ...


class OffsetSource(Protocol):
    """A consumer whose offsets may be sent in a transaction: what ``store.consumer(..., group=NAME)`` gives."""

    @property
    def consumed_offsets(self) -> ConsumedOffsets: ...


def offsets_of(consumer: OffsetSource, call: str, backend: Backend) -> ConsumedOffsets:
    """InvalidArgumentError unless it is a consumer of the store that the transaction is in."""
    offsets: ConsumedOffsets | None = getattr(consumer, "consumed_offsets", None)
    if offsets is None:
        raise InvalidArgumentError(
            f"{call} of {shown(consumer)}: it is no consumer",
            hint="pass what store.consumer(..., group=NAME) gave",
        )
    if offsets.backend is not backend:
        raise InvalidArgumentError(
            f"{call} of a consumer of another store: a transaction is of one store alone",
            hint="make producer and consumer from the same store object; across two, commit offsets after the "
            "transaction, and expect records twice",
        )
    return offsets


def rewindable(consumer: OffsetSource, backend: Backend) -> ConsumedOffsets:
    """The offsets of a consumer that can go back to committed positions."""
    offsets = offsets_of(consumer, "rewind", backend)
    if offsets.group is None:
        raise InvalidArgumentError(
            "rewind to a consumer without a group: it has no committed positions", hint="pass group=NAME"
        )
    return offsets
