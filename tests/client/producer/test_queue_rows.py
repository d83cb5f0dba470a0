"""``queue_rows``: rows that need no second look fall into the same batches as all others, by both twins."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logstore.client.producer import delivery, send_path
from logstore.client.producer.accumulator import Accumulator
from logstore.client.producer.pending import PendingBatch
from logstore.client.producer.router import Router
from logstore.client.producer.settings import settings_of
from logstore.format.rows import check_rows, row_sizes
from logstore.seams.clock import ManualClock
from tests.client.fake_backend import FakeBackend
from tests.native.twins import python_twin

PYTHON = python_twin(send_path.__name__)
PYTHON_DELIVERY = python_twin(delivery.__name__)
BATCH_BYTES = 300

keys = st.none() | st.binary(max_size=9)
values = st.none() | st.binary(max_size=90)
plain = st.lists(st.tuples(keys, values), max_size=40)
some_keys = st.lists(st.tuples(st.binary(max_size=9), values), max_size=40)
no_keys = st.lists(st.tuples(st.none(), values), max_size=40)
wide = st.lists(st.tuples(keys, values, st.none() | st.just([("h", b"v")])), max_size=5)
call = st.tuples(plain | some_keys | no_keys | wide, st.none() | st.integers(0, 2))


class Side:
    """A producer's parts without its thread; what became of the rows."""

    def __init__(self, twin: Any = send_path, **config: str) -> None:
        backend = FakeBackend()
        backend.create_topic("t", 3, {"max.message.bytes": "400", **config})
        self.settings = settings_of(
            acks=1,
            compression=None,
            linger_ms=5,
            batch_bytes=BATCH_BYTES,
            buffer_bytes=8000,
            max_block_ms=1000,
            delivery_timeout_ms=1000,
            disk_full_timeout_ms=None,
            idempotence=None,
            name=None,
        )
        self.twin = twin
        self.accumulator = Accumulator(self.settings)
        self.router = Router(backend, self.accumulator, ManualClock(), None)
        self.route = self.router.route("t")
        self.told: list[int] = []

    def quickly(
        self, rows: Any, place: int | None = None, most: int = 2000
    ) -> list[tuple[int, int, int]] | None:
        def notice(queue: Any, now_s: float) -> None:
            self.told.append(queue.partition)

        pieces = self.twin.queue_rows(
            self.accumulator, notice, self.route, rows, place, BATCH_BYTES, most, 0.0
        )
        if pieces is None:
            return None
        return [(piece.batch.queue.partition, piece.start, piece.count) for piece in pieces]

    def slowly(self, rows: Any, place: int | None) -> list[tuple[int, int, int]]:
        checked = check_rows("topic 't'", rows)
        found = []
        for chosen, chunk in self.router.plan(self.route, checked, row_sizes(checked, checked.rows), place):
            if chosen is None:
                queue = self.accumulator.sticky_queue_for_chunk(self.route, chunk.size, False)
            else:
                queue = self.route.queues[chosen]
            _, start = self.accumulator.extend(queue, chunk.rows, chunk.size, False, 0.0)
            found.append((queue.partition, start, len(chunk.rows)))
        return found

    def batches(self) -> list[Any]:
        return [
            (batch.queue.partition, list(batch.rows), batch.size, batch is batch.queue.open)
            for batch in self.accumulator.unfinished()
        ]


@settings(derandomize=True, deadline=None, max_examples=400)
@given(calls=st.lists(call, max_size=4), name=st.sampled_from(["murmur3", "murmur2", "crc32"]))
def test_rows_fall_into_the_same_batches(calls: list[Any], name: str) -> None:
    compiled, python, slow = (Side(twin, partitioner=name) for twin in (send_path, PYTHON, None))
    for rows, place in calls:
        pieces = compiled.quickly(rows, place)
        assert python.quickly(rows, place) == pieces
        if pieces is not None:
            assert slow.slowly(rows, place) == pieces
    assert compiled.batches() == python.batches() == slow.batches()
    assert compiled.told == python.told
    assert compiled.accumulator.buffer.held_bytes == python.accumulator.buffer.held_bytes
    assert compiled.accumulator.buffer.held_bytes <= compiled.settings.buffer_bytes


@pytest.mark.parametrize("twin", [send_path, PYTHON], ids=["in use", "python"])
def test_what_is_left_to_the_slow_path(twin: Any) -> None:
    side = Side(twin)
    for rows in (
        [],
        ((None, b"v"),),
        [(None, b"v"), (b"k", b"v")],
        [(b"k", b"v"), (None, b"v")],
        [(b"k", "v")],
        [[b"k", b"v"]],
        [(b"k", b"v", None)],
        [(None, b"v" * 300)],
        [(None, b"v" * 90)] * 20,
    ):
        assert side.quickly(rows) is None
    assert side.batches() == []
    assert side.quickly([(b"k", b"v"), (b"k", None)]) is not None
    assert side.quickly([(None, b"v"), (b"k", b"v")], 1) is not None
    assert side.quickly([(None, b"v" * 90)] * 20, most=4000) is not None
    full = [side.quickly([(None, b"v" * 90)] * 20, most=4000) for _ in range(5)]
    assert full[-1] is None  # no room


@pytest.mark.parametrize("twin", [send_path, PYTHON], ids=["in use", "python"])
def test_rows_without_the_key_that_is_due_are_left(twin: Any) -> None:
    side = Side(twin, **{"cleanup.policy": "compact"})
    assert side.quickly([(None, b"v")], 0) is None
    assert side.quickly([(b"k", b"v")], 0) is not None


@pytest.mark.parametrize("twin", [send_path, PYTHON], ids=["in use", "python"])
def test_the_list_given_stays_the_callers(twin: Any) -> None:
    side = Side(twin)
    rows: list[Any] = [(None, b"v"), (None, b"w")]
    assert side.quickly(rows, 0) == [(0, 0, 2)]
    rows.clear()
    assert [batch[1] for batch in side.batches()] == [[(None, b"v"), (None, b"w")]]


@settings(derandomize=True, deadline=None, max_examples=300)
@given(
    places=st.lists(
        st.tuples(st.integers(0, 2), st.sampled_from([-1, 0, 3, 5]), st.integers(0, 3), st.integers(1, 3)),
        max_size=8,
    ),
    late=st.integers(0, 30),
)
def test_both_twins_tell_the_same_ranges(places: list[Any], late: int) -> None:
    side = Side()
    pieces = []
    for number, (partition, base_offset, start, count) in enumerate(places):
        batch = PendingBatch(side.route.queues[partition], None, 300, 0.0, 1.0)
        if number != late:
            batch.resolve(base_offset, 7)
        pieces.append(delivery.Piece(batch, start, count))
    found = delivery.landed_ranges(pieces)
    assert found == PYTHON_DELIVERY.landed_ranges(pieces)
    assert (found is None) == (late < len(places))
