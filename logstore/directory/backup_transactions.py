"""How the transactions of a copied store end: those decided at the cut as they were decided, the others by an abort.

The coordinator's log is copied first and read on the way. Whatever it says is under way at the cut has its data in
the copy (a decision is durable after the data), and perhaps some of its markers. The copy gets the rest: a marker in
each partition that lacks one, and the records that tell the coordinator of it. So nothing of the copied store waits
for a producer that writes to the original, and an id may be opened there at once.
"""

from __future__ import annotations

from logstore.format.batch import BatchHeader, records_section
from logstore.format.payloads import payloads
from logstore.log.producers.producer_state import Marker
from logstore.machine import Change
from logstore.transactions.coordinator import TransactionCoordinator
from logstore.transactions.transaction import EndedTransaction
from logstore.types import Buffer, TopicPartition


class TransactionEndings:
    """``take`` all batches of the coordinator's log, then ``decide`` once; ``markers`` then has what each partition
    may lack. ``finished`` and ``aborted`` count transactions."""

    def __init__(self) -> None:
        self.finished = 0
        self.aborted = 0
        self._machine = TransactionCoordinator()
        self._markers: dict[TopicPartition, list[Marker]] = {}

    def take(self, header: BatchHeader, data: Buffer) -> None:
        """The next batch. Errors of decoding, and those of ``TransactionCoordinator.replay``."""
        if header.is_control or not header.records_count:
            return
        for key, value in payloads(
            records_section(data, 0, header), header.records_count, header.base_offset
        ):
            self._machine.replay(key, value)

    def decide(self, now_ms: int) -> list[Change]:
        """End everything that is under way; the records that the coordinator's log has to get for it."""
        changes: list[Change] = []
        # Participants first: their coordinator's decision is theirs, and it is complete after them.
        for state in sorted(self._machine.in_doubt(), key=lambda one: one.decides is not None):
            decided = self._machine.decide_resolve(state.transactional_id, now_ms)
            ended = decided.reply
            if ended is None:
                continue
            if decided.records and not ended.commit:
                self.aborted += 1
            else:
                self.finished += 1
            self._apply(decided.records)
            self._note(ended, now_ms)
            marked = self._machine.decide_marked(
                ended.transactional_id, ended.producer_id, ended.marker_epoch, ended.places, now_ms
            )
            self._apply(marked.records)
            changes += decided.records
            changes += marked.records
        return changes

    def markers(self, topic: str, partition: int) -> list[Marker]:
        """In the order in which the transactions began."""
        return self._markers.get(TopicPartition(topic, partition), [])

    def _apply(self, changes: tuple[Change, ...]) -> None:
        for key, value in changes:
            self._machine.replay(key, value)

    def _note(self, ended: EndedTransaction, now_ms: int) -> None:
        marker = Marker(ended.producer_id, ended.marker_epoch, 0, ended.commit, now_ms)
        for place in ended.places:
            self._markers.setdefault(place, []).append(marker)
