"""As even as can be, where members want different topics.

Best means: no other assignment has a smaller sum of squared loads; the sorted loads are then the flattest there
are. An assignment is best exactly when no chain leads from a member to one with at least two partitions fewer,
each step of which hands over one partition that the next may read (the optimal semi-matchings of Harvey, Ladner,
Lovasz and Tamir, 2003). So: keep what is owned, give what is free to the member that has least, then follow such
chains, the shortest first, until there are none. Short chains move few partitions; that this is the least movement
possible is proved only where all members want the same (``assignors._even``).
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from logstore.types import TopicPartition


class _Step(NamedTuple):
    """How a member was reached: ``giver`` hands it a partition of ``topic``."""

    giver: str
    topic: str


class Balance:
    """``kept``: member -> what it owns and may keep, members in order; ``free``: partitions without an owner;
    ``subscribers``: topic -> members in order."""

    def __init__(
        self,
        kept: Mapping[str, Sequence[TopicPartition]],
        free: Sequence[TopicPartition],
        subscribers: Mapping[str, Sequence[str]],
    ) -> None:
        self._order = {name: rank for rank, name in enumerate(kept)}
        self._subscribers = subscribers
        self._before = {place: name for name, places in kept.items() for place in places}
        self._load = {name: len(places) for name, places in kept.items()}
        # member -> topic -> its partitions there
        self._held: dict[str, dict[str, list[TopicPartition]]] = {name: {} for name in kept}
        for name, places in kept.items():
            for place in places:
                self._held[name].setdefault(place.topic, []).append(place)
        self._fill(free)

    def best(self) -> dict[str, list[TopicPartition]]:
        self._level()
        self._swap_back()
        return {
            name: [place for places in topics.values() for place in places]
            for name, topics in self._held.items()
        }

    def _fill(self, free: Sequence[TopicPartition]) -> None:
        """Topics that fewest members want come first: the others can still go round them."""
        by_topic: dict[str, list[TopicPartition]] = {}
        for place in free:
            by_topic.setdefault(place.topic, []).append(place)
        for topic in sorted(by_topic, key=lambda topic: (len(self._subscribers[topic]), topic)):
            least = [(self._load[name], self._order[name], name) for name in self._subscribers[topic]]
            heapq.heapify(least)
            for place in by_topic[topic]:
                load, rank, name = least[0]
                self._held[name].setdefault(topic, []).append(place)
                heapq.heapreplace(least, (load + 1, rank, name))
            for load, _, name in least:
                self._load[name] = load

    def _level(self) -> None:
        """Chains from the highest load down. When none starts at the highest, none starts at any member that
        can be reached from it either, and no later chain comes by there: those are done."""
        open_members = dict.fromkeys(self._order)
        while open_members:
            top = max(open_members, key=lambda name: self._load[name])
            steps, end = self._search(top)
            if end is None:
                for name in steps:
                    open_members.pop(name, None)
                continue
            self._load[top] -= 1
            self._load[end] += 1
            taker = end
            while taker != top:
                step = steps[taker]
                self._hand_over(step.giver, taker, step.topic)
                taker = step.giver

    def _search(self, top: str) -> tuple[dict[str, _Step], str | None]:
        """Breadth first: the members that can be reached and how, and the nearest with two partitions fewer (the one
        with fewest of those as near)."""
        steps = {top: _Step(top, "")}
        seen_topics: set[str] = set()
        layer = deque([top])
        while layer:
            reached: list[str] = []
            for giver in layer:
                for topic, places in self._held[giver].items():
                    if not places or topic in seen_topics:
                        continue
                    seen_topics.add(topic)
                    for taker in self._subscribers[topic]:
                        if taker not in steps:
                            steps[taker] = _Step(giver, topic)
                            reached.append(taker)
            if reached:
                least = min(reached, key=lambda name: (self._load[name], self._order[name]))
                if self._load[least] <= self._load[top] - 2:
                    return steps, least
            layer = deque(reached)
        return steps, None

    def _hand_over(self, giver: str, taker: str, topic: str) -> None:
        """One partition: one that was the taker's, else one that was not the giver's, else the last."""
        places = self._held[giver][topic]
        chosen = max(
            range(len(places)),
            key=lambda at: (
                self._before.get(places[at]) == taker,
                self._before.get(places[at]) != giver,
                places[at],
            ),
        )
        self._held[taker].setdefault(topic, []).append(places.pop(chosen))

    def _swap_back(self) -> None:
        """Where one that was ``name``'s is with a member that may take a gain of ``name`` instead: trade."""
        holder = {
            place: name
            for name, topics in self._held.items()
            for places in topics.values()
            for place in places
        }
        lost: dict[str, list[TopicPartition]] = {}
        for place, name in sorted(self._before.items()):
            if holder[place] != name:
                lost.setdefault(name, []).append(place)
        for name, gone in lost.items():
            gains = sorted(
                place
                for places in self._held[name].values()
                for place in places
                if self._before.get(place) != name
            )
            for gain in gains:
                back = next(
                    (
                        place
                        for place in gone
                        if holder[place] != name and holder[place] in self._subscribers[gain.topic]
                    ),
                    None,
                )
                if back is not None:
                    self._trade(name, gain, holder[back], back)
                    holder[gain], holder[back] = holder[back], name

    def _trade(self, name: str, gain: TopicPartition, other: str, back: TopicPartition) -> None:
        self._held[name][gain.topic].remove(gain)
        self._held[other][back.topic].remove(back)
        self._held[name].setdefault(back.topic, []).append(back)
        self._held[other].setdefault(gain.topic, []).append(gain)
