"""Whatever groups, commits and transactions left in the log: cleaned or not, a replay gives the same state."""

from __future__ import annotations

import random
from typing import Any

import pytest

from logstore.coordination.runtime import CoordinatorRuntime
from logstore.errors import LogStoreError
from logstore.groups.coordinator import GroupCoordinator
from logstore.machine import Decision, TransactionalWriter
from logstore.types import OffsetAndMetadata, TopicPartition
from tests.shared_world import SharedWorld

TOPIC = "__shared"
GROUPS = ("g", "h")
TOPICS = {"t": 3, "u": 2}
DAY_MS = 24 * 3600 * 1000


def shown(shared: CoordinatorRuntime[GroupCoordinator]) -> dict[str, Any]:
    def look(machine: GroupCoordinator) -> dict[str, Any]:
        return {
            "offsets": {name: machine.committed(name) for name in GROUPS},
            "times": {name: machine.commit_times_ms(name) for name in GROUPS},
            "pending": {name: machine.pending(name) for name in GROUPS},
            "producers": machine.pending_producers(),
            "groups": [machine.describe(name) for name in machine.groups()],
            "sessions": machine.sessions(),
            "views": [machine.view(one.group, one.member_id) for one in machine.sessions()],
        }

    return shared.look(look)


class History:
    """Random decisions of two processes, some refused, with cleanings between them."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.world = SharedWorld(GroupCoordinator, segment_bytes=2048)
        self.processes = [self.world.process() for _ in range(2)]
        self.members = [f"m{number}" for number in range(4)]
        self.epochs = dict.fromkeys((7, 8, 9), 0)
        self.open: set[int] = set()
        self.refused = self.compared = self.dropped = 0

    def step(self) -> None:
        store, shared = self.random.choice(self.processes)
        self.world.clock.advance(self.random.choice((10, 1_000, 1_000, 60_000)))
        kind = self.random.random()
        try:
            if kind < 0.3:
                shared.decide(self.commit)
            elif kind < 0.5:
                shared.decide(self.pend)
            elif kind < 0.65:
                self.end(shared)
            elif kind < 0.95:
                shared.decide(self.live)
            else:
                self.world.clock.advance(self.random.choice((0, 0, DAY_MS + 1)))
                (done,) = store.admin.compact(TOPIC, roll=True)
                self.dropped += done.records_before - done.records_after
                self.compare()
        except LogStoreError:
            self.refused += 1

    def offsets(self) -> dict[TopicPartition, OffsetAndMetadata]:
        topic = self.random.choice(list(TOPICS))
        place = TopicPartition(topic, self.random.randrange(TOPICS[topic]))
        return {place: OffsetAndMetadata(self.random.randrange(1000), 0, self.random.choice(("", "note")))}

    def who(self, machine: GroupCoordinator, group: str) -> dict[str, Any]:
        members = [one.member_id for one in machine.sessions() if one.group == group]
        if not members:
            return {}
        member_id = self.random.choice(members)
        view = machine.view(group, member_id)
        return {"member_id": member_id, "epoch": 0 if view is None else view.epoch}

    def commit(self, machine: GroupCoordinator) -> Decision[Any]:
        group = self.random.choice(GROUPS)
        now_ms = self.world.clock.wall_ms()
        return machine.decide_commit(group, self.offsets(), now_ms, **self.who(machine, group))

    def pend(self, machine: GroupCoordinator) -> Decision[Any]:
        group, producer_id = self.random.choice(GROUPS), self.random.choice(list(self.epochs))
        writer = TransactionalWriter(producer_id, self.epochs[producer_id])
        now_ms = self.world.clock.wall_ms()
        decided = machine.decide_transactional_commit(
            group, self.offsets(), writer, now_ms, **self.who(machine, group)
        )
        self.open.add(producer_id)
        return decided

    def end(self, shared: CoordinatorRuntime[GroupCoordinator]) -> None:
        producer_id = self.random.choice(sorted(self.open) or list(self.epochs))
        self.epochs[producer_id] += 1
        self.open.discard(producer_id)
        shared.end_transaction(producer_id, self.epochs[producer_id], commit=self.random.random() < 0.6)

    def live(self, machine: GroupCoordinator) -> Decision[Any]:
        group, member_id = self.random.choice(GROUPS), self.random.choice(self.members)
        now_ms = self.world.clock.wall_ms()
        act = self.random.randrange(8)
        if act <= 1:
            return machine.decide_join(
                group,
                f"{group}-{member_id}",
                instance_id=self.random.choice((None, None, "static")),
                client="test",
                topics=self.random.choice((["t"], ["t", "u"])),
                pattern=None,
                assignor="sticky",
                session_timeout_ms=1000,
                max_poll_interval_ms=1000,
                liveness=self.random.randbytes(4),
                partitions=TOPICS,
                now_ms=now_ms,
            )
        if act == 2:
            view = machine.view(group, f"{group}-{member_id}")
            owned = () if view is None else view.assigned
            return machine.decide_sync(
                group, f"{group}-{member_id}", 0 if view is None else view.epoch, owned, now_ms
            )
        if act == 3:
            return machine.decide_leave(
                group, f"{group}-{member_id}", now_ms, forget=self.random.random() < 0.5
            )
        if act == 4:
            return machine.decide_expire(group, [f"{group}-{name}" for name in self.members], now_ms)
        if act == 5:
            return machine.decide_delete_group(group)
        if act == 6:
            return machine.decide_delete_topic(self.random.choice(list(TOPICS)), lambda _: None)
        return machine.decide_expire_offsets(now_ms, 100_000)

    def compare(self) -> None:
        expected = shown(self.processes[0][1])
        assert shown(self.processes[1][1]) == expected
        store, fresh = self.world.process()
        assert shown(fresh) == expected
        store.abandon()
        self.compared += 1


@pytest.mark.parametrize("seed", range(12))
def test_a_cleaned_log_gives_the_same_state(seed: int) -> None:
    history = History(seed)
    for _ in range(250):
        history.step()
    for store, _ in history.processes:
        store.admin.compact(TOPIC, roll=True)
    history.compare()
    assert history.compared >= 3
    assert history.refused < 200
    assert history.dropped > 100
