"""The cluster's metadata: what is decided and refused, and that replaying the records gives the same state anywhere."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logstore.directory.catalogue import Catalogue, encode_uuid
from logstore.errors import (
    DamagedStoreError,
    InvalidArgumentError,
    InvalidConfigError,
    InvalidRecordError,
    LogStoreError,
    TopicExistsError,
    UnknownTopicError,
)
from logstore.machine import Decision
from replication.cluster.changes import (
    CatalogueChange,
    PartitionsAdded,
    ProducerIdsTaken,
    TopicCreated,
    changes_between,
    decode_changes,
    encode_changes,
    may_be_forwarded,
)
from replication.cluster.image import BrokerRegistration, ClusterImage, PeerAddress
from replication.cluster.machine import Candidates, ClusterMachine, Incumbent
from replication.errors import (
    BrokerInUseError,
    ClusterMismatchError,
    DuplicateBrokerError,
    InvalidReplicasError,
    InvalidReplicationFactorError,
    MetadataConflictError,
    UnknownBrokerError,
)

CLUSTER = encode_uuid(b"c" * 16)


def uuid_of(number: int) -> str:
    return encode_uuid(number.to_bytes(16, "big"))


def carry_out(machine: ClusterMachine, decision: Decision[Any]) -> Any:
    for key, value in decision.records:
        machine.replay(key, value)
    return decision.reply


def begun(brokers: int = 3) -> ClusterMachine:
    machine = ClusterMachine()
    carry_out(machine, machine.decide_begin(CLUSTER))
    for node in range(1, brokers + 1):
        carry_out(machine, machine.decide_register_broker(node, f"host{node}", 9092, f"r{node % 2}", None))
    return machine


def changed(machine: ClusterMachine, change: Callable[[Catalogue], Catalogue], **options: Any) -> int:
    before = machine.image.catalogue
    reply: int = carry_out(
        machine, machine.decide_changes(changes_between(before, change(before)), **options)
    )
    return reply


def with_topic(name: str, number: int, partitions: int = 2) -> Callable[[Catalogue], Catalogue]:
    return lambda catalogue: catalogue.with_topic(
        name, topic_id=uuid_of(number), partitions=partitions, created_ms=7
    )


# --- any sequence ---

NAMES = st.sampled_from(["a", "b", "c"])
STEPS = st.one_of(
    st.tuples(st.just("create"), NAMES, st.integers(1, 5)),
    st.tuples(st.just("grow"), NAMES, st.integers(1, 5)),
    st.tuples(st.just("alter"), NAMES, st.integers(1, 5)),
    st.tuples(st.just("delete"), NAMES, st.just(0)),
    st.tuples(st.just("open"), NAMES, st.integers(0, 2)),
    st.tuples(st.just("forget"), NAMES, st.just(0)),
    st.tuples(st.just("ids"), NAMES, st.integers(1, 9)),
    st.tuples(st.just("register"), NAMES, st.integers(1, 5)),
    st.tuples(st.just("unregister"), NAMES, st.integers(1, 5)),
    st.tuples(st.just("drain"), NAMES, st.integers(1, 5)),
    st.tuples(st.just("reassign"), NAMES, st.integers(0, 4)),
    st.tuples(st.just("moved"), NAMES, st.integers(0, 4)),
)


def decided(machine: ClusterMachine, step: tuple[str, str, int], number: int) -> Decision[Any]:
    what, name, count = step
    image = machine.image
    catalogue = image.catalogue

    def by(after: Catalogue) -> Decision[Any]:
        return machine.decide_changes(changes_between(catalogue, after), None)

    match what:
        case "create":
            return by(with_topic(name, number, count)(catalogue))
        case "grow":
            return by(catalogue.with_partitions(name, catalogue.topic(name).partitions + count))
        case "alter":
            return by(catalogue.with_config(name, {"retention.ms": str(count)}))
        case "delete":
            return by(catalogue.without_topic(name))
        case "open":
            return by(catalogue.with_opened_producer(name).with_producer_id(name, count))
        case "forget":
            return by(catalogue.without_producer(name))
        case "ids":
            return by(catalogue.with_producer_ids(count))
        case "register":
            return machine.decide_register_broker(count, "host", 9092, "", None)
        case "unregister":
            return machine.decide_unregister_broker(count)
        case "drain":
            return machine.decide_drain(count, count % 2 == 0)
        case "reassign":
            nodes = tuple(image.brokers)[: max(count, 1)]
            return machine.decide_reassign({(name, 0): None if count == 4 else nodes})
        case _:
            place = (catalogue.topic(name).topic_id, 0)
            return machine.decide_moved(place, tuple(image.brokers)[: max(count, 1)], done=count % 2 == 0)


@settings(max_examples=150, deadline=None)
@given(st.lists(STEPS, max_size=25), st.randoms(use_true_random=False))
def test_replicas_that_replay_have_one_state(
    steps: list[tuple[str, str, int]], randomness: random.Random
) -> None:
    machine, other = begun(), ClusterMachine()
    for key, value in machine.snapshot():
        other.replay(key, value)
    for number, step in enumerate(steps):
        before = machine.image
        try:
            decision = decided(machine, step, number)
        except LogStoreError:
            assert machine.image is before
            continue
        assert machine.image is before  # deciding changes nothing
        for key, value in decision.records:
            machine.replay(key, value)
            other.replay(key, value)
        for key, value in decision.records:  # repeated right away
            other.replay(key, value)
        assert machine.image == other.image
        assert machine.image.revision == before.revision + bool(decision.records)
    records = list(machine.snapshot())
    randomness.shuffle(records)  # compaction keeps the newest of each key, wherever that is
    rebuilt = ClusterMachine()
    for key, value in records:
        rebuilt.replay(key, value)
    assert rebuilt.image == machine.image
    _check_whole(machine.image)


def _check_whole(image: ClusterImage) -> None:
    topics = {entry.topic_id: entry for entry in image.catalogue.topics.values()}
    assert image.replicas.keys() == topics.keys()
    for topic_id, partitions in image.replicas.items():
        assert len(partitions) == topics[topic_id].partitions
        assert all(partitions)
    assert all(image.replicas_of(*place) for place in (*image.targets, *image.leaving))
    for place, nodes in image.leaving.items():
        assert not nodes & {*image.replicas_of(*place), *image.targets.get(place, ())}


@settings(max_examples=60, deadline=None)
@given(st.lists(STEPS, max_size=15))
def test_changes_travel(steps: list[tuple[str, str, int]]) -> None:
    """What one catalogue differs from another in makes the other of it, also after a journey as bytes."""
    machine = begun()
    before = machine.image.catalogue
    for number, step in enumerate(steps):
        try:
            carry_out(machine, decided(machine, step, number))
        except LogStoreError:
            continue  # refused: nothing to carry
    after = machine.image.catalogue
    changes, factor = decode_changes(encode_changes(changes_between(before, after), 2))
    assert factor == 2
    fresh = begun()
    carry_out(fresh, fresh.decide_changes(changes, 2))
    now = fresh.image.catalogue
    assert {
        (one.name, one.topic_id, one.partitions, tuple(one.config.items())) for one in now.topics.values()
    } == {
        (one.name, one.topic_id, one.partitions, tuple(one.config.items())) for one in after.topics.values()
    }
    assert (now.producers, now.next_producer_id) == (after.producers, after.next_producer_id)
    if not any(isinstance(change, ProducerIdsTaken) for change in changes):
        assert fresh.decide_changes(changes, 2).records == ()


# --- single rules ---


def test_more_replicas_than_brokers_are_refused_by_name() -> None:
    machine = begun(2)
    with pytest.raises(InvalidReplicationFactorError, match=r"3 replicas .* 2 brokers") as refused:
        changed(machine, with_topic("a", 1), replication_factor=3)
    assert "use 1 to 2" in refused.value.advice
    assert changed(machine, with_topic("a", 1)) == machine.image.revision
    assert all(len(one) == 2 for one in machine.image.replicas[uuid_of(1)])


def test_expected_brokers_get_replicas_before_they_register() -> None:
    machine = begun(1)
    changed(machine, with_topic("a", 1), candidates=Candidates(expected=(1, 2, 3), alive=(1,)))
    assert set(machine.image.replicas_of(uuid_of(1), 0)) == {1, 2, 3}


def test_coordinators_are_spread_over_brokers() -> None:
    machine = begun(3)
    for number, name in enumerate(("__consumer_offsets", "__transaction_state"), 1):
        changed(
            machine,
            lambda one, name=name, number=number: one.with_topic(  # type: ignore[misc]
                name, topic_id=uuid_of(number), partitions=12, created_ms=1, internal=True
            ),
        )
        leaders = Counter(replicas[0] for replicas in machine.image.replicas[uuid_of(number)])
        assert leaders == {1: 4, 2: 4, 3: 4}


def test_partitions_that_are_added_are_as_safe_as_the_others() -> None:
    machine = begun(4)
    changed(machine, with_topic("a", 1), replication_factor=2)
    changed(machine, lambda one: one.with_partitions("a", 5))
    assert [len(one) for one in machine.image.replicas[uuid_of(1)]] == [2] * 5
    for replicas in machine.image.replicas[uuid_of(1)]:
        assert len({node % 2 for node in replicas}) == 2  # their racks


def test_living_brokers_go_first_and_draining_ones_get_nothing() -> None:
    machine = begun(4)
    carry_out(machine, machine.decide_drain(4, True))
    changed(machine, with_topic("a", 1, 4), replication_factor=2, candidates=Candidates(alive=(1, 3)))
    assert {node for one in machine.image.replicas[uuid_of(1)] for node in one} == {1, 3}
    changed(machine, with_topic("b", 2, 4), replication_factor=3, candidates=Candidates(alive=(1, 3)))
    assert {node for one in machine.image.replicas[uuid_of(2)] for node in one} == {1, 2, 3}


def test_what_was_decided_on_an_older_state_is_refused_and_what_is_in_is_no_change() -> None:
    machine = begun()
    old = machine.image.catalogue
    changed(machine, with_topic("a", 1))
    again = changes_between(old, with_topic("a", 1)(old))
    assert machine.decide_changes(again).records == ()
    with pytest.raises(TopicExistsError):
        machine.decide_changes(changes_between(old, with_topic("a", 2)(old)))
    taken = changes_between(old, old.with_producer_ids(5))
    carry_out(machine, machine.decide_changes(taken))
    with pytest.raises(MetadataConflictError):
        machine.decide_changes(taken)
    grow = PartitionsAdded("a", uuid_of(1), 1, 3)
    with pytest.raises(MetadataConflictError):
        machine.decide_changes([grow])
    with pytest.raises(MetadataConflictError):
        machine.decide_changes([PartitionsAdded("a", uuid_of(9), 2, 3)])
    with pytest.raises(UnknownTopicError):
        machine.decide_changes([PartitionsAdded("z", uuid_of(9), 2, 3)])


def test_settings_are_checked_at_the_controller() -> None:
    wrong: list[CatalogueChange] = [TopicCreated("a", uuid_of(1), 1, {"no.such": "1"}, 7, False)]
    with pytest.raises(InvalidConfigError):
        begun().decide_changes(wrong)


def test_what_any_node_may_ask_for() -> None:
    catalogue = Catalogue(store_id=CLUSTER)
    internal = catalogue.with_topic(
        "__consumer_offsets", topic_id=uuid_of(1), partitions=1, created_ms=1, internal=True
    )
    assert may_be_forwarded(changes_between(catalogue, internal.with_producer_ids(4)))
    assert may_be_forwarded(changes_between(catalogue, catalogue.with_opened_producer("p")))
    assert not may_be_forwarded(changes_between(catalogue, with_topic("a", 1)(catalogue)))
    assert not may_be_forwarded(changes_between(internal, catalogue))


def test_a_number_belongs_to_the_process_that_registered_last() -> None:
    machine = begun(1)

    def register(incarnation: int, directory_id: str, incumbent: Incumbent) -> BrokerRegistration:
        found: BrokerRegistration = carry_out(
            machine,
            machine.decide_register_broker(
                1,
                "host",
                1,
                "",
                CLUSTER,
                directory_id=directory_id,
                incarnation=incarnation,
                incumbent=incumbent,
            ),
        )
        return found

    gone, doubtful, lives = Incumbent.GONE, Incumbent.DOUBTFUL, Incumbent.LIVES
    first = register(5, "d", lives)  # the one before did not say which process it is
    assert register(5, "d", lives) == first  # it asks again
    assert first == machine.image.brokers[1]
    for directory_id, incumbent in (("d", lives), ("other", lives), ("other", doubtful)):
        with pytest.raises(DuplicateBrokerError, match="another process is broker 1, at host:1, with"):
            register(6, directory_id, incumbent)
    assert machine.image.brokers[1] == first
    second = register(6, "d", doubtful)
    assert second.epoch > first.epoch
    third = register(7, "other", gone)
    assert third.epoch > second.epoch
    assert register(0, "other", lives).epoch > third.epoch  # of an older version
    assert machine.image.brokers[1].incarnation == 0


def test_epochs_go_on_where_a_number_is_given_again() -> None:
    machine = begun(2)
    before = machine.image.brokers[2].epoch
    carry_out(machine, machine.decide_unregister_broker(2))
    carry_out(machine, machine.decide_add_broker(2, PeerAddress("host", 1)))
    assert carry_out(machine, machine.decide_register_broker(2, "host", 1, "", CLUSTER)).epoch > before


def test_a_registration_of_an_older_version_says_no_process() -> None:
    machine = ClusterMachine()
    old = {
        "version": 1,
        "host": "h",
        "port": 1,
        "rack": "",
        "epoch": 3,
        "draining": False,
        "directory_id": "d",
    }
    machine.replay(b'{"kind":"broker","node_id":4}', json.dumps(old).encode())
    assert machine.image.brokers[4] == BrokerRegistration(4, "h", 1, "", 3, False, "d", 0)


def test_brokers_register_anew_and_leave_when_they_are_empty() -> None:
    machine = begun(2)
    before = machine.image.brokers[2].epoch
    again = carry_out(machine, machine.decide_register_broker(2, "moved", 1, "r9", CLUSTER))
    assert again.host == "moved"
    assert again.epoch == machine.image.revision > before
    assert machine.image.brokers[2] == again
    with pytest.raises(ClusterMismatchError):
        machine.decide_register_broker(3, "host", 1, "", uuid_of(5))
    with pytest.raises(UnknownBrokerError):
        machine.decide_unregister_broker(3)
    changed(machine, with_topic("a", 1), replication_factor=2)
    with pytest.raises(BrokerInUseError, match="2 replicas"):
        machine.decide_unregister_broker(2)
    changed(machine, lambda catalogue: catalogue.without_topic("a"))
    carry_out(machine, machine.decide_unregister_broker(2))
    assert list(machine.image.brokers) == [1]


def test_a_directory_brings_its_topics_along_once() -> None:
    local = with_topic("old", 8, 3)(Catalogue(store_id=uuid_of(77))).with_producer_ids(1_000)
    local = local.with_opened_producer("p")
    machine = begun()
    revision = carry_out(machine, machine.decide_import(2, local))
    image = machine.image
    assert revision == image.revision
    assert image.replicas[uuid_of(8)] == ((2,), (2,), (2,))
    assert (image.catalogue.next_producer_id, image.catalogue.producers) == (1_001, local.producers)
    assert machine.decide_import(2, local).records == ()
    stranger = with_topic("old", 9)(Catalogue(store_id=uuid_of(78)))
    with pytest.raises(TopicExistsError):
        machine.decide_import(3, stranger)
    with pytest.raises(InvalidArgumentError, match="producer ids"):
        machine.decide_import(3, with_topic("new", 9)(Catalogue(store_id=uuid_of(78))).with_producer_ids(1))


def test_a_move_has_a_target_until_it_is_done() -> None:
    machine = begun(4)
    changed(machine, with_topic("a", 1), replication_factor=2)
    place = (uuid_of(1), 1)
    now = machine.image.replicas_of(*place)
    aim = tuple(node for node in (1, 2, 3, 4) if node not in now)
    carry_out(machine, machine.decide_reassign({("a", 1): aim}))
    assert machine.image.targets == {place: aim}
    assert machine.image.holders_of(*place) == (*now, *aim)
    carry_out(machine, machine.decide_moved(place, aim, done=True))
    assert (machine.image.replicas_of(*place), machine.image.targets) == (aim, {})
    assert machine.decide_reassign({("a", 1): aim}).records == ()
    for wrong in ((), (1, 1)):
        with pytest.raises(InvalidReplicasError):
            machine.decide_reassign({("a", 0): wrong})
    with pytest.raises(UnknownBrokerError):
        machine.decide_reassign({("a", 0): (9,)})


def test_replicas_of_many_partitions_are_records_of_a_thousand() -> None:
    machine = begun()
    changed(machine, with_topic("wide", 1, 2_500))
    before = machine.image
    decision = machine.decide_moved((uuid_of(1), 1_700), (3, 1), done=False)
    keys = [json.loads(key) for key, _ in decision.records]
    assert [key.get("first") for key in keys if key["kind"] == "replicas"] == [1_000]
    carry_out(machine, decision)
    assert len(machine.image.replicas[uuid_of(1)]) == 2_500
    assert machine.image.replicas_of(uuid_of(1), 1_700) == (3, 1)
    assert before.replicas_of(uuid_of(1), 1_700) != (3, 1)


def test_unknown_kinds_and_newer_versions_are_counted_and_passed_over() -> None:
    machine = begun()
    image = machine.image
    machine.replay(b'{"kind":"quota","user":"x"}', b'{"version":1}')
    machine.replay(b'{"kind":"topic","name":"a"}', b'{"version":2,"anything":1}')
    assert machine.ignored_records == 2
    assert machine.image == image


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b"{}"),
        (b"no json", b"{}"),
        (b"[]", b"{}"),
        (b'{"kind":"broker"}', b'{"version":1}'),
        (b'{"kind":"broker","node_id":1}', b'{"version":1,"host":"h"}'),
        (b'{"kind":"broker","node_id":"1"}', b'{"version":1}'),
        (b'{"kind":"topic","name":"a"}', b"7"),
        (b'{"kind":"cluster"}', b"{}"),
    ],
)
def test_nonsense_is_refused(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises((InvalidRecordError, DamagedStoreError)):
        ClusterMachine().replay(key, value)
    machine = ClusterMachine()
    with pytest.raises(InvalidRecordError):
        machine.replay_pending(1, 0, b"{}", None)
    with pytest.raises(InvalidRecordError):
        machine.replay_marker(1, 0, True)


@pytest.mark.parametrize(
    "data", [b"", b"[]", b'{"version":2}', b'{"version":1,"changes":[{"kind":"x","name":"y"}]}']
)
def test_a_request_that_is_none_is_refused(data: bytes) -> None:
    with pytest.raises((InvalidRecordError, DamagedStoreError)):
        decode_changes(data)
