"""A backup is one cut over partitions, groups and transactions: decided ones whole, the others aborted in the copy."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

import logstore
from logstore.coordination.transaction_manager import TransactionManager
from logstore.errors import DiskFullError
from logstore.log.inspection.verify import Totals
from logstore.log.inspection.verify_store import verify_store
from logstore.seams.clock import SystemClock
from logstore.seams.fs import OsFileSystem
from logstore.types import OffsetAndMetadata, TopicPartition
from tests.directory.test_backup import MOST_BESIDE

PLACE = TopicPartition("in", 0)


def faults(root: Path) -> list[object]:
    return list(verify_store(OsFileSystem(), str(root), SystemClock().boot_id(), Totals()))


def values(store: logstore.LogStore, topic: str = "out", isolation: str = "read_committed") -> list[bytes]:
    log = store.topic(topic)
    return [
        record.value
        for partition in range(log.partitions)
        for record in store.partition(topic, partition).records(0, isolation=isolation)
    ]


def open_again(root: Path, transactional_id: str = "t") -> list[bytes]:
    """What is committed in the copy after its producer was opened there and has sent one more record."""
    with logstore.open(root) as store:
        with (
            store.producer(transactional_id=transactional_id) as producer,
            producer.transaction() as transaction,
        ):
            transaction.send("out", b"later", partition=0)
        return values(store)


def make_topics(store: logstore.LogStore) -> None:
    store.create_topic("in")
    store.create_topic("out", partitions=3)
    store.partition("in", 0).append([(None, b"%d" % number) for number in range(5)])


def stable(store: logstore.LogStore, topic: str = "out") -> None:
    """No transaction keeps a reader of any partition waiting."""
    for partition in range(store.topic(topic).partitions):
        log = store.partition(topic, partition)
        assert log.last_stable_offset == log.high_watermark


def test_one_that_is_under_way_is_aborted_in_the_copy_and_goes_on_in_the_original(tmp_path: Path) -> None:
    with logstore.open(tmp_path / "store") as store:
        make_topics(store)
        store.partition("out", 1).append([(None, b"plain before")])
        with store.producer(transactional_id="t") as producer:
            with producer.transaction() as transaction:
                transaction.send("out", b"first", partition=0)
            with producer.transaction() as transaction:
                for partition in range(3):
                    transaction.send("out", b"second", partition=partition)
                transaction.commit_offsets("g", {PLACE: OffsetAndMetadata(5)})
                producer.flush()
                store.partition("out", 1).append([(None, b"plain behind")])
                report = store.backup(tmp_path / "copy")
        assert sorted(values(store)) == [b"first", b"plain before", b"plain behind", *[b"second"] * 3]
        assert store.committed_offsets("g") == {PLACE: OffsetAndMetadata(5)}
    assert (report.aborted_transactions, report.finished_transactions) == (1, 0)
    assert faults(tmp_path / "copy") == []
    with logstore.open(tmp_path / "copy", mode="r") as copy:
        assert sorted(values(copy)) == [b"first", b"plain before", b"plain behind"]
        assert values(copy, isolation="read_uncommitted").count(b"second") == 3
        assert copy.committed_offsets("g") == {}
        stable(copy)
    assert sorted(open_again(tmp_path / "copy")) == [b"first", b"later", b"plain before", b"plain behind"]
    assert faults(tmp_path / "copy") == []


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("marked", [0, 1])
def test_one_that_is_decided_ends_as_decided(
    tmp_path: Path, commit: bool, marked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The decision is durable, and none or some of the markers are."""

    def fail(self: TransactionManager, ended: object, **how: object) -> None:
        places = sorted(ended.places)[:marked]  # type: ignore[attr-defined]
        self.markers.write(ended._replace(places=tuple(places)), wait=True)  # type: ignore[attr-defined]
        raise DiskFullError("no room for markers")

    with logstore.open(tmp_path / "store") as store:
        make_topics(store)
        producer = store.producer(transactional_id="t")
        transaction = producer.transaction()
        transaction.__enter__()
        for partition in range(3):
            transaction.send("out", b"x", partition=partition)
        transaction.commit_offsets("g", {PLACE: OffsetAndMetadata(5)})
        producer.flush()
        with monkeypatch.context() as patch:
            patch.setattr(TransactionManager, "finish", fail)
            if commit:
                with pytest.raises(logstore.LogStoreError):
                    producer.commit()
            else:
                producer.abort()
            report = store.backup(tmp_path / "copy")
        producer.close()
    assert (report.aborted_transactions, report.finished_transactions) == (0, 1)
    assert faults(tmp_path / "copy") == []
    due = [b"x"] * 3 if commit else []
    with logstore.open(tmp_path / "copy", mode="r") as copy:
        assert values(copy) == due
        assert copy.committed_offsets("g") == ({PLACE: OffsetAndMetadata(5)} if commit else {})
        stable(copy)
    assert Counter(open_again(tmp_path / "copy")) == Counter([*due, b"later"])


def test_an_open_transaction_that_no_coordinator_knows_is_aborted_in_the_copy(tmp_path: Path) -> None:
    from logstore.format.batch import encode_batch

    batch = encode_batch(
        [(None, b"hanging")], now_ms=1, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True
    )
    with logstore.open(tmp_path / "store") as store:
        store.create_topic("out")
        log = store.partition("out", 0)
        log.append_batch(batch)
        log.append([(None, b"plain")])
        assert store.backup(tmp_path / "copy").aborted_transactions == 1
        assert values(store) == []
    assert faults(tmp_path / "copy") == []
    with logstore.open(tmp_path / "copy", mode="r") as copy:
        assert values(copy) == [b"plain"]
        stable(copy)


def test_the_index_of_aborted_transactions_comes_along_and_producers_are_remembered(tmp_path: Path) -> None:
    with logstore.open(tmp_path / "store") as store:
        store.create_topic("out", config={"segment.bytes": "2000"})
        with store.producer(transactional_id="t") as producer:
            for number in range(40):
                with producer.transaction() as transaction:
                    transaction.send("out", b"%d " % number + b"." * 100)
                producer.begin()
                producer.send("out", b"aborted " + b"." * 100)
                producer.flush()
                producer.abort()
        with store.producer(name="import") as named:
            named.send("out", b"named").result(60)
        due = values(store)
        report = store.backup(tmp_path / "beside")
    assert report.aborted_transactions == 0
    with logstore.open(tmp_path / "store", mode="r") as store:
        store.backup(tmp_path / "closed", link=False)
    for name in ("beside", "closed"):
        assert faults(tmp_path / name) == []
        with logstore.open(tmp_path / name, mode="r") as copy:
            assert values(copy) == due
        with logstore.open(tmp_path / name) as copy:
            assert values(copy) == due
            with copy.producer(name="import") as named:
                assert named.last_sequence("out", 0) == 1
                named.send("out", b"named again").result(60)
            assert values(copy) == [*due, b"named again"]
        assert faults(tmp_path / name) == []


def test_partitions_agree_with_each_other_beside_threads_of_this_process(tmp_path: Path) -> None:
    """Each number is written to one partition, and then, when that is durable, to the next."""
    with logstore.open(tmp_path / "store") as store:
        store.create_topic("chain", partitions=4)
        stop = threading.Event()

        def write(first: int) -> None:
            for number in range(first, MOST_BESIDE, 2):
                if stop.is_set():
                    return
                for partition in range(4):
                    store.partition("chain", partition).append([(None, b"%d" % number)])

        threads = [threading.Thread(target=write, args=(first,)) for first in (0, 1)]
        for thread in threads:
            thread.start()
        try:
            for number in range(6):
                store.backup(tmp_path / f"copy-{number}")
        finally:
            stop.set()
            for thread in threads:
                thread.join()
    for number in range(6):
        with logstore.open(tmp_path / f"copy-{number}", mode="r") as copy:
            found = [
                {record.value for record in copy.partition("chain", partition).records(0)}
                for partition in range(4)
            ]
        for earlier, later in pairwise(found):
            assert later <= earlier


_COPIER = """
import logstore, sys
with (
    logstore.open(sys.argv[1]) as store,
    store.producer(transactional_id="copier") as producer,
    store.consumer("in", group="copier", until_end=True) as consumer,
):
    print("ready", flush=True)
    while records := consumer.poll(max_records=20):
        with producer.transaction() as transaction:
            transaction.send_many("out", [(record.key, record.value) for record in records])
            transaction.send_offsets(consumer)
"""


def test_beside_a_copier_in_another_process(tmp_path: Path) -> None:
    """In each copy the output is what was committed, and the copier run to its end there has each input once."""
    rows = 1200
    with logstore.open(tmp_path / "store") as store:
        store.create_topic("in"), store.create_topic("out", partitions=3)
        store.partition("in", 0).append([(b"%d" % number, b"") for number in range(rows)])
    copier = subprocess.Popen(
        [sys.executable, "-c", _COPIER, str(tmp_path / "store")], stdout=subprocess.PIPE, text=True
    )
    copies: list[Path] = []
    try:
        assert copier.stdout is not None
        assert copier.stdout.readline() == "ready\n"
        with logstore.open(tmp_path / "store", mode="r") as store:
            while copier.poll() is None and len(copies) < 4:
                copies.append(tmp_path / f"copy-{len(copies)}")
                store.backup(copies[-1])
    finally:
        copier.kill()
        copier.communicate()
    for copy in copies:
        assert faults(copy) == []
        with logstore.open(copy, mode="r") as store:
            committed = store.committed_offsets("copier").get(PLACE, OffsetAndMetadata(0)).offset
            assert len(values(store)) == committed
    for copy in copies[1:2]:
        again = subprocess.run(
            [sys.executable, "-c", _COPIER, str(copy)], capture_output=True, text=True, timeout=60
        )
        assert (again.returncode, again.stderr) == (0, "")
        with logstore.open(copy, mode="r") as store:
            keys = Counter(record.key for n in range(3) for record in store.partition("out", n).records(0))
        assert keys == Counter(b"%d" % number for number in range(rows))
