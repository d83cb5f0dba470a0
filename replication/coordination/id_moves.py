"""``IdMoves``: transactional ids that are with the coordinator of another id, whose participants they are.

One record decides a coordinator and what it commits of its participants, so that all of them are in one partition: that
of the coordinator's id. The partition of a participant's own name has no more than its place: whose participant it is.
That place is changed before the id is opened anywhere else, and looked at again after; so an id is open in one
partition only, and whoever opens it fences all that had it before:

1. its place is looked up, and what the partition that it names has of the id is ended and forgotten;
2. the place is changed, unless another opening has changed it since: then again from 1;
3. the id is opened; where its place is another by now, it is given up again (``ProducerFencedError``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from logstore.api.transactions import TransactionSummary
from logstore.coordination.transaction_lease import CoordinatedLease
from logstore.coordination.transaction_manager import TransactionManager
from logstore.embedded.transaction_services import TransactionServices
from logstore.errors import ProducerFencedError, TopicLockedError
from logstore.format.json_document import items, text, whole
from logstore.machine import Decision
from logstore.transactions.coordinator import EndedTransaction, TransactionCoordinator
from logstore.transactions.transaction import HIGHEST_EPOCH, TransactionState, TransactionStatus
from logstore.transactions.transaction_records import TOPIC, encode_key, encode_value
from logstore.types import TopicPartition
from replication.coordination.call_json import WHERE, fields_of, to_bytes
from replication.coordination.coordinator_calls import transaction_of, transaction_row
from replication.coordination.key_partition import partition_of
from replication.coordination.routing import Routing
from replication.errors import LeaderNotReadyError
from replication.raft.types import NodeId
from replication.transport import PeerNetwork

OPERATION: Final = "coordinator.id"
_LOOK, _PUT, _GIVE_UP, _ABORT, _KNOWS = "look", "put", "give up", "abort", "knows"
_MOST_ROUNDS: Final = 20


class Placed(NamedTuple):
    """Whose participant an id is, as its own partition has it; another number and time whenever it was put there."""

    coordinator: str
    number: int
    since_ms: int


@dataclass(frozen=True, slots=True)
class _Asked:
    act: str
    partition: int
    transactional_id: str
    coordinator: str = ""
    before: Placed | None = None


class IdMoves:
    """Of one node. Thread-safe. ``shard``: its transactions in one partition; ``count``: of partitions."""

    def __init__(
        self,
        routing: Routing,
        network: PeerNetwork,
        shard: Callable[[int], TransactionServices],
        count: Callable[[], int],
    ) -> None:
        self._routing = routing
        self._network = network
        self._shard = shard
        self._count = count

    def serve(self) -> None:
        """Answer other nodes. Before the network is started."""
        self._network.serve(OPERATION, lambda _, request: to_bytes({"found": self._here(_asked(request))}))

    # --- opening ---

    def open(
        self, transactional_id: str, timeout_ms: int, *, coordinator: str | None, keep_prepared: bool
    ) -> CoordinatedLease:
        """See ``TransactionManager.open``; at the coordinator of the id that decides it. ProducerFencedError: another
        one was faster."""
        count = self._count()
        own = partition_of(transactional_id, count)
        home = own if coordinator is None else partition_of(coordinator, count)
        manager = self._shard(home).manager
        manager.coordinator().look(lambda _: None)  # where this node does not run it, nothing is moved
        for _ in range(_MOST_ROUNDS):
            before = self._placed(own, transactional_id)
            if before is not None and (left := partition_of(before.coordinator, count)) != home:
                self._ask(_Asked(_GIVE_UP, left, transactional_id))
            try:
                if home == own:
                    return manager.open(
                        transactional_id,
                        timeout_ms,
                        coordinator=coordinator,
                        keep_prepared=keep_prepared,
                        check=lambda machine, before=before: _check(machine, transactional_id, before),  # type: ignore[misc]
                    )
                now = _placed_of(self._ask(_Asked(_PUT, own, transactional_id, coordinator or "", before)))
            except _MovedError:
                continue  # from its place of now
            lease = manager.open(
                transactional_id, timeout_ms, coordinator=coordinator, keep_prepared=keep_prepared
            )
            if now is not None and self._placed(own, transactional_id) == now:
                return lease
            give_up(manager, transactional_id)
            raise ProducerFencedError(
                f"transactional id {transactional_id!r} was opened elsewhere at the same moment",
                found_epoch=lease.epoch,
            )
        raise LeaderNotReadyError(f"transactional id {transactional_id!r} is being opened by many at once")

    def _placed(self, own: int, transactional_id: str) -> Placed | None:
        return _placed_of(self._ask(_Asked(_LOOK, own, transactional_id)))

    # --- where an id is ---

    def abort(self, transactional_id: str) -> TransactionSummary:
        """See ``TransactionAdmin.abort``, of an id whose own partition this node has."""
        count = self._count()
        own = partition_of(transactional_id, count)
        admin, manager = self._shard(own).admin, self._shard(own).manager
        manager.coordinator().confirm()
        state = manager.state_of(transactional_id)
        if state is None or not state.is_elsewhere or state.coordinator is None:
            return admin.abort(transactional_id)
        home = partition_of(state.coordinator, count)
        return transaction_of(self._ask(_Asked(_ABORT, home, transactional_id)))

    def may_forget(self, state: TransactionState) -> bool:
        """Whether an id that was out of use for long may be forgotten: not while it is known where its place says."""
        if not state.is_elsewhere or state.coordinator is None:
            return True
        home = partition_of(state.coordinator, self._count())
        return not self._ask(_Asked(_KNOWS, home, state.transactional_id))

    # --- calls ---

    def _ask(self, asked: _Asked) -> Any:
        def there(node: NodeId, left_s: float) -> Any:
            request = to_bytes(
                {
                    "act": asked.act,
                    "partition": asked.partition,
                    "id": asked.transactional_id,
                    "coordinator": asked.coordinator,
                    "before": asked.before,
                }
            )
            return fields_of(self._network.call(node, OPERATION, request, left_s)).get("found")

        found = self._routing.ask(TopicPartition(TOPIC, asked.partition), lambda: self._here(asked), there)
        if found == _MOVED:
            raise _MovedError
        return found

    def _here(self, asked: _Asked) -> Any:
        services, name = self._shard(asked.partition), asked.transactional_id
        manager = services.manager
        if asked.act == _ABORT:
            return transaction_row(services.admin.abort(name))
        manager.coordinator().confirm()
        if asked.act == _LOOK:
            return _placed_in(manager.state_of(name))
        if asked.act == _KNOWS:
            return manager.state_of(name) is not None
        if asked.act == _GIVE_UP:
            give_up(manager, name)
            return None
        try:
            return put(manager, name, asked.coordinator, asked.before)
        except _MovedError:
            return _MOVED


_MOVED: Final = "moved"


class _MovedError(Exception):
    """Another opening has changed the id's place in between."""


def _asked(request: bytes) -> _Asked:
    fields = fields_of(request)
    return _Asked(
        text(fields.get("act"), "act", WHERE),
        whole(fields.get("partition"), "partition", WHERE),
        text(fields.get("id"), "id", WHERE),
        text(fields.get("coordinator"), "coordinator", WHERE),
        _placed_of(fields.get("before")),
    )


def _placed_of(found: object) -> Placed | None:
    if found is None or isinstance(found, Placed):
        return found
    row = items(found, "a place", WHERE, 3)
    return Placed(
        text(row[0], "coordinator", WHERE), whole(row[1], "number", WHERE), whole(row[2], "since", WHERE)
    )


# --- decisions, and what carries them out ---


def _placed_in(state: TransactionState | None) -> Placed | None:
    if state is None or not state.is_elsewhere or state.coordinator is None:
        return None
    return Placed(state.coordinator, state.epoch, state.updated_ms)


def _check(machine: TransactionCoordinator, name: str, before: Placed | None) -> None:
    if _placed_in(machine.find(name)) != before:
        raise _MovedError


def decide_put(
    machine: TransactionCoordinator, name: str, coordinator: str, before: Placed | None, now_ms: int
) -> Decision[Placed | EndedTransaction]:
    """Have the id's place say whose participant it is; the reply is that, or what of the id is to be finished first,
    after which this is asked again. ``before``: what the place said."""
    _check(machine, name, before)
    machine.participants.check_opening(name, coordinator)
    state = machine.find(name)
    if state is not None and (ended := _ending(machine, state, now_ms)) is not None:
        return ended
    number = 0 if state is None else (state.epoch + 1) % HIGHEST_EPOCH
    put_ = TransactionState(
        name, -1, number, 1, TransactionStatus.EMPTY, (), now_ms, -1, coordinator=coordinator
    )
    return Decision(((encode_key(name), encode_value(put_)),), Placed(coordinator, number, now_ms))


def decide_give_up(
    machine: TransactionCoordinator, name: str, now_ms: int
) -> Decision[EndedTransaction | None]:
    """Forget what is here of the id; the reply is what is to be finished first, after which this is asked again."""
    state = machine.find(name)
    if state is None or state.is_elsewhere:
        return Decision((), None)
    ended = _ending(machine, state, now_ms)
    return Decision(((encode_key(name), None),), None) if ended is None else ended


def _ending(machine: TransactionCoordinator, state: TransactionState, now_ms: int) -> Decision[Any] | None:
    """The end of what the id has under way, its producer fenced; None: nothing is."""
    if state.status not in (TransactionStatus.ONGOING, *_DECIDED):
        return None
    return machine.decide_resolve(state.transactional_id, now_ms, fence=True)


_DECIDED: Final = (TransactionStatus.PREPARE_COMMIT, TransactionStatus.PREPARE_ABORT)


def put(manager: TransactionManager, name: str, coordinator: str, before: Placed | None) -> Placed:
    """See ``decide_put``, to its end. Whoever has the id open here is fenced."""
    with manager.guard(name):
        for _ in range(_MOST_ROUNDS):
            now_ms = manager.now_ms()
            reply = manager.coordinator().decide(
                lambda machine, now_ms=now_ms: decide_put(machine, name, coordinator, before, now_ms)  # type: ignore[misc]
            )
            if isinstance(reply, Placed):
                _let_go(manager, name)
                return reply
            manager.finish(reply, wait=False)
    raise TopicLockedError(f"what transactional id {name!r} had under way is not at its end yet")


def give_up(manager: TransactionManager, name: str) -> None:
    """See ``decide_give_up``, to its end. Whoever has the id open here is fenced."""
    with manager.guard(name):
        for _ in range(_MOST_ROUNDS):
            now_ms = manager.now_ms()
            ended = manager.coordinator().decide(
                lambda machine, now_ms=now_ms: decide_give_up(machine, name, now_ms)  # type: ignore[misc]
            )
            if ended is None:
                _let_go(manager, name)
                return
            manager.finish(ended, wait=False)
    raise TopicLockedError(f"what transactional id {name!r} had under way is not at its end yet")


def _let_go(manager: TransactionManager, name: str) -> None:
    lease = manager.lease(name)
    if lease is not None:
        lease.fence()
