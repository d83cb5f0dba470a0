"""What a producer and an append say to a record without a key, where the topic compacts."""

from __future__ import annotations

from typing import Any

import pytest

from logstore.api.backend import Backend
from logstore.api.records import ProduceItem
from logstore.client.producer.producer import Producer
from logstore.errors import InvalidRecordError
from logstore.format.batch import encode_batch
from logstore.store import LogStore
from tests.client.records import all_records

COMPACT = {"cleanup.policy": "compact,delete"}


def test_send_refuses_it_at_once_and_harms_no_other(backend: Backend) -> None:
    backend.create_topic("c", 1, COMPACT)
    with Producer(backend, linger_ms=1000) as producer:
        first = producer.send("c", b"1", key=b"a")
        for more in ({}, {"headers": [("h", b"v")]}, {"timestamp_ms": 5}, {"partition": 0}):
            settings: dict[str, Any] = more
            with pytest.raises(InvalidRecordError, match="a record for topic 'c' has no key"):
                producer.send("c", b"2", **settings)
        last = producer.send("c", key=b"a")
        assert [first.result(60).offset, last.result(60).offset] == [0, 1]
    assert [(record.key, record.value) for record in all_records(backend, "c")] == [
        (b"a", b"1"),
        (b"a", None),
    ]


def test_send_many_names_the_row_and_queues_none(backend: Backend) -> None:
    backend.create_topic("c", 2, COMPACT)
    with Producer(backend) as producer:
        with pytest.raises(InvalidRecordError, match="row 2 for topic 'c' has no key"):
            producer.send_many("c", [(b"a", b"1"), (b"b", b"2"), (None, b"3"), (None, b"4")])
        producer.send_many("c", [(b"", b"an empty key is one")])
    assert [record.key for record in all_records(backend, "c")] == [b""]


def test_a_policy_that_changes_is_obeyed_from_then_on(backend: Backend) -> None:
    with Producer(backend) as producer:
        producer.send("events", b"1").result(60)
        backend.alter_topic("events", {"cleanup.policy": "compact"})
        with pytest.raises(InvalidRecordError):
            producer.send("events", b"2").result(10)
        backend.alter_topic("events", {"cleanup.policy": None})
        producer.send("events", b"3").result(60)


ROWS = [(b"a", b"1"), (None, b"2")]
SAID = "append to c-0: record 1 of the batch has no key, and its topic is compacted"


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_appends_of_all_kinds_are_checked(codec: str) -> None:
    with LogStore(":memory:", threads=False) as store:
        store.create_topic("c", config={"cleanup.policy": "compact"})
        log = store.partition("c", 0)
        encoded = encode_batch(ROWS, now_ms=5, codec=codec)
        with pytest.raises(InvalidRecordError, match=SAID):
            log.append(ROWS)
        with pytest.raises(InvalidRecordError, match=SAID):
            log.append_batch(encoded)
        (answer,) = store.backend.produce([ProduceItem("c", 0, encoded)], "all", 10)
        assert isinstance(answer.error, InvalidRecordError)
        assert SAID in answer.error.message
        assert log.log_end_offset == 0
        store.admin.alter_topic("c", {"cleanup.policy": "delete"})
        assert log.append_batch(encoded).offset == 0
