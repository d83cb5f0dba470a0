"""Erasure of keys: what goes, what stays where it was, and a proof that can fail."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from logstore.errors import (
    ErasureIncompleteError,
    InvalidArgumentError,
    ReadOnlyStoreError,
    StorageError,
    TopicLockedError,
)
from logstore.format.batch import encode_batch
from logstore.log.cleaning.key_search import search_keys
from logstore.seams.fs import read_file, replace_file
from logstore.store import LogStore
from tests.engines import PlainCleaning
from tests.upkeep.test_cleaner import Desk

DELETE = {"cleanup.policy": "delete", "file.delete.delay.ms": "600000"}


def filled(desk: Desk, config: dict[str, str] = DELETE, partitions: int = 1) -> LogStore:
    store = desk.open()
    store._cleaning.kit.make = PlainCleaning
    store.create_topic("t", partitions, {"segment.bytes": "2000", **config})
    for number in range(60 * partitions):
        store.partition("t", number % partitions).append([(b"k%d" % (number % 7), b"x" * 97)])
    return store


def keys_left(desk: Desk, partition: int = 0) -> set[bytes | None]:
    from logstore.format.batch import decode_batches

    folder = f"/s/t-{partition}"
    return {
        record.key
        for name in desk.fs.listdir(folder)
        if name.endswith(".log")
        for record in decode_batches(read_file(desk.fs, f"{folder}/{name}"), "t", partition)
    }


def test_each_partition_is_told_of_without_the_keys(caplog: pytest.LogCaptureFixture) -> None:
    desk = Desk()
    with filled(desk, partitions=2) as store, caplog.at_level(logging.INFO, "logstore.upkeep.erasure"):
        report = store.admin.erase_keys("t", [b"k3"])
        told = [record.getMessage() for record in caplog.records if record.levelno == logging.INFO]
        assert len(told) == 2
        for row, line in zip(report.partitions, told, strict=True):
            assert line.startswith(f"t-{row.partition}: erasure of 1 keys below offset 60 removed ")
            assert f"removed {row.records_removed} records: {row.segments_rewritten} segments" in line
            assert "k3" not in line, "what is erased must not live on in a log file"


def test_every_record_of_a_key_goes_and_the_others_keep_their_offsets() -> None:
    desk = Desk()
    with filled(desk) as store:
        log = store._registry.get("t").log(0)
        segments = len(log.segments)
        report = store.admin.erase_keys("t", [b"k3", b"nobody"])
        assert report.proven
        assert (report.keys, report.records_removed) == (2, 9)
        (row,) = report.partitions
        assert row.segments_rewritten == segments
        assert row.scanned_bytes > 0
        assert keys_left(desk) == {b"k0", b"k1", b"k2", b"k4", b"k5", b"k6"}
        assert store.partition("t", 0).log_end_offset == 60
        assert store.partition("t", 0).append([(b"k3", b"new")]).offset == 60, "what comes later is not meant"
        assert log.tail.read(59, 100, 60) is None


def test_where_no_such_key_is_nothing_is_written() -> None:
    desk = Desk()
    with filled(desk) as store:
        names = desk.fs.listdir("/s/t-0")
        report = store.admin.erase_keys("t", [b"nobody"])
        assert (report.records_removed, report.partitions[0].segments_rewritten) == (0, 0)
        assert desk.fs.listdir("/s/t-0") == names


def test_partitions_without_records_are_passed_over() -> None:
    desk = Desk()
    with filled(desk, partitions=2) as store:
        store.admin.add_partitions("t", 5, allow_keyed=True)
        report = store.admin.erase_keys("t", [b"k1"])
        assert [row.partition for row in report.partitions] == [0, 1]
        assert b"k1" not in keys_left(desk, 0) | keys_left(desk, 1)


def test_retired_files_go_at_once() -> None:
    desk = Desk()
    with filled(desk, DELETE | {"retention.bytes": "3000"}) as store:
        store.step()
        retired = [name for name in desk.fs.listdir("/s/t-0") if name.endswith(".deleted")]
        assert retired
        report = store.admin.erase_keys("t", [b"k1"])
        assert sorted(report.partitions[0].removed_files) == sorted(retired)
        assert not any(name.endswith(".deleted") for name in desk.fs.listdir("/s/t-0"))
        desk.run(store, 700_000)  # the removal that was planned finds nothing, and that is fine


def cut(desk: Desk, content: bytes) -> str:
    name = f"{0:020d}.log.cut-5"
    replace_file(desk.fs, f"/s/t-0/{name}", content)
    return name


BATCH = {codec: encode_batch([(b"secret", b"v" * 200)], now_ms=5, codec=codec) for codec in ("none", "gzip")}
OTHER = {codec: encode_batch([(b"other", b"v" * 200)], now_ms=5, codec=codec) for codec in ("none", "gzip")}


@pytest.mark.parametrize(
    ("content", "goes"),
    [
        pytest.param(BATCH["none"], True, id="a record"),
        pytest.param(BATCH["gzip"], True, id="a compressed record"),
        pytest.param(BATCH["none"][:90], True, id="a torn record"),
        pytest.param(b"?" * 10 + b"secret", True, id="plain bytes"),
        pytest.param(OTHER["gzip"][:-3], True, id="torn and compressed: who knows"),
        pytest.param(b"rubbish" * 20, True, id="rubbish: who knows"),
        pytest.param(OTHER["none"] + OTHER["gzip"], False, id="others' records"),
        pytest.param(OTHER["none"][:-3], False, id="another's torn record"),
        pytest.param(OTHER["none"] + b"\0" * 99, False, id="zeros at the end"),
    ],
)
def test_an_end_that_recovery_cut_off_goes_if_it_may_hold_a_key(
    content: bytes, goes: bool, caplog: pytest.LogCaptureFixture
) -> None:
    desk = Desk()
    with filled(desk) as store, caplog.at_level(logging.WARNING, "logstore.upkeep.erasure"):
        name = cut(desk, content)
        report = store.admin.erase_keys("t", [b"secret"])
        assert report.partitions[0].removed_files == ((name,) if goes else ())
        assert (name in desk.fs.listdir("/s/t-0")) is not goes
        assert (name in caplog.text) is goes


def test_a_key_that_stays_is_an_error_with_its_place() -> None:
    desk = Desk()

    class Forgetful(PlainCleaning):
        def _keeps(self, record: Any) -> bool:
            return record.offset == 17 or super()._keeps(record)

    with filled(desk) as store:
        store._cleaning.kit.make = Forgetful
        with pytest.raises(ErasureIncompleteError, match=r"t-0: /s/t-0 still has \d{20}\.log \(1 records\)"):
            store.admin.erase_keys("t", [b"k3"])
        store._cleaning.kit.make = PlainCleaning
        assert store.admin.erase_keys("t", [b"k3"]).records_removed == 1, "it may be asked again"


def test_damage_cannot_be_proved_empty() -> None:
    desk = Desk()
    with filled(desk) as store:
        path = store._registry.get("t").log(0).segments.segments[0].path()
        data = bytearray(read_file(desk.fs, path))
        data[400] ^= 1
        replace_file(desk.fs, path, bytes(data))
        with pytest.raises(ErasureIncompleteError, match="at byte"):
            store.admin.erase_keys("t", [b"nobody"])


def test_a_failing_engine_is_told_and_nothing_claimed() -> None:
    desk = Desk()

    class Failing(PlainCleaning):
        fail = StorageError("no disk")

    with filled(desk) as store:
        store._cleaning.kit.make = Failing
        with pytest.raises(StorageError, match="no disk"):
            store.admin.erase_keys("t", [b"k3"])
        assert b"k3" in keys_left(desk)


@pytest.mark.parametrize("keys", [b"k", "k", [], ["k"], 5, None, [b"k", 7]])
def test_keys_are_checked(keys: Any) -> None:
    desk = Desk()
    with filled(desk) as store, pytest.raises(InvalidArgumentError):
        store.admin.erase_keys("t", keys)


def test_who_may_not() -> None:
    desk = Desk()
    with filled(desk) as store, desk.open(lock_timeout_s=0.0) as other, desk.open("r") as reader:
        with pytest.raises(TopicLockedError):
            other.admin.erase_keys("t", [b"k1"])
        with pytest.raises(ReadOnlyStoreError):
            reader.admin.erase_keys("t", [b"k1"])
        with store.consumer("t", group="g") as consumer:
            consumer.poll(max_records=1)
            consumer.commit()
        with pytest.raises(InvalidArgumentError, match="internal"):
            store.admin.erase_keys("__consumer_offsets", [b"k1"])


def test_a_search_counts_below_its_end_alone() -> None:
    desk = Desk()
    with filled(desk):
        found = search_keys(desk.fs, "/s/t-0", [b"k0", b"k1"], 9)
        assert (found.records, found.remains != "") == (4, True)
        assert search_keys(desk.fs, "/s/t-0", [b"nobody"], 60).remains == ""
