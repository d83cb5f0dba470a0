"""``Participants``: which transactions are under way for which coordinator, and what its outcome makes of them.

One record decides several prepared transactions together: the coordinator's PREPARE_COMMIT lists them. Their own
records follow from it, so that until those are written each look at one of them has to ask its coordinator.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Final

from logstore.api.transactions import PreparedTransaction
from logstore.errors import InvalidArgumentError, TransactionStateError
from logstore.transactions.transaction import TransactionState, TransactionStatus

MOST_PREPARED: Final = 10_000
"""Of one decision: its record, of some 60 bytes for each, must fit into one batch of the coordinator's topic."""

_AGAIN: Final = "abort, and write it again"
_Status = TransactionStatus


class Participants:
    """``states``: the machine's, by id. ``note`` follows each change of one of them."""

    def __init__(self, states: Mapping[str, TransactionState]) -> None:
        self._states = states
        self._under_way: dict[str, dict[str, None]] = {}  # coordinator -> ids of ONGOING and PREPARE_*

    def note(self, before: TransactionState | None, after: TransactionState | None) -> None:
        if before is not None and before.coordinator is not None:
            known = self._under_way.get(before.coordinator, {})
            known.pop(before.transactional_id, None)
            if not known:
                self._under_way.pop(before.coordinator, None)
        if after is not None and after.coordinator is not None and _is_under_way(after):
            self._under_way.setdefault(after.coordinator, {})[after.transactional_id] = None

    def of(self, coordinator: str) -> list[TransactionState]:
        """With a transaction under way, or decided and not marked everywhere."""
        return [self._states[name] for name in self._under_way.get(coordinator, ())]

    def any_of(self, coordinator: str) -> bool:
        return coordinator in self._under_way

    def is_committed(self, state: TransactionState) -> bool:
        """Whether the coordinator's record has committed a prepared transaction that does not say so itself yet."""
        if not state.is_prepared or state.coordinator is None:
            return False
        decider = self._states.get(state.coordinator)
        return (
            decider is not None
            and decider.status == _Status.PREPARE_COMMIT
            and decider.decides is not None
            and state.handle in decider.decides
        )

    def undecided(self, coordinator: TransactionState) -> Iterator[tuple[TransactionState, bool]]:
        """Transactions that its decided outcome has not reached, and whether that commits each. What began after the
        decision, while that was being carried out, is no part of it: the next attempt at the same work, perhaps."""
        if coordinator.decides is None or not coordinator.status.is_decided:
            return
        committed = frozenset(coordinator.decides)
        for one in self.of(coordinator.transactional_id):
            if one.status == _Status.ONGOING:
                commit = one.is_prepared and one.handle in committed
                if commit or one.start_ms <= coordinator.updated_ms:
                    yield one, commit

    def are_complete(self, coordinator: TransactionState) -> bool:
        """Whether its outcome has reached all, and what it commits is marked everywhere."""
        committed = {handle.transactional_id for handle in coordinator.decides or ()}
        marked = committed.isdisjoint(self._under_way.get(coordinator.transactional_id, ()))
        return marked and next(self.undecided(coordinator), None) is None

    # --- checks ---

    def check_opening(self, transactional_id: str, coordinator: str) -> None:
        """TransactionStateError, InvalidArgumentError: the id cannot be a participant of that one."""
        if transactional_id == coordinator:
            raise InvalidArgumentError(
                f"transactional id {transactional_id!r} as its own coordinator",
                hint="leave the coordinator out, or name another id",
            )
        above = self._states.get(coordinator)
        if above is not None and above.coordinator is not None:
            raise TransactionStateError(
                f"open {transactional_id!r} for coordinator {coordinator!r}: that one is itself a participant, of "
                f"{above.coordinator!r}",
                hint="participants name the id that decides in the end",
            )
        if self.any_of(transactional_id):
            raise TransactionStateError(
                f"open {transactional_id!r} for coordinator {coordinator!r}: it has participants of its own",
                hint="participants name the id that decides in the end",
            )

    def check_prepared(self, coordinator: str, prepared: Collection[PreparedTransaction]) -> None:
        """Nothing keeps the coordinator from committing these. TransactionStateError, also where a participant is
        fenced: ProducerFencedError would say that the coordinator is. InvalidArgumentError: too many."""
        if len(prepared) > MOST_PREPARED:
            raise InvalidArgumentError(
                f"commit of {coordinator!r} with {len(prepared)} prepared transactions, the most is {MOST_PREPARED}",
                hint="let each participant write more",
            )
        for one in prepared:
            self._check_one(coordinator, one)

    def _check_one(self, coordinator: str, prepared: PreparedTransaction) -> None:
        name, producer_id, epoch = prepared
        what = f"commit of {coordinator!r} with the prepared transaction of {name!r}"
        state = self._states.get(name)
        if state is None:
            raise TransactionStateError(f"{what}: that id is not known", hint=_AGAIN)
        if (state.producer_id, state.epoch) != (producer_id, epoch):
            if state.aborted_from(producer_id, epoch):
                raise TransactionStateError(f"{what}: it was aborted", hint=_AGAIN)
            raise TransactionStateError(
                f"{what}: it was prepared under producer id {producer_id} and epoch {epoch}, and is fenced: the id is "
                f"open under producer id {state.producer_id} and epoch {state.epoch}",
                hint=_AGAIN,
            )
        if state.coordinator != coordinator:
            raise TransactionStateError(f"{what}: its coordinator is {state.coordinator!r}")
        if not state.is_prepared:
            raise TransactionStateError(
                f"{what}: it is {state.status.name} and not prepared", hint="prepare it first"
            )


def _is_under_way(state: TransactionState) -> bool:
    return state.status == _Status.ONGOING or state.status.is_decided
