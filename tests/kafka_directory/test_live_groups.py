"""Groups of a broker with members: records of the consumer protocol and of classic groups."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

import logstore
from logstore.directory.catalogue import decode_uuid
from logstore.errors import InvalidRecordError, UnsupportedStoreVersionError
from logstore.format.batch import encode_batch
from logstore.format.varint import encode_raw
from logstore.groups import fields
from logstore.groups import group_records as records
from logstore.kafka_directory.live_groups import LiveGroups
from logstore.types import TopicPartition
from tests.golden_broker import unpack

IDS = {b"p" * 16: "plain", b"c" * 16: "codecs"}
PLAIN, CODECS = IDS


def places(topic_id: bytes, *numbers: int) -> bytes:
    return encode_raw(2) + topic_id + fields.i32s(numbers) + fields.NO_TAGS


def member(client: str = "consumer-1", assignor: str | None = "uniform") -> bytes:
    """As a broker of 4.x writes it: without our tagged field."""
    topics = encode_raw(2) + fields.compact_string("plain")
    return b"".join(
        (
            b"\0\0",
            fields.nullable_string("static-1"),
            fields.NULL,
            fields.compact_string(client),
            fields.compact_string("/10.0.0.7"),
            topics,
            fields.nullable_string(None),
            struct.pack(">i", 300_000),
            fields.nullable_string(assignor),
            fields.NO_TAGS,
        )
    )


def current(epoch: int, state: int, assigned: bytes, revoking: bytes = b"\1") -> bytes:
    return b"\0\0" + struct.pack(">iib", epoch, epoch - 1, state) + assigned + revoking + fields.NO_TAGS


def rows(group: str = "new", topic_id: bytes = PLAIN) -> list[tuple[bytes, bytes | None]]:
    """A group of one member, which has all that it shall have."""
    return [
        (records.encode_key(records.MEMBER, group, "m-1"), member()),
        (records.encode_key(records.GROUP, group), b"\0\0" + struct.pack(">i", 5) + fields.NO_TAGS),
        (
            records.encode_key(records.TARGET_MEMBER, group, "m-1"),
            b"\0\0" + places(topic_id, 0, 1) + fields.NO_TAGS,
        ),
        (records.encode_key(records.TARGET, group), records.encode_target(5)),
        (records.encode_key(records.CURRENT, group, "m-1"), current(5, 0, places(topic_id, 0, 1))),
    ]


def replayed(*changes: tuple[bytes, bytes | None]) -> LiveGroups:
    machine = LiveGroups(IDS.get)
    for key, value in changes:
        machine.replay(key, value)
    return machine


def test_a_group_of_the_consumer_protocol() -> None:
    (group,) = replayed(*rows()).summaries()
    assert (group.group, group.state, group.assignor, group.epoch) == ("new", "stable", "uniform", 5)
    (one,) = group.members
    assert (one.member_id, one.instance_id, one.client) == ("m-1", "static-1", "consumer-1/10.0.0.7")
    assert (one.topics, one.epoch) == (("plain",), 5)
    assert one.assigned == one.target == (TopicPartition("plain", 0), TopicPartition("plain", 1))


@pytest.mark.parametrize(
    "change",
    [
        (records.encode_key(records.GROUP, "new"), b"\0\0" + struct.pack(">i", 6) + fields.NO_TAGS),
        (records.encode_key(records.CURRENT, "new", "m-1"), current(4, 0, places(PLAIN, 0, 1))),
        (
            records.encode_key(records.CURRENT, "new", "m-1"),
            current(5, 1, places(PLAIN, 0), places(CODECS, 3)),
        ),
        (records.encode_key(records.CURRENT, "new", "m-1"), current(5, 0, places(PLAIN, 0))),
    ],
)
def test_what_is_on_its_way_is_reconciling(change: tuple[bytes, bytes]) -> None:
    (group,) = replayed(*rows(), change).summaries()
    assert group.state == "reconciling"


def test_members_and_groups_go_by_their_tombstones() -> None:
    leaver = [
        (records.encode_key(kind, "new", "m-1"), None)
        for kind in (records.CURRENT, records.TARGET_MEMBER, records.MEMBER)
    ]
    (group,) = replayed(*rows(), *leaver).summaries()
    assert (group.state, group.members) == ("empty", ())
    assert replayed(*rows(), *leaver, (records.encode_key(records.GROUP, "new"), None)).summaries() == []


def classic(version: int) -> bytes:
    """One member, which reads plain-0 and codecs-2 by the assignor "range"."""
    compact = version >= 4

    def text(value: str | None) -> bytes:
        if compact:
            return fields.nullable_string(value)
        return struct.pack(">h", -1) if value is None else fields.string(value)

    def raw(value: bytes) -> bytes:
        return (encode_raw(len(value) + 1) if compact else struct.pack(">i", len(value))) + value

    subscription = struct.pack(">hi", 1, 2) + fields.string("plain") + fields.string("codecs") + b"\xff" * 8
    assignment = struct.pack(">hi", 1, 2)
    for topic, number in (("plain", 0), ("codecs", 2)):
        assignment += fields.string(topic) + struct.pack(">ii", 1, number)
    end = fields.NO_TAGS if compact else b""
    body = struct.pack(">h", version) + text("consumer") + struct.pack(">i", 9) + text("range") + text("m-1")
    body += struct.pack(">q", 1) if version >= 2 else b""
    body += encode_raw(2) if compact else struct.pack(">i", 1)
    body += text("m-1") + (text("static-1") if version >= 3 else b"") + text("app") + text("/10.0.0.8")
    body += struct.pack(">i", 300_000) if version >= 1 else b""
    return body + struct.pack(">i", 45_000) + raw(subscription) + raw(assignment) + end + end


@pytest.mark.parametrize("version", range(5))
def test_a_classic_group(version: int) -> None:
    key = b"\0\2" + fields.string("old")
    (group,) = replayed((key, classic(version))).summaries()
    assert (group.state, group.assignor, group.epoch) == ("stable", "range", 9)
    (one,) = group.members
    assert (one.member_id, one.client, one.session_timeout_ms) == ("m-1", "app/10.0.0.8", 45_000)
    assert one.instance_id == ("static-1" if version >= 3 else None)
    assert one.topics == ("codecs", "plain")
    assert one.assigned == (TopicPartition("codecs", 2), TopicPartition("plain", 0))
    assert replayed((key, classic(version)), (key, None)).summaries() == []


def test_records_that_cannot_be_understood_are_named() -> None:
    key = b"\0\2" + fields.string("old")
    with pytest.raises(UnsupportedStoreVersionError, match="of version 5"):
        replayed((key, struct.pack(">h", 5)))
    with pytest.raises(InvalidRecordError, match="metadata of group 'old'"):
        replayed((key, classic(3)[:-9]))
    with pytest.raises(InvalidRecordError, match="of group 'new'"):
        replayed((rows()[0][0], b"\0\0\1"))


def test_a_broker_s_directory_shows_its_live_groups(tmp_path: Path) -> None:
    root = unpack("killed", tmp_path)
    plain = decode_uuid((root / "plain-0" / "partition.metadata").read_text().split()[-1])
    folder = root / "__consumer_offsets-0"
    with logstore.open(root, mode="r") as store:
        end = store.partition("__consumer_offsets", 0).log_end_offset
        batch = bytearray(encode_batch(rows("new", plain), now_ms=1))
        batch[:8] = end.to_bytes(8, "big")
        with sorted(folder.glob("*.log"))[-1].open("ab") as file:
            file.write(batch)
        group = store.admin.describe_group("new")
        assert (group.state, group.assignor, len(group.members)) == ("stable", "uniform", 1)
        assert [(row.topic, row.partition, row.member) for row in group.partitions] == [("plain", 0, "m-1")]
        listed = {one.group: one.state for one in store.admin.list_groups()}
        assert listed == {"new": "stable", "readers": "empty"}
