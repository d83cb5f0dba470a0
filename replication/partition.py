"""``ReplicatedPartition``: a ``Partition`` whose records a Raft group keeps. Only its leader writes and is read."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from copy import copy
from typing import Final

from logstore.config import TopicConfig
from logstore.errors import LogStoreError, ProducerFencedError
from logstore.log.append_validation import CheckedBatch, check_leader_append
from logstore.log.log_offsets import Appended
from logstore.log.producers.producer_state import Marker, ProducerEntry
from logstore.log.replica_log import ReplicaLog
from logstore.partition.data_waiters import DataWaiters
from logstore.partition.partition import Cancel, result_of
from logstore.seams.clock import Clock
from logstore.types import Acks
from replication.errors import LeaderNotReadyError, NotEnoughReplicasError, NotLeaderError
from replication.raft.types import NodeId
from replication.replicas.pending import ReadAnswer, ReplicatedAppend
from replication.replicas.replica import Replica
from replication.replicas.state_snapshots import KeptState

_READY_S: Final = 1.0
"""How long a read waits for a leader that was just elected."""


class ReplicatedPartition:
    """Thread-safe. ``find``: this node's replica now, None: it has none; ``leader_hint``: who may lead then; ``check``:
    raises where the store must not be used; ``save_state``: have the log's bounds durable."""

    def __init__(
        self,
        topic: str,
        partition: int,
        config: Callable[[], TopicConfig],
        clock: Clock,
        find: Callable[[], Replica | None],
        leader_hint: Callable[[], int],
        *,
        check: Callable[[], None],
        save_state: Callable[[], None],
        follower_reads: bool = False,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.where = f"{topic}-{partition}"
        self._config = config
        self._clock = clock
        self._find = find
        self._leader_hint = leader_hint
        self._check = check
        self._save_state = save_state
        self._follower_reads = follower_reads
        self._waiters = DataWaiters()
        self._waiting = threading.Lock()

    @property
    def config(self) -> TopicConfig:
        return self._config()

    # --- who leads ---

    def replica(self) -> Replica:
        """NotLeaderError: this node has none."""
        found = self._find()
        if found is None:
            self._check()
            raise NotLeaderError(f"this node has no replica of {self.where}", leader_id=self._leader_hint())
        return found

    @property
    def is_held(self) -> bool:
        """Whether this node has a replica."""
        return self._find() is not None

    @property
    def is_leader(self) -> bool:
        found = self._find()
        return found is not None and found.is_leader

    @property
    def leader_id(self) -> int:
        found = self._find()
        return self._leader_hint() if found is None else found.leader_id

    @property
    def term(self) -> int:
        found = self._find()
        return -1 if found is None else found.term

    def wait_committed(self, timeout_s: float) -> None:
        """Block until all of this leader's log is committed. NotLeaderError; LeaderNotReadyError: not in time."""
        replica = self.replica()
        with replica.lock:
            replica.check_leads()
            if replica.is_all_committed:
                return
            end = replica.log.log_end_offset
            pending = replica.awaited(Appended(end, end))
        if not pending.done:
            event = threading.Event()
            pending.then(lambda _: event.set())
            replica.help_on(pending)
            event.wait(timeout_s)
        with replica.lock:
            replica.check_leads()
            if not replica.is_all_committed and (not pending.done or pending.error is not None):
                raise LeaderNotReadyError(f"the leader of {self.where} waits for a majority of the replicas")

    def confirm_leader(self, timeout_s: float) -> int:
        """Block until a majority has confirmed that this node leads; the position up to which all that was
        acknowledged before is committed. NotLeaderError, LeaderNotReadyError."""
        return confirm_leaders([self], timeout_s)[0]

    def ask_majority(self, answer: ReadAnswer) -> None:
        """See ``Replica.read_index``. NotLeaderError: this node has no replica."""
        self.replica().read_index(answer)

    # --- write ---

    def append(
        self,
        batches: Sequence[CheckedBatch],
        acks: Acks = "all",
        *,
        expected_offset: int | None = None,
        now_ms: int | None = None,
        until_s: float | None = None,
    ) -> ReplicatedAppend:
        del until_s  # no lock of another process is waited for
        self._check()
        replica, config = self.replica(), self.config
        now_ms = self._clock.wall_ms() if now_ms is None else now_ms
        checked = check_leader_append(batches, config, now_ms, self.where)
        if acks == "all" and config.min_insync_replicas > 1:
            self._check_in_sync(replica, config.min_insync_replicas)
        stamped_ms = now_ms if config.timestamp_type == "LogAppendTime" else -1
        return replica.append(checked, acks, expected_offset=expected_offset, append_time_ms=stamped_ms)

    def together(self) -> AbstractContextManager[None]:
        """See ``SendsOn``: followers are sent the batches in one message, and sync once for all of them."""
        found = self._find()
        return nullcontext() if found is None else found.together()

    def _check_in_sync(self, replica: Replica, least: int) -> None:
        with replica.lock:
            replica.check_leads()
            nodes = replica.in_sync.nodes(replica.core.state)
        if len(nodes) < least:
            raise NotEnoughReplicasError(
                f"append to {self.where}: {len(nodes)} replicas are in sync ({', '.join(map(str, nodes))}), "
                f"min.insync.replicas is {least}"
            )

    def append_marker(
        self, marker: Marker, *, once: bool = False, open_since: int = -1, wait: bool = True
    ) -> ReplicatedAppend:
        del wait  # no lock of another process is waited for
        self._check()
        replica = self.replica()
        with replica.lock:
            try:
                return replica.append_marker(marker, once=once, open_since=open_since)
            except ProducerFencedError:
                if not once:
                    raise
                end = replica.log.log_end_offset  # a newer epoch is there: the marker came before it
                return replica.awaited(Appended(end, end))

    def flush(self) -> None:
        found = self._find()
        if found is None or not found.is_leader:
            self._check()
            return  # nothing was appended here that waits
        with found.lock:
            end = found.log.log_end_offset
            pending = found.awaited(Appended(end, end))
        result_of(pending)

    def delete_records(self, before_offset: int) -> int:
        """A majority has heard of the new start when this returns: it goes with what the leader sends it, so that the
        next leader does not show again what was deleted."""
        self._check()
        self.flush()
        replica = self.replica()
        with replica.lock:
            replica.check_leads()
            moved = replica.log.raise_start(before_offset)
        if moved:
            self._save_state()
            replica.log.publish()
        self.confirm_leader(_READY_S)
        return replica.log.log_start_offset

    def producer_entries(self, producer_ids: Sequence[int]) -> dict[int, ProducerEntry]:
        self.flush()
        replica = self.replica()
        with replica.lock:
            replica.check_leads()
            found = {producer_id: replica.log.producers.entry(producer_id) for producer_id in producer_ids}
        return {producer_id: entry for producer_id, entry in found.items() if entry is not None}

    # --- read ---

    def reader(self, *, looked: bool = False) -> ReplicaLog:
        """NotLeaderError, unless followers may be read; LeaderNotReadyError: a leader that was just elected does not
        know yet all that is committed, and may show less than was shown before."""
        del looked
        replica = self.replica()
        if self._follower_reads:
            return replica.log
        if not replica.is_leader:
            self._check()
            raise NotLeaderError(
                f"node {replica.node_id} does not lead {self.where}", leader_id=replica.leader_id
            )
        if not replica.core.state.knows_committed:
            self._wait_ready(replica)
        return replica.log

    def near_replica(self, rack: str, offset: int, rack_of: Callable[[NodeId], str]) -> NodeId | None:
        """The in-sync follower in the rack that has most of what is behind ``offset`` (KIP-392); None: the leader,
        which this node is, is to be read."""
        replica = self.replica()
        if rack_of(replica.node_id) == rack:
            return None
        with replica.lock:
            state = replica.core.state
            if not replica.is_leader:
                return None
            matches = {
                node: state.peers[node].match
                for node in replica.in_sync.nodes(state)
                if node != replica.node_id and rack_of(node) == rack
            }
        near = [node for node, match in matches.items() if match >= offset]
        return max(near, key=lambda node: matches[node], default=None)

    def followed(self) -> ReplicatedPartition:
        """The partition as this node, which follows, has it: what is known to be committed. NotLeaderError where it
        hears of no leader, so that it may know little by now, or has no vote, so that it may have little."""
        replica = self.replica()
        if replica.leader_id < 0 or replica.node_id not in replica.membership.voters or replica.is_held_back:
            raise NotLeaderError(
                f"node {replica.node_id} does not follow the leader of {self.where} now",
                leader_id=replica.leader_id,
            )
        followed = copy(self)
        followed._follower_reads = True
        return followed

    def _wait_ready(self, replica: Replica) -> None:
        """For a moment: it takes a majority's word."""
        with replica.lock:
            replica.check_leads()
            end = replica.core.state.trail.end
            pending = replica.awaited(Appended(end, end))
        event = threading.Event()
        pending.then(lambda _: event.set())
        replica.help_on(pending)
        event.wait(_READY_S)
        if not replica.is_leader:
            raise NotLeaderError(
                f"node {replica.node_id} leads {self.where} no more", leader_id=replica.leader_id
            )
        if not replica.core.state.knows_committed:
            raise LeaderNotReadyError(f"the leader of {self.where} waits for a majority of the replicas")

    def state_before(self, applied: int) -> KeptState | None:
        """See ``Replica.state_before``. NotLeaderError: this node has no replica."""
        return self.replica().state_before(applied)

    def when_more(self, tell: Callable[[], None], *, poll: bool = True) -> Cancel:
        del poll
        log = self.replica().log
        with self._waiting:
            forget = self._waiters.add(tell)
            log.subscribe(self._waiters)

        def cancel() -> None:
            forget()
            with self._waiting:
                if not self._waiters:
                    log.unsubscribe(self._waiters)

        return cancel


class _Told:
    """An ``Awaited``: an answer that comes by a callback."""

    def __init__(self, event: threading.Event) -> None:
        self._event = event

    @property
    def done(self) -> bool:
        return self._event.is_set()


def confirm_leaders(partitions: Sequence[ReplicatedPartition], timeout_s: float) -> list[int]:
    """``confirm_leader`` of all of them side by side: it takes as long as the slowest."""
    found: list[int] = [-1] * len(partitions)
    failures: list[LogStoreError] = []
    events: list[threading.Event] = []

    def ask(number: int, event: threading.Event) -> None:
        def answer(position: int, error: LogStoreError | None) -> None:
            found[number] = position
            if error is not None:
                failures.append(error)
            event.set()

        partitions[number].ask_majority(answer)

    for number in range(len(partitions)):
        events.append(threading.Event())
        ask(number, events[-1])
    for number, event in enumerate(events):
        if not event.is_set():
            partitions[number].replica().help_on(_Told(event))
        if not event.wait(timeout_s):
            raise LeaderNotReadyError(
                f"the leader of {partitions[number].where} waits for a majority of the replicas"
            )
    if failures:
        raise failures[0]
    return found
