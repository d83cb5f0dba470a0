"""Staging files: what was written comes back or is refused, whatever happens to the bytes and the machine."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logstore.errors import DamagedStoreError, DiskFullError, InvalidArgumentError
from logstore.seams.clock import ManualClock, SystemClock
from logstore.seams.fs import write_all
from logstore.seams.memory_fs import MemoryFileSystem
from spark_connector.writing.batch_marks import Content
from spark_connector.writing.staging import KEPT_MS, Attempt, Receipt, StagedBatch, Staging, attempt_of

ROOT = "/store"
BATCHES = [
    StagedBatch("flights", 2, b"first"),
    StagedBatch("späte", 0, b""),
    StagedBatch("flights", 1, b"x" * 999),
]


def made(fs: MemoryFileSystem) -> Staging:
    if ROOT[1:] not in fs.listdir("/"):
        fs.mkdir(ROOT)
        fs.sync_dir("/")
    return Staging(ROOT, fs=fs)


def stage(staging: Staging, batches: list[StagedBatch], attempt: Attempt | None = None) -> Receipt:
    file = staging.create(Attempt("q-1", 3, 0, 7) if attempt is None else attempt)
    for batch in batches:
        file.append(batch)
    return file.finish(Content(3, 7))


def rewrite(fs: MemoryFileSystem, path: str, content: bytes) -> None:
    fs.remove(path)
    file = fs.open(path, "create")
    write_all(file, [content], 0)
    file.close()


def content_of(fs: MemoryFileSystem, path: str) -> bytes:
    file = fs.open(path, "r")
    try:
        return file.pread(file.size(), 0)
    finally:
        file.close()


def test_what_was_staged_comes_back_in_order() -> None:
    staging = made(MemoryFileSystem())
    receipt = stage(staging, BATCHES)
    assert list(staging.read(receipt)) == BATCHES
    assert receipt.topics == ("flights", "späte")
    assert attempt_of(receipt.name) == Attempt("q-1", 3, 0, 7)


@settings(derandomize=True, deadline=None, max_examples=60)
@given(
    st.lists(
        st.builds(
            StagedBatch, st.text(min_size=1, max_size=9), st.integers(0, 2**31 - 1), st.binary(max_size=200)
        ),
        min_size=1,
        max_size=5,
    )
)
def test_any_batches_come_back(batches: list[StagedBatch]) -> None:
    staging = made(MemoryFileSystem())
    assert list(staging.read(stage(staging, batches))) == batches


def test_each_flipped_byte_is_found_before_the_end() -> None:
    fs = MemoryFileSystem()
    staging = made(fs)
    receipt = stage(staging, BATCHES[:2])
    path = f"{staging.folder}/{receipt.name}"
    whole = content_of(fs, path)
    for at in range(len(whole)):
        rewrite(fs, path, whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :])
        with pytest.raises(DamagedStoreError, match="staging file"):
            list(staging.read(receipt))
    rewrite(fs, path, whole)
    assert list(staging.read(receipt)) == BATCHES[:2]


def test_a_file_that_is_short_long_or_gone_is_refused_at_once() -> None:
    fs = MemoryFileSystem()
    staging = made(fs)
    receipt = stage(staging, BATCHES)
    path = f"{staging.folder}/{receipt.name}"
    whole = content_of(fs, path)
    for content in (whole[:-1], whole + b"x", b""):
        rewrite(fs, path, content)
        with pytest.raises(DamagedStoreError, match="bytes, and had"):
            staging.check(receipt)
    fs.remove(path)
    with pytest.raises(DamagedStoreError, match="is gone"):
        list(staging.read(receipt))


def test_a_file_that_a_crash_of_the_machine_took_is_missed() -> None:
    """Nothing is synced: what a receipt names is as it was, or refused."""
    fs = MemoryFileSystem()
    receipt = stage(made(fs), BATCHES)
    outcomes = set()
    for after in fs.crash_states():
        try:
            outcomes.add(list(made(after).read(receipt)) == BATCHES)
        except DamagedStoreError:
            outcomes.add(False)
    assert outcomes == {True, False}


def test_a_full_disk_is_named_and_the_file_discarded() -> None:
    fs = MemoryFileSystem(capacity_bytes=600)
    staging = made(fs)
    file = staging.create(Attempt("q", 0, 0, 0))
    file.append(BATCHES[0])
    with pytest.raises(DiskFullError):
        file.append(BATCHES[2])
    file.append(BATCHES[1])  # it goes on where it was
    assert list(staging.read(file.finish(Content(3, 7)))) == BATCHES[:2]
    other = staging.create(Attempt("q", 0, 1, 1))
    other.discard()
    assert len(fs.listdir(staging.folder)) == 1


def test_attempts_of_one_task_have_files_of_their_own() -> None:
    staging = made(MemoryFileSystem())
    first, second = stage(staging, BATCHES[:1]), stage(staging, BATCHES[1:])
    assert first.name != second.name
    assert list(staging.read(first)) == BATCHES[:1]


def test_a_sweep_takes_what_is_done_and_what_is_old(tmp_path: Path) -> None:
    clock = SystemClock()
    real = Staging(str(tmp_path))
    assert real.sweep("q", 9) == 0  # no folder yet
    keep = stage(real, BATCHES, Attempt("q", 5, 0, 0))
    other = stage(real, BATCHES, Attempt("other", 1, 0, 0))
    for batch_id, attempt in ((3, 0), (4, 1), (4, 2)):
        stage(real, BATCHES, Attempt("q", batch_id, 0, attempt))
    (tmp_path / ".staging" / "notes.txt").write_text("not ours")
    assert real.sweep("q", 4) == 3
    assert sorted(path.name for path in (tmp_path / ".staging").iterdir()) == sorted(
        [keep.name, other.name, "notes.txt"]
    )
    assert (
        Staging(str(tmp_path), clock=ManualClock(clock.wall_ms() + KEPT_MS - 60_000)).sweep("nobody", 0) == 0
    )
    assert (
        Staging(str(tmp_path), clock=ManualClock(clock.wall_ms() + KEPT_MS + 60_000)).sweep("nobody", 0) == 2
    )
    assert [path.name for path in (tmp_path / ".staging").iterdir()] == ["notes.txt"]


@pytest.mark.parametrize("run", ["", "../x", "a.b", "a/b"])
def test_an_id_that_names_no_file_is_refused(run: str) -> None:
    with pytest.raises(InvalidArgumentError):
        made(MemoryFileSystem()).create(Attempt(run, 0, 0, 0))
