"""What coordinators are made of: decide purely, then change only by replaying what the log holds.

A state machine has two halves that never mix:

- ``decide_*`` methods look at the state, the request and the time, and return a ``Decision``: the records to
  append to the machine's log, and the reply to give *once those records are as durable as the caller asked*.
  They change nothing, and they raise the named error when the request must be refused.
- ``replay`` takes one record of the log and changes the state. It is the only thing that does.

Why: the state is then a function of the log alone. Embedded, the store appends a decision's records to the
internal topic under that topic's lock and replays what it wrote; a second process catches up by replaying
from its last end. On a replicated broker the very same objects run behind a Raft log: the leader decides,
the records are replicated, and every replica replays them when they are committed; a decision whose records
were lost with a leader has changed nothing anywhere. The pattern is Kafka's coordinator runtime
(``CoordinatorResult`` in KIP-848), where coordinators return records and a reply and change on replay.

Time and randomness are arguments, never read here, so that a replay tomorrow gives today's state.

A decision may belong to a producer's transaction: its records are in the log, and are nothing but pending until
that producer's marker is, too. What a key's value is follows the order of the records, not that of the markers:
compaction keeps the record of the highest offset. So once a record of a key counts, all older pending ones of
that key are over, whoever wrote them, and the marker that commits one of them must not bring it back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, Protocol, TypeAlias, TypeVar, runtime_checkable

Change: TypeAlias = tuple[bytes, bytes | None]  # key and value of one record; a null value deletes the key

Reply = TypeVar("Reply")


class TransactionalWriter(NamedTuple):
    """The producer in whose transaction records are written."""

    producer_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Decision(Generic[Reply]):
    """What a machine decided. ``records`` go into its log in this order, all or none, in one batch.

    No records: nothing is to be changed, and ``reply`` may be given at once. ``producer``: the records are
    pending until that producer's marker, which comes later and from elsewhere.
    """

    records: tuple[Change, ...]
    reply: Reply
    producer: TransactionalWriter | None = field(default=None, kw_only=True)


class StateMachine(Protocol):
    """State that follows a log of key and value records. Not thread-safe: its owner serialises calls."""

    def replay(self, key: bytes | None, value: bytes | None) -> None:
        """Apply one record, in log order. Replaying a record again right away changes nothing more.

        Raises a named error when the record cannot be understood and skipping it would be a silent lie;
        kinds of records that other versions may have written are ignored, and counted.
        """
        ...

    def replay_pending(self, producer_id: int, epoch: int, key: bytes | None, value: bytes | None) -> None:
        """Take note of a record in a transaction that is not decided yet. InvalidRecordError from a machine
        whose log has no transactions."""
        ...

    def replay_marker(self, producer_id: int, epoch: int, committed: bool) -> None:
        """The producer's transaction has ended: what is pending of it counts, or never was. The epoch may be
        newer than that of the records. A marker may come twice, and may end nothing. InvalidRecordError as
        ``replay_pending``."""
        ...


@runtime_checkable
class ReplaysMany(Protocol):
    """A machine that takes a run of records faster together than one by one."""

    def replay_many(self, changes: Sequence[tuple[bytes | None, bytes | None]]) -> None:
        """As ``replay`` for each of them in turn, in effect."""
        ...
