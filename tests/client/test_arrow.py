"""Topics and tables as Arrow: all partitions, decoded when asked, batch by batch; and what is refused."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from logstore.client import arrow
from logstore.errors import (
    InvalidArgumentError,
    MissingExtraError,
    PoisonRecordError,
    UnknownPartitionError,
    UnknownTopicError,
)
from logstore.format import arrow as format_arrow
from tests.client.conftest import AnyStore

T0_MS = 1_700_000_000_000


@pytest.fixture
def store(empty_store: AnyStore) -> AnyStore:
    empty_store.create_topic("t", partitions=3)
    with empty_store.producer() as producer:
        for partition in range(3):
            rows = [
                (b"k%d" % number, f"v{partition}{number}é".encode(), [("h", b"1")], T0_MS + 1000 * number)
                for number in range(10)
            ]
            producer.send_many("t", rows, partition=partition)
    return empty_store


def places(table: pa.Table) -> list[tuple[int, int]]:
    return list(zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True))


def test_all_partitions(store: AnyStore) -> None:
    table = store.to_arrow("t")
    assert places(table) == [(partition, offset) for partition in range(3) for offset in range(10)]
    assert table.schema == format_arrow.schema()
    assert table["value"][11].as_py() == "v11é".encode()
    assert table["headers"][0].as_py() == [{"key": "h", "value": b"1"}]
    assert table["timestamp"][3].as_py() == datetime.fromtimestamp(T0_MS / 1000 + 3, UTC)


def test_decoded(store: AnyStore) -> None:
    table = store.to_arrow("t", decode={"key": "utf8", "value": "utf8", "timestamp": "ms"}, headers=False)
    assert table["key"].type == table["value"].type == pa.string()
    assert (table["key"][12].as_py(), table["value"][12].as_py()) == ("k2", "v12é")
    assert table["timestamp"][3].as_py() == T0_MS + 3000
    assert "headers" not in table.column_names
    assert store.to_arrow("t", decode={"value": "binary"}) == store.to_arrow("t")


def test_some_partitions_from_a_time(store: AnyStore) -> None:
    since = datetime.fromtimestamp(T0_MS / 1000 + 7, UTC)
    assert places(store.to_arrow("t", partitions=[2, 0, 2], start=since)) == [
        (partition, offset) for partition in (2, 0) for offset in (7, 8, 9)
    ]
    late = datetime.fromtimestamp(T0_MS / 1000 + 70, UTC)
    assert store.to_arrow("t", start=late).num_rows == 0


def test_batches_come_one_fetch_at_a_time(store: AnyStore, monkeypatch: pytest.MonkeyPatch) -> None:
    with store.producer(batch_bytes=2000) as producer:
        producer.send_many("t", [(None, bytes(1000))] * 40, partition=1)
    monkeypatch.setattr(arrow, "FETCH_BYTES", 4000)
    batches = store.arrow_batches("t", partitions=[1])
    first = next(batches)
    with store.producer() as producer:
        producer.send_many("t", [(None, b"later")], partition=1)  # behind the end of the call
    found = [first, *batches]
    assert len(found) > 10
    assert max(batch.nbytes for batch in found) < 10_000
    offsets = [offset for batch in found for offset in batch.column("offset").to_pylist()]
    assert offsets == list(range(50))
    assert pa.Table.from_batches(found).num_rows == 50


def test_committed_records_only(store: AnyStore) -> None:
    with store.producer(transactional_id="x") as producer:
        tx = producer.begin()
        tx.send("t", b"gone", partition=0).result(timeout_s=60)
        producer.abort()
    assert b"gone" not in store.to_arrow("t")["value"].to_pylist()
    assert b"gone" in store.to_arrow("t", isolation="read_uncommitted")["value"].to_pylist()


def test_bytes_that_are_no_text_are_named(store: AnyStore) -> None:
    with store.producer() as producer:
        producer.send_many("t", [(b"k", b"good"), (b"k", None), (b"k", b"\xff")], partition=1)
    with pytest.raises(PoisonRecordError, match="the value at t-1 offset 12 is not UTF-8") as caught:
        store.to_arrow("t", decode={"value": "utf8"})
    assert (caught.value.topic, caught.value.partition, caught.value.offset) == ("t", 1, 12)
    assert store.to_arrow("t", decode={"key": "utf8"})["value"].null_count == 1


def test_what_is_refused_is_refused_at_once(store: AnyStore) -> None:
    refused: list[tuple[type[Exception], dict[str, Any]]] = [
        (InvalidArgumentError, {"decode": {"value": "utf-8"}}),
        (InvalidArgumentError, {"decode": {"offset": "ms"}}),
        (InvalidArgumentError, {"decode": "utf8"}),
        (InvalidArgumentError, {"start": 5}),
        (InvalidArgumentError, {"partitions": "0"}),
        (UnknownPartitionError, {"partitions": [3]}),
        (InvalidArgumentError, {"isolation": "dirty"}),
    ]
    for error, how in refused:
        with pytest.raises(error):
            store.arrow_batches("t", **how)
    with pytest.raises(UnknownTopicError):
        store.to_arrow("u")


@pytest.mark.parametrize("mode", [{}, {"max_memory_bytes": 1 << 20}])
def test_a_table(store: AnyStore, mode: dict[str, Any]) -> None:
    store.create_topic("c", partitions=2, config={"cleanup.policy": "compact"})
    with store.producer() as producer:
        rows: list[tuple[bytes, bytes | None]] = [(b"k%d" % number, b"%d" % number) for number in range(20)]
        producer.send_many("c", [*rows, (b"k3", None), (b"k4", b"new")])
    with store.table("c", value_deserializer=int, **mode) as table:
        found = table.to_arrow(decode={"key": "utf8"})
        assert found.schema.names == ["key", "value", "partition", "offset"]
        assert dict(zip(found["key"].to_pylist(), found["value"].to_pylist(), strict=True)) == {
            f"k{number}": b"new" if number == 4 else b"%d" % number for number in range(20) if number != 3
        }
        for key, partition, offset in zip(
            found["key"].to_pylist(), found["partition"].to_pylist(), found["offset"].to_pylist(), strict=True
        ):
            assert table.place(key.encode()) == (partition, offset)
        view = table.frozen()
        with store.producer() as producer:
            producer.send("c", b"\xff", key=b"k5")
        assert view.to_arrow(decode={"value": "utf8"}).num_rows == 19
        place = "-".join(map(str, ("c", table.place(b"k5")[0])))
        with pytest.raises(PoisonRecordError, match=f"the value at {place} offset {table.place(b'k5')[1]}"):
            table.to_arrow(decode={"value": "utf8"})
        with pytest.raises(InvalidArgumentError, match="columns are key, value"):
            table.to_arrow(decode={"timestamp": "ms"})  # type: ignore[typeddict-unknown-key]


def test_an_empty_table_and_topic(store: AnyStore) -> None:
    store.create_topic("c", config={"cleanup.policy": "compact"})
    with store.table("c") as table:
        assert table.to_arrow().num_rows == 0
    assert store.to_arrow("c", decode={"value": "utf8"}).schema.field("value").type == pa.string()


def test_without_pyarrow(store: AnyStore, monkeypatch: pytest.MonkeyPatch) -> None:
    format_arrow.schema.cache_clear()
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtraError, match=r"logstore-engine\[arrow\]"):
        store.to_arrow("t")
    with pytest.raises(MissingExtraError):
        store.table("t", any_policy=True).to_arrow()
    monkeypatch.undo()
    format_arrow.schema.cache_clear()
