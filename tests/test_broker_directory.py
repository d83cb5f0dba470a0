from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import logstore
from tests.golden_broker import KINDS, expected, row_of, unpack

PLACES = [(kind, *place) for kind in KINDS for place in expected(kind)]


@pytest.fixture(scope="module")
def roots(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {kind: unpack(kind, tmp_path_factory.mktemp(kind)) for kind in KINDS}


@pytest.fixture(scope="module")
def stores(roots: dict[str, Path]) -> Iterator[dict[str, logstore.LogStore]]:
    opened = {kind: logstore.open(root, mode="r") for kind, root in roots.items()}
    yield opened
    for store in opened.values():
        store.close()


@pytest.mark.parametrize(("kind", "topic", "partition"), PLACES)
def test_uncommitted_reads_are_what_a_java_consumer_read(
    stores: dict[str, logstore.LogStore], kind: str, topic: str, partition: int
) -> None:
    seen = expected(kind)[topic, partition]
    log = stores[kind].partition(topic, partition)
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (seen.start, seen.end, seen.end)
    records = log.records(seen.start, isolation="read_uncommitted")
    assert [row_of(record) for record in records] == seen.records


@pytest.mark.parametrize(("kind", "topic", "partition"), PLACES)
def test_committed_reads_are_what_a_java_consumer_read(
    stores: dict[str, logstore.LogStore], kind: str, topic: str, partition: int
) -> None:
    seen = expected(kind)[topic, partition]
    log = stores[kind].partition(topic, partition)
    assert log.last_stable_offset == seen.stable
    assert [record.offset for record in log.records(seen.start)] == seen.committed


@pytest.mark.parametrize("kind", KINDS)
def test_consumers_iterate_whole_topics(stores: dict[str, logstore.LogStore], kind: str) -> None:
    for topic in ("codecs", "squeezed", "trimmed", "empty"):
        with stores[kind].consumer(topic, isolation="read_uncommitted", until_end=True) as consumer:
            found = sorted((record.partition, row_of(record)) for record in consumer)
        seen = expected(kind)
        due = [(place[1], row) for place in seen if place[0] == topic for row in seen[place].records]
        assert found == sorted(due)
