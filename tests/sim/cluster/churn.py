"""``TopicChurn``: topics of the same name come and go, and none ever holds what one before it held."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

from logstore.errors import UnknownTopicError
from logstore.format.batch import decode_batches
from replication.transport import METADATA_TOPIC
from tests.replication.sim.checks import BrokenPropertyError
from tests.sim.cluster.client import Sequences, again_if_doubtful, fetched, produced
from tests.sim.cluster.faults import Fault
from tests.sim.cluster.operators import Operator
from tests.sim.cluster.scheduler import Task
from tests.sim.cluster.traps import BESIDE_A_NEW_TOPIC, slow_beside_topic, taken
from tests.sim.cluster.world import Machine

_BESIDE: Final = 2  # partitions that keep the node busy
_LONGEST_S: Final = 5.0


class TopicChurn(Operator):
    """Makes and deletes a topic of the same name again and again; nobody else uses it."""

    def begin(self) -> None:
        super().begin()
        self._rounds = 0
        self._late = 0

    def step(self) -> None:
        name = f"{self.name}-topic"
        if not self._round(name):
            return
        trap = taken(self.world, BESIDE_A_NEW_TOPIC)
        if trap is None:
            self._late += self.delete(name)
        else:
            self._made_anew(name, trap)
            if not self._round(name, made=True):
                return
            self._late += self.delete(name)
        self.world.counts["topics made and deleted"] += 1
        self.world.scheduler.let_pass(self.dice.random() * 3)

    def _round(self, name: str, *, made: bool = False) -> bool:
        """A topic that holds what was written to it alone; False: a deletion of before came late, and it is gone."""
        self._rounds += 1
        if not made:
            self.create(name, 1, {}, 3)
        try:
            values = self._written(name, f"of round {self._rounds}")
        except UnknownTopicError as error:
            # A deletion whose answer was lost was asked for again, and the first of the two came late.
            if not self._late:
                raise BrokenPropertyError(f"{name} was made, and is not known: {error}") from error
            self._late -= 1
            self.world.counts["topics deleted by a late call"] += 1
            return False
        if values != [f"of round {self._rounds}"]:
            raise BrokenPropertyError(f"{name} holds {values} in round {self._rounds}")
        return True

    def _made_anew(self, name: str, trap: Fault) -> None:
        """While a node that has a replica of the topic is busy with another topic, on a slow disk: it sees the topic of
        before, and the one of that name that is made anew, in one look."""
        world, dice = self.world, random.Random(trap.luck)
        holders = [one for one in world.ready() if _holds(one, f"{name}-0")]
        followers = [one for one in holders if not _leads(one, METADATA_TOPIC)]
        if not followers:
            self._late += self.delete(name)
            self.create(name, 1, {}, 3)
            return
        machine = dice.choice(followers)
        beside = Operator(world, f"{self.name}-beside")
        beside.avoid(machine.number, _LONGEST_S)
        self.avoid(machine.number, _LONGEST_S)
        with slow_beside_topic(world, machine, trap):
            busy = self._beside(lambda: beside.create(beside.name, _BESIDE, {}, 3))
            self._await(lambda: machine.ready and _knows(machine, beside.name))
            world.scheduler.let_pass(dice.choice((0.02, 0.1, 0.3)))  # by then it is at it
            deleting = self._beside(lambda: self._delete_beside(name))
            others = [one for one in world.ready() if one is not machine]
            self._await(lambda: any(one.ready and not _knows(one, name) for one in others))
            if all(one.ready and _knows(one, name) for one in others):
                world.scheduler.join(deleting)
            self.create(name, 1, {}, 3)
            world.scheduler.join(deleting)
            world.scheduler.join(busy)
        world.counts["topics made anew beside another"] += 1
        beside.delete(beside.name)

    def _delete_beside(self, name: str) -> None:
        self._late += self.delete(name)

    def _beside(self, work: Callable[[], None]) -> Task:
        return self.world.scheduler.spawn(f"{self.name}-beside", work, self.world.scheduler.world)

    def _await(self, condition: Callable[[], bool]) -> None:
        scheduler = self.world.scheduler
        deadline_s = scheduler.now_s + _LONGEST_S
        while not condition() and scheduler.now_s < deadline_s:
            scheduler.let_pass(0.005)

    def _written(self, name: str, value: str) -> list[str]:
        """All values of the topic, of which ``value`` is the last. Its offset depends on how often a leader was elected
        before: each of them writes a batch."""
        lease = self.ask("init_producer", lambda node: node.engine.init_producer(None))
        sequences = Sequences(lease.producer_id, lease.epoch)
        data = sequences.encoded((name, 0), (value,), self.world.now_ms())
        base = self.ask(f"produce {name}-0", again_if_doubtful(produced((name, 0), data)))
        values: list[str] = []
        position = 0
        while position <= base:
            work = fetched((name, 0), position, "read_committed")
            found, following, _ = self.ask(f"fetch {name}-0", work)
            values += [
                (one.value or b"").decode() for one in decode_batches(found, name, 0, start_offset=position)
            ]
            position = following
        return values


def _holds(machine: Machine, where: str) -> bool:
    assert machine.node is not None
    return any(one.where == where for one in machine.node.node.replicas())


def _leads(machine: Machine, where: str) -> bool:
    assert machine.node is not None
    return any(one.where == where and one.is_leader for one in machine.node.node.replicas())


def _knows(machine: Machine, name: str) -> bool:
    assert machine.node is not None
    return name in machine.node.metadata.follower.image.catalogue.topics
