"""``BrokerSessions``: which process is a broker, where two want to be it.

A broker's number belongs to the process that registered under it last (``decide_register_broker``); each start of a
process is another incarnation. While the registered one is heard of, no other can register, and what another says in
its name is not listened to: it might vote, or acknowledge, a second time. After another one has registered, because
nothing was heard of the first for a while, the first is refused by all that know of it, and stops. So Kafka's brokers
and its controller agree, by incarnation ids and broker epochs (KIP-500, KIP-631).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final

from logstore.errors import LogStoreError
from logstore.seams.clock import Clock
from replication.cluster.image import BrokerRegistration, ClusterImage
from replication.cluster.machine import Incumbent
from replication.errors import DuplicateBrokerError, StaleBrokerError
from replication.raft.types import NodeId
from replication.transport import ClusterNetwork, Presence

logger = logging.getLogger(__name__)

SESSION_S: Final = 3.0
_MOST_EPOCHS: Final = 1000


class BrokerSessions:
    """A ``PeerGate``, of one process of node ``presence.node``. Thread-safe, but for ``follow``: no call waits for a
    lock, as each step on a dictionary here is atomic. ``silent_s``: after so long without a word of it a process counts
    as gone where its own directory comes back, ``SESSION_S`` where another one does. ``superseded``: why this process
    is its broker no more."""

    def __init__(
        self,
        presence: Presence,
        network: ClusterNetwork,
        clock: Clock,
        *,
        silent_s: float,
    ) -> None:
        self.presence = presence
        self.superseded: StaleBrokerError | None = None
        self._network = network
        self._clock = clock
        self._silent_s = silent_s
        self._since_s = clock.monotonic_s()
        self._ended = threading.Lock()  # held for good once this process is superseded
        self._told: list[Callable[[StaleBrokerError], None]] = []
        self._heard_s: dict[tuple[NodeId, int], float] = {}  # by node and incarnation
        self._brokers: dict[NodeId, BrokerRegistration] = {}
        self._epochs: dict[tuple[NodeId, int], int] = {}  # of registrations that were seen, newer ones last
        network.guard(self)
        network.present(presence)

    # --- this process ---

    def registered(self, epoch: int) -> None:
        """This process is the broker under that epoch."""
        self.presence = self.presence._replace(epoch=epoch)
        self._network.present(self.presence)

    def refused(self, error: LogStoreError) -> None:
        if isinstance(error, StaleBrokerError):
            self._end(error)

    def when_superseded(self, tell: Callable[[StaleBrokerError], None]) -> None:
        """``tell`` is called once another process is this broker, by any thread, and must not wait."""
        self._told.append(tell)
        if self.superseded is not None:
            tell(self.superseded)

    def _end(self, error: StaleBrokerError) -> None:
        if self.presence.epoch < 0 or not self._ended.acquire(blocking=False):
            return
        self.superseded = error
        logger.critical("broker %d stops: %s; %s", self.presence.node, error.message, error.advice)
        for tell in list(self._told):
            tell(error)

    # --- what is known ---

    def follow(self, image: ClusterImage) -> None:
        """Of every newer image."""
        brokers = dict(image.brokers)
        if brokers == self._brokers:
            return
        self._brokers = brokers
        for one in brokers.values():
            self._epochs[one.node_id, one.incarnation] = one.epoch
        while len(self._epochs) > _MOST_EPOCHS + len(brokers):
            self._epochs.pop(next(iter(self._epochs)))
        try:
            self._check_stale(self.presence)
        except StaleBrokerError as error:
            self._end(error)
        self._network.recheck()

    def beat(self, node: NodeId, incarnation: int) -> None:
        """A process of the node lives."""
        now_s, heard = self._clock.monotonic_s(), self._heard_s
        known = (node, incarnation) in heard
        heard[node, incarnation] = now_s
        if not known:
            for key, heard_s in list(heard.items()):
                if now_s - heard_s > SESSION_S:
                    heard.pop(key, None)

    def left(self, presence: Presence) -> None:
        self._heard_s.pop((presence.node, presence.incarnation), None)

    def excuse(self, for_s: float) -> None:
        """For so long until now this process did not run: what was not heard meanwhile tells nothing of the others."""
        now_s = self._clock.monotonic_s()
        for key, heard_s in list(self._heard_s.items()):
            self._heard_s[key] = min(heard_s + for_s, now_s)

    def incumbent(self, known: BrokerRegistration) -> Incumbent:
        """What this node knows of the registered process."""
        now_s = self._clock.monotonic_s()
        heard_s = self._heard_s.get((known.node_id, known.incarnation), float("-inf"))
        if now_s - heard_s <= self._silent_s:
            return Incumbent.LIVES
        young = now_s - self._since_s <= SESSION_S and known.node_id != self.presence.node
        return Incumbent.DOUBTFUL if young or now_s - heard_s <= SESSION_S else Incumbent.GONE

    # --- who is listened to ---

    def admit_call(self, presence: Presence) -> None:
        self._check_stale(presence)

    def admit_messages(self, presence: Presence) -> None:
        self._check_stale(presence)
        if presence.incarnation == 0:
            return
        known = self._other_than(presence)
        if known is not None and self._epoch_of(presence) < 0 and self.incumbent(known) is Incumbent.LIVES:
            raise DuplicateBrokerError(
                f"another process is broker {known.node_id}, at {known.host}:{known.port}, and it lives"
            )
        self.beat(presence.node, presence.incarnation)

    def _other_than(self, presence: Presence) -> BrokerRegistration | None:
        """The registered process of that number, where it is another one, and says so."""
        known = self._brokers.get(presence.node)
        return None if known is None or known.incarnation in (0, presence.incarnation) else known

    def _epoch_of(self, presence: Presence) -> int:
        """A stream has said less than is known, where its process registered after it was made."""
        return max(presence.epoch, self._epochs.get((presence.node, presence.incarnation), -1))

    def _check_stale(self, presence: Presence) -> None:
        known, epoch = self._other_than(presence), self._epoch_of(presence)
        if known is not None and 0 <= epoch < known.epoch:
            raise StaleBrokerError(
                f"this process was broker {known.node_id} under epoch {epoch}, and another one, at "
                f"{known.host}:{known.port}, has registered as broker {known.node_id} since, under epoch {known.epoch}"
            )
