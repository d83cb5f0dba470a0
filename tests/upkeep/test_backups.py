"""Restore: what was backed up comes back, and what is damaged does not."""

from __future__ import annotations

from pathlib import Path

import pytest

import logstore
from logstore.errors import (
    DamagedStoreError,
    ForeignDirectoryError,
    InvalidArgumentError,
    StoreNotFoundError,
    UnknownTopicError,
)
from logstore.log.inspection.verify import Totals
from logstore.log.inspection.verify_store import verify_store
from logstore.seams.clock import SystemClock
from logstore.seams.fs import OsFileSystem
from logstore.types import OffsetAndMetadata, TopicPartition

PLACE = TopicPartition("flights", 0)


@pytest.fixture
def backup(tmp_path: Path) -> Path:
    with logstore.open(tmp_path / "store") as store:
        store.create_topic("flights", partitions=2, config={"segment.bytes": "2000"})
        store.create_topic("other")
        for number in range(40):
            store.partition("flights", 0).append([(None, b"%d " % number + b"." * 100)])
        store.partition("other", 0).append([(None, b"other")])
        store.commit_offsets("g", {PLACE: OffsetAndMetadata(30)})
        with store.producer(transactional_id="t") as producer, producer.transaction() as transaction:
            transaction.send("flights", b"in a transaction", partition=1)
        store.backup(tmp_path / "backup", link=False)
    return tmp_path / "backup"


def content(root: Path) -> dict[str, list[tuple[int, bytes]]]:
    with logstore.open(root, mode="r") as store:
        return {
            f"{name}-{number}": [
                (record.offset, record.value) for record in store.partition(name, number).records(0)
            ]
            for name in store.list_topics()
            for number in range(store.topic(name).partitions)
        }


@pytest.mark.parametrize("link", [False, True])
def test_a_restored_store_is_used_like_the_one_before(tmp_path: Path, backup: Path, link: bool) -> None:
    seen: list[int] = []
    report = logstore.restore(backup, tmp_path / "back", link=link, progress=seen.append)
    assert report.topics == 4
    assert bool(report.linked_bytes) == link
    assert sum(seen) > report.copied_bytes
    assert content(tmp_path / "back") == content(backup) == content(tmp_path / "store")
    with logstore.open(tmp_path / "back") as store:
        assert store.committed_offsets("g") == {PLACE: OffsetAndMetadata(30)}
        with store.producer(transactional_id="t") as producer, producer.transaction() as transaction:
            transaction.send("flights", b"in another", partition=1)
        assert [record.value for record in store.partition("flights", 1).records(0)] == [
            b"in a transaction",
            b"in another",
        ]
        recovered = {found.topic for found in store.recovery_report}
        assert recovered <= {"__transaction_state", "__consumer_offsets"}  # no `.live` speaks for them
    assert content(backup) == content(tmp_path / "store")
    for root in (backup, tmp_path / "back"):
        assert list(verify_store(OsFileSystem(), str(root), SystemClock().boot_id(), Totals())) == []


def test_some_topics_alone(tmp_path: Path, backup: Path) -> None:
    report = logstore.restore(backup, tmp_path / "back", topics=["other"])
    assert report.topics == 3
    with logstore.open(tmp_path / "back") as store:
        assert store.list_topics() == ["other"]
        store.create_topic("flights")
    assert content(tmp_path / "back") == {"other-0": [(0, b"other")], "flights-0": []}
    with pytest.raises(UnknownTopicError, match="no topic 'nothing'"):
        logstore.restore(backup, tmp_path / "none", topics=["nothing"])
    assert not (tmp_path / "none").exists()


def test_a_damaged_backup_is_not_restored(tmp_path: Path, backup: Path) -> None:
    log = sorted((backup / "flights-0").glob("*.log"))[1]
    data = bytearray(log.read_bytes())
    data[200] ^= 1
    log.write_bytes(data)
    with pytest.raises(DamagedStoreError, match="is not restored, it has 1 faults") as caught:
        logstore.restore(backup, tmp_path / "back")
    assert caught.value.path == str(log)
    assert not (tmp_path / "back").exists()


def test_only_into_a_new_directory(tmp_path: Path, backup: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "precious").write_text("x")
    with pytest.raises(ForeignDirectoryError, match="not empty"):
        logstore.restore(backup, tmp_path / "full")
    with pytest.raises(ForeignDirectoryError, match="not empty"):
        logstore.restore(backup, tmp_path / "store")
    with pytest.raises(InvalidArgumentError, match="inside the store"):
        logstore.restore(backup, backup / "inside")
    with pytest.raises(StoreNotFoundError):
        logstore.restore(tmp_path / "nothing", tmp_path / "back")
    assert not (tmp_path / "back").exists()
