"""A node whose disk is full: others lead its partitions, coordinate its groups and control the cluster meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from logstore.api.records import ProduceItem
from logstore.errors import DiskFullError, LogStoreError
from logstore.format.batch import encode_batch
from logstore.seams.memory_fs import MemoryFileSystem
from logstore.types import OffsetAndMetadata, TopicPartition
from replication.cluster.controller import ControllerSettings
from replication.cluster_node import ClusterNode
from replication.errors import LeaderDiskError, LeaderNotReadyError, NotLeaderError
from replication.transport import METADATA_GROUP
from tests.replication.cluster_nodes import Cluster, until

PLACE = TopicPartition("t", 0)


@contextmanager
def on_small_disks() -> Iterator[tuple[Cluster, dict[int, MemoryFileSystem]]]:
    three = Cluster(Path("/"), controller=ControllerSettings(look_s=0.1, settle_s=0.3))
    disks = {number: MemoryFileSystem() for number in three.voters}
    for disk in disks.values():
        disk.mkdir("/data")
        disk.sync_dir("/")
    three.disks = dict(disks)
    try:
        three.start()
        yield three, disks
    finally:
        for disk in disks.values():
            disk.capacity_bytes = None
        three.close()


def produced(node: ClusterNode, size: int) -> LogStoreError | None:
    batch = encode_batch([(None, bytes(size))], now_ms=1_700_000_000_000)
    (result,) = node.engine.produce([ProduceItem(*PLACE, batch)], "all", 5.0)
    return result.error


def led_by(three: Cluster, number: int) -> list[str]:
    return [replica.where for replica in three.nodes[number].node.replicas() if replica.is_leader]


def commits(three: Cluster) -> None:
    """A group's offset is committed by whoever coordinates it by then."""
    offsets = {PLACE: OffsetAndMetadata(1, -1, "")}

    def tried() -> bool:
        for node in three.nodes.values():
            try:
                node.engine.commit_offsets("g", offsets)
            except (NotLeaderError, LeaderNotReadyError):
                continue
            return True
        return False

    until(tried)


def test_others_lead_what_a_node_led_whose_disk_is_full_until_it_has_room() -> None:
    with on_small_disks() as (three, disks):
        three.create_topic("t", partitions=6)
        until(lambda: produced(three.leader("t"), 10) is None)
        commits(three)
        full = three.leader("t")
        until(lambda: _controls(three, full))
        disk = disks[full.node_id]
        disk.capacity_bytes = disk._used + 100
        assert isinstance(produced(full, 10_000), LeaderDiskError | LeaderNotReadyError | NotLeaderError)
        until(lambda: led_by(three, full.node_id) == [])
        until(lambda: three.controller is not full)
        until(lambda: produced(three.leader("t"), 10_000) is None)
        commits(three)
        three.create_topic("u", partitions=6)  # with leaders that can write
        until(lambda: all(three.leader("u", number) is not full for number in range(6)))
        assert led_by(three, full.node_id) == []
        disk.capacity_bytes = None
        until(lambda: not full.node.disk_refuses(full.node_id))
        until(lambda: three.leader("t") is full)  # the controller has given back what it preferably leads
        assert produced(full, 10_000) is None


def _controls(three: Cluster, node: ClusterNode) -> bool:
    replica = three.controller.node.replica(METADATA_GROUP)
    if replica is None or three.controller is node:
        return replica is not None
    with replica.lock, suppress(NotLeaderError, LeaderNotReadyError):
        replica.transfer(node.node_id)
    return False


def test_a_node_that_is_alone_keeps_its_place_on_a_full_disk() -> None:
    disk = MemoryFileSystem()
    disk.mkdir("/data")
    disk.sync_dir("/")
    one = Cluster(Path("/"), 1)
    one.disks[1] = disk
    one.start()
    try:
        one.nodes[1].store.create_topic("t")
        until(lambda: produced(one.nodes[1], 10) is None)
        disk.capacity_bytes = disk._used + 100
        assert isinstance(produced(one.nodes[1], 10_000), DiskFullError)
        assert one.leader("t") is one.nodes[1]
        disk.capacity_bytes = None
        assert produced(one.nodes[1], 10_000) is None
    finally:
        disk.capacity_bytes = None
        one.close()
