"""Committed offsets: Kafka's bytes, and the state machine that decides and replays."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest
from aiokafka.protocol import types  # type: ignore[import-untyped]
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from logstore.api.groups import validate_group
from logstore.errors import (
    InvalidArgumentError,
    InvalidGroupError,
    InvalidRecordError,
    LogStoreError,
    UnknownGroupError,
    UnknownPartitionError,
    UnsupportedStoreVersionError,
)
from logstore.groups.offset_values import OffsetValue, decode_value, encode_value
from logstore.groups.offsets import OffsetKey, OffsetStore, decode_key, encode_key
from logstore.machine import Change, Decision, StateMachine
from logstore.types import OffsetAndMetadata, TopicPartition

FLIGHTS = TopicPartition("flights", 0)
TEXT = st.text(st.characters(codec="utf-8"))
NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=20)
INT32 = st.integers(0, 2**31 - 1)
INT64 = st.integers(0, 2**63 - 1)


def apply(machine: StateMachine, records: tuple[Change, ...]) -> None:
    for key, value in records:
        machine.replay(key, value)


# --- bytes ------------------------------------------------------------------------------------------


def test_golden_key() -> None:
    key = bytes.fromhex("0001 0005 627261766f 0007 666c6967687473 00000003")
    assert encode_key("bravo", "flights", 3) == key
    assert decode_key(key) == OffsetKey("bravo", "flights", 3)
    assert decode_key(b"\0\0" + key[2:]) == OffsetKey("bravo", "flights", 3)


def test_golden_value() -> None:
    value = bytes.fromhex("0003 000000000001e240 00000007 0002 6f6b 0000018bcfe56800")
    assert encode_value(OffsetValue(123456, 7, "ok", 1_700_000_000_000)) == value
    assert decode_value(value) == OffsetValue(123456, 7, "ok", 1_700_000_000_000)


def test_golden_value_that_is_bound_to_its_topic() -> None:
    head, topic_id = "0004 000000000001e240 00000007", bytes(range(16))
    for metadata, text in (("", "01"), ("ok", "03 6f6b")):
        value = bytes.fromhex(f"{head} {text} 0000018bcfe56800 01 00 10") + topic_id
        assert encode_value(OffsetValue(123456, 7, metadata, 1_700_000_000_000, topic_id)) == value
        assert decode_value(value) == OffsetValue(123456, 7, metadata, 1_700_000_000_000, topic_id)
    bare = bytes.fromhex(f"{head} 01 0000018bcfe56800 00")
    assert decode_value(bare) == OffsetValue(123456, 7, "", 1_700_000_000_000)
    assert decode_value(value[:-16] + bytes(16)).topic_id == b""
    with pytest.raises(InvalidRecordError, match="id of a topic has 15 bytes"):
        decode_value(bytes.fromhex(f"{head} 01 0000018bcfe56800 01 00 0f") + bytes(15))


@pytest.mark.parametrize(
    ("version", "between", "after"),
    [(0, b"", b""), (1, b"", struct.pack(">q", 99)), (2, b"", b""), (3, struct.pack(">i", 7), b"")],
)
def test_older_values_are_read(version: int, between: bytes, after: bytes) -> None:
    value = struct.pack(">hq", version, 5) + between + b"\0\2ok" + struct.pack(">q", 1000) + after
    assert decode_value(value) == OffsetValue(5, 7 if version == 3 else -1, "ok", 1000)


def test_the_layout_is_what_another_codec_writes() -> None:
    """aiokafka's primitive types, put together as Kafka's schemas say."""
    text = types.String("utf-8")
    value_schema = types.Schema(
        ("version", types.Int16),
        ("offset", types.Int64),
        ("leader_epoch", types.Int32),
        ("metadata", text),
        ("timestamp", types.Int64),
    )
    key_schema = types.Schema(
        ("version", types.Int16), ("group", text), ("topic", text), ("partition", types.Int32)
    )
    value = value_schema.encode([3, 2**40, 12, "höhe", 1_700_000_000_000])
    assert value == encode_value(OffsetValue(2**40, 12, "höhe", 1_700_000_000_000))
    key = key_schema.encode([1, "grüße", "a.b_c-d", 2**31 - 1])
    assert key == encode_key("grüße", "a.b_c-d", 2**31 - 1)


@settings(derandomize=True, deadline=None)
@given(NAMES, NAMES, INT32, INT64, st.integers(-1, 2**31 - 1), TEXT)
def test_round_trip(group: str, topic: str, partition: int, offset: int, epoch: int, metadata: str) -> None:
    assert decode_key(encode_key(group, topic, partition)) == OffsetKey(group, topic, partition)
    value = OffsetValue(offset, epoch, metadata, 1_700_000_000_000)
    assert decode_value(encode_value(value)) == value


@pytest.mark.parametrize("version", [2, 3, 8, 32767])
def test_other_kinds_of_keys_are_not_offsets(version: int) -> None:
    assert decode_key(struct.pack(">h", version) + b"anything") is None


def test_every_cut_and_every_extra_byte_is_named() -> None:
    key, value = encode_key("g", "t", 0), encode_value(OffsetValue(1, 2, "m", 3))
    for cut in range(len(key)):
        with pytest.raises(InvalidRecordError, match="malformed key"):
            decode_key(key[:cut])
    for cut in range(len(value)):
        with pytest.raises(InvalidRecordError, match="malformed value"):
            decode_value(value[:cut])
    with pytest.raises(InvalidRecordError, match="1 bytes too many"):
        decode_key(key + b"x")
    with pytest.raises(InvalidRecordError, match="1 bytes too many"):
        decode_value(value + b"x")


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"\0\1\xff\xff\0\1t\0\0\0\0", "string length -1 at byte 2"),
        (b"\0\1\x7f\xff\0\1t\0\0\0\0", "string length 32767 at byte 2"),
        (b"\0\1\0\1\xff\0\1t\0\0\0\0", "string at byte 4 is not UTF-8"),
    ],
)
def test_bad_strings_are_named(data: bytes, why: str) -> None:
    with pytest.raises(InvalidRecordError, match=why):
        decode_key(data)


def test_a_newer_value_is_refused_not_guessed_at() -> None:
    with pytest.raises(UnsupportedStoreVersionError, match="value version 5"):
        decode_value(struct.pack(">hq", 5, 5) + bytes(40))
    with pytest.raises(InvalidRecordError, match="version -1"):
        decode_value(struct.pack(">hq", -1, 5) + bytes(40))


def test_a_value_of_version_4_with_and_without_the_topic_id() -> None:
    head = struct.pack(">hqi", 4, 17, -1) + b"\x09half way" + struct.pack(">q", 1_795_827_661_031)
    due = OffsetValue(17, -1, "half way", 1_795_827_661_031)
    assert decode_value(head + b"\0") == due
    assert decode_value(head + b"\1\0\x10" + bytes(16)) == due
    for data in (
        head,
        head + b"\1\0\x11" + bytes(16),
        head + b"\x80\x80\x80\x80\x80",
        head[:14] + b"\0" + head[15:],
    ):
        with pytest.raises(InvalidRecordError, match="malformed value"):
            decode_value(data)


@settings(derandomize=True, deadline=None, max_examples=300)
@given(st.binary(max_size=64))
def test_any_bytes_are_read_or_named(data: bytes) -> None:
    for decode in (decode_key, decode_value):
        try:
            decode(data)
        except LogStoreError as error:
            assert str(error)  # noqa: PT017 - which error it is depends on the bytes


# --- decisions --------------------------------------------------------------------------------------


def commit(machine: OffsetStore, group: str, place: TopicPartition, offset: int, now_ms: int = 1) -> None:
    apply(machine, machine.decide_commit(group, {place: OffsetAndMetadata(offset)}, now_ms, None).records)


def test_a_decision_changes_nothing_until_it_is_replayed() -> None:
    machine = OffsetStore()
    position = OffsetAndMetadata(5, 2, "note")
    decision = machine.decide_commit("g", {FLIGHTS: position}, 1000, {FLIGHTS: 5})
    value = encode_value(OffsetValue(5, 2, "note", 1000))
    assert decision == Decision(((encode_key("g", "flights", 0), value),), {FLIGHTS: position})
    assert machine.committed("g") == {}
    assert machine.groups() == []
    apply(machine, decision.records)
    apply(machine, decision.records)
    assert machine.committed("g") == {FLIGHTS: position}
    assert machine.commit_times_ms("g") == {FLIGHTS: 1000}
    assert machine.groups() == ["g"]


def test_plain_tuples_will_do() -> None:
    machine = OffsetStore()
    decision = machine.decide_commit("g", {("t", 1): (3, -1, "")}, 1, {("t", 1): 4})  # type: ignore[dict-item]
    assert decision.reply == {TopicPartition("t", 1): OffsetAndMetadata(3)}
    assert all(type(place) is TopicPartition for place in decision.reply)


def test_a_commit_past_the_end_is_refused_whole() -> None:
    machine = OffsetStore()
    other = TopicPartition("flights", 1)
    offsets = {other: OffsetAndMetadata(1), FLIGHTS: OffsetAndMetadata(11)}
    with pytest.raises(InvalidArgumentError, match="commit offset 11 of flights-0: its end is 10"):
        machine.decide_commit("g", offsets, 1, {FLIGHTS: 10, other: 10})
    assert machine.decide_commit("g", {FLIGHTS: OffsetAndMetadata(10)}, 1, {FLIGHTS: 10}).records
    with pytest.raises(UnknownPartitionError, match="flights-0"):
        machine.decide_commit("g", {FLIGHTS: OffsetAndMetadata(1)}, 1, {})


@pytest.mark.parametrize(
    ("place", "position", "why"),
    [
        (FLIGHTS, OffsetAndMetadata(-1), "offset -1"),
        (FLIGHTS, OffsetAndMetadata(2**63), "offset 9223372036854775808"),
        (FLIGHTS, OffsetAndMetadata(True), "offset True"),
        (FLIGHTS, OffsetAndMetadata(1, -2), "leader_epoch -2"),
        (TopicPartition("t", -1), OffsetAndMetadata(1), "partition -1"),
        (FLIGHTS, OffsetAndMetadata(1, 0, b"x"), "metadata is text, not bytes"),  # type: ignore[arg-type]
        (FLIGHTS, OffsetAndMetadata(1, 0, "x" * 4097), "metadata of 4097 bytes, at most 4096"),
        (FLIGHTS, OffsetAndMetadata(1, 0, "ö" * 2049), "metadata of 4098 bytes, at most 4096"),
        (FLIGHTS, OffsetAndMetadata(1, 0, "\ud800"), "half of a surrogate pair"),
    ],
)
def test_bad_positions_are_named(place: TopicPartition, position: OffsetAndMetadata, why: str) -> None:
    with pytest.raises(InvalidArgumentError, match=why):
        OffsetStore().decide_commit("g", {place: position}, 1, None)


@pytest.mark.parametrize("group", ["", "g" * 250, "a\0b", "\ud800", 5, None])
def test_bad_group_names(group: str) -> None:
    with pytest.raises(InvalidGroupError):
        validate_group(group)
    with pytest.raises(InvalidGroupError):
        OffsetStore().committed(group)


def test_the_longest_group_name_of_the_widest_characters_fits() -> None:
    group = "\U0001f6eb" * 249
    machine = OffsetStore()
    commit(machine, group, FLIGHTS, 1)
    assert machine.groups() == [group]


def test_deleting_a_group() -> None:
    machine = OffsetStore()
    other = TopicPartition("alpha", 3)
    commit(machine, "g", FLIGHTS, 1)
    commit(machine, "g", other, 2)
    commit(machine, "h", FLIGHTS, 3)
    decision = machine.decide_delete_group("g")
    assert decision.reply == [other, FLIGHTS]
    assert {value for _, value in decision.records} == {None}
    apply(machine, decision.records)
    apply(machine, decision.records)
    assert machine.groups() == ["h"]
    assert machine.committed("g") == {}
    with pytest.raises(UnknownGroupError, match="'g' has no committed offsets"):
        machine.decide_delete_group("g")


def test_deleting_a_topic_forgets_its_offsets_in_every_group() -> None:
    machine = OffsetStore()
    for group in ("g", "h"):
        commit(machine, group, FLIGHTS, 1)
    commit(machine, "h", TopicPartition("other", 0), 2)
    decision = machine.decide_delete_topic("flights", lambda _: None)
    assert decision.reply == ["g", "h"]
    apply(machine, decision.records)
    assert machine.groups() == ["h"]
    assert machine.committed("h") == {TopicPartition("other", 0): OffsetAndMetadata(2)}
    assert machine.decide_delete_topic("flights", lambda _: None) == Decision((), [])


def test_other_records_of_a_kafka_directory_are_counted() -> None:
    machine = OffsetStore()
    machine.replay(struct.pack(">h", 2) + b"\0\1g", b"group metadata")
    machine.replay(None, b"no key")
    machine.replay(struct.pack(">h", 3), None)
    commit(machine, "g", FLIGHTS, 1)
    assert machine.ignored_records == 3
    assert machine.groups() == ["g"]


def test_what_is_handed_out_is_a_copy() -> None:
    machine = OffsetStore()
    commit(machine, "g", FLIGHTS, 1)
    machine.committed("g").clear()
    assert machine.committed("g")


class OffsetsAgainstAModel(RuleBasedStateMachine):
    """Random commits, transactions and deletes against plain dicts; a second machine replays the same log."""

    def __init__(self) -> None:
        super().__init__()
        self.machine = OffsetStore()
        self.calls: list[Callable[[OffsetStore], None]] = []
        self.model: dict[str, dict[TopicPartition, OffsetAndMetadata]] = {}
        # (group, partition) -> producer and position, in the order of the log
        self.pending: dict[tuple[str, TopicPartition], list[tuple[int, OffsetAndMetadata]]] = {}

    def append(self, records: tuple[Change, ...]) -> None:
        self.call(lambda machine: apply(machine, records))

    def call(self, replay: Callable[[OffsetStore], None]) -> None:
        self.calls.append(replay)
        replay(self.machine)

    @rule(
        group=st.sampled_from("gh"),
        topic=st.sampled_from("ab"),
        partition=st.integers(0, 1),
        offset=st.integers(0, 9),
        producer_id=st.none() | st.integers(1, 3),
    )
    def commit(self, group: str, topic: str, partition: int, offset: int, producer_id: int | None) -> None:
        place, position = TopicPartition(topic, partition), OffsetAndMetadata(offset, offset % 3, str(offset))
        decision = self.machine.decide_commit(group, {place: position}, 1, {place: max(offset, 5)})
        if producer_id is None:
            self.append(decision.records)
            self.model.setdefault(group, {})[place] = position
            self.pending.pop((group, place), None)
            return
        ((key, value),) = decision.records
        self.call(lambda machine: machine.replay_pending(producer_id, 0, key, value))
        rows = self.pending.setdefault((group, place), [])
        rows[:] = [row for row in rows if row[0] != producer_id] + [(producer_id, position)]

    @rule(producer_id=st.integers(1, 3), commit=st.booleans(), late=st.booleans())
    def end(self, producer_id: int, commit: bool, late: bool) -> None:
        """``late``: a marker of an epoch before, which ends nothing."""
        epoch = -1 if late else 1
        self.call(lambda machine: machine.replay_marker(producer_id, epoch, commit))
        for (group, place), rows in list(self.pending.items()):
            names = [row[0] for row in rows]
            if late or producer_id not in names:
                continue
            number = names.index(producer_id)
            if commit:
                self.model.setdefault(group, {})[place] = rows[number][1]
                del rows[: number + 1]
            else:
                del rows[number]
            if not rows:
                del self.pending[group, place]

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def delete_group(self, data: st.DataObject) -> None:
        group = data.draw(st.sampled_from(sorted(self.model)))
        self.append(self.machine.decide_delete_group(group).records)
        del self.model[group]
        self.pending = {at: rows for at, rows in self.pending.items() if at[0] != group}

    @rule(topic=st.sampled_from("ab"))
    def delete_topic(self, topic: str) -> None:
        self.append(self.machine.decide_delete_topic(topic, lambda _: None).records)
        self.pending = {at: rows for at, rows in self.pending.items() if at[1].topic != topic}
        for group in list(self.model):
            rest = {place: at for place, at in self.model[group].items() if place.topic != topic}
            self.model[group] = rest
            if not rest:
                del self.model[group]

    @invariant()
    def agrees(self) -> None:
        again = OffsetStore()
        for replay in self.calls:
            replay(again)
        groups = self.model.keys() | {group for group, _ in self.pending}
        for machine in (self.machine, again):
            assert machine.groups() == sorted(groups)
            assert {group: machine.committed(group) for group in groups} == {
                group: self.model.get(group, {}) for group in groups
            }
            found = {(group, at): name for group in groups for at, name in machine.pending(group).items()}
            assert found == {at: rows[-1][0] for at, rows in self.pending.items()}
            assert machine.pending_producers().keys() == {
                row[0] for rows in self.pending.values() for row in rows
            }


TestOffsetsAgainstAModel = OffsetsAgainstAModel.TestCase
TestOffsetsAgainstAModel.settings = settings(
    derandomize=True, deadline=None, max_examples=60, stateful_step_count=30
)


@settings(derandomize=True, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.one_of(
                st.builds(
                    encode_key, st.sampled_from(["g", "ü" * 3]), st.sampled_from(["t", ""]), st.integers(0, 2)
                ),
                st.sampled_from([None, b"", b"\0\2\0\1g", b"\0\1\0\1g\0\1"]),
            ),
            st.one_of(
                st.builds(
                    encode_value,
                    st.builds(
                        OffsetValue,
                        st.integers(0, 9),
                        st.integers(-1, 1),
                        st.sampled_from(["", "m"]),
                        st.just(5),
                    ),
                ),
                st.sampled_from([None, b"", b"\0\1" + b"\0" * 22, b"\0\3" + b"\0" * 23]),
            ),
        ),
        max_size=12,
    )
)
def test_a_run_of_records_is_replayed_as_one_after_the_other(
    changes: list[tuple[bytes | None, bytes | None]],
) -> None:
    one_by_one, together = OffsetStore(), OffsetStore()
    try:
        for key, value in dict(changes).items():
            one_by_one.replay(key, value)
    except LogStoreError as error:
        with pytest.raises(type(error)):
            together.replay_many(changes)
        return
    together.replay_many(changes)
    assert together._groups == one_by_one._groups
    assert together.ignored_records == one_by_one.ignored_records
    full = OffsetStore()
    try:
        for key, value in changes:
            full.replay(key, value)
    except LogStoreError:
        return  # of a value that a later one has replaced
    assert full._groups == together._groups
