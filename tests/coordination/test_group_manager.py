"""The group manager on a runtime in memory: neither a directory, nor locks, nor a store."""

from __future__ import annotations

import pytest

from logstore.api.groups import JoinRequest
from logstore.coordination.group_manager import GroupManager
from logstore.coordination.membership_task import MembershipTask
from logstore.errors import StaleGenerationError, StorageError, UnknownMemberError
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


def test_a_join_whose_answer_cannot_be_given_leaves_no_member(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process would keep it alive, and its caller never hears of it."""
    first, _, alive = two()
    refresh = first.manager.refresh

    def fail() -> bool:
        monkeypatch.setattr(first.manager, "refresh", refresh)
        raise StorageError("cannot read")

    monkeypatch.setattr(first.manager, "refresh", fail)
    with pytest.raises(StorageError):
        first.manager.join("g", REQUEST)
    assert first.manager.members() == []
    assert alive == set()
    other = first.manager.join("g", REQUEST)
    view = other.view()
    assert view is not None
    assert len(view.assigned) == 4


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


def test_a_wait_of_more_than_a_second_for_a_partition_names_the_member_that_has_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    first, second, _ = two()
    one = first.manager.join("g", REQUEST)
    other = second.manager.join("g", REQUEST)
    second.task.step()
    second.store.clock.advance(900)
    second.task.step()
    assert not _warnings(caplog), "not yet a second"
    second.store.clock.advance(1_100)
    second.task.step()
    (told,) = _warnings(caplog)
    assert told.startswith(f"group 'g': member {other.member_id} has waited 2.0 s for t-")
    assert f"which member {one.member_id} (a process in memory) has yet to give up" in told
    for _ in range(3):
        second.store.clock.advance(2_000)
        second.task.step()
    assert len(_warnings(caplog)) == 1, "told once for a generation"
    first.task.step()
    view = one.view()
    assert view is not None
    one.sync(view.assigned, view.epoch)
    caplog.clear()
    for process in (first, second, first, second):
        process.store.clock.advance(2_000)
        process.task.step()
    assert not _warnings(caplog), "all have their share"


def _warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.levelname == "WARNING"]
