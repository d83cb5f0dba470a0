"""The faults of a campaign against a cluster: brokers end, pause and are cut off from each other; disks and workers
fail as they do at one broker."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Final

from rpc.testing.cluster import ClusterForTests
from tests.history.crew import Crew
from tests.history.faults import kill_any_worker, pause_any_worker
from tests.history.workers import IN, OUT

INTERNAL: Final = ("__cluster_metadata", "__consumer_offsets", "__transaction_state")


def _some(cluster: ClusterForTests, dice: random.Random) -> int:
    return dice.choice(list(cluster.nodes))


def _leader(cluster: ClusterForTests, dice: random.Random, *topics: str) -> int:
    """Of one of the topics' partitions; any broker where none leads."""
    leaders = [one.status.leader for one in cluster.describe().partitions if one.topic in topics]
    return dice.choice([node for node in leaders if node > 0] or list(cluster.nodes))


def _killed(cluster: ClusterForTests, dice: random.Random, *nodes: int) -> None:
    cluster.kill(*nodes)
    time.sleep(dice.choice((0.0, 0.5, 3.0)))  # away for a while
    cluster.restart(*nodes)


def kill_leader(cluster: ClusterForTests, crew: Crew, dice: random.Random) -> None:
    _killed(cluster, dice, _leader(cluster, dice, IN, OUT))


def kill_coordinator(cluster: ClusterForTests, crew: Crew, dice: random.Random) -> None:
    """Or the controller: whoever leads what the cluster keeps for itself."""
    _killed(cluster, dice, _leader(cluster, dice, *INTERNAL))


def kill_majority(cluster: ClusterForTests, crew: Crew, dice: random.Random) -> None:
    _killed(cluster, dice, *dice.sample(list(cluster.nodes), len(cluster.nodes) // 2 + 1))


def kill_all(cluster: ClusterForTests, crew: Crew, dice: random.Random) -> None:
    _killed(cluster, dice, *cluster.nodes)


def rolling_restart(cluster: ClusterForTests, crew: Crew, dice: random.Random) -> None:
    for node in dice.sample(list(cluster.nodes), len(cluster.nodes)):
        assert cluster.brokers[node].stop() == 0
        cluster.restart(node)
        cluster.await_healthy()


def pause_broker(cluster: ClusterForTests, crew: Crew, dice: random.Random) -> None:
    """For a moment, or for longer than an election takes."""
    broker = cluster.brokers[_leader(cluster, dice, IN, OUT, *INTERNAL)]
    broker.pause()
    time.sleep(dice.choice((0.2, 1.0, 5.0)))
    broker.resume()


def isolate(cluster: ClusterForTests, crew: Crew, dice: random.Random) -> None:
    """A leader, from all other brokers; its clients still reach it."""
    cluster.isolate(_leader(cluster, dice, IN, OUT, *INTERNAL))
    time.sleep(dice.choice((0.5, 2.0, 6.0)))
    cluster.heal()


def cut_one_way(cluster: ClusterForTests, crew: Crew, dice: random.Random) -> None:
    one, other = dice.sample(list(cluster.nodes), 2)
    cluster.cut(one, other, both_ways=False)
    time.sleep(dice.choice((0.5, 2.0, 6.0)))
    cluster.heal()


def drop_peer_connections(cluster: ClusterForTests, crew: Crew, dice: random.Random) -> None:
    for _ in range(dice.choice((1, 3))):
        cluster.drop_peer_connections()
        time.sleep(dice.uniform(0.0, 0.2))


def drop_client_connections(cluster: ClusterForTests, crew: Crew, dice: random.Random) -> None:
    for broker in cluster.brokers.values():
        broker.drop_connections()


def slow_disk(cluster: ClusterForTests, crew: Crew, dice: random.Random) -> None:
    broker = cluster.brokers[_some(cluster, dice)]
    broker.slow_disk(0.2)
    time.sleep(dice.uniform(0.5, 3.0))
    broker.slow_disk(0)


def full_disk(cluster: ClusterForTests, crew: Crew, dice: random.Random) -> None:
    broker = cluster.brokers[_leader(cluster, dice, IN, OUT)]
    broker.full_disk()
    time.sleep(dice.uniform(0.2, 3.0))
    broker.full_disk(False)


def broken_disk(cluster: ClusterForTests, crew: Crew, dice: random.Random) -> None:
    """Syncs fail, until the broker has started anew on a disk that works."""
    node = _leader(cluster, dice, IN, OUT)
    broker = cluster.brokers[node]
    broker.broken_disk()
    time.sleep(dice.uniform(0.2, 3.0))
    broker.kill()
    broker.forget_faults()
    cluster.restart(node)


def kill_worker(cluster: ClusterForTests, crew: Crew, dice: random.Random) -> None:
    kill_any_worker(crew, dice)


def pause_worker(cluster: ClusterForTests, crew: Crew, dice: random.Random) -> None:
    pause_any_worker(crew, dice)


CLUSTER_FAULTS: Final[dict[str, Callable[[ClusterForTests, Crew, random.Random], None]]] = {
    fault.__name__: fault
    for fault in (
        kill_leader,
        kill_coordinator,
        kill_majority,
        kill_all,
        rolling_restart,
        pause_broker,
        isolate,
        cut_one_way,
        drop_peer_connections,
        drop_client_connections,
        slow_disk,
        full_disk,
        broken_disk,
        kill_worker,
        pause_worker,
    )
}
