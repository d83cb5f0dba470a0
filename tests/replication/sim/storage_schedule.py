"""``run_seed``: faults of machines, disks and the network as one seed has them, then peace, in which all must agree.

    python -m tests.replication.sim.storage_schedule --seeds 200 --start 0

runs seeds and ends with 1 at the first that breaks a property; the counts of what happened are its report.
"""

from __future__ import annotations

import argparse
import logging
import random
import sys
from collections import Counter

from logstore.config import TopicConfig
from logstore.errors import LogStoreError
from logstore.seams.faults import FaultKind
from tests.replication.sim.checks import BrokenPropertyError
from tests.replication.sim.schedule import SeedFailedError
from tests.replication.sim.storage import STATES, SimulatedCluster

_KINDS = (FaultKind.EIO, FaultKind.ENOSPC, FaultKind.SHORT_WRITE, FaultKind.FAILED_SYNC)


def run_seed(seed: int, rounds: int = 25) -> SimulatedCluster:
    """SeedFailedError: it names the seed."""
    dice = random.Random(seed)
    config = TopicConfig(segment_bytes=dice.choice((600, 2000, 1 << 20)), index_interval_bytes=100)
    cluster = SimulatedCluster(seed, dice.choice((3, 3, 5)), config)
    chaos = cluster.chaos
    chaos.loss, chaos.doubles = dice.choice((0.0, 0.02, 0.1)), dice.choice((0.0, 0.05))
    chaos.damage = dice.choice((0.0, 0.0, 0.01))
    try:
        for _ in range(rounds):
            _fault(cluster, dice)
            cluster.pass_time(dice.choice((5, 20, 60)))
            if dice.random() < 0.05:
                _be_quiet(cluster)
        _peace(cluster)
        cluster.check_history()
    except BrokenPropertyError as error:
        raise SeedFailedError(f"seed {seed}: {error}") from error
    except (LogStoreError, AssertionError, OSError) as error:
        raise SeedFailedError(f"seed {seed}: {type(error).__name__}: {error}") from error
    return cluster


def _fault(cluster: SimulatedCluster, dice: random.Random) -> None:
    living, nodes = cluster.living, list(cluster.nodes.values())
    dead = [node for node in nodes if not node.alive]
    for node in dead:
        if dice.random() < 0.05:
            cluster.damage(node)
        if dice.random() < 0.6:
            cluster.start_node(node)
    what = dice.random()
    if what < 0.30 and living:
        leaders = cluster.leaders()
        cluster.kill_node(dice.choice(leaders if leaders and dice.random() < 0.6 else living))
    elif what < 0.36 and living:
        cluster.stop_node(dice.choice(living))
    elif what < 0.40:
        for node in list(living):
            cluster.kill_node(node)
    elif what < 0.55:
        one, other = dice.sample(nodes, 2)
        cluster.network.cut(one.node_id, other.node_id, both_ways=dice.random() < 0.6)
        for node in (one, other):
            if node.alive:
                cluster.note_fault("cut off from one", node)
    elif what < 0.65:
        alone = dice.choice(cluster.leaders() or nodes)
        for node in nodes:
            if node is not alone:
                cluster.network.cut(alone.node_id, node.node_id)
        if alone.alive:
            cluster.note_fault("cut off from all", alone)
    elif what < 0.75:
        cluster.network.heal()
    elif what < 0.85 and living:
        node = dice.choice(living)
        calls = node.fs.faults.calls + dice.randint(1, 40)
        kind = dice.choice(_KINDS)
        node.fs.faults.at(calls, kind, forever=dice.random() < 0.2)
        cluster.note_fault(f"disk: {kind.value}", node)
    elif what < 0.96 and living:
        try:
            if what < 0.88:
                for node in living:
                    cluster.retain(node, 2)  # what is away is behind all logs, perhaps
            elif what < 0.92:
                cluster.retain(dice.choice(living), dice.choice((2, 3, 6)))
            elif cluster.leaders():
                cluster.delete_records(dice.choice(cluster.leaders()))
        except (LogStoreError, OSError):
            cluster.events["upkeep that failed"] += 1
    elif cluster.leaders():
        leader = dice.choice(cluster.leaders())
        try:
            if what < 0.98:
                leader.replica.transfer(dice.choice(nodes).node_id)
                cluster.events["transfers"] += 1
            else:
                for _ in range(3):
                    cluster.change_members(leader)
                    cluster.pass_time(40)
        except LogStoreError:
            cluster.events["transfers and changes refused"] += 1


def _be_quiet(cluster: SimulatedCluster) -> None:
    """Long enough that groups rest, if nothing else happens."""
    cluster.quiet = True
    cluster.pass_time(450)
    cluster.events["replicas at rest"] += sum(node.replica.resting for node in cluster.living)
    cluster.quiet = False


def _peace(cluster: SimulatedCluster) -> None:
    """Every machine and every connection works; replicas that failed are started again."""
    chaos = cluster.chaos
    chaos.heal()
    chaos.loss = chaos.doubles = chaos.damage = 0.0
    for node in cluster.nodes.values():
        node.fs.faults.clear()
        node.fs.capacity_bytes = None
        if node.alive and node.replica.failure is not None:
            cluster.kill_node(node)
        if not node.alive:
            cluster.start_node(node)
    for _ in range(40):
        cluster.pass_time(40)
        if not any(caller.batch or caller.under_way for caller in cluster.callers):
            break
    cluster.callers = cluster.callers[:4]
    for caller in cluster.callers:
        caller.number += 10_000  # no more of them: what comes next is not looked for
    before = len(cluster.acked)
    cluster.pass_time(200)
    if len(cluster.acked) == before:
        raise BrokenPropertyError("nothing is committed although all works")
    cluster.callers.clear()


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--start", type=int, default=0)
    given = parser.parse_args(words)
    logging.disable(logging.CRITICAL)
    total: Counter[str] = Counter()
    hits: Counter[tuple[str, str]] = Counter()
    for seed in range(given.start, given.start + given.seeds):
        try:
            run = run_seed(seed)
            total += run.events
            hits += run.hits
        except SeedFailedError as error:
            sys.stdout.write(f"{error}\n")
            return 1
    sys.stdout.write(f"seeds {given.start} to {given.start + given.seeds - 1}: no property broken\n")
    for name, count in sorted(total.items()):
        sys.stdout.write(f"  {name}: {count:,}\n")
    sys.stdout.write(f"\n| fault | {' | '.join(STATES)} |\n|---|{'---:|' * len(STATES)}\n")
    for fault in sorted({fault for fault, _ in hits}):
        cells = " | ".join(f"{hits[fault, state]:,}" for state in STATES)
        sys.stdout.write(f"| {fault} | {cells} |\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
