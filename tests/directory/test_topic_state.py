"""A topic's state: round trips, damage, and a save that can be cut short anywhere."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from logstore.directory import topic_state
from logstore.directory.topic_state import (
    PartitionState,
    TopicState,
    decode,
    encode,
    load,
    remove,
    save,
    state_path,
)
from logstore.errors import (
    DamagedStoreError,
    DiskFullError,
    InvariantError,
    StorageError,
    UnsupportedStoreVersionError,
)
from logstore.format.json_document import encode_document
from logstore.seams.faults import FaultKind, SimulatedCrash
from logstore.seams.fs import FileSystem, OsFileSystem, exists, write_all
from logstore.seams.memory_crash import RandomChooser
from logstore.seams.memory_fs import MemoryFileSystem

OFFSET = st.integers(0, 2**63 - 1)
ROWS = st.builds(
    PartitionState,
    OFFSET,
    OFFSET,
    OFFSET,
    OFFSET,
    boot_id=st.none() | st.text(max_size=36),
    clean=st.none() | st.booleans(),
    replica=st.booleans(),
)
STATES = st.builds(
    TopicState,
    st.text(max_size=22),
    st.text(max_size=36),
    st.booleans(),
    st.dictionaries(st.integers(0, 2**31 - 1), ROWS),
)


def state(end: int, *, clean: bool = True) -> TopicState:
    return TopicState(
        "id", "boot", clean, {0: PartitionState(end, 0, end, end), 1: PartitionState(0, 0, 0, 0)}
    )


def store() -> MemoryFileSystem:
    fs = MemoryFileSystem()
    fs.mkdir("/s")
    fs.sync_dir("/")
    return fs


@settings(derandomize=True, deadline=None)
@given(STATES)
def test_round_trip(value: TopicState) -> None:
    read = decode(encode(value), "p")
    assert (read.topic_id, read.boot_id, read.clean) == (value.topic_id, value.boot_id, value.clean)
    assert read.partitions.keys() == value.partitions.keys()
    for number, row in value.partitions.items():
        kept = read.partitions[number]
        assert replace(kept, boot_id=None, clean=None) == replace(row, boot_id=None, clean=None)
        assert (read.boot_of(number), read.is_clean(number)) == (
            value.boot_of(number),
            value.is_clean(number),
        )


def test_a_partition_that_stopped_in_another_way_says_so_itself() -> None:
    value = state(7)
    value = replace(
        value, partitions={**value.partitions, 1: PartitionState(3, 0, 3, 3, boot_id="", clean=False)}
    )
    data = encode(value)
    assert b'"format_version": 3,' in data
    assert data.endswith(b', "apart": {"1": ["", false]}}\n')
    read = decode(data, "p")
    assert read == value
    assert [(read.is_clean(number), read.boot_of(number)) for number in (0, 1, 2)] == [
        (True, "boot"),
        (False, ""),
        (True, "boot"),
    ]


@pytest.mark.parametrize(
    "apart", [[], {"0": ["b", 1]}, {"0": ["b"]}, {"0": [None, True]}, {"9": ["b", True]}, {"00": ["b", True]}]
)
def test_malformed_rows_apart_are_damage(apart: object) -> None:
    columns = ["recovery_point", "log_start_offset", "high_watermark", "log_end_offset", "no_producers_at"]
    fields = {"topic_id": "i", "boot_id": "b", "clean": True, "columns": [*columns, "cleaner_point"]}
    rows = {"partitions": {"0": [1, 1, 1, 1, 1, 1]}, "apart": apart}
    with pytest.raises(DamagedStoreError):
        decode(encode_document(3, fields | rows), "p")


def test_replicas_are_listed() -> None:
    value = replace(
        state(7), partitions={1: PartitionState(3, 0, 2, 3, replica=True), 2: PartitionState(3, 0, 3, 3)}
    )
    data = encode(value)
    assert b'"format_version": 4,' in data
    assert data.endswith(b', "apart": {}, "replicas": [1]}\n')
    assert decode(data, "p") == value


@pytest.mark.parametrize("replicas", [{}, [9], ["0"], [True], None])
def test_malformed_replicas_are_damage(replicas: object) -> None:
    columns = ["recovery_point", "log_start_offset", "high_watermark", "log_end_offset", "no_producers_at"]
    fields = {"topic_id": "i", "boot_id": "b", "clean": True, "columns": [*columns, "cleaner_point"]}
    rows = {"partitions": {"0": [1, 1, 1, 1, 1, 1]}, "apart": {}, "replicas": replicas}
    with pytest.raises(DamagedStoreError, match="replicas"):
        decode(encode_document(4, fields | rows), "p")


def test_golden() -> None:
    rest = (
        b'"format_version": 2, "topic_id": "id", "boot_id": "boot", "clean": true, '
        b'"columns": ["recovery_point", "log_start_offset", "high_watermark", "log_end_offset", '
        b'"no_producers_at", "cleaner_point"], '
        b'"partitions": {"0": [7, 0, 7, 7, 0, 0], "1": [0, 0, 0, 0, 0, 0]}}\n'
    )
    assert encode(state(7)) == b'{"crc32c": "%08x",\n' % crc32c(rest) + rest


def test_version_1_knew_of_no_producers_and_no_cleaning() -> None:
    rest = (
        b'"format_version": 1, "topic_id": "id", "boot_id": "boot", "clean": false, '
        b'"columns": ["recovery_point", "log_start_offset", "high_watermark", "log_end_offset"], '
        b'"partitions": {"0": [7, 1, 8, 9]}}\n'
    )
    read = decode(b'{"crc32c": "%08x",\n' % crc32c(rest) + rest, "p")
    assert read.partitions == {0: PartitionState(7, 1, 8, 9, no_producers_at=7, cleaner_point=0)}


def test_every_flipped_bit_is_damage() -> None:
    data = encode(state(7))
    for position in range(len(data)):
        broken = bytearray(data)
        broken[position] ^= 1 << position % 8
        with pytest.raises(DamagedStoreError) as caught:
            decode(bytes(broken), "s/.state/t.json")
        assert caught.value.path == "s/.state/t.json"


@pytest.mark.parametrize(
    "change",
    [
        {"clean": 1},
        {"topic_id": None},
        {"boot_id": 5},
        {"columns": ["recovery_point"]},
        {"partitions": []},
        {"partitions": {"0": [1, 2, 3]}},
        {"partitions": {"0": [1, 2, 3, -1]}},
        {"partitions": {"0": [1, 2, 3, True]}},
        {"partitions": {"0": [1, 2, 3, 2**63]}},
        {"partitions": {"00": [1, 2, 3, 4]}},
        {"partitions": {"-1": [1, 2, 3, 4]}},
        {"partitions": {"2147483648": [1, 2, 3, 4]}},
        {"partitions": {"९": [1, 2, 3, 4]}},
        {"cleaner": 1},
    ],
)
def test_malformed_fields_are_damage(change: dict[str, object]) -> None:
    columns = ["recovery_point", "log_start_offset", "high_watermark", "log_end_offset"]
    fields = {"topic_id": "i", "boot_id": "b", "clean": True, "columns": columns, "partitions": {}} | change
    with pytest.raises(DamagedStoreError):
        decode(encode_document(1, fields), "p")


def test_a_newer_version_is_refused() -> None:
    with pytest.raises(UnsupportedStoreVersionError):
        decode(encode_document(topic_state.FORMAT_VERSION + 1, {"clean": True}), "p")


def test_negative_offsets_are_never_written() -> None:
    with pytest.raises(InvariantError):
        encode(TopicState("i", "b", True, {0: PartitionState(-1, 0, 0, 0)}))


def test_saved_loaded_replaced_and_removed(tmp_path: Path) -> None:
    root = str(tmp_path)
    fs = OsFileSystem()
    assert load(fs, root, "flights") is None
    for end in (1, 2):
        save(fs, root, "flights", state(end))
        assert load(fs, root, "flights") == state(end)
    assert (tmp_path / ".state").stat().st_mode & 0o777 == 0o700
    remove(fs, root, "flights")
    remove(fs, root, "flights")
    assert load(fs, root, "flights") is None


@pytest.mark.parametrize("length", [246, 247, 249])
def test_the_longest_names_have_files_too(tmp_path: Path, length: int) -> None:
    fs, root = OsFileSystem(), str(tmp_path)
    names = ["x" * (length - 1) + end for end in "ab"]
    for number, name in enumerate(names):
        save(fs, root, name, state(number))
    assert [load(fs, root, name) for name in names] == [state(0), state(1)]
    assert len({state_path(root, name) for name in names}) == 2


def test_what_the_system_refuses_is_named() -> None:
    fs = store()
    save(fs, "/s", "t", state(1))
    fs.faults.on("pwritev", FaultKind.ENOSPC)
    with pytest.raises(DiskFullError, match=r"cannot write /s/\.state/t\.json"):
        save(fs, "/s", "t", state(2))
    fs.faults.on("sync", FaultKind.FAILED_SYNC)
    with pytest.raises(StorageError):
        save(fs, "/s", "t", state(2))
    fs.faults.on("open", FaultKind.EIO)
    with pytest.raises(StorageError, match="cannot read"):
        load(fs, "/s", "t")
    assert load(fs, "/s", "t") == state(1)
    save(fs, "/s", "t", state(2))
    assert load(fs, "/s", "t") == state(2)


def save_until_crash(fs: MemoryFileSystem, call: int) -> int:
    """Save 1, 2, 3 with a crash planned; returns the last save that came back."""
    fs.faults.at(call, FaultKind.CRASH)
    done = 0
    try:
        for end in (1, 2, 3):
            save(fs, "/s", "t", state(end))
            done = end
    except SimulatedCrash:
        pass  # the point of the exercise
    return done


def check_every_crash() -> int:
    """How many different disks a power loss left; each held the old state or the new."""
    states = 0
    done = 0
    for call in range(1, 60):
        fs = store()
        done = save_until_crash(fs, fs.faults.calls + call)
        for crashed in fs.crash_states(64):
            found = load(crashed, "/s", "t")
            assert found in [state(end) if end else None for end in (done, done + 1)], (call, done, found)
            save(crashed, "/s", "t", state(9))
            assert load(crashed.crash(RandomChooser(random.Random(call))), "/s", "t") == state(9)
            states += 1
        if done == 3:
            break
    assert done == 3
    return states


def test_a_power_loss_at_any_call_leaves_the_old_state_or_the_new() -> None:
    assert check_every_crash() > 40


def rename_without_sync(fs: FileSystem, path: str, content: bytes) -> None:
    file = fs.open(path + ".tmp", "create")
    write_all(file, [content], 0)
    file.close()
    fs.rename(path + ".tmp", path)
    fs.sync_dir("/s/.state")


def write_in_place(fs: FileSystem, path: str, content: bytes) -> None:
    file = fs.open(path, "rw" if exists(fs, path) else "create")
    write_all(file, [content], 0)
    file.truncate(len(content))
    file.sync()
    file.close()
    fs.sync_dir("/s/.state")


@pytest.mark.parametrize("plant", [rename_without_sync, write_in_place])
def test_the_crash_test_finds_planted_bugs(
    plant: Callable[[FileSystem, str, bytes], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_state, "replace_file", plant)
    with pytest.raises((AssertionError, DamagedStoreError)):
        check_every_crash()
