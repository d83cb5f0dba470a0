"""In a log of another process aborted transactions are looked up beside batches of a transaction alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from logstore.log.producers.transaction_index import AbortedTransaction
from logstore.log.read_only_log import ReadOnlyLog
from logstore.partition.partition_log import PartitionLog
from logstore.store import LogStore

READS: dict[str, Callable[[PartitionLog], list[bytes | None]]] = {
    "forwards": lambda log: [record.value for record in log.records(0)],
    "backwards": lambda log: [record.value for record in log.records(0, reverse=True)],
    "by time": lambda log: [found.value] if (found := log.record_at_or_after(0)) is not None else [],
}


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    made: list[tuple[int, int]] = []
    look = ReadOnlyLog._aborted

    def counted(log: ReadOnlyLog, start: int, end: int) -> list[AbortedTransaction]:
        made.append((start, end))
        return look(log, start, end)

    monkeypatch.setattr(ReadOnlyLog, "_aborted", counted)
    return made


@pytest.mark.parametrize("way", READS)
def test_no_lookup_without_a_transaction_and_nothing_aborted_with_one(
    tmp_path: Path, looks: list[tuple[int, int]], way: str
) -> None:
    read = READS[way]
    with LogStore(tmp_path) as writer, LogStore(tmp_path, mode="r") as other:
        writer.create_topic("plain")
        writer.create_topic("mixed")
        log = other.partition("plain", 0)
        for number in range(3):
            writer.partition("plain", 0).append([(None, b"%d" % number)])
        assert read(log)[0] in (b"0", b"2")
        assert looks == []
        with writer.producer(transactional_id="t") as producer:
            producer.begin()
            producer.send("mixed", b"aborted")
            producer.flush()
            producer.abort()
            with producer.transaction():
                producer.send("mixed", b"committed")
        assert read(other.partition("mixed", 0)) == [b"committed"]
        assert looks
