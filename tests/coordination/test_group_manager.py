"""The group manager on a runtime in memory: neither a directory, nor locks, nor a store."""

from __future__ import annotations

import pytest

from logstore.api.groups import JoinRequest
from logstore.coordination.group_manager import GroupManager
from logstore.coordination.membership_task import MembershipTask
from logstore.errors import StaleGenerationError, UnknownMemberError
from logstore.groups.coordinator import GroupCoordinator
from logstore.types import OffsetAndMetadata, TopicPartition
from tests.coordination.memory_coordinators import MemoryCoordinators, MemoryLog
from tests.coordination.memory_runtime import MemoryEnds, MemoryLiveness, MemoryStoreView

REQUEST = JoinRequest(topics=frozenset({"t"}))


class Process:
    """One process of a world whose members share ``logs`` and ``alive``."""

    def __init__(self, logs: dict[str, MemoryLog], alive: set[bytes]) -> None:
        self.store = MemoryStoreView()
        topic = MemoryCoordinators(logs).needed("groups", {}, GroupCoordinator)
        self.manager = GroupManager(
            self.store,
            lambda create: topic,
            lambda: {"t": 4},
            MemoryEnds(),
            lambda: None,
            MemoryLiveness(alive),
            lambda: "a process in memory",
        )
        self.task = MembershipTask(lambda: self.manager, threads=False)


def two() -> tuple[Process, Process, set[bytes]]:
    logs: dict[str, MemoryLog] = {}
    alive: set[bytes] = set()
    return Process(logs, alive), Process(logs, alive), alive


def test_members_of_two_processes_share_a_topic() -> None:
    first, second, _ = two()
    one = first.manager.join("g", REQUEST)
    view = one.view()
    assert view is not None
    assert len(view.assigned) == 4
    other = second.manager.join("g", REQUEST)
    first.task.step()
    view = one.view()
    assert view is not None
    assert len(view.revoking) == 2
    one.sync(view.assigned, view.epoch)
    second.task.step()
    moved = other.view()
    assert moved is not None
    assert len(moved.assigned) == 2
    assert one.is_settled()
    (place, *_) = moved.assigned
    with pytest.raises(StaleGenerationError):
        one.commit({place: OffsetAndMetadata(3)}, view.epoch)
    other.commit({place: OffsetAndMetadata(3)}, moved.epoch)


def test_a_dead_member_makes_way_and_offsets_expire_with_their_group() -> None:
    first, second, alive = two()
    first.manager.join("g", REQUEST)
    alive.clear()
    other = second.manager.join("g", REQUEST)
    view = other.view()
    assert view is not None
    assert len(view.assigned) == 4, "the dead member was taken out"
    other.commit({TopicPartition("t", 0): OffsetAndMetadata(3)}, view.epoch)
    other.leave()
    assert isinstance(other.ended_by(), UnknownMemberError)
    assert alive == set()
    second.store.clock.advance(3_601_000)
    second.manager.expire_offsets()
    topic = second.manager._need_topic()
    assert topic.look(lambda machine: machine.groups()) == []
