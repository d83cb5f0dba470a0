"""``Witness``: what was acknowledged to it is known wherever it asks from then on, at nodes that are behind, too.

It asks all nodes, one by one, and takes no hint; where a trap waits (``traps.py``) it springs it on the node that gave
the answer, and goes on at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from logstore.errors import LogStoreError
from logstore.types import OffsetAndMetadata, TopicPartition
from replication.cluster_node import ClusterNode
from replication.coordination.key_partition import partition_of
from tests.history.events import Acked, Place, Send
from tests.replication.sim.checks import BrokenPropertyError
from tests.sim.cluster.client import again_if_doubtful
from tests.sim.cluster.faults import Fault
from tests.sim.cluster.producer import IdempotentProducer
from tests.sim.cluster.scheduler import Host
from tests.sim.cluster.traps import (
    AFTER_AN_ANSWER,
    BEHIND_AN_ANSWER,
    LONGEST_PAUSE_S,
    strike_after_answer,
    strike_behind_answer,
    taken,
)
from tests.sim.cluster.world import Machine, World

_TRANSACTION_MS: Final = 20_000
_ROUNDS: Final = 4  # that follow each other at once, after a trap was sprung
_LOOK_S: Final = 8.0
_LOOKS: Final = 5
_OPENERS: Final = 5
_ASKED_S: Final = 0.1  # after so long what is asked of a node has come to it


class Known(NamedTuple):
    """What was acknowledged: ``work`` asks a node for it, and finds ``least`` or more."""

    name: str
    work: Callable[[ClusterNode], int]
    least: int
    what: str


class Witness(IdempotentProducer):
    """Commits in a group of its own, opens a transactional id of its own, appends to partitions of others."""

    def __init__(self, world: World, name: str, topics: dict[str, int]) -> None:
        super().__init__(world, name, topics)
        self._group = f"{name}-group"
        self._transactional_id = f"{name}-id"
        self._committed = 0
        self._openings: dict[tuple[int, int], None] = {}
        self._broken = False
        self._struck = 0  # the node that a trap was sprung on last
        self._paused: Host | None = None  # that node, until others have answered instead of it
        self._place: Place = ("", 0)  # that was appended to last
        self._known: Known | None = None  # by whoever comes after the node that answered last

    def step(self) -> None:
        trap = taken(self.world, BEHIND_AN_ANSWER)
        if trap is not None:
            self._open_behind(trap)
            return
        acts: tuple[Callable[[], int], ...] = (self._commit, self._commit, self._open, self._append)
        if self.world.traps.get(AFTER_AN_ANSWER):
            acts = (*acts, self._commit, self._append)  # openings have a trap of their own
        act = self.dice.choice(acts)
        self._known = None
        found = act()
        trap = taken(self.world, AFTER_AN_ANSWER)
        if trap is None or found not in self.world.machines or not self.world.machines[found].ready:
            return
        self.world.counts["traps sprung"] += 1
        self._paused = strike_after_answer(self.world, self.world.machines[found], trap)
        self._struck = found
        self.avoid(found, trap.lasts_s if self._paused is None else LONGEST_PAUSE_S)
        if self._known is not None:
            self._ask_next(self._known)
        for _ in range(_ROUNDS):
            if self.world.quiet:
                break
            act()
        self._struck = 0
        self._resume()

    def _look(self, known: Known) -> None:
        """At each node, or at the struck one, several times side by side: one of them may come before all that its
        machine has heard meanwhile. A node that does not answer, or knows that it does not know, is right."""
        if not self._struck:
            for number in self.world.machines:
                self._look_at(number, known)
            return
        self._side_by_side(_LOOKS, lambda: self._look_at(self._struck, known), wakes=True)

    def _look_at(self, number: int, known: Known) -> None:
        try:
            found = self.world.ask(number, known.name, known.work, _LOOK_S)
        except LogStoreError as error:
            self.world.note(f"{self.name}: node {number} says {type(error).__name__}: {error.message}")
            self.world.counts["looks without an answer"] += 1
            return
        self._check(f"node {number}", found, known)

    def _ask_next(self, known: Known) -> None:
        """Whoever comes after the struck node, before anything else is acknowledged."""
        self._check("the next leader", self.ask(known.name, known.work), known)

    def _check(self, who: str, found: int, known: Known) -> None:
        self.world.counts["looks of the witness"] += 1
        if found < known.least and not self._broken:
            self._broken = True  # who looks beside this one may see it, too
            raise BrokenPropertyError(
                f"{who} says that {known.what} is {found}, {known.least} was acknowledged"
            )

    def _resume(self) -> None:
        paused, self._paused = self._paused, None
        if paused is not None:
            self.world.scheduler.resume(paused)

    def _side_by_side(self, count: int, work: Callable[[], None], *, wakes: bool = False) -> None:
        """``wakes``: what a trap has paused goes on once it is asked."""
        scheduler = self.world.scheduler
        tasks = [scheduler.spawn(f"{self.name}-beside", work, scheduler.world) for _ in range(count)]
        if wakes:
            scheduler.let_pass(_ASKED_S)
            self._resume()
        for task in tasks:
            scheduler.join(task)

    # --- a group's offsets ---

    def _commit(self) -> int:
        """What grows is the note beside the offset: an offset past a partition's end is refused."""
        place = TopicPartition(*self._group_place)
        number = self._committed + 1
        at = {place: OffsetAndMetadata(0, -1, str(number))}
        work = again_if_doubtful(lambda node: node.engine.commit_offsets(self._group, at))
        self.ask("commit_offsets", work)
        self._committed = number
        self.world.note(f"{self.name}: commit {number}")
        coordinator = self._leader("__consumer_offsets", self._group)

        def look(node: ClusterNode) -> int:
            found = node.engine.committed_offsets(self._group).get(place)
            return -1 if found is None else int(found.metadata)

        self._known = Known("committed_offsets", look, number, f"the commit of {self._group}")
        if self._struck or self.dice.random() < 0.3:
            self._look(self._known)
        return coordinator

    @property
    def _group_place(self) -> Place:
        return sorted(self.topics)[0], 0

    # --- a transactional id ---

    def _open(self) -> int:
        """Each opening is another one than all before. After a trap several ask side by side."""
        if not self._struck:
            self._opened(self.ask("init_transactions", again_if_doubtful(self._init)))
            return self._leader("__transaction_state", self._transactional_id)
        numbers = [one for one in self.world.machines if one != self._struck]

        def work() -> None:
            self.world.scheduler.let_pass(self.dice.random())
            try:
                self._opened(self.world.ask(self.dice.choice(numbers), "init_transactions", self._init))
            except LogStoreError:
                self.world.counts["openings without an answer"] += 1

        self._side_by_side(_OPENERS, work)
        self._resume()
        return self._struck

    def _open_behind(self, trap: Fault) -> None:
        """The coordinator is cut off as soon as it has opened the id; who comes after it is asked by several, again and
        again, from before it is one."""
        world, struck = self.world, 0

        def work(node: ClusterNode) -> tuple[int, int]:
            nonlocal struck
            opening = self._init(node)
            where = f"__transaction_state-{partition_of(self._transactional_id, node.settings.coordinators)}"
            led = [one for one in node.node.replicas() if one.where == where and one.is_leader]
            if led and not struck:
                struck = node.node_id
                strike_behind_answer(world, world.machines[struck], trap, led[0].group)
            return opening

        for (
            number
        ) in world.machines:  # each has producer ids to give, and need not ask the controller for them
            try:
                world.ask(number, "init_producer", lambda node: node.engine.init_producer(None))
            except LogStoreError:
                world.counts["nodes without producer ids"] += 1
        leader = self._leader("__transaction_state", self._transactional_id)
        self._opened(self.ask("init_transactions", again_if_doubtful(work), leader or -1))
        if not struck:
            return  # it moved
        self.avoid(struck, trap.lasts_s)
        numbers = [one for one in world.machines if one != struck]
        until_s = world.scheduler.now_s + trap.lasts_s

        def opener() -> None:
            while world.scheduler.now_s < until_s:
                try:
                    self._opened(world.ask(self.dice.choice(numbers), "init_transactions", self._init))
                    return
                except LogStoreError as error:
                    world.note(f"{self.name}: not opened: {type(error).__name__}: {error.message}")
                    world.counts["openings without an answer"] += 1
                world.scheduler.let_pass(0.05 * self.dice.random())

        self._side_by_side(_OPENERS, opener)

    def _init(self, node: ClusterNode) -> tuple[int, int]:
        lease = node.engine.init_transactions(self._transactional_id, _TRANSACTION_MS)
        return lease.producer_id, lease.epoch

    def _opened(self, opening: tuple[int, int]) -> None:
        self.world.note(f"{self.name}: opened as {opening}")
        self.world.counts["openings"] += 1
        if opening in self._openings:
            raise BrokenPropertyError(
                f"{self._transactional_id} was opened twice as producer {opening[0]} in epoch {opening[1]}"
            )
        self._openings[opening] = None

    # --- the end of a partition ---

    def _append(self) -> int:
        place = self._place = self._place if self._struck else self.place()
        values = self.values(1)
        self.note(Send(place, values))
        data = self._sequences.encoded(place, values, self.world.now_ms())
        base = self.deliver(place, 1, data)
        self.note(Acked(values, (base,)))
        leader = self._leader_of(place[0], place[1])
        held = TopicPartition(*place)

        def look(node: ClusterNode) -> int:
            return node.engine.list_offsets([held], "latest", "read_uncommitted")[held].offset or 0

        if base < 0:
            return leader
        self._known = Known("list_offsets", look, base + 1, f"the end of {place[0]}-{place[1]}")
        if self._struck or self.dice.random() < 0.3:
            self._look(self._known)
        return leader

    # --- who leads ---

    def _leader(self, topic: str, key: str) -> int:
        for machine in self.world.ready():
            assert machine.node is not None
            return self._leader_of(topic, partition_of(key, machine.node.settings.coordinators))
        return 0

    def _leader_of(self, topic: str, number: int) -> int:
        """0: none does just now."""
        return next((one.number for one in self.world.ready() if _leads(one, f"{topic}-{number}")), 0)


def _leads(machine: Machine, where: str) -> bool:
    assert machine.node is not None
    return any(one.where == where and one.is_leader for one in machine.node.node.replicas())
