"""Random lives of a group: members that act by old views, die, are fenced; topics that come, grow and go;
commits inside and outside of transactions; and at every point the same state from the log alone."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from logstore.api.groups import Assignor, MemberDescription
from logstore.errors import (
    GroupBusyError,
    MemberFencedError,
    StaleGenerationError,
    UnknownMemberError,
)
from logstore.groups.coordinator import GroupCoordinator
from logstore.machine import TransactionalWriter
from logstore.types import TopicPartition
from tests.groups.life import Log, Person, at, join, play, state_of

GROUP = "g"
TOPICS = ("a", "b", "c")
WANTED = st.frozensets(st.sampled_from(TOPICS), min_size=1)


class GroupLife(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.log = Log()
        self.partitions: dict[str, int] = {}
        self.told: dict[str, int] = {}  # what the group knows of them
        self.people: dict[str, Person] = {}
        self.away: set[str] = set()  # static members that left
        self.outsiders: dict[
            str, tuple[type[Exception], ...]
        ] = {}  # no members any more, and what they are told
        # Who stopped reading what, under which epoch; and those of them that another has had since.
        self.given_up: set[tuple[str, TopicPartition, int]] = set()
        self.moved_on: set[tuple[str, TopicPartition, int]] = set()
        self.pending: dict[TopicPartition, list[tuple[int, int]]] = {}  # producer id, offset; as in the log
        self.committed: dict[TopicPartition, int] = {}
        self.made = 0
        self.now_ms = 1_000

    # --- members ---

    @initialize(
        counts=st.fixed_dictionaries(dict.fromkeys("ab", st.integers(0, 5))), members=st.integers(0, 3)
    )
    def begin(self, counts: dict[str, int], members: int) -> None:
        self.partitions = dict(counts)
        for number in range(members):
            self.enter(Person(f"first{number}", frozenset("ab"), "i" if number == 2 else None), "sticky")

    @property
    def machine(self) -> GroupCoordinator:
        return self.log.machine

    def present(self, data: st.DataObject) -> Person:
        return self.people[data.draw(st.sampled_from(sorted(self.people)))]

    def described(self) -> tuple[MemberDescription, ...]:
        return self.machine.describe(GROUP).members if GROUP in self.machine.groups() else ()

    def gone(self, member_id: str, *told: type[Exception]) -> None:
        self.people.pop(member_id, None)
        self.outsiders[member_id] = told

    @precondition(lambda self: len(self.people) < 6)
    @rule(
        topics=WANTED,
        assignor=st.sampled_from(["range", "round_robin", "sticky"]),
        instance_id=st.none() | st.sampled_from(["i", "j"]),
        pattern=st.none() | st.just("."),
    )
    def join(
        self, topics: frozenset[str], assignor: Assignor, instance_id: str | None, pattern: str | None
    ) -> None:
        self.made += 1
        self.enter(Person(f"m{self.made:03}", topics, instance_id, pattern), assignor)

    def enter(self, person: Person, assignor: Assignor) -> None:
        instance_id = person.instance_id
        before = self.described()
        epoch = self.machine.describe(GROUP).epoch if before else 0
        join(self.log, person, self.partitions, assignor=assignor, now_ms=self.now_ms)
        self.told = dict(self.partitions)
        holder = next((row for row in before if instance_id and row.instance_id == instance_id), None)
        if holder is not None:
            self.away.discard(holder.member_id)
            self.gone(holder.member_id, MemberFencedError, UnknownMemberError)
            with pytest.raises(MemberFencedError):
                self.machine.check_member(GROUP, holder.member_id)
            if self.machine.describe(GROUP).epoch == epoch:
                targets = {row.instance_id or row.member_id: row.target for row in before}
                assert targets == {row.instance_id or row.member_id: row.target for row in self.described()}
        self.people[person.member_id] = person

    @precondition(lambda self: self.people)
    @rule(data=st.data())
    def look(self, data: st.DataObject) -> None:
        person = self.present(data)
        view = self.machine.view(GROUP, person.member_id)
        assert view is not None
        person.look(view)

    @precondition(lambda self: self.people)
    @rule(data=st.data())
    def sync(self, data: st.DataObject) -> None:
        self.give_up(self.present(data))

    @rule()
    def all_come_to_rest(self) -> None:
        """Nothing is stuck: when each has given up what it shall, each has what it shall have."""
        for person in self.people.values():
            view = self.machine.view(GROUP, person.member_id)
            assert view is not None
            person.look(view)
            self.give_up(person)
        for person in self.people.values():
            view = self.machine.view(GROUP, person.member_id)
            assert view is not None
            person.look(view)
            assert not view.revoking
        rows = self.described()
        assert self.machine.describe(GROUP).state == "stable" if rows else not self.people
        wanted = {topic for row in rows for topic in row.topics}
        assert sorted(place for row in rows for place in row.assigned) == sorted(
            TopicPartition(topic, number) for topic in wanted for number in range(self.told.get(topic, 0))
        )

    @rule()
    def one_comes_all_rest_and_it_goes(self) -> None:
        self.made += 1
        visitor = Person(f"m{self.made:03}", frozenset(TOPICS))
        self.enter(visitor, "sticky")
        self.all_come_to_rest()
        self.nobody_reads_what_another_reads()
        self.log.append(self.machine.decide_expire(GROUP, [visitor.member_id], self.now_ms))
        self.gone(visitor.member_id, UnknownMemberError)

    def give_up(self, person: Person) -> None:
        """By the view it saw last, as a consumer does: stop reading, commit, say what is left."""
        view = person.seen
        assert view is not None
        dropped = person.reading - view.assigned
        person.reading &= view.assigned
        self.given_up |= {(person.member_id, place, view.epoch) for place in dropped}
        person.look(
            self.log.append(
                self.machine.decide_sync(GROUP, person.member_id, view.epoch, view.assigned, self.now_ms)
            )
        )

    @precondition(lambda self: self.people)
    @rule(data=st.data(), topics=st.none() | WANTED)
    def update(self, data: st.DataObject, topics: frozenset[str] | None) -> None:
        person = self.present(data)
        assert person.seen is not None
        person.topics = person.topics if topics is None else topics
        decision = self.machine.decide_update(
            GROUP, person.member_id, person.seen.epoch, person.topics, self.partitions, self.now_ms
        )
        person.look(self.log.append(decision))
        self.told = dict(self.partitions)
        again = self.machine.decide_update(
            GROUP, person.member_id, person.seen.epoch, person.topics, self.partitions, self.now_ms
        )
        assert again.records == ()

    @precondition(lambda self: self.people)
    @rule(data=st.data(), forget=st.booleans())
    def leave(self, data: st.DataObject, forget: bool) -> None:
        person = self.present(data)
        decision = self.machine.decide_leave(GROUP, person.member_id, self.now_ms, forget=forget)
        assert self.log.append(decision) is True
        self.gone(person.member_id, UnknownMemberError)
        if person.instance_id is not None and not forget:
            self.away.add(person.member_id)
        repeated = self.machine.decide_leave(GROUP, person.member_id, self.now_ms)
        assert (repeated.records, repeated.reply) == ((), False)

    @precondition(lambda self: self.people or self.away)
    @rule(data=st.data())
    def expire(self, data: st.DataObject) -> None:
        names = sorted(self.people.keys() | self.away)
        dead = data.draw(st.lists(st.sampled_from(names), min_size=1, unique=True))
        decision = self.machine.decide_expire(GROUP, [*dead, "never was"], self.now_ms)
        assert self.log.append(decision) == sorted(dead)
        for member_id in dead:
            self.away.discard(member_id)
            self.gone(member_id, UnknownMemberError)

    @precondition(lambda self: self.outsiders)
    @rule(data=st.data())
    def an_outsider_is_told(self, data: st.DataObject) -> None:
        member_id = data.draw(st.sampled_from(sorted(self.outsiders)))
        assert self.machine.view(GROUP, member_id) is None
        for call in (
            lambda: self.machine.decide_sync(GROUP, member_id, 1, (), self.now_ms),
            lambda: self.machine.decide_update(GROUP, member_id, 1, TOPICS, {}, self.now_ms),
            lambda: self.machine.decide_commit(GROUP, {}, 1, member_id=member_id, epoch=1),
            lambda: self.machine.check_member(GROUP, member_id),
        ):
            with pytest.raises(self.outsiders[member_id]):
                call()

    # --- topics ---

    @rule(topic=st.sampled_from(TOPICS), more=st.integers(1, 3))
    def grow(self, topic: str, more: int) -> None:
        self.partitions[topic] = self.partitions.get(topic, 0) + more

    @precondition(lambda self: self.partitions)
    @rule(data=st.data())
    def delete_topic(self, data: st.DataObject) -> None:
        topic = data.draw(st.sampled_from(sorted(self.partitions)))
        del self.partitions[topic]
        self.told.pop(topic, None)
        self.log.append(self.machine.decide_delete_topic(topic, lambda _: None))
        for person in self.people.values():
            person.reading = {place for place in person.reading if place.topic != topic}
            if person.seen is not None:  # its consumer has noticed: there is no such partition to read
                person.seen = person.seen._replace(
                    assigned=frozenset(at for at in person.seen.assigned if at.topic != topic),
                    revoking=frozenset(at for at in person.seen.revoking if at.topic != topic),
                )
        self.given_up = {row for row in self.given_up if row[1].topic != topic}
        self.committed = {place: at for place, at in self.committed.items() if place.topic != topic}
        self.pending = {place: rows for place, rows in self.pending.items() if place.topic != topic}

    # --- commits ---

    @precondition(lambda self: self.people)
    @rule(data=st.data(), offset=st.integers(0, 99), producer_id=st.none() | st.integers(1, 2))
    def commit(self, data: st.DataObject, offset: int, producer_id: int | None) -> None:
        """What a member reads it may commit for, whatever has happened since it looked."""
        person = self.present(data)
        assert person.seen is not None
        offsets = dict.fromkeys(sorted(person.reading), at(offset))
        who: dict[str, Any] = {"member_id": person.member_id, "epoch": person.seen.epoch}
        if producer_id is None:
            self.log.append(self.machine.decide_commit(GROUP, offsets, self.now_ms, **who))
            self.committed |= dict.fromkeys(offsets, offset)
            for place in offsets:
                self.pending.pop(place, None)
            return
        writer = TransactionalWriter(producer_id, 0)
        self.log.append(
            self.machine.decide_transactional_commit(GROUP, offsets, writer, self.now_ms, None, **who)
        )
        for place in offsets:
            others = [row for row in self.pending.get(place, []) if row[0] != producer_id]
            self.pending[place] = [*others, (producer_id, offset)]

    @precondition(lambda self: self.people)
    @rule(data=st.data())
    def an_epoch_to_come_is_refused(self, data: st.DataObject) -> None:
        person = self.present(data)
        epoch = self.machine.describe(GROUP).epoch + 1
        with pytest.raises(StaleGenerationError) as caught:
            self.machine.decide_sync(GROUP, person.member_id, epoch, person.reading, self.now_ms)
        assert caught.value.found == epoch > caught.value.expected

    @precondition(lambda self: self.people)
    @rule()
    def strangers_are_refused(self) -> None:
        with pytest.raises(GroupBusyError, match="it has members"):
            self.machine.decide_commit(GROUP, {TopicPartition("a", 0): at(1)}, 1)
        with pytest.raises(GroupBusyError, match="it has members"):
            self.machine.decide_delete_group(GROUP)

    @rule(producer_id=st.integers(1, 2), commit=st.booleans())
    def end(self, producer_id: int, commit: bool) -> None:
        """The newest commit of a partition counts, whichever transaction ends first."""
        self.log.end_transaction(producer_id, 1, commit)
        for place, rows in list(self.pending.items()):
            mine = next((number for number, row in enumerate(rows) if row[0] == producer_id), None)
            if mine is None:
                continue
            if commit:
                self.committed[place] = rows[mine][1]
            rest = rows[mine + 1 :] if commit else rows[:mine] + rows[mine + 1 :]
            self.pending[place] = rest
            if not rest:
                del self.pending[place]

    @rule(hours=st.integers(0, 3))
    def time_passes(self, hours: int) -> None:
        self.now_ms += hours * 3_600_000

    # --- what must hold ---

    @invariant()
    def nobody_reads_what_another_reads(self) -> None:
        readers: dict[TopicPartition, str] = {}
        for member_id, person in self.people.items():
            for place in person.reading:
                assert readers.setdefault(place, member_id) == member_id
        if GROUP not in self.machine.groups():
            return
        for row in self.machine.describe(GROUP).members:
            for place in row.assigned + row.revoking:
                assert readers.setdefault(place, row.member_id) == row.member_id
        moved = {row for row in self.given_up if readers.get(row[1], row[0]) != row[0]}
        self.moved_on |= moved
        self.given_up -= moved

    @invariant()
    def a_late_commit_is_refused(self) -> None:
        """For what another has had since, whoever has it now."""
        for member_id, place, epoch in sorted(self.moved_on):
            if member_id in self.people:
                with pytest.raises(StaleGenerationError) as caught:
                    self.machine.decide_commit(GROUP, {place: at(1)}, 1, member_id=member_id, epoch=epoch)
                assert caught.value.found == epoch

    @invariant()
    def offsets_are_what_was_committed(self) -> None:
        found = {place: row.offset for place, row in self.machine.committed(GROUP).items()}
        assert found == self.committed
        assert self.machine.pending(GROUP) == {place: rows[-1][0] for place, rows in self.pending.items()}

    def teardown(self) -> None:
        """The log alone gives the same state, at each point that it has been at."""
        self.all_come_to_rest()
        assert state_of(self.log.compacted()) == state_of(self.machine)
        again = GroupCoordinator()
        for entry, state in zip(self.log.entries, self.log.states, strict=True):
            play(again, entry)
            assert state_of(again) == state


TestGroupLife = GroupLife.TestCase
TestGroupLife.settings = settings(derandomize=True, deadline=None, max_examples=100, stateful_step_count=40)
