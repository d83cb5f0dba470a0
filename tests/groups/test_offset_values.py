"""All that is committed, against plain dictionaries; and which values count as plain."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from logstore.groups.offset_values import (
    NO_TOPIC,
    CommittedOffsets,
    OffsetValue,
    are_plain,
    decode_value,
    encode_value,
    is_of_topic,
    is_plain,
)
from logstore.groups.offsets import OffsetStore, encode_key
from logstore.types import COUNTER_TOPIC, OffsetAndMetadata, TopicPartition

VALUES = st.builds(
    OffsetValue,
    st.integers(0, 2**63 - 1),
    st.integers(-1, 2**31 - 1),
    st.sampled_from(["", "m", "1234"]),
    st.integers(0, 2**63 - 1),
    st.sampled_from([b"", b"a" * 16, b"b" * 16]),
)
PLACES = st.builds(TopicPartition, st.sampled_from(["t", "u"]), st.integers(0, 3))
GROUPS = st.sampled_from(["g", "h"])


@given(st.lists(VALUES, min_size=1), st.booleans())
@settings(derandomize=True, deadline=None)
def test_plain_values_are_told_together_as_alone(values: list[OffsetValue], plain: bool) -> None:
    if plain:
        values = [value._replace(metadata="", topic_id=values[0].topic_id) for value in values]
    encoded = [encode_value(value) for value in values]
    alone = [is_plain(value) for value in encoded]
    assert alone == [value.metadata == "" for value in values]
    alike = len({bool(value.topic_id) for value in values}) == 1
    assert are_plain(encoded) is (all(alone) and alike)
    assert [decode_value(value) for value in encoded] == values


def test_a_value_as_long_as_a_plain_one_is_not_one_for_that() -> None:
    for topic_id, others in (
        (b"", ((0, 1), (1, 1), (14, 1), (15, 4))),
        (b"t" * 16, ((0, 1), (1, 3), (14, 2), (23, 2), (24, 1), (25, 15))),
    ):
        plain = encode_value(OffsetValue(1, 2, "", 3, topic_id))
        for at, byte in others:
            other = plain[:at] + bytes([byte]) + plain[at + 1 :]
            assert not is_plain(other)
            assert not are_plain([plain, other, plain])
        assert are_plain([plain, plain[:2] + b"\xff" * 12 + plain[14:]])


def test_which_topic_an_offset_is_of() -> None:
    ids = {"t": b"b" * 16}

    def counts(topic_id: bytes, topic: str = "t") -> bool:
        return is_of_topic(encode_value(OffsetValue(1, 2, "", 3, topic_id)), topic, ids.get)

    assert counts(b"b" * 16)
    assert not counts(b"a" * 16)  # of a topic that had the name before
    assert counts(b"")
    assert counts(NO_TOPIC)
    assert not counts(b"b" * 16, "gone")
    assert not counts(b"", "gone")
    assert counts(b"", COUNTER_TOPIC)


changes = st.lists(st.tuples(GROUPS, PLACES, st.none() | VALUES), max_size=40)


@given(changes, st.integers(0, 2**63 - 1))
@settings(derandomize=True, deadline=None)
def test_it_is_a_dictionary_of_dictionaries(
    rows: list[tuple[str, TopicPartition, OffsetValue | None]], until_ms: int
) -> None:
    found = CommittedOffsets()
    model: dict[str, dict[TopicPartition, OffsetValue]] = {}
    for group, place, value in rows:
        if value is None:
            found.remove(group, place)
            model.get(group, {}).pop(place, None)
        elif value.metadata == "m":
            found.put_all(group, place.topic, [(place.partition, encode_value(value))])
            model.setdefault(group, {})[place] = value
        else:
            found.put(group, *place, encode_value(value))
            model.setdefault(group, {})[place] = value
        model = {name: of_group for name, of_group in model.items() if of_group}
    assert sorted(found.names()) == sorted(model), "no group is kept empty"
    for group in ("g", "h"):
        of_group = model.get(group, {})
        assert found.of_group(group) == of_group
        assert found.places(group) == of_group.keys()
        old = {place for place, value in of_group.items() if value.commit_ms <= until_ms}
        assert set(found.committed_until(group, until_ms)) == old
        ids = {"t": b"a" * 16}.get
        alive = {
            place: value
            for place, value in of_group.items()
            if place.topic == "t" and value.topic_id in (b"a" * 16, b"")
        }
        assert found.of_group(group, ids) == alive
        assert set(found.of_other_topics(group, ids)) == of_group.keys() - alive.keys()


@given(st.lists(st.tuples(GROUPS, PLACES, st.none() | VALUES), min_size=16, max_size=80), st.booleans())
@settings(derandomize=True, deadline=None, max_examples=40)
def test_a_run_that_is_replayed_together_is_as_one_by_one(
    rows: list[tuple[str, TopicPartition, OffsetValue | None]], plain: bool
) -> None:
    if plain:
        rows = sorted(
            (group, place, (value or OffsetValue(1, 2, "", 3))._replace(metadata="", topic_id=b"t" * 16))
            for group, place, value in rows
        )
    records = [
        (encode_key(group, *place), None if value is None else encode_value(value))
        for group, place, value in rows
    ]
    together, alone = OffsetStore(), OffsetStore()
    together.replay_many(records)
    for key, value in records:
        alone.replay(key, value)
    assert together._groups == alone._groups
    assert together.groups() == alone.groups()


places = st.dictionaries(
    PLACES,
    st.builds(OffsetAndMetadata, st.integers(-2, 60), st.integers(-2, 3), st.sampled_from(["", "m"])),
    min_size=2,
)


@given(places, st.integers(0, 50), st.booleans(), st.sampled_from([None, {"t": b"t" * 16}]))
@settings(derandomize=True, deadline=None)
def test_a_commit_of_many_is_decided_as_one_of_each(
    offsets: dict[TopicPartition, OffsetAndMetadata],
    end: int,
    with_ends: bool,
    topic_ids: dict[str, bytes] | None,
) -> None:
    """The same records, or the same refusal, as when each goes the long way."""
    ends = dict.fromkeys(offsets, end) if with_ends else None

    def outcome(given: dict[TopicPartition, OffsetAndMetadata]) -> object:
        try:
            decision = OffsetStore().decide_commit("g", given, 7, ends, topic_ids)
        except Exception as error:  # noqa: BLE001 - compared
            return type(error), str(error)
        return decision.records, decision.reply

    long_way: object = (), {}
    for place, position in offsets.items():
        alone = outcome({place: position})
        if not isinstance(alone, tuple) or isinstance(alone[0], type):
            long_way = alone
            break
        assert isinstance(long_way, tuple)
        long_way = (long_way[0] + alone[0], long_way[1] | alone[1])
    assert outcome(offsets) == long_way
