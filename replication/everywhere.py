"""``Everywhere``: what a node asks of all other brokers: to know of a change, to do upkeep on their own copies."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final

from logstore.errors import InvalidRecordError, LogStoreError
from replication.raft.types import NodeId
from replication.transport import PeerNetwork

logger = logging.getLogger(__name__)

SEEN: Final = "metadata.seen"
_SETTLE_S: Final = 3.0
_WORK_S: Final = 3600.0
_AT_ONCE: Final = 16


class Everywhere:
    """Of one node. ``others``: brokers that are heard of; ``follow(revision)``: have this node know the metadata up to
    there, and its replicas made. Before the network is started."""

    def __init__(
        self,
        network: PeerNetwork,
        others: Callable[[], Sequence[NodeId]],
        follow: Callable[[int], None],
    ) -> None:
        self._network = network
        self._others = others
        self._follow = follow
        network.serve(SEEN, self._answer_seen)

    def _answer_seen(self, node: NodeId, request: bytes) -> bytes:
        del node
        try:
            revision = int(json.loads(request)["revision"])
        except (ValueError, KeyError, TypeError) as error:
            raise InvalidRecordError(f"a request for {SEEN} that is none: {error}") from error
        self._follow(revision)
        return b"{}"

    def tell(self, revision: int) -> None:
        """Until all brokers that live know the metadata up to there, or a few seconds are over: those that do not
        answer learn of it later."""
        request = json.dumps({"revision": revision}).encode()
        answers = self._asked(self._others(), SEEN, request, _SETTLE_S)
        for answer in answers.values():
            try:
                answer.exception(timeout=2 * _SETTLE_S)
            except TimeoutError:
                continue  # a call that takes longer than it may: the change is made, that broker learns of it later

    def ask(self, operation: str, request: bytes) -> Callable[[], Mapping[NodeId, bytes]]:
        """See ``Leadership.everywhere``."""
        answers = self._asked(self._others(), operation, request, _WORK_S)

        def wait() -> Mapping[NodeId, bytes]:
            failures: list[LogStoreError] = []
            found: dict[NodeId, bytes] = {}
            for node, answer in answers.items():
                try:
                    found[node] = answer.result()
                except LogStoreError as error:
                    error.add_note(f"at broker {node}")
                    failures.append(error)
            if failures:
                raise failures[0]
            return found

        return wait

    def hear(self, operation: str, request: bytes) -> Mapping[NodeId, bytes]:
        """See ``Leadership.heard``."""
        found: dict[NodeId, bytes] = {}
        for node, answer in self._asked(self._others(), operation, request, _SETTLE_S).items():
            try:
                found[node] = answer.result(timeout=2 * _SETTLE_S)
            except (LogStoreError, TimeoutError) as error:
                logger.info("broker %d does not answer %s: %s", node, operation, error)
        return found

    def _asked(
        self, nodes: Collection[NodeId], operation: str, request: bytes, timeout_s: float
    ) -> dict[NodeId, Future[bytes]]:
        if not nodes:
            return {}
        pool = ThreadPoolExecutor(min(len(nodes), _AT_ONCE), "logstore-everywhere")
        answers = {
            node: pool.submit(self._network.call, node, operation, request, timeout_s) for node in nodes
        }
        pool.shutdown(wait=False)
        return answers


def wait_until(condition: Callable[[], bool], timeout_s: float, now_s: Callable[[], float]) -> bool:
    """Poll; whether it came to it in time."""
    deadline_s, pause = now_s() + timeout_s, threading.Event()
    while not condition():
        if now_s() >= deadline_s:
            return False
        pause.wait(0.01)
    return True
