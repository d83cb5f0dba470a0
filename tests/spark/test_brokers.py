"""The source reads from brokers: what it gives on a directory, through kills, forks and pickles; no session."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from logstore.errors import DataLossError, UnknownTopicError
from rpc.client.routing.metadata import Metadata
from rpc.errors import BrokerUnavailableError
from rpc.testing.broker import BrokerForTests
from spark_connector import connection
from spark_connector.reading.reader import LogStoreReader
from spark_connector.reading.schema import spark_schema
from spark_connector.reading.stream_reader import LogStoreStreamReader
from spark_connector.settings.options import parse
from spark_connector.settings.sink_options import parse_sink
from spark_connector.writing.direct_sink import DirectSink
from tests.house import ROOT
from tests.spark.sources import TOPIC, ends_of, places_of, rows


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerForTests]:
    broker = BrokerForTests(tmp_path / "data")
    yield broker
    connection.forget_stores()
    broker.close()
    BrokerForTests.end_spares()


def fill(broker: BrokerForTests, counts: list[int]) -> None:
    client = broker.connect()
    client.create_topic(TOPIC, len(counts), exist_ok=True)
    with client.producer() as producer:
        for partition, count in enumerate(counts):
            producer.send_many(TOPIC, [(b"k", b"%d" % n) for n in range(count)], partition=partition)


def given(broker: BrokerForTests, **options: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": broker.address, "subscribe": TOPIC, **options}


def batch_reader(broker: BrokerForTests, **options: str) -> LogStoreReader:
    chosen = given(broker, **options)
    return LogStoreReader(parse(chosen, "batch"), spark_schema(parse(chosen, "any")))  # type: ignore[arg-type]


def stream_reader(broker: BrokerForTests, **options: str) -> LogStoreStreamReader:
    chosen = given(broker, **options)
    return LogStoreStreamReader(parse(chosen, "stream"), spark_schema(parse(chosen, "any")))  # type: ignore[arg-type]


def test_a_batch_in_splits_from_pickled_readers(broker: BrokerForTests) -> None:
    fill(broker, [50, 7, 0])
    reader = batch_reader(broker, maxRecordsPerPartition="10")
    tasks = reader.partitions()
    assert len(tasks) == 6
    travelled = pickle.loads(pickle.dumps(reader))
    found = rows(travelled, pickle.loads(pickle.dumps(tasks)))
    assert places_of(found) == [(0, n) for n in range(50)] + [(1, n) for n in range(7)]


# In a process of its own: beside a broker of the same process gRPC cannot be forked, and Spark's daemon has none.
FORKED = """
import os, sys
from spark_connector.settings.options import parse
from spark_connector.reading.reader import LogStoreReader
from spark_connector.reading.schema import spark_schema

given = {"bootstrap.servers": sys.argv[1], "subscribe": sys.argv[2]}
reader = LogStoreReader(parse(given, "batch"), spark_schema(parse(given, "any")))
tasks = reader.partitions()

def count():
    return sum(batch.num_rows for task in tasks for batch in reader.read(task))

assert count() == 20
pid = os.fork()
if pid == 0:
    good = False
    try:
        good = count() == 20
    finally:
        os._exit(0 if good else 1)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, "the child"
assert count() == 20
os._exit(0)
"""


def test_a_forked_worker_connects_by_itself(broker: BrokerForTests) -> None:
    fill(broker, [20])
    done = subprocess.run(
        [sys.executable, "-c", FORKED, broker.address, TOPIC],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr


def test_a_stream_goes_on_behind_a_killed_broker_and_shows_its_progress(broker: BrokerForTests) -> None:
    fill(broker, [10, 5])
    reader = stream_reader(broker, startingOffsets="earliest", **{"commit.group": "spark"})
    start = reader.initialOffset()
    seen: list[tuple[int, int]] = []
    for round_ in range(3):
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        seen += places_of(rows(reader, reader.partitions(start, end)))
        reader.commit(end)
        start = end
        broker.kill()
        broker.restart()
        fill(broker, [round_ + 1, 0])
    assert seen == [
        *((0, n) for n in range(10)),
        *((1, n) for n in range(5)),
        (0, 10),
        (0, 11),
        (0, 12),
    ]
    assert ends_of(start) == {0: 13, 1: 5}
    committed = broker.connect().committed_offsets("spark")
    assert sorted(at.offset for at in committed.values()) == [5, 13]


def test_what_is_not_there_is_a_named_error(broker: BrokerForTests, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnknownTopicError, match=f"not in the store at {broker.address}"):
        batch_reader(broker, subscribe="none").partitions()
    broker.stop()
    connection.forget_stores()
    connect: Any = connection.logstore.connect
    monkeypatch.setattr(
        connection.logstore,
        "connect",
        lambda *given, **named: connect(*given, connect_timeout_s=0.5, **named),
    )
    with pytest.raises(BrokerUnavailableError):
        batch_reader(broker).partitions()


def test_settings_of_the_connection_come_from_a_file(broker: BrokerForTests, tmp_path: Path) -> None:
    fill(broker, [3])
    file = tmp_path / "client.toml"
    file.write_text("request_timeout_s = 7.5\n")
    reader = batch_reader(broker, clientConfig=str(file))
    assert rows(reader, reader.partitions()).num_rows == 3
    (client,) = connection._clients.values()
    assert client.backend._brokers.settings.request_timeout_s == 7.5  # type: ignore[attr-defined]


def test_rows_are_sent_by_the_tasks_themselves(broker: BrokerForTests) -> None:
    client = broker.connect()
    client.create_topic("out", 2)
    options = parse_sink(
        {"bootstrap.servers": broker.address, "delivery": "at_least_once", "topic": "out"}
    ).options
    sink = pickle.loads(pickle.dumps(DirectSink(options)))
    sink.send([pa.RecordBatch.from_pydict({"value": [b"%d" % n for n in range(100)]})])
    with client.consumer("out", until_end=True) as consumer:
        assert sorted(int(record.value or b"") for record in consumer) == list(range(100))
    with pytest.raises(UnknownTopicError):
        DirectSink(replace(options, topic="none")).send([pa.RecordBatch.from_pydict({"value": [b"x"]})])


def test_a_topic_made_anew_after_the_plan_is_not_read_in_its_place(
    broker: BrokerForTests, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection knows the old topic still: no news came yet."""
    monkeypatch.setattr(Metadata, "_run", lambda metadata: None)
    fill(broker, [5])
    reader = stream_reader(broker, startingOffsets="earliest")
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    connection.client_of(parse(given(broker), "stream").target).backend.topic(TOPIC)
    broker.connect().delete_topic(TOPIC)
    fill(broker, [9])
    with pytest.raises(DataLossError, match="deleted and made anew"):
        reader.partitions(start, end)
