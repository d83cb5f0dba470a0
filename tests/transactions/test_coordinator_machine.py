"""Several transactional ids, their older selves and late requests, crashes at every record: the coordinator's
numbered properties, checked by a model that knows nothing of its rules but the table of what may follow what."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from logstore.errors import (
    ProducerFencedError,
    TransactionStateError,
    TransactionTimedOutError,
    UnknownTransactionError,
)
from logstore.machine import Change, Decision
from logstore.transactions import coordinator as coordinator_module
from logstore.transactions import refusals
from logstore.transactions.coordinator import (
    EXEMPT_PREFIX,
    LAST_EPOCH,
    EndedTransaction,
    InitReply,
    TransactionCoordinator,
    TransactionState,
)
from logstore.transactions.coordinator import TransactionStatus as Status
from logstore.transactions.transaction_records import decode_key, decode_value, encode_key, encode_value
from logstore.types import TopicPartition

IDS = ("orders", "returns", "spark-sink")
PLACES = tuple(TopicPartition("t", number) for number in range(3)) + (
    TopicPartition("__consumer_offsets", 0),
)
TIMEOUT_MS, EXPIRATION_MS = 100, 400
REFUSALS = (
    ProducerFencedError,
    TransactionStateError,
    TransactionTimedOutError,
    UnknownTransactionError,
)
FOLLOWS = {
    None: {Status.EMPTY},
    Status.EMPTY: {Status.EMPTY, Status.ONGOING, Status.COMPLETE_ABORT, None},
    Status.ONGOING: {Status.ONGOING, Status.PREPARE_COMMIT, Status.PREPARE_ABORT},
    Status.PREPARE_COMMIT: {Status.PREPARE_COMMIT, Status.COMPLETE_COMMIT},
    Status.PREPARE_ABORT: {Status.PREPARE_ABORT, Status.COMPLETE_ABORT},
    Status.COMPLETE_COMMIT: {Status.EMPTY, Status.ONGOING, Status.COMPLETE_ABORT, None},
    Status.COMPLETE_ABORT: {Status.EMPTY, Status.ONGOING, Status.COMPLETE_ABORT, None},
}
names = st.sampled_from(IDS)
some_places = st.lists(st.sampled_from(PLACES), min_size=1, max_size=3)
# What becomes of a decision: durable and answered, durable but the answer is lost, or lost with its process.
fates = st.sampled_from(["answered"] * 8 + ["unheard", "lost"])
picks = st.integers(0, 1_000)


class Begun(NamedTuple):
    """A transaction by its first record: nobody else has this pair."""

    producer_id: int
    epoch: int


class CoordinatorMachine(RuleBasedStateMachine):
    kind: type[TransactionCoordinator] = TransactionCoordinator

    def __init__(self) -> None:
        super().__init__()
        self.machine = self.kind()
        self.log: list[Change] = []
        self.states: list[list[TransactionState]] = [[]]  # after each record
        self.now_ms = 0
        self.fresh_id = 0
        self.known: dict[str, list[tuple[int, int]]] = {
            name: [] for name in IDS
        }  # all that requests may carry
        self.given: dict[tuple[int, int], str] = {}  # a pair -> whom it was given for a transaction
        self.begun: dict[Begun, str] = {}
        self.under_way: dict[str, Begun] = {}
        self.outcomes: dict[Begun, bool] = {}
        self.unmarked: dict[str, set[TopicPartition]] = {}

    @initialize(room=st.integers(1, 5))
    def nearly_spent(self, room: int) -> None:
        """One id comes from a log where its epochs are at their end."""
        self.fresh_id = 1
        epoch = LAST_EPOCH - room
        state = TransactionState("returns", 0, epoch, TIMEOUT_MS, Status.COMPLETE_COMMIT, (), 0, 0)
        self.machine.replay(encode_key("returns"), encode_value(state))
        self.log.append((encode_key("returns"), encode_value(state)))
        self.states.append(self.machine.transactions())
        self.give("returns", 0, epoch)

    # --- what becomes of a decision ---

    def settle(self, decision: Decision[object], fate: str) -> bool:
        """Whether the answer is heard."""
        before = self.machine.transactions()
        if fate != "lost":
            for key, value in decision.records:
                self.append(key, value)
        if fate == "lost" or not decision.records:
            assert self.machine.transactions() == before
        if fate != "answered":
            self.restart()
        return fate == "answered"

    def append(self, key: bytes, value: bytes | None) -> None:
        name = decode_key(key)
        assert name is not None
        before = self.machine.find(name)
        after = None if value is None else decode_value(name, value)
        self.check_follows(name, before, after)
        self.log.append((key, value))
        self.machine.replay(key, value)
        once = self.machine.transactions()
        self.machine.replay(key, value)
        assert self.machine.transactions() == once
        self.states.append(once)

    def check_follows(
        self, name: str, before: TransactionState | None, after: TransactionState | None
    ) -> None:
        old = None if before is None else before.status
        new = None if after is None else after.status
        assert new in FOLLOWS[old], f"{old} -> {new}"
        if before is None or after is None:
            assert after is not None or not name.startswith(EXEMPT_PREFIX)
            return
        if before.producer_id == after.producer_id:
            assert after.epoch >= before.epoch
        else:
            assert new == Status.EMPTY
            assert after.epoch == 0
        if new == Status.ONGOING:
            self.note_under_way(name, before, after)
        elif old == Status.ONGOING:
            self.outcomes[self.under_way.pop(name)] = new == Status.PREPARE_COMMIT
            assert after.epoch > before.epoch
            assert after.places == before.places
        elif before.status.is_decided:
            assert after.epoch == before.epoch
            assert set(after.places) == self.unmarked[name] & set(before.places)
            assert after.status.is_decided == bool(after.places)

    def note_under_way(self, name: str, before: TransactionState, after: TransactionState) -> None:
        pair = Begun(after.producer_id, after.epoch)
        if before.status == Status.ONGOING:
            assert self.under_way[name] == pair
            assert set(before.places) <= set(after.places)
        else:
            assert pair not in self.begun, "two transactions under one epoch"
            assert after.epoch < LAST_EPOCH
            assert self.given[pair] == name, "nobody was given that pair"
            self.begun[pair] = name
            self.under_way[name] = pair
        self.unmarked[name] = set(after.places)

    def give(self, name: str, producer_id: int, epoch: int) -> None:
        pair = (producer_id, epoch)
        self.known[name].append(pair)
        self.given[pair] = name

    def ask(self, decide: Callable[[], Decision[object]]) -> Decision[object] | None:
        """None: refused by name."""
        try:
            return decide()
        except REFUSALS:
            return None

    def pick(self, name: str, pick: int) -> tuple[int, int]:
        """Mostly one of the newest pairs, sometimes any older one, of another id, or never given out."""
        pairs = self.known[name] or [(99, 0)]
        if pick % 10 < 7:
            return pairs[-1 - min(pick % 2, len(pairs) - 1)]
        if pick % 10 == 7:
            producer_id, epoch = pairs[-1]
            return producer_id, epoch + 1
        anybodys = [pair for others in self.known.values() for pair in others] or [(99, 0)]
        return anybodys[pick // 10 % len(anybodys)]

    # --- rules ---

    @rule(name=names, fate=fates)
    def open(self, name: str, fate: str) -> None:
        fresh_id, self.fresh_id = self.fresh_id, self.fresh_id + 1
        decision = self.machine.decide_init(name, TIMEOUT_MS, fresh_id, self.now_ms)
        reply = decision.reply
        if reply.pending is None:
            pair = (reply.producer_id, reply.epoch)
            assert pair not in self.given
            assert reply.epoch < LAST_EPOCH
        if self.settle(decision, fate) and reply.pending is None:
            self.give(name, reply.producer_id, reply.epoch)
        elif reply.pending is not None:
            assert reply.pending.places or fate == "lost"

    @rule(name=names, pick=picks, fate=fates)
    def go_on(self, name: str, pick: int, fate: str) -> None:
        pair = self.pick(name, pick)
        fresh_id, self.fresh_id = self.fresh_id, self.fresh_id + 1
        state = self.machine.find(name)
        decision = self.ask(
            lambda: self.machine.decide_init(name, TIMEOUT_MS, fresh_id, self.now_ms, continuing=pair)
        )
        if decision is None:
            return
        assert state is not None
        assert (state.producer_id, state.epoch) == pair
        reply = decision.reply
        assert isinstance(reply, InitReply)
        if self.settle(decision, fate) and reply.pending is None:
            assert (reply.producer_id, reply.epoch) not in self.given
            self.give(name, reply.producer_id, reply.epoch)

    @rule(name=names, pick=picks, places=some_places, fate=fates)
    def add(self, name: str, pick: int, places: list[TopicPartition], fate: str) -> None:
        pair = self.pick(name, pick)
        state = self.machine.find(name)
        decision = self.ask(lambda: self.machine.decide_add_partitions(name, *pair, places, self.now_ms))
        if decision is None:
            return
        assert state is not None
        assert (state.producer_id, state.epoch) == pair, "an older or unknown pair was served"
        if pair not in self.given:  # the answer that gave it was lost: nobody could have asked with it
            return
        self.settle(decision, fate)

    @rule(name=names, pick=picks, commit=st.booleans(), fate=fates)
    def end(self, name: str, pick: int, commit: bool, fate: str, pair: tuple[int, int] | None = None) -> None:
        pair = pair or self.pick(name, pick)
        state = self.machine.find(name)
        decided = self.outcomes.get(Begun(*pair))
        decision = self.ask(lambda: self.machine.decide_end(name, *pair, commit=commit, now_ms=self.now_ms))
        if decision is None:
            return
        assert state is not None
        ended = decision.reply
        assert isinstance(ended, EndedTransaction)
        assert ended.commit == commit
        if decided is not None:
            assert decided == commit, "the other outcome was decided"
            assert not decision.records
        else:
            assert not decision.records or (state.producer_id, state.epoch) == pair
            if commit:
                assert self.under_way.get(name) == pair
        assert (ended.producer_id, ended.marker_epoch) == (pair[0], pair[1] + 1)
        if pair in self.given and self.settle(decision, fate):
            after = (ended.producer_id, ended.marker_epoch)
            if after not in self.given:
                self.give(name, *after)

    @rule(name=names, pick=picks, places=some_places, all_of_them=st.booleans(), fate=fates)
    def mark(self, name: str, pick: int, places: list[TopicPartition], all_of_them: bool, fate: str) -> None:
        """By whoever knows of it: the ends that were heard of, or the coordinator's own word."""
        state = self.machine.find(name)
        if state is None:
            return
        pair = (state.producer_id, state.epoch) if pick % 3 else self.pick(name, pick)
        due = state.ended
        noted = set(due.places if all_of_them and due is not None else places)
        was = self.unmarked.get(name, set())
        self.unmarked[name] = was - noted
        decision = self.ask(lambda: self.machine.decide_marked(name, *pair, noted, self.now_ms))
        served = decision is not None and bool(decision.records)
        if served:
            assert due is not None
            assert pair == (due.producer_id, due.marker_epoch), "a late marker touched another transaction"
        if not served or fate == "lost":
            self.unmarked[name] = was
        if decision is not None:
            self.settle(decision, fate)

    @rule(name=names, steps=st.integers(1, 3), commit=st.booleans(), places=some_places)
    def transact(self, name: str, steps: int, commit: bool, places: list[TopicPartition]) -> None:
        """As the id's newest producer does it, up to some step."""
        state = self.machine.find(name)
        if state is None:
            self.open(name, "answered")
            return
        pair = (state.producer_id, state.epoch)
        if pair not in self.given:
            return
        if state.ended is None:
            decision = self.ask(lambda: self.machine.decide_add_partitions(name, *pair, places, self.now_ms))
            if decision is None:
                return
            self.settle(decision, "answered")
        if steps > 1:
            self.end(name, 0, commit, "answered", pair=pair)
        if steps > 2:
            self.mark(name, 1, [], True, "answered")

    @rule(name=names, fence=st.booleans(), fate=fates)
    def resolve(self, name: str, fence: bool, fate: str) -> None:
        decided = self.ask(lambda: self.machine.decide_resolve(name, self.now_ms, fence=fence))
        if decided is not None:
            assert bool(decided.records) == (name in self.under_way)
            self.settle(decided, fate)

    @rule(fate=fates)
    def housekeeping(self, fate: str) -> None:
        for state in self.overdue():
            assert self.now_ms - state.start_ms > TIMEOUT_MS
            self.settle(self.machine.decide_resolve(state.transactional_id, self.now_ms), fate)
        assert fate != "answered" or not self.overdue()

    def overdue(self) -> list[TransactionState]:
        return [state for state in self.machine.in_doubt() if state.is_overdue(self.now_ms)]

    @rule(fate=fates)
    def forget(self, fate: str) -> None:
        decision = self.machine.decide_forget(self.now_ms, EXPIRATION_MS)
        assert not set(decision.reply) & set(self.under_way)
        for name in decision.reply:
            assert self.now_ms - self.machine.describe(name).updated_ms >= EXPIRATION_MS
        self.settle(decision, fate)

    @rule(ms=st.sampled_from([1, 40, 110, 500]))
    def wait(self, ms: int) -> None:
        self.now_ms += ms

    @rule()
    def restart(self) -> None:
        self.machine = self.kind()
        for key, value in self.log:
            self.machine.replay(key, value)

    @precondition(lambda self: len(self.log) > 1)
    @rule(pick=picks)
    def replay_a_prefix(self, pick: int) -> None:
        """A process that catches up from any record on is where one that saw all of them is."""
        at = pick % len(self.log)
        machine = self.kind()
        for number, (key, value) in enumerate(self.log, 1):
            machine.replay(key, value)
            if number >= at:
                assert machine.transactions() == self.states[number]

    @precondition(lambda self: len(self.log) > 1)
    @rule()
    def compacted(self) -> None:
        """The newest record of each id alone gives the same state."""
        machine = self.kind()
        for key, value in dict(self.log).items():
            machine.replay(key, value)
        assert machine.transactions() == self.machine.transactions()

    @invariant()
    def the_looks_agree(self) -> None:
        states = self.machine.transactions()
        assert states == self.states[-1]
        in_doubt = {state.transactional_id for state in self.machine.in_doubt()}
        assert in_doubt == {
            state.transactional_id
            for state in states
            if state.status == Status.ONGOING or state.status.is_decided
        }
        assert {self.machine.owner_of(state.producer_id) for state in states} == {
            state.transactional_id for state in states
        }
        assert set(self.under_way) == {
            state.transactional_id for state in states if state.status == Status.ONGOING
        }


class Driven(CoordinatorMachine):
    """The same rules in an order of their own seed, many times as fast: for campaigns, and to find planted faults."""

    def drive(self, seed: int, steps: int = 80) -> None:
        random = Random(seed)

        def places() -> list[TopicPartition]:
            return random.sample(PLACES, random.randint(1, 3))

        def fate() -> str:
            return random.choice(["answered"] * 8 + ["unheard", "lost"])

        def pick() -> int:
            return random.randrange(1_000)

        def yes() -> bool:
            return random.random() < 0.5

        rules: list[Callable[[str], None]] = [
            lambda name: self.open(name, fate()),
            lambda name: self.go_on(name, pick(), fate()),
            lambda name: self.add(name, pick(), places(), fate()),
            lambda name: self.end(name, pick(), yes(), fate()),
            lambda name: self.mark(name, pick(), places(), yes(), fate()),
            lambda name: self.transact(name, random.randint(1, 3), yes(), places()),
            lambda name: self.resolve(name, yes(), fate()),
            lambda name: self.housekeeping(fate()),
            lambda name: self.forget(fate()),
            lambda name: self.wait(random.choice([1, 40, 110, 500])),
            lambda name: self.replay_a_prefix(pick()),
            lambda name: self.compacted(),
        ]
        weights = [2, 1, 3, 4, 4, 6, 1, 1, 1, 1, 1, 1]
        self.nearly_spent(random.randint(1, 5))
        for rule_ in random.choices(rules, weights, k=steps):
            rule_(random.choice(IDS))
            self.the_looks_agree()


def campaign(kind: type[TransactionCoordinator], seeds: range) -> None:
    machine = type("DrivenKind", (Driven,), {"kind": kind})
    for seed in seeds:
        machine().drive(seed)


def test_the_properties_hold_over_any_interleaving() -> None:
    run_state_machine_as_test(
        CoordinatorMachine,
        settings=settings(
            max_examples=40,
            stateful_step_count=40,
            derandomize=True,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_the_properties_hold_over_many_seeds() -> None:
    campaign(TransactionCoordinator, range(150))


@pytest.mark.long
def test_the_properties_hold_over_very_many_seeds() -> None:
    campaign(TransactionCoordinator, range(1_000, 21_000))


# --- planted faults: each must be found -------------------------------------------------------------


class NoBumpOnOpening(TransactionCoordinator):
    def decide_init(self, transactional_id: str, *rest: Any, **named: Any) -> Decision[InitReply]:
        decision = super().decide_init(transactional_id, *rest, **named)
        state = self.find(transactional_id)
        if state is None or state.status not in coordinator_module._IDLE or not decision.records:
            return decision
        same = replace(state, status=Status.EMPTY, places=())
        return coordinator_module._decision(same, InitReply(same.producer_id, same.epoch, None))


class AnOpeningAbortsACommit(TransactionCoordinator):
    def decide_init(self, transactional_id: str, *rest: Any, **named: Any) -> Decision[InitReply]:
        state = self.find(transactional_id)
        if state is None or state.status != Status.PREPARE_COMMIT:
            return super().decide_init(transactional_id, *rest, **named)
        aborted = replace(state, status=Status.PREPARE_ABORT)
        return coordinator_module._decision(aborted, InitReply(state.producer_id, state.epoch, aborted.ended))


class LateMarkersCount(TransactionCoordinator):
    def decide_marked(
        self, transactional_id: str, producer_id: int, epoch: int, *rest: Any
    ) -> Decision[tuple[TopicPartition, ...]]:
        state = self.describe(transactional_id)
        return super().decide_marked(transactional_id, state.producer_id, state.epoch, *rest)


class OneMarkerCompletes(TransactionCoordinator):
    def decide_marked(
        self, transactional_id: str, producer_id: int, epoch: int, places: Any, now_ms: int
    ) -> Decision[tuple[TopicPartition, ...]]:
        every = self.describe(transactional_id).places if places else ()
        return super().decide_marked(transactional_id, producer_id, epoch, every, now_ms)


class NoBumpAtTheEnd(TransactionCoordinator):
    def decide_end(
        self, transactional_id: str, producer_id: int, epoch: int, *, commit: bool, now_ms: int
    ) -> Decision[EndedTransaction]:
        decision = super().decide_end(transactional_id, producer_id, epoch, commit=commit, now_ms=now_ms)
        for key, value in decision.records:
            if value is not None:
                state = replace(decode_value(transactional_id, value), epoch=epoch)
                return Decision(((key, encode_value(state)),), decision.reply)
        return decision


class TheLastAnswerWins(TransactionCoordinator):
    def decide_end(
        self, transactional_id: str, producer_id: int, epoch: int, *, commit: bool, now_ms: int
    ) -> Decision[EndedTransaction]:
        state = self.describe(transactional_id)
        if not state.status.is_decided or (state.producer_id, state.epoch - 1) != (producer_id, epoch):
            return super().decide_end(transactional_id, producer_id, epoch, commit=commit, now_ms=now_ms)
        other = replace(state, status=Status.PREPARE_COMMIT if commit else Status.PREPARE_ABORT)
        ended = coordinator_module._as_ended(other, commit)
        return coordinator_module._decision(other, ended)


class BeginsAfterTheLastEpoch(TransactionCoordinator):
    def decide_add_partitions(self, *request: Any) -> Decision[tuple[TopicPartition, ...]]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(refusals, "LAST_EPOCH", 2**15)
            return super().decide_add_partitions(*request)


class ForgetsWhatIsUnderWay(TransactionCoordinator):
    def expired(self, now_ms: int, expiration_ms: int) -> list[str]:
        return [
            state.transactional_id
            for state in self.transactions()
            if now_ms - state.updated_ms >= expiration_ms
        ]


class ForgetsAPlaceOnReplay(TransactionCoordinator):
    def replay(self, key: bytes | None, value: bytes | None) -> None:
        before = len(self.transactions())
        super().replay(key, value)
        if len(self.transactions()) < before:
            self._under_way.clear()


@pytest.mark.parametrize(
    "kind",
    [
        NoBumpOnOpening,
        AnOpeningAbortsACommit,
        LateMarkersCount,
        OneMarkerCompletes,
        NoBumpAtTheEnd,
        TheLastAnswerWins,
        BeginsAfterTheLastEpoch,
        ForgetsWhatIsUnderWay,
        ForgetsAPlaceOnReplay,
    ],
    ids=lambda kind: kind.__name__,
)
def test_a_planted_fault_is_found(kind: type[TransactionCoordinator]) -> None:
    with pytest.raises(AssertionError):
        campaign(kind, range(400))
