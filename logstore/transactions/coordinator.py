"""The transaction coordinator: stand-in until the whole one is merged."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import NamedTuple

from logstore.errors import InvalidRecordError, ProducerFencedError, TransactionStateError
from logstore.machine import Decision
from logstore.types import TopicPartition

LAST_EPOCH = 32_765


class State(IntEnum):
    Empty = 0
    Ongoing = 1
    PrepareCommit = 2
    PrepareAbort = 3
    CompleteCommit = 4
    CompleteAbort = 5
    Dead = 6


class EndedTransaction(NamedTuple):
    transactional_id: str
    producer_id: int
    marker_epoch: int
    commit: bool
    places: tuple[TopicPartition, ...]


class InitReply(NamedTuple):
    producer_id: int
    epoch: int
    pending: EndedTransaction | None


@dataclass(frozen=True)
class TransactionState:
    transactional_id: str
    producer_id: int
    epoch: int
    timeout_ms: int
    state: State
    places: frozenset[TopicPartition]
    started_ms: int

    @property
    def ended(self) -> EndedTransaction | None:
        if self.state not in (State.PrepareCommit, State.PrepareAbort):
            return None
        commit = self.state is State.PrepareCommit
        return EndedTransaction(
            self.transactional_id, self.producer_id, self.epoch, commit, tuple(sorted(self.places))
        )

    @property
    def is_open(self) -> bool:
        return self.state is State.Ongoing

    def is_overdue(self, now_ms: int) -> bool:
        return self.is_open and now_ms >= self.started_ms + self.timeout_ms

    def aborted_from(self, producer_id: int, epoch: int) -> bool:
        return (
            self.producer_id == producer_id
            and self.epoch == epoch + 1
            and self.state in (State.PrepareAbort, State.CompleteAbort)
        )


class TransactionCoordinator:
    def __init__(self) -> None:
        self._states: dict[str, TransactionState] = {}

    def _put(self, state: TransactionState, reply):  # type: ignore[no-untyped-def]
        value = json.dumps(
            [
                state.producer_id,
                state.epoch,
                state.timeout_ms,
                int(state.state),
                sorted(state.places),
                state.started_ms,
            ]
        )
        return Decision(((state.transactional_id.encode(), value.encode()),), reply)

    def decide_init(
        self, transactional_id: str, timeout_ms: int, fresh_id: int, now_ms: int
    ) -> Decision[InitReply]:
        found = self._states.get(transactional_id)
        if found is None:
            made = TransactionState(transactional_id, fresh_id, 0, timeout_ms, State.Empty, frozenset(), -1)
            return self._put(made, InitReply(fresh_id, 0, None))
        if found.ended is not None:
            return Decision((), InitReply(found.producer_id, found.epoch, found.ended))
        if found.is_open:
            made = replace(found, state=State.PrepareAbort, epoch=found.epoch + 1)
            return self._put(made, InitReply(made.producer_id, made.epoch, made.ended))
        if found.epoch >= LAST_EPOCH:
            made = replace(
                found, producer_id=fresh_id, epoch=0, state=State.Empty, timeout_ms=timeout_ms, started_ms=-1
            )
        else:
            made = replace(
                found, epoch=found.epoch + 1, state=State.Empty, timeout_ms=timeout_ms, started_ms=-1
            )
        return self._put(made, InitReply(made.producer_id, made.epoch, None))

    def _check(self, transactional_id: str, producer_id: int, epoch: int) -> TransactionState:
        found = self._states[transactional_id]
        if (found.producer_id, found.epoch) != (producer_id, epoch):
            raise ProducerFencedError(
                f"{transactional_id} {found.producer_id} {found.epoch}, not {producer_id} {epoch}"
            )
        return found

    def decide_add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        places: Collection[TopicPartition],
        now_ms: int,
    ) -> Decision[None]:
        found = self._check(transactional_id, producer_id, epoch)
        if found.ended is not None:
            raise TransactionStateError("ended")
        kept = found.places if found.is_open else frozenset()
        started = found.started_ms if found.is_open else now_ms
        made = replace(found, state=State.Ongoing, places=kept | set(places), started_ms=started)
        return self._put(made, None)

    def decide_end(
        self, transactional_id: str, producer_id: int, epoch: int, *, commit: bool, now_ms: int
    ) -> Decision[EndedTransaction]:
        found = self._states[transactional_id]
        if found.producer_id == producer_id and found.epoch == epoch + 1 and found.ended is not None:
            if found.ended.commit != commit:
                raise TransactionStateError("the other was decided")
            return Decision((), found.ended)
        found = self._check(transactional_id, producer_id, epoch)
        if not found.is_open:
            raise TransactionStateError("not open")
        made = replace(
            found, state=State.PrepareCommit if commit else State.PrepareAbort, epoch=found.epoch + 1
        )
        return self._put(made, made.ended)

    def decide_marked(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        places: Collection[TopicPartition],
        now_ms: int,
    ) -> Decision[None]:
        found = self._states[transactional_id]
        if (found.producer_id, found.epoch) != (producer_id, epoch) or found.ended is None:
            return Decision((), None)
        left = found.places - set(places)
        state = found.state
        if not left:
            state = State.CompleteCommit if found.ended.commit else State.CompleteAbort
        return self._put(
            replace(found, state=state, places=left, started_ms=found.started_ms if left else -1), None
        )

    def replay(self, key: bytes | None, value: bytes | None) -> None:
        name = (key or b"").decode()
        if value is None:
            self._states.pop(name, None)
            return
        producer_id, epoch, timeout_ms, state, places, started = json.loads(value)
        self._states[name] = TransactionState(
            name,
            producer_id,
            epoch,
            timeout_ms,
            State(state),
            frozenset(TopicPartition(*place) for place in places),
            started,
        )

    def replay_pending(self, producer_id: int, epoch: int, key: bytes | None, value: bytes | None) -> None:
        raise InvalidRecordError("no transactions here")

    def replay_marker(self, producer_id: int, epoch: int, committed: bool) -> None:
        raise InvalidRecordError("no transactions here")

    def find(self, transactional_id: str) -> TransactionState | None:
        return self._states.get(transactional_id)

    def transactions(self) -> list[TransactionState]:
        return list(self._states.values())

    def unended(self) -> list[str]:
        return [name for name, state in self._states.items() if state.is_open or state.ended is not None]
