"""Admin over the fake and over the embedded store: topics, groups, moving a group's offsets."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from logstore.api.backend import Backend
from logstore.client.admin import Admin, GroupDescription, GroupMove
from logstore.client.consumer.consumer import Consumer
from logstore.client.producer.producer import Producer
from logstore.errors import (
    GroupBusyError,
    InvalidArgumentError,
    InvalidConfigError,
    TopicDiffersError,
    TopicExistsError,
    UnknownGroupError,
    UnknownTopicError,
)
from logstore.types import OffsetAndMetadata, TopicPartition

T0_MS = 1_700_000_000_000


@pytest.fixture
def admin(backend: Backend) -> Admin:
    rows = [(b"k", b"%d" % number, None, T0_MS + 1000 * number) for number in range(10)]
    with Producer(backend) as producer:
        for partition in range(4):
            producer.send_many("flights", rows, partition=partition)
    return Admin(backend)


def commit(backend: Backend, group: str, **offsets: int) -> None:
    points = {TopicPartition("flights", int(p[1:])): OffsetAndMetadata(at) for p, at in offsets.items()}
    backend.commit_offsets(group, points)


def moves_of(moves: list[GroupMove]) -> list[tuple[int, int | None, int]]:
    return [(move.partition, move.before, move.after) for move in moves]


def test_topics(admin: Admin) -> None:
    assert admin.list_topics() == ["events", "flights"]
    made = admin.create_topic("new", 2, {"segment.bytes": "4096"})
    assert (made.name, made.partitions) == ("new", 2)
    with pytest.raises(TopicExistsError):
        admin.create_topic("new")
    description = admin.describe_topic("new")
    assert description.config == {"segment.bytes": "4096"}
    assert [row.partition for row in description.partitions] == [0, 1]
    admin.alter_topic("new", {"segment.bytes": None, "flush.ms": "50"})
    assert admin.describe_topic("new").config == {"flush.ms": "50"}
    admin.add_partitions("new", 3)
    assert len(admin.describe_topic("new").partitions) == 3
    admin.delete_topic("new")
    with pytest.raises(UnknownTopicError):
        admin.describe_topic("new")


def test_a_topic_that_is_there_may_do(admin: Admin) -> None:
    config = {"segment.bytes": "4096", "cleanup.policy": "compact"}
    made = admin.create_topic("new", 2, config, exist_ok=True)
    assert admin.create_topic("new", 2, config, exist_ok=True) == made
    assert admin.create_topic("new", 2, exist_ok=True) == made  # no word about settings
    assert admin.create_topic("new", 2, {"segment.bytes": "4096"}, exist_ok=True) == made
    assert admin.create_topic("new", 2, {**config, "flush.messages": str(2**63 - 1)}, exist_ok=True) == made
    with pytest.raises(TopicDiffersError, match="'new' is there with 2 partitions, not 1"):
        admin.create_topic("new", exist_ok=True)
    with pytest.raises(TopicDiffersError, match=r"segment\.bytes=4096, not 8192"):
        admin.create_topic("new", 2, {"segment.bytes": "8192"}, exist_ok=True)
    with pytest.raises(TopicExistsError, match=r"retention\.ms=default, not 5"):
        admin.create_topic("new", 2, {"retention.ms": "5"}, exist_ok=True)
    with pytest.raises(InvalidConfigError):
        admin.create_topic("new", 2, {"segment.byte": "8192"}, exist_ok=True)
    with pytest.raises(InvalidArgumentError):
        admin.create_topic("new", 2, exist_ok="no")  # type: ignore[arg-type]
    with pytest.raises(TopicExistsError, match="new"):
        admin.create_topic("new", 2, config)


def test_internal_topics_show_on_request(backend: Backend, admin: Admin) -> None:
    commit(backend, "g", p0=1)
    if "__consumer_offsets" not in backend.topics():  # the fake's groups have no log
        backend.create_topic("__consumer_offsets", 1, {})
    assert admin.list_topics() == ["events", "flights"]
    assert admin.list_topics(internal=True) == ["__consumer_offsets", "events", "flights"]


def lags(description: GroupDescription) -> list[tuple[int, int | None, int]]:
    assert all(row.end_offset == 10 for row in description.partitions)
    return [
        (row.partition, row.committed and row.committed.offset, row.lag) for row in description.partitions
    ]


def test_groups_with_lag_and_member(backend: Backend, admin: Admin) -> None:
    commit(backend, "b", p0=4, p2=10)
    commit(backend, "a", p1=0)
    assert [summary.group for summary in admin.list_groups()] == ["a", "b"]
    description = admin.describe_group("b")
    assert (description.state, description.members) == ("empty", ())
    assert lags(description) == [(0, 4, 6), (2, 10, 0)]
    assert description.lag == 6
    with Consumer(backend, "flights", group="b"):
        description = admin.describe_group("b")
        (member,) = description.members
        assert member.client.startswith("pid ")
        assert (description.state, description.assignor, description.epoch) == ("stable", "sticky", 1)
        assert {row.member for row in description.partitions} == {member.member_id}
        assert lags(description) == [(0, 4, 6), (1, None, 10), (2, 10, 0), (3, None, 10)]
    with pytest.raises(UnknownGroupError, match="'nobody'"):
        admin.describe_group("nobody")


@pytest.mark.parametrize(
    ("request_", "after"),
    [
        ({"to": "earliest"}, 0),
        ({"to": "latest"}, 10),
        ({"to": 7}, 7),
        ({"to": 99}, 10),
        ({"to": datetime.fromtimestamp(T0_MS / 1000 + 2.5, UTC)}, 3),
        ({"to": datetime(2100, 1, 1, tzinfo=UTC)}, 10),
        ({"shift": 2}, 6),
        ({"shift": -99}, 0),
        ({"shift": 99}, 10),
    ],
)
def test_seek_group(backend: Backend, admin: Admin, request_: dict[str, Any], after: int) -> None:
    commit(backend, "g", p0=4)
    where = TopicPartition("flights", 0)
    assert moves_of(admin.seek_group("g", **request_, dry_run=True)) == [(0, 4, after)]
    assert backend.committed_offsets("g")[where].offset == 4
    assert moves_of(admin.seek_group("g", **request_)) == [(0, 4, after)]
    assert backend.committed_offsets("g")[where].offset == after


def test_seek_group_by_topic_takes_partitions_without_offsets(backend: Backend, admin: Admin) -> None:
    commit(backend, "g", p1=4)
    moves = admin.seek_group("g", "latest", topics=["flights"])
    assert moves_of(moves) == [(0, None, 10), (1, 4, 10), (2, None, 10), (3, None, 10)]
    assert moves_of(admin.seek_group("new", 3, topics="flights"))[0] == (0, None, 3)
    assert len(backend.committed_offsets("new")) == 4


def test_seek_group_refuses(backend: Backend, admin: Admin) -> None:
    commit(backend, "g", p0=4)
    with Consumer(backend, "flights", group="g"), pytest.raises(GroupBusyError):
        admin.seek_group("g", "earliest")
    with pytest.raises(InvalidArgumentError, match="either"):
        admin.seek_group("g")
    with pytest.raises(InvalidArgumentError, match="either"):
        admin.seek_group("g", "earliest", shift=1)
    for wrong in ("newest", -1, True, 1.5):
        with pytest.raises(InvalidArgumentError, match="seek_group"):
            admin.seek_group("g", wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="shift"):
        admin.seek_group("g", shift=1.5)  # type: ignore[arg-type]
    with pytest.raises(UnknownGroupError):
        admin.seek_group("nobody", "earliest")
    with pytest.raises(UnknownTopicError):
        admin.seek_group("g", "earliest", topics=["nowhere"])
    admin.seek_group("g", "earliest")  # each refusal let go of the group


def test_delete_group(backend: Backend, admin: Admin) -> None:
    commit(backend, "g", p0=4)
    with Consumer(backend, "flights", group="g"), pytest.raises(GroupBusyError):
        admin.delete_group("g")
    admin.delete_group("g")
    assert admin.list_groups() == []
    with pytest.raises(UnknownGroupError):
        admin.delete_group("g")
