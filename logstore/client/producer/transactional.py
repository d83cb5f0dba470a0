"""What a ``Producer`` has beside single records: transactions, and batches that are encoded already."""

from __future__ import annotations

import copy
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, Generic

from logstore.api.backend import Backend
from logstore.api.transactions import MAX_TIMEOUT_MS, PreparedTransaction, TransactionLease
from logstore.arguments import shown, truth, whole
from logstore.client.partitioner import checked_partition
from logstore.client.producer.accumulator import Accumulator
from logstore.client.producer.consumed_offsets import OffsetSource, rewindable
from logstore.client.producer.delivery import Delivery, DeliveryGroup, Piece
from logstore.client.producer.route import TopicRoute
from logstore.client.producer.router import Router
from logstore.client.producer.sender import Sender
from logstore.client.producer.sequences import Sequences
from logstore.client.producer.settings import ProducerSettings
from logstore.client.producer.transaction import Transaction, TransactionControl
from logstore.client.producer.transaction_sequences import TransactionSequences
from logstore.client.serializers import SendRow
from logstore.errors import (
    InvalidArgumentError,
    InvalidRecordError,
    LogStoreError,
    RecordTooLargeError,
    RecordTypeError,
    TransactionStateError,
)
from logstore.format.batch import BatchHeader, check_crc, iter_headers
from logstore.format.proof import prove_batch
from logstore.seams.clock import Clock
from logstore.types import Buffer, Headers, K, V

DEFAULT_TIMEOUT_MS: Final = 60_000


def open_transactions(
    backend: Backend,
    transactional_id: str | None,
    timeout_ms: int,
    settings: ProducerSettings,
    name: str | None,
    coordinator: str | None = None,
    keep_prepared: bool = False,
) -> TransactionLease | None:
    """The id, opened; None without one. InvalidArgumentError for settings that do not go together."""
    if transactional_id is None:
        if timeout_ms != DEFAULT_TIMEOUT_MS:
            raise InvalidArgumentError(
                f"transaction_timeout_ms={shown(timeout_ms)} without a transactional id",
                hint="pass transactional_id=ID, or leave it out",
            )
        if coordinator is not None or keep_prepared is not False:
            raise InvalidArgumentError(
                f"transaction_coordinator={shown(coordinator)}, keep_prepared={shown(keep_prepared)} without a "
                "transactional id",
                hint="pass transactional_id=ID, or leave them out",
            )
        return None
    truth(keep_prepared, "keep_prepared")
    if not settings.idempotence:
        raise InvalidArgumentError(
            f"transactional_id={transactional_id!r} without idempotence",
            hint='a transaction needs acks="all" and idempotence',
        )
    if name is not None:
        raise InvalidArgumentError(
            f"transactional_id={transactional_id!r} with name={name!r}: a named producer's sequences never restart, "
            "those of transactions do with each",
            hint="leave out one of the two",
        )
    timeout_ms = whole(timeout_ms, "transaction_timeout_ms", 1, MAX_TIMEOUT_MS)
    if coordinator is None and not keep_prepared:
        return backend.init_transactions(transactional_id, timeout_ms)
    return backend.init_transactions(
        transactional_id, timeout_ms, coordinator=coordinator, keep_prepared=keep_prepared
    )


class Transactional(Generic[K, V]):
    """Part of ``Producer``."""

    _backend: Backend
    _clock: Clock
    _settings: ProducerSettings
    _accumulator: Accumulator
    _sender: Sender
    _router: Router
    _lock: threading.Lock
    _quick_routes: dict[str, TopicRoute]
    _transactions: TransactionControl | None

    if TYPE_CHECKING:

        @property
        def name(self) -> str | None: ...
        def send(
            self,
            topic: str,
            value: V | None = None,
            *,
            key: K | None = None,
            headers: Headers | None = None,
            timestamp_ms: int | None = None,
            partition: int | None = None,
        ) -> Delivery: ...
        def send_many(
            self, topic: str, rows: Iterable[SendRow[K, V]], *, partition: int | None = None
        ) -> DeliveryGroup: ...
        def _check_usable(self) -> None: ...
        def _check_open(self) -> None: ...
        def _await_room(self, gate: threading.Lock, needed: int, end_s: float, outcome: str) -> None: ...

    # --- transactions ---

    def _control(self, lease: TransactionLease, sequences: Sequences | None) -> TransactionControl:
        """Rows come in between ``begin`` and the end only: outside, ``send`` is left to its slow path, which says
        why not."""
        quick = self._quick_routes
        self._quick_routes = {}
        self._accumulator.stops_at_failure = True
        if not isinstance(sequences, TransactionSequences):
            raise TransactionStateError("a transactional producer numbers its batches by transaction")

        def gate(is_open: bool) -> None:
            self._quick_routes = quick if is_open else {}

        return TransactionControl(lease, self._accumulator, self._sender, sequences, gate)

    def _stop_error(self, stopped: LogStoreError) -> LogStoreError:
        """What a send meets behind a batch that failed."""
        error = copy.copy(stopped)
        if self._transactions is None:
            error.add_note(f"producer {self.name!r} has stopped there: open the name again to go on")
        else:
            error.add_note("the transaction has failed there: abort it, and begin another one")
        return error

    @property
    def transactional_id(self) -> str | None:
        return None if self._transactions is None else self._transactions.lease.transactional_id

    def transaction(self, *, rewind: OffsetSource | None = None) -> Transaction[K, V]:
        """``with producer.transaction() as tx:`` see ``Transaction``. ``rewind``: a consumer whose positions go back
        to the committed ones when it is aborted, so that its next poll brings the same records again.

        InvalidArgumentError without a ``transactional_id``, and for a consumer without a group.
        """
        self._check_usable()
        control = _needed(self._transactions, "transaction()")
        back = None if rewind is None else rewindable(rewind, self._backend)
        transaction: Transaction[K, V] = Transaction(self, self._backend, control, back)
        return transaction

    def begin(self) -> Transaction[K, V]:
        """Open a transaction, for who ends it with ``commit`` or ``abort`` rather than with a block.

        TransactionStateError: one is open. ProducerFencedError: a newer producer has the id.
        """
        self._check_usable()
        control = _needed(self._transactions, "begin()")
        transaction: Transaction[K, V] = Transaction(self, self._backend, control)
        transaction.begin()
        return transaction

    def prepare(self) -> PreparedTransaction | None:
        """End the writing of what ``begin`` opened; see ``Transaction.prepare``."""
        self._check_usable()
        return _needed(self._transactions, "prepare()").prepare()

    def commit(self, *, prepared: Iterable[PreparedTransaction] = ()) -> None:
        """Commit what ``begin`` opened; see ``Transaction.commit``."""
        self._check_usable()
        _needed(self._transactions, "commit()").commit(prepared)

    def abort(self) -> None:
        """Abort what ``begin`` opened; see ``Transaction.abort``."""
        self._check_usable()
        _needed(self._transactions, "abort()").abort()

    # --- batches ---

    def send_batch(self, topic: str, partition: int, buffer: Buffer) -> DeliveryGroup:
        """Queue whole record batches (format v2), as a fetch gives them or ``encode_batch`` makes them.

        Their heads are written anew (producer id, epoch, sequence, CRC), their records are neither decoded nor
        compressed again; so the codec stays theirs. Control batches, which end others' transactions, are left out.
        Deliveries carry a batch's largest timestamp. All are checked before any is queued: CorruptBatchError,
        InvalidRecordError (a batch with gaps), RecordTooLargeError; otherwise errors as for ``send_many``. Not for
        named producers.
        """
        self._check_usable()
        if self.name is not None:
            raise InvalidArgumentError(
                f"send_batch() of the producer named {self.name!r}: its batches may have to be cut",
                hint="use send_many",
            )
        route = self._router.route(topic)
        queue = route.queues[checked_partition(partition, topic, len(route.queues), "the caller")]
        batches = _checked(buffer, route, f"{topic}-{queue.partition}")
        accumulator = self._accumulator
        end_s = self._clock.monotonic_s() + self._settings.max_block_s
        pieces: list[Piece] = []
        while len(pieces) < len(batches):
            data, header = batches[len(pieces)]
            with self._lock:
                self._check_open()
                gate = None
                if accumulator.buffer.has_room_for(header.size) or not accumulator.buffer.held_bytes:
                    now_s = self._clock.monotonic_s()
                    batch = accumulator.enqueue(queue, data, header, now_s)
                    pieces.append(Piece(batch, 0, batch.count))
                    self._sender.notice(queue, now_s)
                else:
                    gate = accumulator.buffer.join_queue()
            if gate is not None:
                outcome = f"{len(pieces)} of {len(batches)} batches were queued"
                self._await_room(gate, header.size, end_s, outcome)
        return DeliveryGroup(pieces)


def _needed(control: TransactionControl | None, call: str) -> TransactionControl:
    if control is None:
        raise InvalidArgumentError(
            f"{call} on a producer without a transactional id",
            hint='store.producer(transactional_id="copy-1")',
        )
    return control


def _checked(buffer: Buffer, route: TopicRoute, where: str) -> list[tuple[memoryview, BatchHeader]]:
    """The data batches in ``buffer``, each with magic, length, CRC and records proved."""
    if not isinstance(buffer, bytes | bytearray | memoryview):
        raise RecordTypeError(
            f"send_batch to {where}: the buffer is {type(buffer).__name__}", hint="pass bytes"
        )
    view = memoryview(buffer if isinstance(buffer, bytes) else bytes(buffer))
    if not view:
        raise InvalidRecordError(
            f"send_batch to {where}: the buffer is empty", hint="pass at least one batch"
        )
    batches = []
    for at, header in iter_headers(view):
        check_crc(view, at, header)
        prove_batch(view, at, header)
        if not header.is_control:
            batches.append((view[at : at + header.size], header))
    for number, (data, header) in enumerate(batches):
        which = f"send_batch to {where}: batch {number + 1} of {len(batches)}"
        if header.records_count < 1 or header.records_count != header.last_offset_delta + 1:
            raise InvalidRecordError(
                f"{which} has {header.records_count} records but last offset delta {header.last_offset_delta}",
                hint="a new batch has one record per offset: send the records of a compacted batch one by one",
            )
        if len(data) > route.max_message_bytes:
            raise RecordTooLargeError(
                f"{which} has {len(data)} bytes; {route.size_setting} of {route.name} is {route.max_message_bytes}",
                hint=f"raise {route.size_setting}, or send smaller batches",
            )
    return batches
