"""What a salvaged copy knows of producers: aborted records stay hidden, ids and names go on where they were."""

from __future__ import annotations

import logstore
from logstore.format.batch import encode_batch
from logstore.log.inspection.verify import Fault, Totals
from logstore.log.inspection.verify_store import verify_store
from logstore.log.recovery.salvage import SalvageReport, salvage
from logstore.seams.clock import ManualClock
from logstore.seams.fs import replace_file
from logstore.seams.memory_fs import MemoryFileSystem


def opened(fs: MemoryFileSystem, root: str) -> logstore.LogStore:
    return logstore.LogStore(root, fs=fs, clock=ManualClock(), threads=False)


def saved(fs: MemoryFileSystem) -> SalvageReport:
    return salvage(fs, "/s", "/saved", ManualClock(), random_bytes=bytes)


def faults(fs: MemoryFileSystem, root: str) -> list[Fault]:
    return list(verify_store(fs, root, "boot-0", Totals()))


def transactional(value: bytes) -> bytes:
    return encode_batch(
        [(b"k", value)], now_ms=1, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True
    )


def values(store: logstore.LogStore) -> list[bytes | None]:
    return [record.value for record in store.partition("t", 0).records(0)]


def test_aborted_records_stay_hidden_also_from_the_next_owner() -> None:
    """The copy once had no transaction index: the first owner's snapshot then made them committed."""
    fs = MemoryFileSystem()
    with opened(fs, "/s") as store:
        store.create_topic("t", config={"segment.bytes": "1024"})
        log = store.partition("t", 0)
        log.append_batch(transactional(b"void"))
        log.end_transaction(7, 0, commit=False)
        for _ in range(20):
            log.append([(b"k", b"x" * 100)])
    assert saved(fs).notes == []
    for count in (21, 22):
        with opened(fs, "/saved") as store:
            store.partition("t", 0).append([(b"k", b"more")])
            assert b"void" not in values(store)
            assert len(values(store)) == count
    assert faults(fs, "/saved") == []


def test_verify_tells_a_transaction_index_that_is_gone_or_cut() -> None:
    fs = MemoryFileSystem()
    with opened(fs, "/s") as store:
        store.create_topic("t")
        store.partition("t", 0).append_batch(transactional(b"void"))
        store.partition("t", 0).end_transaction(7, 0, commit=False)
        store.partition("t", 0).append([(b"k", b"v")])
    path = "/s/t-0/00000000000000000001.txnindex"
    assert faults(fs, "/s") == []
    replace_file(fs, path, bytes(33))
    (cut,) = faults(fs, "/s")
    fs.remove(path)
    (gone,) = faults(fs, "/s")
    assert (
        (cut.path, cut.kind, cut.warning)
        == (gone.path, gone.kind, gone.warning)
        == (path, "transactions", False)
    )
    assert "no whole number of rows" in cut.message
    assert "aborted at offset 1: readers take its records from offset 0 on for committed" in gone.message


def test_a_transaction_without_its_end_is_noted() -> None:
    fs = MemoryFileSystem()
    with opened(fs, "/s") as store:
        store.create_topic("t")
        store.partition("t", 0).append([(b"k", b"v")])
        store.partition("t", 0).append_batch(transactional(b"open"))
    (note,) = saved(fs).notes
    assert "t-0: a transaction from offset 1 on has no end in the copy" in note


def send(store: logstore.LogStore, *sent: bytes, name: str | None = None) -> None:
    with store.producer(name=name) as producer:
        for value in sent:
            producer.send("t", value, timestamp_ms=1).result(timeout_s=60)


def test_names_go_along_and_no_id_is_given_twice() -> None:
    """With an id of an earlier producer, new records were once taken for its old ones and dropped."""
    for damaged in (False, True):
        fs = MemoryFileSystem()
        with opened(fs, "/s") as store:
            store.create_topic("t")
            send(store, b"0", b"1", b"2", name="import")
            send(store, b"3", b"4")
        if damaged:
            replace_file(fs, "/s/topics.json", b"garbage")
        report = saved(fs)
        with opened(fs, "/saved") as store:
            assert [one.name for one in store.admin.list_producers()] == ([] if damaged else ["import"])
            send(store, b"5", b"6")
            send(store, b"7", b"8")
            send(store, b"9", name="import")
            assert values(store) == [b"%d" % number for number in range(10)]
        assert any("producers have lost their names" in note for note in report.notes) is damaged
