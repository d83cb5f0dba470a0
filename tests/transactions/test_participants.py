"""Prepared transactions in the pure machine: what is refused, and what one record decides over any interleaving of
participants, coordinators that come anew, answers that are lost and processes that die at each record."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from logstore.api.transactions import PreparedTransaction
from logstore.errors import (
    InvalidArgumentError,
    ProducerFencedError,
    TransactionStateError,
    TransactionTimedOutError,
    UnknownTransactionError,
)
from logstore.machine import Change, Decision
from logstore.transactions import coordinator as coordinator_module
from logstore.transactions.coordinator import LAST_EPOCH, TransactionCoordinator, TransactionState
from logstore.transactions.coordinator import TransactionStatus as Status
from logstore.transactions.participants import MOST_PREPARED
from logstore.transactions.transaction_records import encode_key, encode_value
from logstore.types import TopicPartition

PLACE = TopicPartition("t", 0)
TIMEOUT_MS = 1_000
BOUND_MS = 10_000


class Machine:
    """The coordinator with a log; what is decided is durable at once unless ``lost``."""

    def __init__(self, kind: type[TransactionCoordinator] = TransactionCoordinator) -> None:
        self.kind = kind
        self.machine = kind()
        self.log: list[Change] = []
        self.now_ms = 0
        self.fresh_id = 100

    def keep(self, decision: Decision[Any], *, lost: bool = False) -> Any:
        for key, value in () if lost else decision.records:
            self.log.append((key, value))
            self.machine.replay(key, value)
        return decision.reply

    def restart(self, *, compacted: bool = False) -> None:
        self.machine = self.kind()
        for key, value in dict(self.log).items() if compacted else self.log:
            self.machine.replay(key, value)

    def open(self, name: str, *, lost: bool = False, **how: Any) -> PreparedTransaction | None:
        """None: something is to be finished first."""
        self.fresh_id += 1
        reply = self.keep(
            self.machine.decide_init(name, TIMEOUT_MS, self.fresh_id, self.now_ms, **how), lost=lost
        )
        return None if reply.pending else PreparedTransaction(name, reply.producer_id, reply.epoch)

    def add(self, writer: PreparedTransaction, *places: TopicPartition) -> None:
        self.keep(self.machine.decide_add_partitions(*writer, places or (PLACE,), self.now_ms))

    def prepare(self, writer: PreparedTransaction) -> PreparedTransaction:
        prepared: PreparedTransaction = self.keep(self.machine.decide_prepare(*writer, self.now_ms))
        assert prepared == writer
        return prepared

    def prepared(self, name: str, coordinator: str = "c") -> PreparedTransaction:
        writer = self.open(name, coordinator=coordinator)
        assert writer is not None
        self.add(writer)
        return self.prepare(writer)

    def end(self, writer: PreparedTransaction, commit: bool, *prepared: PreparedTransaction) -> Any:
        return self.keep(
            self.machine.decide_end(*writer, commit=commit, now_ms=self.now_ms, prepared=prepared)
        )

    def settle(self, name: str, most_bytes: int = 10_000) -> int:
        changed: int = self.keep(self.machine.decide_settle(name, self.now_ms, most_bytes))
        return changed

    def mark(self, name: str) -> None:
        ended = self.machine.describe(name).ended
        if ended is not None:
            self.keep(self.machine.decide_marked(*ended[:3], ended.places, self.now_ms))

    def finish(self, name: str) -> None:
        """As whoever finds the coordinator's outcome decided."""
        while self.settle(name):
            pass
        for state in self.machine.participants.of(name):
            self.mark(state.transactional_id)
        self.mark(name)

    def status(self, name: str) -> str:
        state = self.machine.describe(name)
        return "PREPARED" if state.is_prepared else state.status.name


def opened(machine: Machine, name: str = "c", **how: Any) -> PreparedTransaction:
    writer = machine.open(name, **how)
    if writer is None:
        machine.finish(name)
        writer = machine.open(name, **how)
    assert writer is not None
    return writer


# --- the life of a prepared transaction ---


@pytest.mark.parametrize("restarted", [False, True])
def test_one_record_commits_what_it_lists_and_aborts_the_rest(restarted: bool) -> None:
    machine = Machine()
    one, two, loser = (machine.prepared(name) for name in ("p1", "p2", "p3"))
    ongoing = machine.open("p4", coordinator="c")
    assert ongoing is not None
    machine.add(ongoing)
    coordinator = opened(machine, keep_prepared=True)
    machine.add(coordinator, TopicPartition("__consumer_offsets", 0))
    records = len(machine.log)
    ended = machine.end(coordinator, True, two, one)
    assert ended.decides
    assert len(machine.log) == records + 1
    if restarted:
        machine.restart()
    assert machine.status("p1") == "PREPARED", "its own record is still to come"
    assert machine.machine.participants.is_committed(machine.machine.describe("p1"))
    machine.mark("c")
    assert machine.status("c") == "PREPARE_COMMIT", "it is complete last"
    machine.finish("c")
    assert [machine.status(name) for name in ("p1", "p2", "p3", "p4", "c")] == [
        "COMPLETE_COMMIT",
        "COMPLETE_COMMIT",
        "COMPLETE_ABORT",
        "COMPLETE_ABORT",
        "COMPLETE_COMMIT",
    ]
    machine.restart(compacted=True)
    assert machine.machine.in_doubt() == []
    assert loser.epoch < machine.machine.describe("p3").epoch


def test_a_coordinator_with_nothing_of_its_own_decides_too() -> None:
    machine = Machine()
    one = machine.prepared("p1")
    coordinator = opened(machine, keep_prepared=True)
    ended = machine.end(coordinator, True, one)
    assert ended.places == ()
    assert machine.end(coordinator, True, one) == ended, "asked again"
    machine.finish("c")
    assert (machine.status("p1"), machine.status("c")) == ("COMPLETE_COMMIT", "COMPLETE_COMMIT")
    assert machine.end(coordinator, True, one).places == ()


def test_participants_of_others_are_let_be() -> None:
    machine = Machine()
    mine, other = machine.prepared("p1"), machine.prepared("q1", "d")
    machine.end(opened(machine, keep_prepared=True), True, mine)
    machine.finish("c")
    assert machine.status("q1") == "PREPARED"
    machine.end(opened(machine, "d", keep_prepared=True), True, other)
    machine.finish("d")
    assert machine.status("q1") == "COMPLETE_COMMIT"


def test_an_opening_of_the_coordinator_aborts_what_is_undecided() -> None:
    machine = Machine()
    one = machine.prepared("p1")
    assert machine.open("c") is None, "what waits for an id that was never open, too"
    assert machine.status("c") == "PREPARE_ABORT"
    machine.restart()
    machine.finish("c")
    assert machine.status("p1") == "COMPLETE_ABORT"
    coordinator = opened(machine)
    with pytest.raises(TransactionStateError, match="was aborted"):
        machine.end(coordinator, True, one)


def test_an_opening_of_the_coordinator_finishes_what_is_decided() -> None:
    machine = Machine()
    one = machine.prepared("p1")
    old = opened(machine, keep_prepared=True)
    machine.end(old, True, one)
    machine.restart()
    assert machine.open("c") is None
    machine.finish("c")
    assert machine.status("p1") == "COMPLETE_COMMIT"
    new = opened(machine)
    assert new.epoch > old.epoch
    assert machine.machine.outcome_of(*old) is True


def test_an_opening_fences_the_coordinator_before_it_aborts() -> None:
    """A driver that was taken for dead cannot commit what the next one aborts."""
    machine = Machine()
    one = machine.prepared("p1")
    old = opened(machine, keep_prepared=True)
    assert machine.open("c") is None
    with pytest.raises(ProducerFencedError):
        machine.end(old, True, one)
    machine.finish("c")
    assert machine.machine.outcome_of(*old) is not True
    opened(machine)
    assert machine.machine.outcome_of(*old) is False


def test_an_outcome_is_known_after_openings_that_abort_participants() -> None:
    machine = Machine()
    old = opened(machine)
    machine.add(old)
    machine.end(old, True)
    machine.mark("c")
    machine.prepared("p1")
    opened(machine)
    assert machine.machine.outcome_of(*old) is True


def test_an_opening_that_keeps_aborts_only_what_the_coordinator_had_open_itself() -> None:
    machine = Machine()
    one = machine.prepared("p1")
    machine.add(opened(machine, keep_prepared=True))
    assert machine.open("c", keep_prepared=True) is None
    machine.finish("c")
    assert machine.status("p1") == "PREPARED"
    machine.end(opened(machine, keep_prepared=True), True, one)


def test_an_abort_of_the_coordinator_aborts_its_participants() -> None:
    machine = Machine()
    machine.prepared("p1")
    coordinator = opened(machine, keep_prepared=True)
    machine.end(coordinator, False)
    assert machine.status("c") == "PREPARE_ABORT"
    machine.finish("c")
    assert (machine.status("p1"), machine.status("c")) == ("COMPLETE_ABORT", "COMPLETE_ABORT")


def test_prepared_is_out_of_reach_of_the_timeout_and_not_of_the_bound() -> None:
    machine = Machine()
    one = machine.prepared("p1")
    machine.now_ms = TIMEOUT_MS * 5
    assert not machine.machine.describe("p1").is_overdue(machine.now_ms)
    resolve = machine.machine.decide_resolve
    assert resolve("p1", machine.now_ms, prepared_max_age_ms=BOUND_MS) == Decision((), None)
    machine.now_ms = BOUND_MS + 1
    ended = machine.keep(resolve("p1", machine.now_ms, prepared_max_age_ms=BOUND_MS))
    assert ended is not None
    assert not ended.commit
    with pytest.raises(TransactionStateError, match="was aborted"):
        machine.end(opened(machine, keep_prepared=True), True, one)


def test_neither_the_bound_nor_an_administrator_nor_an_opening_undoes_a_decision() -> None:
    for how in ("bound", "administrator", "opening", "producer"):
        machine = Machine()
        one = machine.prepared("p1")
        machine.end(opened(machine, keep_prepared=True), True, one)
        machine.now_ms = BOUND_MS * 2
        if how == "opening":
            assert machine.open("p1") is None
        elif how == "producer":
            with pytest.raises(TransactionStateError, match="has committed it"):
                machine.end(one, False)
        else:
            bound = BOUND_MS if how == "bound" else None
            machine.keep(
                machine.machine.decide_resolve("p1", machine.now_ms, fence=True, prepared_max_age_ms=bound)
            )
        machine.finish("c")
        assert machine.status("p1") == "COMPLETE_COMMIT", how
        assert machine.machine.outcome_of(*one) is True, how


@pytest.mark.parametrize("commit", [True, False])
def test_what_begins_after_the_decision_is_no_part_of_it(commit: bool) -> None:
    """The next attempt at the same work begins while whoever found the last one decided is still at it."""
    machine = Machine()
    one = machine.prepared("p1")
    loser = opened(machine, "p2", coordinator="c")
    machine.add(loser)
    coordinator = opened(machine, keep_prepared=True)
    machine.add(coordinator)
    machine.end(coordinator, commit, *([one] if commit else []))
    machine.now_ms += 1
    machine.mark("c")  # its own place shows it; that is no later decision
    later = opened(machine, "p3", coordinator="c")
    machine.add(later)
    machine.now_ms += 1
    machine.restart(compacted=True)
    machine.finish("c")
    assert machine.status("p1") == ("COMPLETE_COMMIT" if commit else "COMPLETE_ABORT")
    assert machine.status("p2") == "COMPLETE_ABORT"
    assert machine.status("c") == ("COMPLETE_COMMIT" if commit else "COMPLETE_ABORT")
    assert machine.status("p3") == "ONGOING"
    machine.end(opened(machine, keep_prepared=True), True, machine.prepare(later))


def test_outcomes_of_many_go_into_batches_that_fit() -> None:
    machine = Machine()
    places = [TopicPartition("t", number) for number in range(1_000)]
    prepared = []
    for number in range(10):
        writer = opened(machine, f"p{number}", coordinator="c")
        machine.add(writer, *places)
        prepared.append(machine.prepare(writer))
    machine.end(opened(machine, keep_prepared=True), True, *prepared)
    assert machine.settle("c", 10_000) == 2
    assert machine.settle("c", 1) == 1, "one at the least"
    machine.finish("c")
    assert machine.status("c") == "COMPLETE_COMMIT"


# --- refusals ---


def test_what_is_prepared_takes_nothing_more() -> None:
    machine = Machine()
    one = machine.prepared("p1")
    assert machine.prepare(one) == one, "again: the same"
    with pytest.raises(TransactionStateError, match="is prepared"):
        machine.add(one, TopicPartition("t", 1))
    with pytest.raises(TransactionStateError, match="is prepared"):
        machine.add(one)
    with pytest.raises(TransactionStateError, match="is its coordinator"):
        machine.end(one, True)
    machine.end(one, False)  # who wrote it may take it back as long as nothing is decided
    assert machine.status("p1") == "PREPARE_ABORT"


def test_who_may_prepare() -> None:
    machine = Machine()
    plain = opened(machine, "x")
    machine.add(plain)
    with pytest.raises(TransactionStateError, match="names no coordinator"):
        machine.prepare(plain)
    writer = opened(machine, "p1", coordinator="c")
    with pytest.raises(TransactionStateError, match="none is under way"):
        machine.prepare(writer)
    with pytest.raises(UnknownTransactionError):
        machine.prepare(PreparedTransaction("never", 1, 0))
    machine.add(writer)
    with pytest.raises(TransactionStateError, match="is its coordinator"):
        machine.end(writer, True)
    machine.now_ms = TIMEOUT_MS + 1
    with pytest.raises(TransactionTimedOutError):
        machine.prepare(writer)
    assert opened(machine, "p1").epoch > writer.epoch
    with pytest.raises(ProducerFencedError):
        machine.prepare(writer)


def test_a_commit_with_what_is_not_prepared_for_it_changes_nothing() -> None:
    machine = Machine()
    good, other = machine.prepared("p1"), machine.prepared("q1", "d")
    ongoing = opened(machine, "p2", coordinator="c")
    machine.add(ongoing)
    fenced = machine.prepared("p3")
    assert machine.open("p3", coordinator="c") is None
    machine.mark("p3")
    newer = machine.prepared("p3")
    assert newer != fenced
    coordinator = opened(machine, keep_prepared=True)
    before = machine.machine.transactions()
    for bad, why in (
        (other, "its coordinator is 'd'"),
        (ongoing, "not prepared"),
        (fenced, "fenced"),
        (PreparedTransaction("never", 1, 0), "not known"),
    ):
        with pytest.raises(TransactionStateError, match=why):
            machine.end(coordinator, True, good, bad)
    many = [PreparedTransaction(f"p{number}", 1, 0) for number in range(MOST_PREPARED + 1)]
    with pytest.raises(InvalidArgumentError, match="the most is"):
        machine.end(coordinator, True, *many)
    with pytest.raises(InvalidArgumentError, match="leave them out"):
        machine.end(coordinator, False, good)
    assert machine.machine.transactions() == before
    machine.end(coordinator, True, good)
    with pytest.raises(TransactionStateError, match="committed already"):
        machine.end(coordinator, True, newer)
    with pytest.raises(TransactionStateError, match="it is committed"):
        machine.end(coordinator, False)


def test_coordinators_do_not_nest() -> None:
    machine = Machine()
    machine.prepared("p1")
    with pytest.raises(InvalidArgumentError, match="its own coordinator"):
        machine.open("p2", coordinator="p2")
    with pytest.raises(TransactionStateError, match="itself a participant"):
        machine.open("p2", coordinator="p1")
    with pytest.raises(TransactionStateError, match="participants of its own"):
        machine.open("c", coordinator="d")


def test_an_id_whose_epochs_are_spent_decides_under_another_producer_id() -> None:
    machine = Machine()
    state = TransactionState("c", 7, LAST_EPOCH - 2, TIMEOUT_MS, Status.COMPLETE_COMMIT, (), 0, 0)
    machine.keep(Decision(((encode_key("c"), encode_value(state)),), None))
    for _ in range(6):
        one = machine.prepared("p1")
        coordinator = opened(machine, keep_prepared=True)
        machine.end(coordinator, True, one)
        machine.finish("c")
        assert machine.status("p1") == "COMPLETE_COMMIT"
        machine.prepared("p1")
        opened(machine)
        assert machine.status("p1") == "COMPLETE_ABORT"


def test_ids_of_participants_are_forgotten_and_the_querys_is_not() -> None:
    machine = Machine()
    one = machine.prepared("spark-q-0-0", "spark-q")
    waiting = machine.prepared("spark-q-1-0", "spark-r")
    machine.end(opened(machine, "spark-q", keep_prepared=True), True, one)
    machine.finish("spark-q")
    opened(machine, "spark-once-1")
    assert machine.machine.expired(1_000_000, 1) == ["spark-once-1", "spark-q-0-0"]
    assert waiting.transactional_id not in machine.machine.expired(1_000_000, 1)


# --- any interleaving ---


class Story:
    """Participants, a coordinator that dies and comes again, and a model of what each handle must become."""

    def __init__(self, kind: type[TransactionCoordinator], seed: int) -> None:
        self.random = Random(seed)
        self.world = Machine(kind)
        self.handles: set[PreparedTransaction] = set()
        self.listed: dict[PreparedTransaction, bool] = {}  # what a durable decision says of it
        self.coordinator: PreparedTransaction | None = None

    def step(self) -> None:
        world, random = self.world, self.random
        name = f"p{random.randrange(3)}"
        action = random.randrange(9)
        if action <= 2:
            self.write(name, prepares=action < 2)
        elif action == 3:
            self.coordinator = world.open("c", keep_prepared=random.random() < 0.7)
            self.note_aborted_by_the_coordinator()
        elif action == 4 and self.coordinator is not None:
            self.decide()
        elif action == 5:
            self.go_on_with_some()
        elif action == 6:
            world.restart(compacted=random.random() < 0.5)
        elif action == 7 and world.machine.find("c") is not None:
            world.finish("c")
        elif action == 8 and world.machine.find(name) is not None:
            self.resolve(name, random.choice([None, BOUND_MS]))
        self.check()

    def go_on_with_some(self) -> None:
        """A step or two of whoever finishes an outcome."""
        world = self.world
        if world.machine.find("c") is not None:
            world.settle("c", 1)
            world.mark(self.random.choice(world.machine.transactions()).transactional_id)

    def resolve(self, name: str, bound: int | None) -> None:
        world = self.world
        state = world.machine.describe(name)
        world.keep(world.machine.decide_resolve(name, world.now_ms, prepared_max_age_ms=bound))
        if state.is_prepared and bound is not None and not self.listed.get(state.handle):
            assert world.machine.describe(name) == state, "the bound has not passed"

    def write(self, name: str, *, prepares: bool) -> None:
        writer = self.world.open(name, coordinator="c")
        if writer is None:
            return
        self.world.add(writer)
        if prepares:
            self.handles.add(self.world.prepare(writer))

    def note_aborted_by_the_coordinator(self) -> None:
        state = self.world.machine.describe("c")
        if state.status == Status.PREPARE_ABORT and state.decides is not None:
            self.coordinator = None
            for one in self.world.machine.participants.of("c"):
                if one.is_prepared:
                    self.listed.setdefault(one.handle, False)

    def decide(self) -> None:
        world = self.world
        assert self.coordinator is not None
        waiting = [one.handle for one in world.machine.participants.of("c") if one.is_prepared]
        pool = sorted(waiting) + sorted(self.handles)[-1:]
        chosen = set(self.random.sample(pool, self.random.randint(0, len(pool))))
        commit = self.random.random() < 0.8
        lost = self.random.random() < 0.2
        before = world.machine.transactions()
        try:
            decision = world.machine.decide_end(
                *self.coordinator, commit=commit, now_ms=world.now_ms, prepared=chosen if commit else ()
            )
        except (TransactionStateError, ProducerFencedError):
            assert world.machine.transactions() == before
            return
        assert len(decision.records) <= 1, "one record decides"
        world.keep(decision, lost=lost)
        if lost or not decision.records or not decision.reply.decides:
            return
        assert not commit or chosen <= set(waiting), "what is not prepared was committed"
        for handle in waiting:
            assert self.listed.setdefault(handle, commit and handle in chosen) == (
                commit and handle in chosen
            )

    def check(self) -> None:
        machine = self.world.machine
        for handle, commit in self.listed.items():
            state = machine.find(handle.transactional_id)
            assert state is not None
            outcome = machine.outcome_of(*handle)
            assert outcome is None or outcome == commit, (handle, commit, state)
        for handle in self.handles:
            if machine.outcome_of(*handle) is True:
                assert self.listed.get(handle), "nothing decided that"
        decider = machine.find("c")
        if decider is not None and decider.status in (Status.COMPLETE_COMMIT, Status.EMPTY):
            for handle, commit in self.listed.items():
                state = machine.find(handle.transactional_id)
                assert state is not None
                if commit and (state.producer_id, state.epoch) == handle[1:]:
                    raise AssertionError(f"the coordinator is complete before {handle}")


def campaign(kind: type[TransactionCoordinator], seeds: range, steps: int = 60) -> None:
    for seed in seeds:
        story = Story(kind, seed)
        for _ in range(steps):
            story.step()


def test_the_properties_hold_over_many_seeds() -> None:
    campaign(TransactionCoordinator, range(300))


@pytest.mark.long
def test_the_properties_hold_over_very_many_seeds() -> None:
    campaign(TransactionCoordinator, range(1_000, 41_000))


class AnOpeningForgetsTheDecision(TransactionCoordinator):
    def decide_init(self, transactional_id: str, *rest: Any, **named: Any) -> Any:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(self.participants, "is_committed", lambda state: False)
            return super().decide_init(transactional_id, *rest, **named)


class TheBoundForgetsTheDecision(TransactionCoordinator):
    def decide_resolve(self, *rest: Any, **named: Any) -> Any:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(self.participants, "is_committed", lambda state: False)
            return super().decide_resolve(*rest, **named)


class TheReaperIsImpatient(TransactionCoordinator):
    def decide_resolve(self, *rest: Any, **named: Any) -> Any:
        return super().decide_resolve(*rest, **{**named, "prepared_max_age_ms": None})


class CommitsWhatIsNotPrepared(TransactionCoordinator):
    def decide_end(self, *rest: Any, **named: Any) -> Any:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(self.participants, "check_prepared", lambda coordinator, prepared: None)
            return super().decide_end(*rest, **named)


class CompleteBeforeItsParticipants(TransactionCoordinator):
    def decide_marked(self, *rest: Any) -> Any:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(self.participants, "are_complete", lambda state: True)
            return super().decide_marked(*rest)


class CommitsTheLosersToo(TransactionCoordinator):
    def decide_settle(self, coordinator: str, now_ms: int, most_bytes: int) -> Any:
        decision = super().decide_settle(coordinator, now_ms, most_bytes)
        records = []
        for key, value in decision.records:
            name = key[4:].decode()
            state = self.describe(name)
            committed = replace(state, status=Status.PREPARE_COMMIT, epoch=state.epoch + 1, prepared_ms=-1)
            records.append((key, encode_value(committed) if value else value))
        return Decision(tuple(records), decision.reply)


class KeepsNothingForTheCoordinator(TransactionCoordinator):
    """An opening with ``keep_prepared`` decides as a plain one; found by the unit tests, and by the story's commits."""

    def decide_end(self, *rest: Any, **named: Any) -> Any:
        decision = super().decide_end(*rest, **named)
        if not named["commit"] or not decision.records:
            return decision
        ((key, value),) = decision.records
        assert value is not None
        state = coordinator_module.decode_value(rest[0], value)
        return Decision(((key, encode_value(replace(state, decides=()))),), decision.reply)


PLANTS: list[Callable[[], TransactionCoordinator]] = [
    AnOpeningForgetsTheDecision,
    TheBoundForgetsTheDecision,
    TheReaperIsImpatient,
    CommitsWhatIsNotPrepared,
    CompleteBeforeItsParticipants,
    CommitsTheLosersToo,
    KeepsNothingForTheCoordinator,
]


@pytest.mark.parametrize("kind", PLANTS, ids=lambda kind: kind.__name__)
def test_a_planted_fault_is_found(kind: type[TransactionCoordinator]) -> None:
    with pytest.raises(AssertionError):
        campaign(kind, range(300))
