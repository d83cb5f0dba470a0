"""A cluster's catalogue in the place of a store's file: decided at the controller, followed by all directories."""

from __future__ import annotations

from dataclasses import replace

import pytest

from logstore.directory import catalogue as catalogues
from logstore.directory.catalogue import Catalogue, CatalogueFile, encode_uuid
from logstore.directory.partition_folder import DELETION_NOTE, deletion_note_path
from logstore.errors import DiskFullError, TopicExistsError
from logstore.seams.faults import FaultKind
from logstore.seams.fs import exists, read_file
from logstore.seams.memory_crash import KeepNothing
from replication.cluster.image import ClusterImage
from replication.errors import ClusterMismatchError, NotLeaderError
from tests.replication.cluster.world import Cluster, Member


def uuid_of(number: int) -> str:
    return encode_uuid(number.to_bytes(16, "big"))


def with_topic(name: str, number: int, catalogue: Catalogue, partitions: int = 2) -> Catalogue:
    return catalogue.with_topic(
        name,
        topic_id=uuid_of(number),
        partitions=partitions,
        created_ms=7,
        internal=name.startswith("__"),
    )


def test_a_topic_made_at_the_controller_is_everywhere_also_on_disk() -> None:
    cluster = Cluster()
    cluster.register_all()
    controller = cluster.controller()
    changed = controller.catalogue.change(lambda one: with_topic("a", 1, one), 20.0, 2)
    assert "a" in changed.topics
    cluster.settle()
    image = controller.follower.image
    assert {len(replicas) for replicas in image.replicas[uuid_of(1)]} == {2}
    stores = set()
    for member in cluster.members.values():
        loaded = member.catalogue.load()
        assert (loaded.topic("a").topic_id, loaded.topic("a").partitions) == (uuid_of(1), 2)
        assert not member.catalogue.changed()
        on_disk = catalogues.decode(read_file(member.fs, "/data/topics.json"), "topics.json")
        assert on_disk == loaded
        stores.add(on_disk.store_id)
    assert len(stores) == 3
    assert image.cluster_id not in stores


def test_elsewhere_administrators_are_sent_to_the_controller() -> None:
    cluster = Cluster()
    cluster.register_all()
    leader = cluster.nodes.leader().node_id
    for member in cluster.others():
        with pytest.raises(NotLeaderError) as refused:
            member.catalogue.change(lambda one: with_topic("a", 1, one), 20.0)
        assert refused.value.leader_id == leader


def test_any_node_may_ask_for_what_its_clients_need() -> None:
    cluster = Cluster()
    cluster.register_all()
    one, other = cluster.others()
    made = one.catalogue.change(lambda now: with_topic("__consumer_offsets", 5, now, 1), 20.0)
    assert made.topic("__consumer_offsets").internal
    with pytest.raises(TopicExistsError):
        other.catalogue.change(lambda now: with_topic("__consumer_offsets", 6, now, 1), 20.0)
    firsts = []
    for member in (one, other, one, cluster.controller()):
        taken = member.catalogue.change(lambda now: now.with_producer_ids(1_000), 20.0)
        firsts.append(taken.next_producer_id - 1_000)
    assert sorted(firsts) == [0, 1_000, 2_000, 3_000]
    epochs = [
        member.catalogue.change(lambda now: now.with_opened_producer("p"), 20.0).producer("p").epoch
        for member in (one, other, cluster.controller())
    ]
    assert epochs == [0, 1, 2]


def test_a_change_waits_for_the_next_controller() -> None:
    cluster = Cluster()
    cluster.register_all()
    one, other = cluster.others()
    cluster.nodes.leader().kill(KeepNothing())
    taken = one.catalogue.change(lambda now: now.with_producer_ids(7), 60.0)
    assert taken.next_producer_id == 7
    assert other.catalogue.change(lambda now: now.with_producer_ids(1), 60.0).next_producer_id == 8


@pytest.mark.parametrize("file", ["topics.json", DELETION_NOTE])
@pytest.mark.parametrize(
    ("call", "fault"),
    [("pwritev", FaultKind.EIO), ("pwritev", FaultKind.ENOSPC), ("sync", FaultKind.FAILED_SYNC)],
)
def test_a_disk_that_refuses_a_file_leaves_the_node_behind_and_no_longer(
    call: str, fault: FaultKind, file: str, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = Cluster()
    cluster.register_all()
    controller = cluster.controller()
    controller.catalogue.change(lambda one: with_topic("a", 1, one), 20.0)
    cluster.settle()
    member = cluster.others()[0]
    before = member.catalogue.load()
    member.fs.faults.on(call, fault, path_ends=f"{file}.tmp", forever=True)
    controller.catalogue.change(lambda one: with_topic("b", 2, one.without_topic("a")), 20.0)
    cluster.settle()
    for _ in range(3):
        assert member.catalogue.load() == before
        assert not member.catalogue.changed(), "who looks at each call would write at each call"
    assert caplog.text.count("the catalogue stays at revision") == 1
    member.fs.faults.clear()
    cluster.nodes.run(lambda: member.catalogue.load() != before)
    now = member.catalogue.load()
    assert set(now.topics) == {"b"}
    assert not member.catalogue.changed()
    assert catalogues.decode(read_file(member.fs, "/data/topics.json"), "topics.json") == now


def test_a_disk_that_refuses_the_first_file_is_an_error() -> None:
    cluster = Cluster()
    cluster.register_all()
    member = cluster.others()[0]
    member.catalogue.joined()
    member.fs.faults.on("pwritev", FaultKind.ENOSPC, path_ends="topics.json.tmp", forever=True)
    cluster.controller().catalogue.change(lambda one: with_topic("a", 1, one), 20.0)
    cluster.nodes.agree()
    with pytest.raises(DiskFullError):
        member.catalogue.load()


def test_a_deleted_topic_leaves_with_a_note_and_its_name_is_free() -> None:
    cluster = Cluster()
    cluster.register_all()
    controller = cluster.controller()
    controller.catalogue.change(lambda one: with_topic("a", 1, one), 20.0)
    cluster.settle()
    controller.catalogue.change(lambda one: one.without_topic("a"), 20.0)
    cluster.settle()
    for member in cluster.members.values():
        assert member.left == ["a"]
        assert exists(member.fs, deletion_note_path("/data", uuid_of(1)))
    controller.catalogue.change(lambda one: with_topic("a", 2, one), 20.0)
    cluster.settle()
    assert {member.catalogue.load().topic("a").topic_id for member in cluster.members.values()} == {
        uuid_of(2)
    }
    assert cluster.controller().follower.image.replicas.keys() == {uuid_of(2)}


def test_after_a_start_the_directory_counts_until_the_metadata_have_come_as_far() -> None:
    cluster = Cluster()
    cluster.register_all()
    cluster.controller().catalogue.change(lambda one: with_topic("a", 1, one), 20.0)
    cluster.settle()
    member = cluster.others()[0]
    again = cluster.member(member.metadata.node_id, member.fs)
    again.follower._image = ClusterImage()  # its replica of the metadata knows of no commit yet
    again.follower._news = False
    assert "a" in again.catalogue.load().topics
    again.follower._news = True
    assert "a" in again.catalogue.load().topics
    assert again.left == []


def test_a_directory_with_topics_joins_and_keeps_them() -> None:
    cluster = Cluster()
    first = cluster[1]
    local = with_topic("old", 8, CatalogueFile(first.fs, "/data").load())
    CatalogueFile(first.fs, "/data").save(local.with_producer_ids(5))
    member = cluster.member(1, first.fs)
    cluster.members[1] = member
    _, cluster_id = member.metadata.register("h", 1, "", None, 20.0)
    member.identity.take_up(cluster_id)
    assert "old" in member.catalogue.load().topics  # the cluster does not know it, and it stays
    revision = member.metadata.import_catalogue(member.catalogue.local(), 20.0)
    member.follower.wait_for(revision, 20.0)
    member.catalogue.joined()
    for number in (2, 3):
        cluster[number].metadata.register("h", 1, "", None, 20.0)
        cluster[number].catalogue.joined()
    cluster.settle()
    for one in cluster.members.values():
        assert one.catalogue.load().topic("old").topic_id == uuid_of(8)
        assert one.catalogue.load().next_producer_id == 5
    assert member.catalogue.load().topic("old") == local.topic("old")  # its slots among the rest
    assert cluster.controller().follower.image.replicas[uuid_of(8)] == ((1,), (1,))
    with pytest.raises(ClusterMismatchError):
        member.identity.take_up(uuid_of(99))
    with pytest.raises(ClusterMismatchError):
        cluster.member(2, member.fs)


def test_what_the_cluster_deletes_while_a_node_joins_is_not_brought_back() -> None:
    cluster = Cluster()
    cluster.register_all()
    controller, number = cluster.controller(), cluster.others()[0].metadata.node_id
    joining = _anew(cluster, number)
    controller.catalogue.change(lambda one: with_topic("a", 1, one), 20.0)
    cluster.settle()
    assert not joining.catalogue.changed()
    assert joining.catalogue.load().topics == {}
    controller.catalogue.change(lambda one: with_topic("b", 2, one.without_topic("a")), 20.0)
    cluster.settle()
    assert joining.catalogue.local().topics == {}
    joining.catalogue.joined()
    assert joining.catalogue.changed()
    assert set(joining.catalogue.load().topics) == {"b"}


def test_a_directory_that_counted_further_than_the_cluster_follows_it() -> None:
    cluster = Cluster()
    cluster.register_all()
    cluster.controller().catalogue.change(lambda one: with_topic("a", 1, one), 20.0)
    cluster.settle()
    joining = _anew(cluster, cluster.others()[0].metadata.node_id, revision=1000)
    joining.catalogue.joined()
    now = joining.catalogue.load()
    assert set(now.topics) == {"a"}
    assert now.revision == joining.follower.image.revision < 1000


def _anew(cluster: Cluster, number: int, revision: int = 0) -> Member:
    """The node with an empty directory that is in no cluster yet, whose changes were counted up to ``revision``."""
    made = cluster.member(number)
    if revision:
        file = CatalogueFile(made.fs, "/data")
        file.save(replace(file.load(), revision=revision))
        made = cluster.member(number, made.fs)
    cluster.members[number] = made
    return made
