from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import logstore
from logstore.errors import (
    DamagedStoreError,
    ForeignDirectoryError,
    ReadOnlyStoreError,
    UnknownPartitionError,
    UnknownTopicError,
    UnsupportedStoreVersionError,
)
from logstore.format.batch import encode_batch
from logstore.kafka_directory.directory import CHECKPOINTS, BrokerDirectory, known_settings
from logstore.kafka_directory.settings import load_settings
from logstore.log.inspection.verify import Totals
from logstore.log.inspection.verify_store import verify_store
from logstore.seams.fs import OsFileSystem, replace_file
from logstore.seams.memory_fs import MemoryFileSystem
from logstore.transactions import transaction_records
from logstore.transactions.transaction import TransactionState, TransactionStatus
from logstore.types import OffsetAndMetadata, TopicPartition
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


@pytest.mark.parametrize("kind", KINDS)
def test_verify_has_no_false_alarm(roots: dict[str, Path], kind: str) -> None:
    totals = Totals()
    found = list(verify_store(OsFileSystem(), str(roots[kind]), "boot", totals))
    assert [(fault.kind, fault.warning) for fault in found] == [
        ("leftover", True)
    ]  # the deleted topic's folder
    assert "removed-0." in found[0].path
    assert totals.partitions == 20
    assert totals.records >= sum(len(seen.records) for seen in expected(kind).values())


def test_verify_finds_what_is_wrong(tmp_path: Path) -> None:
    root = unpack("clean", tmp_path)
    log = root / "plain-0" / f"{0:020d}.log"
    content = bytearray(log.read_bytes())
    content[320] ^= 1
    log.write_bytes(content)
    (root / "trimmed-0" / f"{64:020d}.log").unlink()
    (root / "txn-0" / f"{24:020d}.log.swap").write_bytes(b"")
    found = list(verify_store(OsFileSystem(), str(root), "boot", Totals()))
    wrong = {(Path(fault.path).parent.name, fault.kind) for fault in found if not fault.warning}
    assert {("plain-0", "crc"), ("trimmed-0", "end")} <= wrong
    assert ("txn-0", "leftover") in {
        (Path(fault.path).parent.name, fault.kind) for fault in found if fault.warning
    }
    chosen = list(verify_store(OsFileSystem(), str(root), "boot", Totals(), topics=["codecs"]))
    assert chosen == []
    with pytest.raises(UnknownTopicError):
        list(verify_store(OsFileSystem(), str(root), "boot", Totals(), topics=["nope"]))


def test_topics_settings_and_groups(roots: dict[str, Path], stores: dict[str, logstore.LogStore]) -> None:
    store = stores["clean"]
    assert store.list_topics() == [
        "codecs",
        "empty",
        "epochs",
        "plain",
        "squeezed",
        "stamped",
        "trimmed",
        "txn",
    ]
    assert store.list_topics(internal=True)[:3] == [
        "__cluster_metadata",
        "__consumer_offsets",
        "__transaction_state",
    ]
    described = store.describe_topic("squeezed")
    metadata = roots["clean"] / "squeezed-0" / "partition.metadata"
    assert metadata.read_text().endswith(described.topic_id)
    assert described.config["cleanup.policy"] == "compact"
    assert described.owner is None
    assert store.describe_topic("stamped").config["message.timestamp.type"] == "LogAppendTime"
    assert store.committed_offsets("readers") == {
        TopicPartition("plain", 0): OffsetAndMetadata(17, -1, "half way")
    }
    assert [group.group for group in store.admin.list_groups()] == ["readers"]
    assert len(list(store.partition("__cluster_metadata", 0).records(0))) > 100
    assert stores["killed"].partition("epochs", 0).leader_epoch == 4


def test_nothing_is_written_and_writing_is_refused(tmp_path: Path) -> None:
    root = unpack("killed", tmp_path)
    before = {path: path.stat().st_mtime_ns for path in root.rglob("*")}
    for place in (str(root), root):
        with pytest.raises(ForeignDirectoryError, match="mode='r'"):
            logstore.open(place)
    with logstore.open(root, mode="r") as store:
        for attempt in (
            lambda: store.producer(),
            lambda: store.create_topic("new"),
            lambda: store.delete_topic("plain"),
            lambda: store.delete_records("plain", 3),
            lambda: store.consumer("plain", group="readers"),
            lambda: store.commit_offsets("readers", {TopicPartition("plain", 0): OffsetAndMetadata(1)}),
            lambda: store.partition("plain", 0).append([(b"k", b"v")]),
            lambda: store.admin.delete_group("readers"),
        ):
            with pytest.raises(ReadOnlyStoreError):
                attempt()
        for topic in store.list_topics(internal=True):
            store.describe_topic(topic)
    assert {path: path.stat().st_mtime_ns for path in root.rglob("*")} == before


def test_topics_come_and_go_beside_the_broker(tmp_path: Path) -> None:
    root = unpack("killed", tmp_path)
    with logstore.open(root, mode="r") as store:
        shutil.copytree(root / "plain-0", root / "fresh-0")
        assert "fresh" in store.list_topics()
        assert len(list(store.partition("fresh", 0).records(0))) == 48
        held = store.partition("fresh", 0)
        (root / "fresh-0").rename(root / f"fresh-0.{'a' * 32}-delete")
        assert "fresh" not in store.list_topics()
        with pytest.raises((UnknownTopicError, UnknownPartitionError)):
            held.bounds()


@pytest.mark.parametrize(
    ("content", "error"),
    [
        ("version=0\nbroker.id=1\n", None),
        ("#x\nversion=1\nnode.id=1\n", None),
        ("version=2\ncluster.id=x\n", UnsupportedStoreVersionError),
        ("cluster.id=x\n", DamagedStoreError),
        ("version=one\n", DamagedStoreError),
        ("", DamagedStoreError),
    ],
)
def test_meta_properties(tmp_path: Path, content: str, error: type[Exception] | None) -> None:
    (tmp_path / "meta.properties").write_text(content)
    if error is None:
        with logstore.open(tmp_path, mode="r") as store:
            assert store.list_topics(internal=True) == []
        return
    with pytest.raises(error, match=r"meta\.properties"):
        logstore.open(tmp_path, mode="r")


@pytest.mark.parametrize(
    ("content", "error"),
    [
        ("1\n0\n", UnsupportedStoreVersionError),
        ("0\n2\nplain 0 48\n", DamagedStoreError),
        ("0\n1\nplain zero 48\n", DamagedStoreError),
        ("0\n1\nplain 0 -1\n", DamagedStoreError),
        ("0\n1\nplain 0 48\nplain 1 4\n", DamagedStoreError),
        ("\n", DamagedStoreError),
    ],
)
@pytest.mark.parametrize("name", ["recovery-point-offset-checkpoint", "log-start-offset-checkpoint"])
def test_a_checkpoint_that_cannot_be_read(
    tmp_path: Path, name: str, content: str, error: type[Exception]
) -> None:
    (tmp_path / "meta.properties").write_text("version=1\n")
    (tmp_path / "plain-0").mkdir()
    (tmp_path / "plain-0" / "partition.metadata").write_text(f"version: 0\ntopic_id: {'b' * 22}")
    (tmp_path / name).write_text(content)
    with logstore.open(tmp_path, mode="r") as store, pytest.raises(error, match=name):
        store.partition("plain", 0).bounds()
    found = list(verify_store(OsFileSystem(), str(tmp_path), "boot", Totals()))
    assert any(fault.kind == "checkpoint" and not fault.warning for fault in found)


def test_settings_from_a_snapshot_and_the_log_behind_it() -> None:
    def topic(name: str, number: int) -> bytes:
        return b"\1\2\0" + bytes([len(name) + 1]) + name.encode() + bytes([number] * 16) + b"\0"

    def config(kind: int, name: str, key: str, value: str | None) -> bytes:
        texts = (name, key, value)
        fields = b"".join(b"\0" if text is None else bytes([len(text) + 1]) + text.encode() for text in texts)
        return b"\1\4\0" + bytes([kind]) + fields + b"\0"

    rows = [
        topic("kept", 1),
        config(2, "kept", "retention.ms", "5"),
        config(2, "kept", "remote.storage.enable", "true"),
        config(4, "kept", "segment.bytes", "9"),  # a broker's
        topic("gone", 2),
        config(2, "gone", "retention.ms", "5"),
        b"\1\2",
        b"",
    ]
    later = [config(2, "kept", "retention.ms", None), b"\1\x09\0" + bytes([2] * 16) + b"\0", topic("gone", 3)]
    fs = MemoryFileSystem()
    fs.mkdir("/b")
    fs.mkdir("/b/__cluster_metadata-0")
    replace_file(fs, "/b/meta.properties", b"version=1")
    put = "/b/__cluster_metadata-0/"
    first = b"".join(encode_batch([(None, row)], now_ms=1) for row in rows)
    replace_file(fs, f"{put}{len(rows):020d}-{1:010d}.checkpoint", first)
    replace_file(
        fs, f"{put}{0:020d}.log", encode_batch([(None, config(2, "old", "retention.ms", "1"))], now_ms=1)
    )
    tail = bytearray(encode_batch([(None, row) for row in later], now_ms=1))
    tail[:8] = len(rows).to_bytes(8, "big")
    replace_file(fs, f"{put}{len(rows):020d}.log", bytes(tail))
    assert load_settings(fs, "/b").topics == {"kept": {"remote.storage.enable": "true"}, "gone": {}}
    broker = BrokerDirectory(fs, "/b")
    broker.load()
    assert broker.is_remote("kept")
    assert not broker.is_remote("gone")
    assert not broker.stopped_in_order


def test_settings_that_ours_does_not_know_are_left_out() -> None:
    given = {"retention.ms": "7", "follower.replication.throttled.replicas": "*", "min.insync.replicas": "2"}
    assert known_settings(given) == {"retention.ms": "7"}


def test_a_broker_that_has_just_started(tmp_path: Path) -> None:
    """It makes its checkpoints empty, and a partition's folder before the topic's id and the first epoch."""
    (tmp_path / "meta.properties").write_text("version=1\n")
    for name in CHECKPOINTS:
        (tmp_path / name).touch()
    folder = tmp_path / "fresh-0"
    folder.mkdir()
    for name in (f"{0:020d}.log", "leader-epoch-checkpoint"):
        (folder / name).touch()
    with logstore.open(tmp_path, mode="r") as store:
        assert store.list_topics() == []
        (folder / "partition.metadata").write_text(f"version: 0\ntopic_id: {'b' * 22}")
        assert store.list_topics() == ["fresh"]
        assert store.partition("fresh", 0).bounds() == (0, 0, 0, 0, -1)
    found = list(verify_store(OsFileSystem(), str(tmp_path), "boot", Totals()))
    assert {(fault.kind, fault.warning) for fault in found} == {("missing", True)}  # the indexes


def test_a_folder_without_an_id_counts_once_it_has_records(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text("version=0\nbroker.id=1\n")
    (tmp_path / "old-0").mkdir()
    (tmp_path / "old-0" / f"{0:020d}.log").write_bytes(encode_batch([(b"k", b"v")], now_ms=1))
    with logstore.open(tmp_path, mode="r") as store:
        assert store.topic("old").topic_id == "A" * 22
        assert [record.value for record in store.partition("old", 0).records(0)] == [b"v"]


def test_all_partitions_of_transaction_state_are_read(tmp_path: Path) -> None:
    """A transactional id is in one of the partitions: 50 are the broker's default."""
    root = unpack("killed", tmp_path)
    with logstore.open(root, mode="r") as store:
        before = {one.transactional_id for one in store.admin.list_transactions()}
        shutil.copytree(root / "empty-0", folder := root / "__transaction_state-49")
        old = root / "__transaction_state-0" / "partition.metadata"
        shutil.copy(old, folder)
        for path in folder.glob("*.log"):
            path.unlink()
        place = TopicPartition("txn", 0)
        state = TransactionState("far", 77, 3, 60_000, TransactionStatus.ONGOING, (place,), 5, 5)
        row = (transaction_records.encode_key("far"), transaction_records.encode_value(state))
        (folder / f"{0:020d}.log").write_bytes(encode_batch([row], now_ms=1))
        assert {one.transactional_id for one in store.admin.list_transactions()} == before | {"far"}
        found = store.admin.describe_transaction("far")
        assert (found.state, found.producer_id, found.places) == ("ONGOING", 77, (place,))
        gone = encode_batch([(row[0], None)], now_ms=1)
        with (folder / f"{0:020d}.log").open("ab") as file:
            file.write((1).to_bytes(8, "big") + gone[8:])
        assert {one.transactional_id for one in store.admin.list_transactions()} == before
