"""``Record``: one public behaviour of both twins, the named tuple and the compiled class."""

from __future__ import annotations

import collections.abc
import copy
import gc
import pickle
import weakref
from typing import Any

import pytest

from logstore import native_status, types
from logstore.format.batch import decode_batches, encode_batch
from tests.native.twins import python_twin

PYTHON = python_twin("logstore.types").Record
TWINS = {"python": PYTHON, "in use": types.Record}
FIELDS = ("t", 3, 1 << 40, 1_700_000_000_000, b"key", None, (("h", b"1"), ("h", None)))
NAMES = ("topic", "partition", "offset", "timestamp_ms", "key", "value", "headers")


@pytest.fixture(params=TWINS)
def made(request: pytest.FixtureRequest) -> Any:
    return TWINS[request.param]


def test_the_other_twin_is_another() -> None:
    assert native_status().compiled == (not issubclass(types.Record, tuple))
    assert issubclass(PYTHON, tuple)


def test_fields(made: Any) -> None:
    record = made(*FIELDS)
    assert tuple(getattr(record, name) for name in NAMES) == FIELDS
    assert made(**dict(zip(NAMES, FIELDS, strict=True))) == record
    assert made("t", 0, 1, 2, None, b"v").headers == ()
    assert made._fields == made.__match_args__ == NAMES
    assert made._field_defaults == {"headers": ()}
    assert record._asdict() == dict(zip(NAMES, FIELDS, strict=True))
    assert (made.__name__, made.__qualname__, made.__module__) == ("Record", "Record", "logstore.types")
    assert made.__doc__.startswith("One record as read.")


def test_it_is_a_sequence_of_its_fields(made: Any) -> None:
    record = made(*FIELDS)
    assert isinstance(record, collections.abc.Sequence)
    assert list(record) == list(FIELDS)
    assert tuple(record) == FIELDS
    assert len(record) == 7
    assert (record[0], record[-1], record[2:4]) == ("t", FIELDS[6], FIELDS[2:4])
    assert list(reversed(record)) == list(reversed(FIELDS))
    assert b"key" in record
    assert 7 not in record
    assert (record.count("t"), record.index(b"key"), record.index(None, 2)) == (1, 4, 5)
    assert record + (1,) == (*FIELDS, 1)
    assert (1,) + record == (1, *FIELDS)
    assert record + record == FIELDS + FIELDS
    assert record * 2 == 2 * record == FIELDS + FIELDS
    topic, partition, *_rest = record
    assert (topic, partition) == ("t", 3)
    with pytest.raises(IndexError):
        record[7]
    with pytest.raises(ValueError, match="not in tuple"):
        record.index(b"nothing")


def test_comparison_and_hash_are_those_of_a_tuple(made: Any) -> None:
    record, later = made(*FIELDS), made(*FIELDS)._replace(offset=1 << 41)
    for other in (made(*FIELDS), FIELDS):
        assert record == other
        assert other == record
        assert not record != other  # noqa: SIM202
        assert record <= other <= record
        assert not record < other
        assert hash(record) == hash(other)
    assert record != later
    assert record < later
    assert later > FIELDS
    assert FIELDS < later  # noqa: SIM300
    assert later >= record
    assert record != list(FIELDS)
    assert record != 5
    assert {record: 1}[FIELDS] == 1  # type: ignore[index]  # as a tuple
    assert {FIELDS: 1}[record] == 1
    with pytest.raises(TypeError):
        record < 5  # noqa: B015
    with pytest.raises(TypeError):
        record < made(*FIELDS)._replace(value=b"")  # noqa: B015  # None and bytes
    with pytest.raises(TypeError, match="unhashable"):
        hash(record._replace(value=[]))


def test_the_twins_are_equal() -> None:
    for one, other in ((TWINS["python"], TWINS["in use"]), (TWINS["in use"], TWINS["python"])):
        assert one(*FIELDS) == other(*FIELDS)
        assert hash(one(*FIELDS)) == hash(other(*FIELDS))
        assert repr(one(*FIELDS)) == repr(other(*FIELDS))
        assert one(*FIELDS) < other(*FIELDS)._replace(partition=4)


def test_replace_and_make(made: Any) -> None:
    record = made(*FIELDS)
    assert record._replace(key=b"other", headers=()) == (*FIELDS[:4], b"other", None, ())
    assert record == FIELDS
    assert type(record._replace(offset=1)) is made
    assert type(made._make(FIELDS)) is made
    assert made._make(iter(FIELDS)) == record
    with pytest.raises((TypeError, ValueError), match=r"Got unexpected field names: \['x', 'y'\]"):
        record._replace(x=1, y=2)
    with pytest.raises(TypeError, match="Expected 7 arguments, got 6"):
        made._make(FIELDS[:6])


@pytest.mark.parametrize("arguments", [(), FIELDS[:5], (*FIELDS, 1)])
def test_wrong_calls(made: Any, arguments: tuple[Any, ...]) -> None:
    with pytest.raises(TypeError):
        made(*arguments)
    with pytest.raises(TypeError):
        made(*FIELDS[:6], header=())


def test_patterns(made: Any) -> None:
    match made(*FIELDS):
        case made(topic="t", key=bytes(key)):
            assert key == b"key"
        case _:
            pytest.fail("by name")
    match made(*FIELDS):
        case made("t", _, offset):
            assert offset == 1 << 40
        case _:
            pytest.fail("by position")
    match made(*FIELDS):
        case ["t", 3, *rest]:
            assert len(rest) == 5
        case _:
            pytest.fail("as a sequence")


def test_repr(made: Any) -> None:
    assert repr(made(*FIELDS)) == (
        "Record(topic='t', partition=3, offset=1099511627776, timestamp_ms=1700000000000, key=b'key', value=None, "
        "headers=(('h', b'1'), ('h', None)))"
    )


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickle_of_either_twin_is_read_by_the_other(
    made: Any, protocol: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = made(*FIELDS)
    for other in TWINS.values():
        monkeypatch.setattr(types, "Record", made)
        pickled = pickle.dumps(record, protocol)
        monkeypatch.setattr(types, "Record", other)
        found = pickle.loads(pickled)
        assert type(found) is other
        assert found == record


def test_copies(made: Any) -> None:
    record = made(*FIELDS[:5], [1], ())
    assert copy.copy(record) == copy.deepcopy(record) == record
    assert copy.copy(record).value is record.value
    assert copy.deepcopy(record).value is not record.value


def test_nothing_can_be_set(made: Any) -> None:
    record = made(*FIELDS)
    for name in (*NAMES, "other"):
        with pytest.raises(AttributeError):
            setattr(record, name, 1)
    with pytest.raises(AttributeError):
        del record.key
    with pytest.raises(TypeError):
        record[0] = 1
    with pytest.raises(TypeError):
        weakref.ref(record)
    assert record == FIELDS


def test_it_is_generic_and_final(made: Any) -> None:
    assert made[bytes, str].__args__ == (bytes, str)
    if made is not PYTHON and native_status().compiled:  # of the named tuple only type checkers know
        with pytest.raises(TypeError, match=r"type 'logstore.types.Record' is not an acceptable base type"):
            type("Mine", (made,), {})


@pytest.mark.parametrize(
    ("offset", "timestamp_ms"),
    [
        ((1 << 63) - 1, -(1 << 63)),
        (1 << 63, 0),
        (0, -(1 << 63) - 1),
        (1 << 200, 1.5),
        (None, "now"),
        (True, False),
        (-1, -1),
    ],
)
def test_integers_of_any_size_and_what_is_none(made: Any, offset: Any, timestamp_ms: Any) -> None:
    record = made("t", 0, offset, timestamp_ms, None, None)
    assert (record.offset, record.timestamp_ms) == (offset, timestamp_ms)
    assert (type(record.offset), type(record.timestamp_ms)) == (type(offset), type(timestamp_ms))
    assert record == ("t", 0, offset, timestamp_ms, None, None, ())
    assert record.__reduce__() == (made, ("t", 0, offset, timestamp_ms, None, None, ()))


class Held:
    """Something that a deserializer made, which knows its record."""

    def __init__(self) -> None:
        self.record: Any = None


@pytest.mark.parametrize("place", range(7))
def test_a_circle_through_a_record_is_collected(made: Any, place: int) -> None:
    held = Held()
    fields: list[Any] = list(FIELDS)
    fields[place] = held
    held.record = made(*fields)
    seen = weakref.ref(held)
    del held, fields
    gc.collect()
    assert seen() is None


class FreedWith:
    """What can be seen to be freed."""


def test_a_circle_through_headers_that_were_empty_is_collected(made: Any) -> None:
    class Headers(list[Any]):
        pass

    headers = Headers()
    headers.append(made(*FIELDS[:6], headers))
    seen = weakref.ref(headers)
    del headers
    gc.collect()
    assert seen() is None


def test_nothing_is_asked_of_what_a_field_holds(made: Any) -> None:
    class Mute:
        def __bool__(self) -> bool:
            raise AssertionError("asked")

        __eq__ = __len__ = __hash__ = __bool__  # type: ignore[assignment]

    for place in range(7):
        fields: list[Any] = list(FIELDS)
        fields[place] = mute = Mute()
        assert made(*fields)[place] is mute


@pytest.mark.parametrize("place", [4, 5, 6])
def test_records_within_records_are_freed_however_deep(made: Any, place: int) -> None:
    record: Any = None
    for _ in range(300_000):  # a thread's 8 MiB of stack would not do for as many calls
        record = made(*FIELDS[:place], record, *FIELDS[place + 1 :])
    last = FreedWith()
    seen = weakref.ref(last)
    record = made(*FIELDS[:place], [record, last], *FIELDS[place + 1 :])
    del last, record
    gc.collect()
    assert seen() is None


def test_records_as_read_cost_the_garbage_collector_nothing() -> None:
    rows: list[Any] = [(b"k", b"v", [("h", b"1")]), (None, b"v"), (b"k", None, [])]
    found = decode_batches(encode_batch(rows, now_ms=7), "t", 0)
    if native_status().compiled:
        assert not any(map(gc.is_tracked, found))
        assert not any(gc.is_tracked(record.headers) for record in found)


def test_more_records_than_are_kept_for_new_ones() -> None:
    """Records that are gone are used again, up to some; their number must not matter."""
    batch = encode_batch([(b"%d" % number, b"v") for number in range(5000)], now_ms=7)
    for _ in range(3):
        records = decode_batches(batch, "t", 0)
        assert [int(record.key or b"") for record in records] == list(range(5000))
        del records
        held = [types.Record("t", 0, number, 0, None, [number]) for number in range(5000)]
        assert [record.value for record in held] == [[number] for number in range(5000)]
