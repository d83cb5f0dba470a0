"""Consumers that share a group: what moves, who is told when, what is committed, over both backends."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import pytest

from logstore.api.backend import Backend
from logstore.client.consumer.consumer import Consumer
from logstore.client.producer.producer import Producer
from logstore.errors import (
    DiskFullError,
    InvalidArgumentError,
    MemberFencedError,
    NoCommittedOffsetError,
    StaleGenerationError,
    UnknownMemberError,
)
from logstore.machine import TransactionalWriter
from logstore.seams.clock import ManualClock
from logstore.types import OffsetAndMetadata, Record, TopicPartition
from tests.client.fake_backend import FakeBackend
from tests.client.records import until

Reader: TypeAlias = Consumer[Any, Any]
Join: TypeAlias = Callable[..., Reader]


def place(partition: int, topic: str = "flights") -> TopicPartition:
    return TopicPartition(topic, partition)


@pytest.fixture
def join(backend: Backend) -> Iterator[Join]:
    """Makes consumers of group "g" and closes them."""
    made: list[Reader] = []

    def join(topics: Any = "flights", **settings: Any) -> Reader:
        made.append(Consumer(backend, topics, group="g", **settings))
        return made[-1]

    yield join
    for consumer in made:
        consumer.close()


def fill(backend: Backend, count: int = 5, topic: str = "flights", partitions: int = 4) -> None:
    with Producer(backend) as producer:
        for partition in range(partitions):
            rows = [(None, b"%d-%d" % (partition, number)) for number in range(count)]
            producer.send_many(topic, rows, partition=partition)


def settle(*consumers: Reader) -> list[list[int]]:
    """Poll in turn until nothing moves: the partitions of each."""
    before = None
    while True:
        for consumer in consumers:
            consumer.poll(1, timeout_s=0)
        now = [sorted(where.partition for where in consumer.assignment()) for consumer in consumers]
        if now == before:
            return now
        before = now


def drain(consumer: Reader) -> list[Record]:
    records: list[Record] = []
    while found := consumer.poll(timeout_s=0):
        records += found
    return records


def test_a_member_that_has_to_give_up_before_it_has_looked_does(
    backend: Backend, join: Join, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another one joins between the join and its first look: what it never read is free at once."""
    original, second = backend.join_group, []

    def join_group(*arguments: Any) -> Any:
        member = original(*arguments)
        if not second:
            second.append(None)
            second[0] = join()
            until(lambda: bool(member.view().revoking), "the first member has heard of the second")  # type: ignore[union-attr]
        return member

    monkeypatch.setattr(backend, "join_group", join_group)
    one, two = join(), second[0]
    assert two is not None

    def shared() -> bool:
        one.poll(1, timeout_s=0)
        two.poll(1, timeout_s=0)
        return len(two.assignment()) == 2

    until(shared, "the second has its share")
    assert len(one.assignment()) == 2


def test_partitions_are_shared_and_come_back(join: Join) -> None:
    one = join()
    assert len(one.assignment()) == 4
    two, three = join(), join()
    shares = settle(one, two, three)
    assert sorted(number for share in shares for number in share) == [0, 1, 2, 3]
    assert sorted(map(len, shares)) == [1, 1, 2]
    two.close()
    shares = settle(one, three)
    assert sorted(map(len, shares)) == [2, 2]
    three.close()
    assert settle(one) == [[0, 1, 2, 3]]


def test_every_record_is_seen_once_while_members_come_and_go(backend: Backend, join: Join) -> None:
    fill(backend, 50)
    seen: list[Record] = []
    members = [join(auto_commit_interval_ms=3_600_000) for _ in range(2)]
    for turn in range(12):
        if turn in (2, 4):
            members.append(join(auto_commit_interval_ms=3_600_000))
        if turn in (6, 8):
            members.pop(0).close()
        for consumer in members:
            seen += consumer.poll(7, timeout_s=0)
    for _ in range(3):
        for consumer in members:
            seen += drain(consumer)
    assert sorted((one.partition, one.offset) for one in seen) == [
        (p, o) for p in range(4) for o in range(50)
    ]


def test_a_partition_is_given_up_before_it_is_taken(backend: Backend, join: Join) -> None:
    fill(backend)
    told: list[tuple[str, list[int]]] = []

    def hook(name: str) -> Callable[[list[TopicPartition]], None]:
        return lambda places: told.append((name, sorted(where.partition for where in places)))

    committed: dict[int, int] = {}

    def on_revoked(places: list[TopicPartition]) -> None:
        told.append(("revoked", sorted(where.partition for where in places)))
        one.commit()  # still counts
        committed.update({where.partition: one.position(*where) for where in places})

    one = join(on_assigned=hook("one got"), on_revoked=on_revoked, on_lost=hook("one lost"))
    drain(one)
    two = join(on_assigned=hook("two got"), on_lost=hook("two lost"))
    assert drain(two) == []
    one.poll(timeout_s=0)
    assert drain(two) == []  # it goes on where the first has committed
    (_, given_up) = told[1]
    assert told == [("one got", [0, 1, 2, 3]), ("revoked", given_up), ("two got", given_up)]
    assert committed == dict.fromkeys(given_up, 5)
    one.close()
    assert told[3][0] == "revoked"
    assert settle(two) == [[0, 1, 2, 3]]


def test_automatic_commits_cover_what_is_given_up(backend: Backend, join: Join) -> None:
    fill(backend)
    one = join(auto_commit_interval_ms=3_600_000)
    records = drain(one)
    assert len(records) == 20
    two = join()
    one.poll(timeout_s=0)
    assert drain(two) == []
    assert len(backend.committed_offsets("g")) == 2
    assert set(backend.committed_offsets("g")) == set(two.assignment())


def test_without_commits_the_next_owner_reads_again(backend: Backend, join: Join) -> None:
    fill(backend)
    one = join()
    assert len(drain(one)) == 20
    two = join()
    one.poll(timeout_s=0)
    assert len(drain(two)) == 10


def test_what_was_given_up_cannot_be_committed(backend: Backend, join: Join) -> None:
    fill(backend)
    one, two = join(), join()
    settle(one, two)
    (foreign, *_) = two.assignment()
    with pytest.raises(StaleGenerationError, match="the partition is not its own"):
        one.commit({foreign: 1})
    with pytest.raises(InvalidArgumentError, match="does not read"):
        one.position(*foreign)
    two.commit({foreign: 1})
    assert backend.committed_offsets("g")[foreign].offset == 1


def test_start_counts_once_for_a_group(backend: Backend, join: Join) -> None:
    fill(backend)
    one = join(start="latest")
    assert {at.offset for at in backend.committed_offsets("g").values()} == {5}  # durable at once
    fill(backend, 2)
    two = join(start="latest")
    one.poll(timeout_s=0, max_records=1)
    seen = drain(one) + drain(two)
    assert len({(record.partition, record.offset) for record in seen}) >= 7  # nothing was skipped on its way
    assert min(record.offset for record in seen) == 5


def test_new_partitions_are_read_from_their_start(backend: Backend, join: Join) -> None:
    one, two = join(start="latest"), join(start="latest")
    settle(one, two)
    backend.add_partitions("flights", 6, allow_keyed=True)
    with Producer(backend) as producer:
        producer.send_many("flights", [(None, b"new")], partition=5)
    seen: list[Record] = []
    for _ in range(4):
        seen += one.poll(timeout_s=0) + two.poll(timeout_s=0)
    assert [record.partition for record in seen] == [5]
    assert sorted(map(len, settle(one, two))) == [3, 3]


def test_a_pattern_finds_topics_that_come_and_go(backend: Backend, join: Join) -> None:
    lost: list[TopicPartition] = []
    pattern = re.compile("FLI.*", re.IGNORECASE)
    one, two = (join(pattern, start="latest", on_lost=lost.extend) for _ in range(2))
    settle(one, two)
    backend.create_topic("flights-2", 2, {})
    fill(backend, 3, "flights-2", 2)
    seen: list[Record] = []
    for _ in range(4):
        seen += one.poll(timeout_s=0) + two.poll(timeout_s=0)
    assert sorted((record.topic, record.offset) for record in seen) == [
        ("flights-2", n // 2) for n in range(6)
    ]
    backend.delete_topic("flights-2")
    settle(one, two)
    assert sorted(lost) == [place(0, "flights-2"), place(1, "flights-2")]
    assert {where.topic for where in one.assignment() + two.assignment()} == {"flights"}


def test_a_group_without_offsets_under_start_committed(backend: Backend, join: Join) -> None:
    with pytest.raises(NoCommittedOffsetError):
        join(start="committed")
    assert backend.list_groups()[0].members == ()  # it has left
    one = join()
    one.commit()
    assert len(join(start="committed").assignment()) == 0
    assert one.group_metadata().group == "g"


def test_until_end_waits_for_its_share(backend: Backend, join: Join) -> None:
    fill(backend)
    one = join()
    two = join(until_end=True)
    assert two.poll(timeout_s=0) == []
    assert not two.is_finished()
    one.poll(timeout_s=0)
    assert len(list(two)) == 10
    assert two.is_finished()


def test_polling_inside_a_hook_is_refused(join: Join) -> None:
    one: Reader

    def hook(places: list[TopicPartition]) -> None:
        one.poll()

    one = join(on_assigned=hook)
    with pytest.raises(InvalidArgumentError, match="inside on_assigned"):
        one.poll(timeout_s=0)
    assert one.poll(timeout_s=0) == []


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"assignor": "fair"}, "assignor='fair'"),
        ({"instance_id": ""}, "instance_id=''"),
        ({"session_timeout_ms": 0}, "session_timeout_ms=0"),
        ({"session_timeout_ms": 5_000}, "heartbeat_interval_ms=3000 with session_timeout_ms=5000"),
        ({"max_poll_interval_ms": 1.5}, "max_poll_interval_ms=1.5"),
    ],
)
def test_settings_are_checked(backend: Backend, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=re.escape(message)):
        Consumer(backend, "flights", group="g", **settings)


def test_group_metadata(join: Join, backend: Backend) -> None:
    one = join()
    group, member_id, epoch = one.group_metadata()
    assert (group, epoch) == ("g", 1)
    assert member_id == backend.list_groups()[0].members[0].member_id
    with Consumer(backend, [("flights", 0)], group="h") as pairs:
        assert pairs.group_metadata() == ("h", None, -1)
    with Consumer(backend, "flights") as alone, pytest.raises(InvalidArgumentError, match="without a group"):
        alone.group_metadata()


# --- given up by the group ---


def member_id(consumer: Reader) -> str:
    found = consumer.group_metadata().member_id
    assert found is not None
    return found


def test_who_expired_loses_all_and_joins_again(fake: FakeBackend) -> None:
    fill(fake)
    lost: list[TopicPartition] = []
    got: list[TopicPartition] = []
    with Consumer(fake, "flights", group="g", on_lost=lost.extend, on_assigned=got.extend) as one:
        assert len(drain(one)) == 20
        fake.expire("g", before := member_id(one))
        with pytest.raises(UnknownMemberError):
            one.commit()
        assert len(drain(one)) == 20
        assert (len(lost), len(got)) == (4, 8)
        assert member_id(one) != before
        one.commit()
    assert len(fake.committed_offsets("g")) == 4


def test_automatic_commits_of_who_expired_are_no_error(fake: FakeBackend) -> None:
    fill(fake)
    clock = ManualClock()
    lost: list[TopicPartition] = []
    one: Reader = Consumer(
        fake, "flights", group="g", auto_commit_interval_ms=1, clock=clock, on_lost=lost.extend
    )
    drain(one)
    fake.expire("g", member_id(one))
    clock.advance(1_000)
    one.poll(1, timeout_s=0)
    assert len(lost) == 4
    fake.expire("g", member_id(one))
    one.close()
    assert len(lost) == 8


def test_who_was_fenced_stays_out(fake: FakeBackend) -> None:
    with (
        Consumer(fake, "flights", group="g", instance_id="i") as one,
        Consumer(fake, "flights", group="g", instance_id="i") as two,
    ):
        for _ in range(2):
            with pytest.raises(MemberFencedError):
                one.poll(timeout_s=0)
        assert one.assignment() == []
        assert len(two.assignment()) == 4


def test_a_commit_that_fails_on_giving_up_is_tried_again(fake: FakeBackend) -> None:
    fill(fake)
    one: Reader = Consumer(fake, "flights", group="g", auto_commit_interval_ms=3_600_000)
    drain(one)
    with Consumer(fake, "flights", group="g") as two:
        fake.commit_faults.append(DiskFullError("full"))
        with pytest.raises(DiskFullError):
            one.poll(timeout_s=0)
        assert len(one.assignment()) == 4
        one.poll(timeout_s=0)
        two.poll(timeout_s=0)
        assert len(one.assignment()) == len(two.assignment()) == 2
        one.close()


def test_a_hook_that_fails_holds_nobody_up(fake: FakeBackend) -> None:
    def broken(places: list[TopicPartition]) -> None:
        raise ZeroDivisionError

    one: Reader = Consumer(fake, "flights", group="g", on_revoked=broken)
    with Consumer(fake, "flights", group="g") as two:
        with pytest.raises(ZeroDivisionError):
            one.poll(timeout_s=0)
        one.poll(timeout_s=0)
        two.poll(timeout_s=0)
        assert len(one.assignment()) == len(two.assignment()) == 2
    with pytest.raises(ZeroDivisionError):
        one.close()


def test_an_open_transaction_is_waited_for(fake: FakeBackend) -> None:
    fill(fake)
    with Consumer(fake, "flights", group="g") as one:
        group, member, epoch = one.group_metadata()
        writer = TransactionalWriter(7, 0)
        fake.decide(
            lambda machine: machine.decide_transactional_commit(
                group, {place(1): OffsetAndMetadata(3)}, writer, 0, member_id=member, epoch=epoch
            )
        )
    with Consumer(fake, "flights", group="g", until_end=True) as two:
        first = drain(two)
        assert {record.partition for record in first} == {0, 2, 3}
        assert not two.is_finished()
        fake.machine.replay_marker(7, 0, True)
        assert [(record.partition, record.offset) for record in two] == [(1, 3), (1, 4)]


# --- commits in the background ---


def test_commit_async(backend: Backend, join: Join) -> None:
    fill(backend)
    done: list[tuple[dict[TopicPartition, int], Exception | None]] = []

    def callback(offsets: Any, error: Exception | None) -> None:
        done.append(({where: point.offset for where, point in offsets.items()}, error))

    one = join()
    drain(one)
    one.commit_async({place(0): 1}, callback)
    one.commit_async(callback=callback)
    one.commit_async({place(9): 1}, callback)
    until(lambda: one.poll(timeout_s=0) == [] and len(done) == 3, "callbacks come with polls")
    assert [found for found, _ in done] == [{place(0): 1}, {place(n): 5 for n in range(4)}, {place(9): 1}]
    assert done[0][1] is done[1][1] is None
    assert done[2][1] is not None
    assert backend.committed_offsets("g")[place(0)].offset == 5
    with pytest.raises(InvalidArgumentError, match="callback"):
        one.commit_async(callback=1)  # type: ignore[arg-type]


def test_a_commit_does_not_overtake_one_in_the_background(fake: FakeBackend) -> None:
    fill(fake)
    with Consumer(fake, "flights", group="g") as one:
        fake.commit_gate.clear()
        for offset in (1, 2, 3):
            one.commit_async({place(0): offset})
        fake.commit_gate.set()
        one.commit({place(0): 4})
        one.commit_async({place(0): 5})
    assert [commit[place(0)].offset for commit in fake.commits][-2:] == [4, 5]
    assert fake.committed_offsets("g")[place(0)].offset == 5  # close waits


def test_failures_in_the_background_are_logged(fake: FakeBackend, caplog: pytest.LogCaptureFixture) -> None:
    fill(fake)
    with Consumer(fake, "flights", group="g") as one:
        fake.commit_faults.append(DiskFullError("full"))
        one.commit_async({place(0): 1})
    assert "an asynchronous commit failed" in caplog.text
