"""``SimulatedCluster``: replicas with their real logs on simulated disks, callers with retries, and what must be true.

Everything of the product from ``ReplicatedPartition`` down runs, in one thread, on file systems that forget what was
not synced. Raft's own simulator (``cluster.py``) looks at the core alone, and is twenty times as fast.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

from logstore.config import TopicConfig
from logstore.directory import topic_state
from logstore.errors import (
    LogStoreError,
    OutOfOrderSequenceError,
    ProducerFencedError,
    RetriableError,
)
from logstore.format.batch import encode_batch
from logstore.log.append_validation import own_batch
from logstore.seams.memory_crash import RandomChooser
from logstore.seams.memory_fs import MemoryFileSystem
from replication.raft.types import Membership, RaftSettings, Role
from replication.replicas.pending import ReplicatedAppend
from tests.replication.nodes import NOW_MS, ClusterNode, Nodes
from tests.replication.sim.chaos_network import ChaosNetwork
from tests.replication.sim.checks import BrokenPropertyError

PIECES = RaftSettings(silent_on_empty=True, snapshot_piece_bytes=100)
STEP_S = 0.005
TICKS_EVERY = 10


@dataclass
class Caller:
    """A producer that appends one batch after the other, again and again until it is told how that went. Without an id
    it must not try again when it does not know."""

    number: int
    idempotent: bool
    most: int = 1 << 30  # of records that it ever sends
    sent: int = 0
    batch: list[bytes] = field(default_factory=list)
    under_way: ReplicatedAppend | None = None
    tries: int = 0

    def next_batch(self, dice: random.Random) -> None:
        count = dice.choice((1, 1, 2, 5))
        self.batch = [b"%d:%d" % (self.number, self.sent + one) for one in range(count)]

    def encoded(self) -> bytes:
        ids = {"producer_id": self.number, "producer_epoch": 0, "base_sequence": self.sent}
        rows = [(None, value) for value in self.batch]
        return encode_batch(rows, now_ms=NOW_MS, **(ids if self.idempotent else {}))


class SimulatedCluster(Nodes):
    """``acked``: offset -> value of what callers were told is committed."""

    def __init__(self, seed: int, count: int, config: TopicConfig) -> None:
        self.events: Counter[str] = Counter()
        super().__init__(count, seed=seed, config=config, learners=1, settings=PIECES)
        self.callers = [Caller(number, number != 3) for number in range(4)]
        self.callers.append(Caller(4, True, most=3))  # of whom all replicas know long after
        self.acked: dict[int, bytes] = {}
        self.unknown: set[bytes] = set()
        self.committed: dict[int, bytes] = {}
        self._seen: dict[int, int] = {}  # how far each node's committed records were looked at, in its life
        self._leaders: dict[int, int] = {}
        self.hits: Counter[tuple[str, str]] = Counter()  # (fault, state of the node that it hits)
        self._round = 0
        self._damaged: list[ClusterNode] = []
        self.quiet = False  # callers begin nothing

    def make_network(self) -> ChaosNetwork:
        return ChaosNetwork(random.Random(self.dice.random()), lambda: self.now_s)

    @property
    def chaos(self) -> ChaosNetwork:
        assert isinstance(self.network, ChaosNetwork)
        return self.network

    # --- time ---

    def step(self) -> None:
        """Five milliseconds: messages, a few syncs, ticks, callers, checks."""
        self.now_s += STEP_S
        self._round += 1
        self.chaos.arrive()
        while self.network.step():
            pass
        for node in self.living:
            while self.dice.random() < 0.6 and node.node.sync_waiting():
                pass
            if (self._round + node.node_id) % TICKS_EVERY == 0:
                node.node.tick()
        for caller in self.callers:
            self._call(caller)
        self.check()

    def tick(self) -> None:
        self.pass_time(TICKS_EVERY)

    def settle(self) -> None:
        """Nothing happens at once here."""

    def pass_time(self, steps: int) -> None:
        for _ in range(steps):
            self.step()

    # --- callers ---

    def _call(self, caller: Caller) -> None:
        if caller.under_way is not None:
            self._look(caller, caller.under_way)
            return
        if self.quiet or self.dice.random() > 0.3 or (caller.sent >= caller.most and not caller.batch):
            return
        if not caller.batch:
            caller.next_batch(self.dice)
            caller.tries = 0
        candidates = self.leaders() if self.dice.random() < 0.9 else self.living
        if not candidates:
            return
        node = self.dice.choice(candidates)
        try:
            caller.under_way = node.partition.append([own_batch(caller.encoded())])
        except RetriableError:
            self.events["refused"] += 1
        except LogStoreError as error:
            self._failed(caller, error)
        caller.tries += 1

    def _look(self, caller: Caller, append: ReplicatedAppend) -> None:
        if not append.done:
            return
        caller.under_way = None
        if append.error is not None:
            self._failed(caller, append.error)
            return
        self.events["acked"] += 1
        if append.base_offset >= 0:
            for number, value in enumerate(caller.batch):
                before = self.acked.setdefault(append.base_offset + number, value)
                if before != value:
                    raise BrokenPropertyError(
                        f"offset {append.base_offset + number} was acknowledged for {before!r} and {value!r}"
                    )
        caller.sent += len(caller.batch)
        caller.batch = []

    def _failed(self, caller: Caller, error: LogStoreError) -> None:
        self.events[f"failed: {type(error).__name__}"] += 1
        if isinstance(error, OutOfOrderSequenceError | ProducerFencedError):
            raise BrokenPropertyError(f"what a producer sent in order was refused: {error.message}")
        if caller.idempotent:
            return  # again, until it is known
        self.unknown.update(caller.batch)
        caller.sent += len(caller.batch)
        caller.batch = []

    def forget_calls_at(self, node: ClusterNode) -> None:
        """The node is gone, and with it the connections of its callers."""
        for caller in self.callers:
            append = caller.under_way
            if append is not None and append._by is node.replica and not append.done:
                caller.under_way = None
                self._failed(caller, RetriableError("the broker is gone"))

    # --- faults ---

    def note_fault(self, fault: str, node: ClusterNode) -> None:
        """What hits a node, and what the node was doing."""
        self.hits[fault, state_of(node)] += 1

    def kill_node(self, node: ClusterNode) -> None:
        self.note_fault("killed", node)
        self.forget_calls_at(node)
        node.kill(RandomChooser(self.dice))
        self._seen.pop(node.node_id, None)

    def stop_node(self, node: ClusterNode) -> None:
        self.note_fault("stopped in order", node)
        try:
            node.stop()
        except LogStoreError:
            self.events["stops that failed"] += 1
        self.forget_calls_at(node)
        self._seen.pop(node.node_id, None)

    def damage(self, node: ClusterNode) -> None:
        """The newest file of the dead node's log in which all was durable is gone; of one node in a run."""
        node.fs.faults.clear()
        state = topic_state.load(node.fs, "/store", "t")
        if self._damaged or state is None:
            return
        point = state.partitions[0].recovery_point
        bases = [int(name[:20]) for name in node.fs.listdir(node.files.directory) if name.endswith(".log")]
        durable = [base for base in bases if base < point]
        if not durable:
            return
        node.fs.remove(f"{node.files.directory}/{max(durable):020d}.log")
        node.fs.sync_dir(node.files.directory)
        self._damaged.append(node)
        self.events["files that went missing"] += 1

    def start_node(self, node: ClusterNode) -> None:
        node.fs.faults.clear()
        node.fs.capacity_bytes = None
        node.start()
        self.events["replicas repaired"] += node.files.repaired is not None

    def retain(self, node: ClusterNode, kept: int) -> None:
        """What the retention of one node does: its own log start, its own segments, all but so many."""
        log = node.files.log
        segments = log.segments.segments
        if len(segments) <= kept or log.poisoned or node.replica.failure is not None:
            return
        if log.raise_start(segments[-kept].base_offset):
            node.files.save_state()
            for segment in log.drop_front(len(segments) - kept):
                segment.retired = True
                _remove(node.fs, log.directory, segment.base_offset)
            self.events["segments retained"] += 1

    def change_members(self, leader: ClusterNode) -> None:
        """One step: a learner comes, becomes a voter, or a voter becomes none."""
        now = leader.replica.membership
        others = sorted(set(self.nodes) - now.voters - now.learners)
        steps = [Membership(now.voters, now.learners | {node}) for node in others]
        steps += [Membership(now.voters | {node}, now.learners - {node}) for node in sorted(now.learners)]
        steps += [Membership(now.voters, now.learners - {node}) for node in sorted(now.learners)]
        if len(now.voters) > 3:
            steps += [Membership(now.voters - {node}, now.learners) for node in sorted(now.voters)]
        if steps:
            leader.replica.change_membership(self.dice.choice(steps))
            self.events["membership changes"] += 1

    def delete_records(self, node: ClusterNode) -> None:
        log = node.files.log
        before = self.dice.randint(log.log_start_offset, max(log.high_watermark, log.log_start_offset))
        with node.replica.lock:
            if node.replica.is_leader and log.raise_start(before):
                node.files.save_state()
                self.events["records deleted"] += 1

    # --- what must be true ---

    def check(self) -> None:
        for node in self.living:
            self._check_leader(node)
            self._check_committed(node)

    def _check_leader(self, node: ClusterNode) -> None:
        if node.replica.is_leader:
            term = node.replica.term
            first = self._leaders.setdefault(term, node.node_id)
            if first != node.node_id:
                raise BrokenPropertyError(f"nodes {first} and {node.node_id} lead in term {term}")

    def _check_committed(self, node: ClusterNode) -> None:
        log = node.files.log
        end = log.high_watermark
        start = max(self._seen.get(node.node_id, 0), log.log_start_offset)
        if end < start:
            raise BrokenPropertyError(f"node {node.node_id} shows {end} now, and showed {start}")
        if end == self._seen.get(node.node_id):
            return
        if end > log.flushed_offset:
            raise BrokenPropertyError(f"node {node.node_id} shows {end}, {log.flushed_offset} is durable")
        try:
            found = node.values_between(start, end)
        except OSError:
            self.events["looks that failed"] += 1  # the fault of the disk that the seed has planned
            return
        self._seen[node.node_id] = end
        for offset, value in found:
            known = self.committed.setdefault(offset, value)
            if known != value:
                raise BrokenPropertyError(
                    f"node {node.node_id} shows {value!r} at offset {offset}, {known!r} was committed there"
                )

    def check_history(self) -> None:
        """At the end, when all members agree."""
        for node in self.living:
            if node.node_id not in self.leader().replica.membership:
                node.stop()
        shown = dict(self.agree())
        start = max(node.files.log.log_start_offset for node in self.living)
        for offset, value in self.acked.items():
            if offset >= start and shown.get(offset) != value:
                raise BrokenPropertyError(
                    f"{value!r} was acknowledged at offset {offset}, {shown.get(offset)!r} is there"
                )
        twice = [value for value, count in Counter(self.committed.values()).items() if count > 1]
        if twice:
            raise BrokenPropertyError(f"{twice[0]!r} is there more than once")
        for caller in self.callers:
            numbers = [
                int(value.split(b":")[1])
                for _, value in sorted(self.committed.items())
                if value.startswith(b"%d:" % caller.number)
            ]
            if numbers != sorted(numbers):
                raise BrokenPropertyError(f"records of caller {caller.number} are not in its order")
        self._check_bytes()
        self._check_producers()

    def _check_producers(self) -> None:
        """All replicas know the same of all producers, also of those whose records are gone."""
        for number in range(5):
            known = set()
            for node in self.living:
                found = node.files.log.producers.entry(number)
                known.add(None if found is None else (found.epoch, found.last_sequence))
            if len(known) > 1:
                raise BrokenPropertyError(f"nodes know different things of producer {number}: {known}")

    def _check_bytes(self) -> None:
        """Where two logs have the same offsets they have the same bytes."""
        start = max(node.files.log.first_batch() for node in self.living)
        logs = [node.files.log for node in self.living]
        contents = set()
        for log in logs:
            found, offset = b"", start
            while (chunk := log.read(offset, 1 << 20, log.log_end_offset)) is not None:
                found += bytes(chunk.data)
                offset = chunk.next_offset
            contents.add(found)
        if len(contents) > 1:
            raise BrokenPropertyError(f"the bytes of {len(logs)} logs from offset {start} on differ")


STATES = ("leader", "candidate", "follower", "behind", "learner", "failed", "abstains")


def state_of(node: ClusterNode) -> str:
    """One of ``STATES``: what a replica was doing when a fault hit its node."""
    replica = node.replica
    state = replica.core.state
    if replica.failure is not None:
        return "failed"
    if state.abstains:
        return "abstains"
    if state.role in (Role.LEADER, Role.FOLLOWER):
        if not state.is_voter:
            return "learner"
        if state.role is Role.LEADER:
            return "leader"
        return "follower" if state.commit == state.trail.end else "behind"
    return "candidate"


def _remove(fs: MemoryFileSystem, directory: str, base: int) -> None:
    for name in fs.listdir(directory):
        if name.startswith(f"{base:020d}.") and not name.endswith(".snapshot"):
            fs.remove(f"{directory}/{name}")
