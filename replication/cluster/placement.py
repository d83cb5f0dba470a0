"""Where replicas go: pure, so that the same facts and seed always give the same places.

Replicas of a partition are spread over racks first: no rack gets a second one before each has its first. Within that,
brokers get equal numbers of a topic's replicas, and lead equal numbers of its partitions; what all topics have there
decides between equals. With racks of equal size, or none, both numbers differ by one between brokers at the most.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from logstore.invariants import invariant
from replication.raft.types import NodeId

Replicas: TypeAlias = tuple[NodeId, ...]
"""Of one partition; the first is the preferred leader."""

DEFAULT_FACTOR: Final = 3


class Spot(NamedTuple):
    """A broker that may get replicas. ``rack`` "": not said; then it counts as a rack of its own."""

    node_id: NodeId
    rack: str = ""


@dataclass(frozen=True, slots=True)
class Load:
    """What brokers have already: replicas, and partitions that they lead."""

    replicas: Mapping[NodeId, int] = field(default_factory=dict)
    leaders: Mapping[NodeId, int] = field(default_factory=dict)

    @classmethod
    def of(cls, partitions: Iterable[Replicas]) -> Load:
        replicas: Counter[NodeId] = Counter()
        leaders: Counter[NodeId] = Counter()
        for places in partitions:
            replicas.update(places)
            leaders.update(places[:1])
        return cls(replicas, leaders)


def place(
    spots: Collection[Spot],
    partitions: int,
    factor: int,
    *,
    seed: int = 0,
    present: Sequence[Replicas] = (),
    overall: Load | None = None,
) -> list[Replicas]:
    """Replicas for ``partitions`` new partitions. ``factor``: of each, at most as many as there are ``spots``;
    ``present``: of the topic's partitions that are there already; ``overall``: of all topics; ``seed`` decides where
    nothing else does."""
    invariant(1 <= factor <= len({spot.node_id for spot in spots}), "each replica has a broker of its own")
    planner = _Planner(spots, seed, Load.of(present), overall or Load())
    chosen = [planner.choose(factor) for _ in range(partitions)]
    return planner.with_leaders(chosen)


def replacement(
    spots: Collection[Spot], staying: Collection[NodeId], *, seed: int = 0, overall: Load | None = None
) -> NodeId | None:
    """A broker for one more replica of a partition that has ``staying``; None: all of ``spots`` have one."""
    planner = _Planner(spots, seed, Load(), overall or Load())
    return planner.next_after(staying)


class _Planner:
    """The counts of one topic, and what breaks ties."""

    def __init__(self, spots: Collection[Spot], seed: int, topic: Load, overall: Load) -> None:
        ordered = sorted(set(spots))
        size = max(len(ordered), 1)
        self._rank = {spot.node_id: (number + seed) % size for number, spot in enumerate(ordered)}
        self._rack = {spot.node_id: spot.rack or f"\0{spot.node_id}" for spot in ordered}
        self._racks: dict[str, list[NodeId]] = {}
        for node, rack in self._rack.items():
            self._racks.setdefault(rack, []).append(node)
        self._counts = Counter({node: topic.replicas.get(node, 0) for node in self._rack})
        self._leaders = Counter({node: topic.leaders.get(node, 0) for node in self._rack})
        self._overall = overall

    def choose(self, factor: int) -> Replicas:
        chosen: list[NodeId] = []
        for _ in range(factor):
            node = self.next_after(chosen)
            invariant(node is not None, "there are as many brokers as replicas")
            if node is not None:
                chosen.append(node)
                self._counts[node] += 1
        return tuple(chosen)

    def next_after(self, chosen: Collection[NodeId]) -> NodeId | None:
        """The rack that has fewest of this partition, then fewest for its size; its broker that has fewest."""
        used = Counter(self._rack[node] for node in chosen if node in self._rack)
        free = {
            rack: [node for node in nodes if node not in chosen]
            for rack, nodes in self._racks.items()
            if not set(nodes) <= set(chosen)
        }
        if not free:
            return None
        rack = min(free, key=lambda name: (used[name], *self._rack_key(name, free[name])))
        return min(free[rack], key=self._node_key)

    def _rack_key(self, rack: str, free: Sequence[NodeId]) -> tuple[float, float, int]:
        nodes = self._racks[rack]
        overall = self._overall.replicas
        return (
            sum(self._counts[node] for node in nodes) / len(nodes),
            sum(overall.get(node, 0) for node in nodes) / len(nodes),
            min(self._rank[node] for node in free),
        )

    def _node_key(self, node: NodeId) -> tuple[int, int, int]:
        return self._counts[node], self._overall.replicas.get(node, 0), self._rank[node]

    # --- leaders ---

    def with_leaders(self, chosen: Sequence[Replicas]) -> list[Replicas]:
        """Each with its leader in front: by turns, then along chains of exchanges until no broker leads two more than
        another that could lead in its place."""
        leads = [self._least_leading(replicas) for replicas in chosen]
        while (chain := self._chain(chosen, leads)) is not None:
            for number, node in chain:
                self._leaders[leads[number]] -= 1
                self._leaders[node] += 1
                leads[number] = node
        return [
            (leader, *(node for node in replicas if node != leader))
            for leader, replicas in zip(leads, chosen, strict=True)
        ]

    def _least_leading(self, replicas: Replicas) -> NodeId:
        overall = self._overall.leaders
        leader = min(replicas, key=lambda node: (self._leaders[node], overall.get(node, 0), self._rank[node]))
        self._leaders[leader] += 1
        return leader

    def _chain(self, chosen: Sequence[Replicas], leads: Sequence[NodeId]) -> list[tuple[int, NodeId]] | None:
        """Exchanges that take one partition from a broker to one that leads two fewer; None: there are none."""
        led: dict[NodeId, list[int]] = {}
        for number, leader in enumerate(leads):
            led.setdefault(leader, []).append(number)
        most = max((self._leaders[node] for node in led), default=0)
        if most - min(self._leaders.values(), default=0) < 2:
            return None
        for start in sorted(led, key=lambda node: (-self._leaders[node], self._rank[node])):
            found = self._search(start, chosen, led)
            if found is not None:
                return found
        return None

    def _search(
        self, start: NodeId, chosen: Sequence[Replicas], led: Mapping[NodeId, Sequence[int]]
    ) -> list[tuple[int, NodeId]] | None:
        came: dict[NodeId, tuple[NodeId, int]] = {}
        waiting = deque([start])
        while waiting:
            node = waiting.popleft()
            for number in led.get(node, ()):
                for other in chosen[number]:
                    if other == start or other in came:
                        continue
                    came[other] = (node, number)
                    if self._leaders[other] <= self._leaders[start] - 2:
                        return _path(other, start, came)
                    waiting.append(other)
        return None


def _path(end: NodeId, start: NodeId, came: Mapping[NodeId, tuple[NodeId, int]]) -> list[tuple[int, NodeId]]:
    path: list[tuple[int, NodeId]] = []
    while end != start:
        before, number = came[end]
        path.append((number, end))
        end = before
    return path
