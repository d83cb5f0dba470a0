"""Slots of members: taken once, freed with their process, beaten in by their member alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

import logstore
from logstore.errors import StoreClosedError
from logstore.ownership.heartbeats import Beat
from logstore.ownership.member_slots import BOARD_SLOT, MemberSlots
from tests.client.group_worlds import GroupWorld


def name(number: int) -> str:
    return f"{number:032x}"


def test_on_disk_stores_of_two_openings_share_locks_and_beats(tmp_path: Path) -> None:
    with logstore.open(tmp_path) as store, logstore.open(tmp_path) as other:
        mine, theirs = MemberSlots(store._context), MemberSlots(other._context)
        first, second = mine.take(name(1)), theirs.take(name(2))
        assert first != second
        assert BOARD_SLOT not in (first, second)
        assert theirs.is_taken(first)
        assert mine.is_taken(second)
        assert mine.last_beat(second) == Beat(name(2), pytest.approx(mine.now_ms(), abs=10_000))
        mine.give_back(first)
        assert not theirs.is_taken(first)
        assert theirs.last_beat(first) is not None, "a beat stays, the lock says that nobody is there"
        assert theirs.take(name(3)) == first
        assert theirs.last_beat(first) == mine.last_beat(first)
        theirs.close()
        assert not mine.is_taken(second)
        with pytest.raises(StoreClosedError):
            theirs.beat(second, name(2))
        mine.close()
        mine.close()


def test_a_read_only_store_looks_and_takes_nothing(tmp_path: Path) -> None:
    with logstore.open(tmp_path) as store:
        mine = MemberSlots(store._context)
        with logstore.open(tmp_path, mode="r") as reader:
            looking = MemberSlots(reader._context)
            assert looking.last_beat(1) is None, "nobody has made the board"
            slot = mine.take(name(1))
            assert looking.is_taken(slot)
            assert looking.last_beat(slot) == mine.last_beat(slot)
            looking.close()
        mine.close()


def test_what_cannot_beat_keeps_no_slot() -> None:
    world = GroupWorld()
    slots = MemberSlots(world.first._context)
    with pytest.MonkeyPatch.context() as patch:

        def refuse(_slot: int, _member_id: str) -> None:
            raise RuntimeError("no beat")

        patch.setattr(slots, "beat", refuse)
        with pytest.raises(RuntimeError, match="no beat"):
            slots.take(name(1))
    assert not slots.is_taken(1)
    assert slots.take(name(1)) == 1
    world.close()


class SlotsOfProcesses(RuleBasedStateMachine):
    """Three processes take, beat, give back, and are killed. A model says who has which slot."""

    @initialize()
    def begin(self) -> None:
        self.world = GroupWorld()
        stores = [self.world.first, self.world.process(), self.world.process()]
        self.slots = [MemberSlots(store._context) for store in stores]
        self.held: dict[int, tuple[int, str]] = {}  # slot -> process, member
        self.beats: dict[int, Beat] = {}
        self.members = 0

    @rule(process=st.integers(0, 2))
    def take(self, process: int) -> None:
        self.members += 1
        slot = self.slots[process].take(name(self.members))
        lowest = next(number for number in range(BOARD_SLOT + 1, 100) if number not in self.held)
        assert slot == lowest
        self.held[slot] = (process, name(self.members))
        self.beats[slot] = Beat(name(self.members), self.slots[process].now_ms())

    @precondition(lambda self: self.held)
    @rule(data=st.data(), ms=st.integers(0, 5000))
    def beat(self, data: st.DataObject, ms: int) -> None:
        slot = data.draw(st.sampled_from(sorted(self.held)))
        process, member = self.held[slot]
        self.world.clock.advance(ms)
        self.slots[process].beat(slot, member)
        self.beats[slot] = Beat(member, self.slots[process].now_ms())

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def give_back(self, data: st.DataObject) -> None:
        slot = data.draw(st.sampled_from(sorted(self.held)))
        process, _ = self.held.pop(slot)
        self.slots[process].give_back(slot)

    @rule()
    def all_see_the_same(self) -> None:
        for slots in self.slots:
            for slot in range(BOARD_SLOT + 1, BOARD_SLOT + 8):
                assert slots.is_taken(slot) == (slot in self.held)
                assert slots.last_beat(slot) == self.beats.get(slot)

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.close()


TestSlotsOfProcesses = SlotsOfProcesses.TestCase
TestSlotsOfProcesses.settings = settings(
    derandomize=True, deadline=None, max_examples=30, stateful_step_count=25
)
