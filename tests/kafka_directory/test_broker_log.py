"""A broker's partition as its files change: torn ends, swaps cut short, old formats, remote parts."""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

import logstore
from logstore.errors import (
    CorruptBatchError,
    OffsetOutOfRangeError,
    RemoteSegmentError,
    UnknownPartitionError,
    UnsupportedMagicError,
)
from logstore.format.batch import encode_batch
from logstore.kafka_directory.broker_segments import BrokerListing
from logstore.log.inspection.verify import Totals
from logstore.log.inspection.verify_store import verify_store
from logstore.partition.partition_log import PartitionLog
from logstore.seams.fs import OsFileSystem
from tests.golden_broker import expected, row_of, unpack


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return unpack("killed", tmp_path)


@pytest.fixture
def store(root: Path) -> Iterator[logstore.LogStore]:
    with logstore.open(root, mode="r") as opened:
        yield opened


def offsets(log: PartitionLog, start: int = 0) -> list[int]:
    return [record.offset for record in log.records(start, isolation="read_uncommitted")]


def segments(root: Path, partition: str) -> list[Path]:
    return sorted((root / partition).glob("*.log"))


def note(root: Path, name: str, place: str, offset: int | None) -> None:
    """One partition's line of a checkpoint, replaced as the broker does it."""
    lines = [line for line in (root / name).read_text().splitlines()[2:] if not line.startswith(f"{place} ")]
    if offset is not None:
        lines.append(f"{place} {offset}")
    (root / f"{name}.tmp").write_text("\n".join(["0", str(len(lines)), *lines, ""]))
    os.replace(root / f"{name}.tmp", root / name)


@pytest.mark.parametrize("junk", [b"\0" * 300, b"half a batch", None])
def test_what_recovery_would_cut_is_not_shown(
    root: Path, store: logstore.LogStore, junk: bytes | None
) -> None:
    last = segments(root, "epochs-0")[-1]
    whole = last.read_bytes()
    with last.open("ab") as file:
        file.write(whole[:-7] if junk is None else junk)
    log = store.partition("epochs", 0)
    assert log.log_end_offset == 52
    assert offsets(log) == list(range(52))


def test_a_bad_batch_above_the_recovery_point_ends_the_log_there(
    root: Path, store: logstore.LogStore
) -> None:
    note(root, "recovery-point-offset-checkpoint", "epochs 0", 8)
    first, second = segments(root, "epochs-0")
    content = bytearray(first.read_bytes())
    content[-1] ^= 1  # in the last batch: four records
    first.write_bytes(content)
    end = int(second.stem) - 4
    log = store.partition("epochs", 0)
    assert log.log_end_offset == end
    assert offsets(log) == list(range(end))


def test_a_bad_batch_below_the_recovery_point_is_damage(root: Path, store: logstore.LogStore) -> None:
    note(root, "recovery-point-offset-checkpoint", "epochs 0", 52)
    content = bytearray((path := segments(root, "epochs-0")[0]).read_bytes())
    content[80] ^= 1
    path.write_bytes(content)
    log = store.partition("epochs", 0)
    assert log.log_end_offset == 52
    with pytest.raises(CorruptBatchError):
        offsets(log)


def test_the_log_is_followed_while_the_broker_appends_and_rolls(root: Path, store: logstore.LogStore) -> None:
    _, second = segments(root, "epochs-0")
    batches = second.read_bytes()
    hidden = second.rename(root / "second")
    log = store.partition("epochs", 0)
    assert log.log_end_offset == int(second.stem)
    with second.open("wb") as file:
        for end in (100, len(batches) // 2, len(batches)):
            file.write(batches[file.tell() : end])
            file.flush()
            shown = log.log_end_offset
            assert offsets(log) == list(range(shown))
    assert shown == 52
    assert hidden.exists()


def test_a_compaction_under_a_reader(root: Path, store: logstore.LogStore) -> None:
    """Two segments become one, in the steps of a broker's cleaner; a reader sees all at each step."""
    first, second = segments(root, "epochs-0")
    log = store.partition("epochs", 0)
    due = offsets(log)
    folder = root / "epochs-0"
    swap = folder / f"{first.name}.swap"
    cleaned = folder / f"{first.name}.cleaned"
    cleaned.write_bytes(first.read_bytes() + second.read_bytes())
    active = folder / f"{52:020d}.log"
    active.write_bytes(b"")
    assert offsets(log) == due
    cleaned.rename(swap)
    assert offsets(log) == due
    second.rename(f"{second}.deleted")
    assert offsets(log) == due
    first.rename(f"{first}.deleted")
    assert offsets(log) == due
    with logstore.open(root, mode="r") as other:
        assert offsets(other.partition("epochs", 0)) == due
    swap.rename(first)
    assert offsets(log) == due
    assert offsets(log, int(second.stem) + 1) == due[int(second.stem) + 1 :]


def test_a_listing_by_the_cleaner_s_rule() -> None:
    def names(*parts: str) -> list[str]:
        return [
            f"{int(base):020d}.log{suffix}" for base, _, suffix in (part.partition("+") for part in parts)
        ]

    plain = BrokerListing.of(names("0", "15", "53"))
    assert plain.counted(lambda _: -1) == [(0, False), (15, False), (53, False)]
    swap = BrokerListing.of(names("0+.swap", "0+.deleted", "15", "53"))
    assert swap.counted(lambda _: 53) == [(0, True), (53, False)]
    two = BrokerListing.of(names("0+.swap", "0", "15", "53+.swap", "53", "70", "90"))
    assert two.counted({0: 53, 53: 90}.__getitem__) == [(0, True), (53, True), (90, False)]
    unfinished = BrokerListing.of(names("0+.swap", "0+.cleaned", "0", "15", "53"))
    assert unfinished.counted(lambda _: 53) == [(0, False), (15, False), (53, False)]
    half = BrokerListing.of(names("0+.swap", "40+.swap", "30+.cleaned", "0", "15", "53"))
    assert half.counted(lambda _: 15) == [(0, True), (15, False), (53, False)]
    assert BrokerListing.of(["9" * 20 + ".log", "x.log"]).bases == []


@pytest.mark.parametrize("kind", ["log", "index", "timeindex", "txnindex"])
def test_a_swap_counts_only_once_all_its_files_were_renamed(kind: str) -> None:
    """A kill between the renames of `.log.cleaned` and `.index.cleaned`: the broker drops the `.swap`."""
    names = [f"{0:020d}.log", f"{0:020d}.log.swap", f"{15:020d}.log"]
    assert BrokerListing.of([*names, f"{0:020d}.{kind}.cleaned"]).counted(lambda _: 53) == [
        (0, False),
        (15, False),
    ]
    later = BrokerListing.of([*names, f"{1:020d}.{kind}.cleaned"])
    assert later.counted(lambda _: 53) == [(0, True)]
    assert later.refused == []


def test_a_swap_that_lacks_its_index_hides_nothing(root: Path, store: logstore.LogStore) -> None:
    first, second = segments(root, "epochs-0")
    log = store.partition("epochs", 0)
    due = offsets(log)
    (root / "epochs-0" / f"{first.name}.swap").write_bytes(
        second.read_bytes()[: len(second.read_bytes()) // 2]
    )
    (root / "epochs-0" / f"{0:020d}.index.cleaned").touch()
    assert offsets(log) == due
    found = verify_store(OsFileSystem(), str(root), "boot", Totals(), topics=["epochs"])
    told = [fault for fault in found if fault.path.endswith(".log.swap")]
    assert all(fault.warning for fault in told)
    assert any(fault.message.endswith("the broker's next start drops it") for fault in told), told


@pytest.mark.parametrize("cut", ["first", "second"])
def test_a_log_that_recovery_cuts_below_its_start_is_empty_there(tmp_path: Path, cut: str) -> None:
    """DeleteRecords up to 43, then damage before that offset: the broker starts an empty log at 43."""
    root = unpack("clean", tmp_path)
    (root / ".kafka_cleanshutdown").unlink()
    note(root, "recovery-point-offset-checkpoint", "trimmed 0", None)
    old, young = segments(root, "trimmed-0")
    whole = old.read_bytes()
    with logstore.open(root, mode="r") as store:
        log = store.partition("trimmed", 0)
        before = offsets(log, 43)
        assert before[0] == 43
        os.truncate(old, 100 if cut == "first" else len(whole))
        if cut == "second":  # all that is left ends before the start
            young.unlink()
            note(root, "log-start-offset-checkpoint", "trimmed 0", 70)
        start = 43 if cut == "first" else 70
        for shown in (log, logstore.open(root, mode="r").partition("trimmed", 0)):
            assert shown.bounds() == (start, start, start, start, -1)
            assert offsets(shown, start) == []
            assert list(shown.records(start, reverse=True)) == []
            assert (shown.describe().segments, shown.describe().size_bytes) == (0, 0)
            assert shown.offset_for_timestamp(0) is None
            with pytest.raises(OffsetOutOfRangeError):
                shown.records(start - 1)
        # The broker starts: it removes what is there, and goes on at the start.
        for path in segments(root, "trimmed-0"):
            path.unlink()
        batch = bytearray(encode_batch([(b"k", b"v")], now_ms=1))
        batch[:8] = start.to_bytes(8, "big")
        (root / "trimmed-0" / f"{start:020d}.log").write_bytes(batch)
        assert offsets(log, start) == [start]
        assert log.log_end_offset == start + 1


def test_a_swap_that_cannot_be_read_is_named(root: Path, store: logstore.LogStore) -> None:
    (root / "epochs-0" / f"{0:020d}.log.swap").write_bytes(b"x" * 100)
    with pytest.raises(CorruptBatchError, match="which segments it replaces is not known"):
        store.partition("epochs", 0).bounds()


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("number", [0, 2])
def test_old_messages_are_named_with_offset_and_place(
    root: Path, store: logstore.LogStore, magic: int, number: int
) -> None:
    note(root, "recovery-point-offset-checkpoint", "plain 0", 48)
    path = segments(root, "plain-0")[0]
    content = path.read_bytes()
    position = offset = 0
    for _ in range(number):
        offset = int.from_bytes(content[position : position + 8], "big") + 4
        position += int.from_bytes(content[position + 8 : position + 12], "big") + 12
    size = int.from_bytes(content[position + 8 : position + 12], "big") + 12
    body = bytes([magic, 0]) + (bytes(8) if magic else b"") + struct.pack(">i", -1)
    value = b"v" * (size - 12 - 4 - len(body) - 4)
    old = struct.pack(">qii", offset + 3, size - 12, 0) + body + struct.pack(">i", len(value)) + value
    assert len(old) == size
    path.write_bytes(content[:position] + old + content[position + size :])
    log = store.partition("plain", 0)
    records = log.records(0)
    assert [next(records).offset for _ in range(offset)] == list(range(offset))
    named = f"plain-0/.*log at byte {position}: offset {offset + 3} .*magic {magic}"
    with pytest.raises(UnsupportedMagicError, match=named):
        next(records)
    if number:
        assert [row_of(r) for r in log.records(0, 8)] == expected("killed")["plain", 0].records[:8]
    assert offsets(log, offset + 4) == list(range(offset + 4, 48))


def test_old_messages_in_the_unflushed_tail_are_not_taken_for_a_torn_end(
    root: Path, store: logstore.LogStore
) -> None:
    old = struct.pack(">qii", 52, 60, 0) + bytes(60 - 4)
    with segments(root, "epochs-0")[-1].open("ab") as file:
        file.write(old)
    with pytest.raises(
        UnsupportedMagicError, match=r"epochs-0/.*: offset 52 is in the message format of magic 0"
    ):
        store.partition("epochs", 0).bounds()


def test_offsets_in_remote_storage_are_named_and_the_rest_is_read(
    root: Path, store: logstore.LogStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = int(segments(root, "epochs-0")[1].stem)
    for path in (root / "epochs-0").glob(f"{0:020d}.*"):
        path.unlink()
    broker = store._context.broker
    assert broker is not None
    log = store.partition("epochs", 0)
    assert log.log_start_offset == first  # retention has been there, the checkpoint does not say so yet
    with pytest.raises(OffsetOutOfRangeError):
        log.read(0)
    monkeypatch.setattr(broker, "_remote", frozenset({"epochs"}))
    assert log.log_start_offset == 0
    with pytest.raises(
        RemoteSegmentError, match=f"offsets 3 to {first - 1} lie in the cluster's remote"
    ) as caught:
        log.read(3)
    assert caught.value.local_start_offset == first
    assert offsets(log, first) == list(range(first, 52))


def test_a_partition_that_another_directory_holds(root: Path, store: logstore.LogStore) -> None:
    shutil.rmtree(root / "codecs-1")
    with pytest.raises(UnknownPartitionError, match=r"no folder codecs-1.*here: 0, 2, 3, 4"):
        store.partition("codecs", 1).bounds()
    assert [row.partition for row in store.describe_topic("codecs").partitions] == [0, 2, 3, 4]
    with store.consumer([("codecs", 0), ("codecs", 2)], until_end=True) as consumer:
        assert sum(1 for _ in consumer) == 120
    with pytest.raises(UnknownPartitionError):
        store.consumer("codecs", until_end=True)


def test_indexes_may_be_missing_or_garbage(root: Path, store: logstore.LogStore) -> None:
    for number, path in enumerate(sorted((root / "codecs-3").glob("*index"))):
        if number % 2:
            path.unlink()
        else:
            path.write_bytes(bytes(range(256)))
    log = store.partition("codecs", 3)
    for start in range(60):
        assert offsets(log, start) == list(range(start, 60))


def test_times_and_reverse_reads(store: logstore.LogStore) -> None:
    for topic in ("codecs", "squeezed", "stamped", "epochs"):
        log = store.partition(topic, 0)
        seen = expected("killed")[topic, 0].records
        backwards = log.records(log.log_start_offset, isolation="read_uncommitted", reverse=True)
        assert [row_of(record) for record in backwards] == seen[::-1]
        for time_ms in {row[1] for row in seen}:
            first = next(row[0] for row in seen if row[1] >= time_ms)
            assert log.offset_for_timestamp(time_ms) == first
