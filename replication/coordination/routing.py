"""``Routing``: a call to whoever leads a partition by then, here or at another node.

Where a leader has moved, or cannot be reached, the call is made again until the thread's time is up.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, TypeVar

from logstore.coordination.store_view import StoreView
from logstore.errors import LogStoreError
from logstore.types import TopicPartition
from replication.errors import LeaderNotReadyError, NotLeaderError, PeerUnavailableError
from replication.raft.types import NO_NODE, NodeId

FIRST_PAUSE_S: Final = 0.02
LONGEST_PAUSE_S: Final = 0.5
CALL_S: Final = 10.0
AGAIN: Final = (NotLeaderError, LeaderNotReadyError, PeerUnavailableError)
"""Errors that pass: another node leads, or one is about to."""
Answer = TypeVar("Answer")


class Routing:
    """Thread-safe. ``leader_of``: of a partition, as this node knows it, -1: not; ``pause``: lets others work for so
    many seconds at the most."""

    def __init__(
        self,
        node_id: NodeId,
        store: StoreView,
        leader_of: Callable[[TopicPartition], NodeId],
        pause: Callable[[float], None] | None = None,
    ) -> None:
        self.node_id = node_id
        self.store = store
        self.leader_of = leader_of
        self.pause = pause or _wait

    def ask(
        self,
        place: TopicPartition,
        here: Callable[[], Answer],
        there: Callable[[NodeId, float], Answer],
    ) -> Answer:
        """What the leader answers: this node, or another one, for which there are so many seconds. Errors of
        the calls; NotLeaderError, LeaderNotReadyError, PeerUnavailableError once the time is up."""
        pauses = _Pauses(self)
        hint = NO_NODE
        while True:
            try:
                node, hint = (self.leader_of(place) if hint == NO_NODE else hint), NO_NODE
                if node == self.node_id:
                    return here()
                check_known(node)
                return there(node, pauses.call_s())
            except AGAIN as error:
                if not pauses.wait():
                    raise
                if isinstance(error, NotLeaderError):
                    hint = error.leader_id

    def ask_each(
        self,
        places: Collection[TopicPartition],
        here: Callable[[TopicPartition], Answer],
        there: Callable[[NodeId, Sequence[TopicPartition], float], Sequence[Answer | LogStoreError]],
    ) -> dict[TopicPartition, Answer]:
        """The answers of all leaders, in the order of ``places``: one call to each node. Errors as ``ask``."""
        pauses = _Pauses(self)
        found: dict[TopicPartition, Answer] = {}
        hints: dict[TopicPartition, NodeId] = {}
        while True:
            left = [place for place in places if place not in found]
            failed = self._ask_once(left, hints, here, there, found, pauses)
            if not failed:
                return {place: found[place] for place in places}
            if not pauses.wait():
                raise next(iter(failed.values()))
            hints = {
                place: error.leader_id
                for place, error in failed.items()
                if isinstance(error, NotLeaderError) and error.leader_id != NO_NODE
            }

    def tell_each(
        self,
        places: Collection[TopicPartition],
        here: Callable[[TopicPartition], None],
        there: Callable[[NodeId, Sequence[TopicPartition]], Sequence[LogStoreError | None]],
    ) -> dict[TopicPartition, LogStoreError]:
        """Each leader that this node knows of, once; why some of them were not told. Errors that do not pass."""
        return self._ask_once(places, {}, here, lambda node, of, _: there(node, of), {}, _Pauses(self))

    def _ask_once(
        self,
        places: Collection[TopicPartition],
        hints: Mapping[TopicPartition, NodeId],
        here: Callable[[TopicPartition], Answer],
        there: Callable[[NodeId, Sequence[TopicPartition], float], Sequence[Answer | LogStoreError]],
        found: dict[TopicPartition, Answer],
        pauses: _Pauses,
    ) -> dict[TopicPartition, LogStoreError]:
        """Why some have no answer yet; errors that do not pass are raised."""
        by_leader: dict[NodeId, list[TopicPartition]] = {}
        for place in places:
            by_leader.setdefault(hints.get(place, self.leader_of(place)), []).append(place)
        failed: dict[TopicPartition, LogStoreError] = {}
        for node, of in by_leader.items():
            answers: Sequence[Answer | LogStoreError]
            try:
                if node == self.node_id:
                    answers = [_answer_or_error(here, place) for place in of]
                else:
                    check_known(node)
                    answers = there(node, of, pauses.call_s())
            except AGAIN as error:
                answers = [error] * len(of)
            for place, answer in zip(of, answers, strict=True):
                if not isinstance(answer, LogStoreError):
                    found[place] = answer
                elif isinstance(answer, AGAIN):
                    failed[place] = answer
                else:
                    raise answer
        return failed


class _Pauses:
    """Between the tries of one call, longer each time."""

    def __init__(self, routing: Routing) -> None:
        self._routing = routing
        self._clock = routing.store.clock
        self._deadline_s = self._clock.monotonic_s() + routing.store.lock_timeout_s
        self._next_s = FIRST_PAUSE_S
        routing.store.check_usable()

    def call_s(self) -> float:
        """How long one call may take."""
        return min(max(self._deadline_s - self._clock.monotonic_s(), 0.001), CALL_S)

    def wait(self) -> bool:
        """False: the time is up."""
        left_s = self._deadline_s - self._clock.monotonic_s()
        if left_s <= 0:
            return False
        self._routing.pause(min(self._next_s, left_s))
        self._next_s = min(2 * self._next_s, LONGEST_PAUSE_S)
        self._routing.store.check_usable()
        return True


def check_known(node: NodeId) -> None:
    """NotLeaderError unless it is a node."""
    if node == NO_NODE:
        raise NotLeaderError("this node does not know yet who leads a partition")


def _answer_or_error(
    here: Callable[[TopicPartition], Answer], place: TopicPartition
) -> Answer | LogStoreError:
    try:
        return here(place)
    except LogStoreError as error:
        return error


def _wait(seconds: float) -> None:
    threading.Event().wait(seconds)
