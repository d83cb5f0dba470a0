"""The router: rows that need no second look fall into the same batches as all others."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logstore.client.producer.accumulator import Accumulator
from logstore.client.producer.router import Router
from logstore.client.producer.settings import settings_of
from logstore.errors import UnknownPartitionError
from logstore.format.rows import check_rows, row_sizes
from logstore.seams.clock import ManualClock
from tests.client.fake_backend import FakeBackend

keys = st.none() | st.binary(max_size=9)
values = st.none() | st.binary(max_size=90)
plain = st.lists(st.tuples(keys, values), max_size=40)
some_keys = st.lists(st.tuples(st.binary(max_size=9), values), max_size=40)
no_keys = st.lists(st.tuples(st.none(), values), max_size=40)
wide = st.lists(st.tuples(keys, values, st.none() | st.just([("h", b"v")])), max_size=5)


def router(own: Any = None, **config: str) -> Router:
    backend = FakeBackend()
    backend.create_topic("t", 3, {"max.message.bytes": "400", **config})
    chosen = settings_of(
        acks=1,
        compression=None,
        linger_ms=5,
        batch_bytes=300,
        buffer_bytes=8000,
        max_block_ms=1000,
        delivery_timeout_ms=1000,
        disk_full_timeout_ms=None,
        idempotence=None,
        name=None,
    )
    return Router(backend, Accumulator(chosen), ManualClock(), own)


@settings(derandomize=True, deadline=None, max_examples=400)
@given(
    rows=plain | some_keys | no_keys | wide,
    partition=st.none() | st.integers(0, 2),
    name=st.sampled_from(["murmur3", "murmur2", "crc32"]),
)
def test_one_look_plans_what_all_questions_plan(rows: list[Any], partition: int | None, name: str) -> None:
    chosen = router(partitioner=name)
    route = chosen.route("t")
    found = chosen.plan_of_plain(route, rows, partition)
    if found is None:
        return
    checked = check_rows("topic 't'", rows)
    sizes = row_sizes(checked, checked.rows)
    assert chosen.parts(checked, sizes) == [rows]
    assert found == chosen.plan(route, checked, sizes, partition)
    assert all(chunk.rows is not rows for _, chunk in found)


def test_what_one_look_leaves() -> None:
    chosen = router()
    route = chosen.route("t")
    assert chosen.plan_of_plain(route, [(b"k", b"v"), (b"k", None)], None) is not None
    for rows in (
        [],
        ((None, b"v"),),
        [(None, b"v"), (b"k", b"v")],
        [(None, b"v" * 400)],
        [(None, b"v" * 90)] * 20,
    ):
        assert chosen.plan_of_plain(route, rows, None) is None
    assert chosen.plan_of_plain(route, [(None, b"v"), (b"k", b"v")], 1) is not None
    with pytest.raises(UnknownPartitionError):
        chosen.plan_of_plain(route, [(None, b"v")], 3)
    turns = router(lambda *_: 0)
    assert turns.plan_of_plain(turns.route("t"), [(None, b"v")], None) is None


def test_rows_without_the_key_that_is_due_are_left() -> None:
    chosen = router(**{"cleanup.policy": "compact"})
    route = chosen.route("t")
    assert chosen.plan_of_plain(route, [(None, b"v")], 0) is None
    assert chosen.plan_of_plain(route, [(b"k", b"v")], 0) is not None
