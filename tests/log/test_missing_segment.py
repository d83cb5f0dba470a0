"""A segment between two others is gone from the disk: whatever walks the segments says so, and skips nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import logstore
from logstore.errors import CorruptBatchError, DamagedStoreError
from logstore.log.inspection.verify import Totals
from logstore.log.inspection.verify_store import verify_store
from logstore.seams.fs import OsFileSystem
from logstore.store import LogStore

RECORDS = 60
PARTITION = "t-0"


def _fill(folder: Path, policy: str) -> tuple[int, int]:
    """A log of several segments, of which one in the middle is removed; its offsets, the last one exclusive."""
    with logstore.open(folder) as store:
        store.create_topic("t", config={"segment.bytes": "2000", "cleanup.policy": policy})
        log = store.partition("t", 0)
        for number in range(RECORDS):
            log.append([(b"k%d" % (number % 7), b"v" * 200)], acks=1)
        spans = [(one.base_offset, one.next_offset) for one in log.segments()]
    first, end = spans[len(spans) // 2]
    for path in (folder / PARTITION).glob(f"{first:020d}.*"):
        path.unlink()
    return first, end


@pytest.fixture(params=["rw", "r"])
def holed(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[LogStore, int]]:
    first, _ = _fill(tmp_path / "store", "delete")
    with logstore.open(tmp_path / "store", request.param) as store:
        yield store, first


READS: dict[str, Callable[[LogStore], object]] = {
    "records": lambda store: list(store.partition("t", 0).records(0)),
    "reverse": lambda store: list(store.partition("t", 0).records(0, reverse=True)),
    "arrow": lambda store: store.partition("t", 0).to_arrow(0),
    "first at a time": lambda store: store.partition("t", 0).offset_for_timestamp(2**60),
    "newest time": lambda store: store.partition("t", 0).record_of_max_timestamp(),
}


@pytest.mark.parametrize("name", READS)
def test_reads_name_what_is_missing(holed: tuple[LogStore, int], name: str) -> None:
    store, first = holed
    with pytest.raises(CorruptBatchError, match=f"{first}|up to {first - 1} "):
        READS[name](store)


def test_what_lies_before_it_is_read(holed: tuple[LogStore, int]) -> None:
    store, first = holed
    log = store.partition("t", 0)
    assert [one.offset for one in log.records(0, first)] == list(range(first))
    assert log.offset_for_timestamp(0) == 0


def test_no_backup_is_made_of_it(holed: tuple[LogStore, int], tmp_path: Path) -> None:
    store, first = holed
    with pytest.raises(DamagedStoreError, match=f"ends at offset {first}"):
        store.backup(tmp_path / "copy")


@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_it_is_a_fault(tmp_path: Path, policy: str) -> None:
    first, end = _fill(tmp_path, policy)
    faults = verify_store(OsFileSystem(), str(tmp_path), "", Totals())
    assert [(fault.kind, fault.message) for fault in faults if not fault.warning] == [
        ("gap", f"offsets {first} to {end - 1} are missing")
    ]


def test_nothing_is_compacted_over_it(tmp_path: Path) -> None:
    first, _ = _fill(tmp_path, "compact")
    with logstore.open(tmp_path) as store, pytest.raises(CorruptBatchError, match=f"offsets {first} to"):
        store.admin.compact("t")
