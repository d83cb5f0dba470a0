"""``run_seed``: faults, callers and operators as one seed has them, then peace, in which everything must go on.

    python -m tests.replication.sim.schedule --seeds 1000

runs seeds from ``--start`` on and ends with 1 at the first that breaks a property.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter

from logstore.errors import LogStoreError
from tests.replication.sim.checks import BrokenPropertyError
from tests.replication.sim.cluster import SimulatedPartition

_PEACE_TICKS = 400


class SeedFailedError(AssertionError):
    """The message begins with the seed."""


def run_seed(seed: int, rounds: int = 60) -> SimulatedPartition:
    """SeedFailedError."""
    dice = random.Random(seed)
    storm = dice.random() < 0.3
    voters = dice.choice((3, 3, 5) if not storm else (3, 5))
    partition = SimulatedPartition(seed, voters, voters + dice.choice((0, 1, 2)))
    partition.loss = dice.choice((0.0, 0.02, 0.1))
    partition.storm = 0.5 if storm else 0.0
    partition.early = dice.choice((0.0, 0.1, 0.3))
    try:
        for _ in range(rounds):
            if storm:
                _storm(partition, dice)
                continue
            _fault(partition, dice)
            for _ in range(dice.randint(1, 6)):
                _act(partition, dice)
                partition.run(dice.choice((1, 2, 5)))
            partition.run(dice.choice((1, 5, 15)))
        _heal(partition)
    except BrokenPropertyError as error:
        raise SeedFailedError(f"seed {seed}: {error}") from error
    except (LogStoreError, AssertionError) as error:
        raise SeedFailedError(f"seed {seed}: {type(error).__name__}: {error}") from error
    return partition


def _storm(partition: SimulatedPartition, dice: random.Random) -> None:
    """Elections without end: replicas die as they vote and as they win, and are there again at once."""
    partition.run(dice.choice((1, 2, 4, 8, 14)))
    leader = partition.leader()
    if leader is not None and dice.random() < 0.3:
        leader.crash()
        partition.counts["crashes"] += 1
    for one in partition.nodes.values():
        if not one.alive and dice.random() < 0.5:
            one.start()
            partition.counts["restarts"] += 1
    if dice.random() < (0.6 if leader is None else 0.2):
        partition.stand(2)
    if dice.random() < 0.5:
        partition.attempt("proposals", "propose")
    if dice.random() < 0.2:
        partition.attempt("transfers", "transfer")
    if dice.random() < 0.2:
        cut = set(dice.sample(sorted(partition.nodes), 1))
        partition.cut({(a, b) for a in partition.nodes for b in partition.nodes if (a in cut) != (b in cut)})
    elif dice.random() < 0.5:
        partition.cut(set())


def _fault(partition: SimulatedPartition, dice: random.Random) -> None:
    nodes = list(partition.nodes.values())
    choice = dice.random()
    if choice < 0.2:
        node = dice.choice(nodes)
        if node.alive:
            node.crash()
            partition.counts["crashes"] += 1
    elif choice < 0.5:
        dead = [node for node in nodes if not node.alive]
        for node in dead[: dice.randint(1, 3)]:
            node.start()
            partition.counts["restarts"] += 1
    elif choice < 0.65:
        side = set(dice.sample(sorted(partition.nodes), dice.randint(1, len(nodes) - 1)))
        both = dice.random() < 0.6
        partition.cut(
            {
                (one, two)
                for one in partition.nodes
                for two in partition.nodes
                if (one in side) != (two in side) and (both or one in side)
            }
        )
        partition.counts["partitions" if both else "one-way partitions"] += 1
    elif choice < 0.85:
        partition.cut(set())
    elif choice < 0.9:
        for node in nodes:
            if node.alive:
                node.crash()
        for node in nodes:
            node.start()
        partition.counts["crashes of all"] += 1
    else:
        partition.stand(dice.randint(2, 3))


def _act(partition: SimulatedPartition, dice: random.Random) -> None:
    choice = dice.random()
    if choice < 0.55:
        partition.attempt("proposals", "propose")
    elif choice < 0.75:
        partition.attempt("reads", "read")
    elif choice < 0.85:
        partition.attempt("membership changes", "change")
    elif choice < 0.9:
        partition.attempt("transfers", "transfer")
    elif choice < 0.95:
        partition.attempt("retentions", "retain")


def _heal(partition: SimulatedPartition) -> None:
    """Everybody is there and hears one another: within a bound something new is committed, and all have it."""
    partition.cut(set())
    partition.loss = partition.storm = partition.early = 0.0
    partition.run(50)
    for node in partition.nodes.values():
        if not node.alive:
            node.start()
    for _ in range(_PEACE_TICKS // 10):
        partition.run(10)
        leader = partition.leader()
        if leader is not None and leader.core.state.has_committed:
            break
    else:
        raise BrokenPropertyError("liveness: nobody leads")
    before = partition.checks.committed_end
    partition.attempt("proposals", "propose")
    for _ in range(_PEACE_TICKS // 10):
        partition.run(10)
        if partition.checks.committed_end > before and _all_have(partition):
            return
    raise BrokenPropertyError("liveness: what was proposed is not committed everywhere")


def _all_have(partition: SimulatedPartition) -> bool:
    leader = partition.leader()
    if leader is None:
        return False
    members = leader.core.state.membership
    return all(
        node.core.state.commit == partition.checks.committed_end
        for node in partition.nodes.values()
        if node.node_id in members.voters | members.learners
    )


def main() -> int:
    parser = argparse.ArgumentParser(description="Faults at one simulated partition, and its properties.")
    parser.add_argument("--start", type=int, default=0, help="first seed")
    parser.add_argument("--seeds", type=int, default=1000)
    options = parser.parse_args()
    counts: Counter[str] = Counter()
    for seed in range(options.start, options.start + options.seeds):
        try:
            partition = run_seed(seed)
        except SeedFailedError as error:
            sys.stdout.write(f"{error}\n")
            return 1
        counts += partition.counts
        counts["elections won"] += len(partition.checks.leaders)
        counts["entries committed"] += len(partition.checks.committed)
        counts["reads answered"] += partition.checks.reads
    told = ", ".join(f"{count} {what}" for what, count in sorted(counts.items()))
    sys.stdout.write(f"{options.seeds} seeds: none broke a property; {told}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
