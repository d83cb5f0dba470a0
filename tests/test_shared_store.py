"""A store that a group of users shares stays shared, whoever writes: modes, groups and owners of its files."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import logstore

ROOT = os.geteuid() == 0  # only root can be other users; anybody else is all of them
GROUP = 2000 if ROOT else os.getegid()
AS_ANOTHER = """
import os, sys
import logstore, logstore.store, logstore.embedded.backend, logstore.client.producer.producer
with logstore.open(":memory:") as store:
    store.create_topic("a")
    store.partition("a", 0).append([(None, b"x")])  # all that is imported late is there before the user changes
if os.geteuid() == 0:
    os.setgroups([2000]); os.setgid(int(sys.argv[3])); os.setuid(int(sys.argv[2]))
os.umask(0o077)
settings = {"mode_bits": int(sys.argv[4], 8)} if sys.argv[4] else {}
with logstore.open(sys.argv[1], lock_timeout_s=2, **settings) as store:
    "a" in store.list_topics() or store.create_topic("a", config={"segment.bytes": "1024"})
    for _ in range(4):
        offset = store.partition("a", 0).append([(None, b"1" * 600)]).offset
    store.commit_offsets("g", {logstore.TopicPartition("a", 0): logstore.OffsetAndMetadata(offset)})
    print(offset)
"""


def _append(root: Path, user: int, group: int, mode_bits: str) -> int:
    command = [sys.executable, "-c", AS_ANOTHER, str(root), str(user), str(group), mode_bits]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, cwd="/")
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def _everything(root: Path) -> list[Path]:
    return [Path(folder) / name for folder, folders, files in os.walk(root) for name in (*folders, *files)]


def _is_shared(path: Path) -> bool:
    found = path.stat()
    wanted = 0o070 if path.is_dir() else 0o060
    return found.st_gid == GROUP and found.st_mode & wanted == wanted


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that other users reach: that of the test run is its own user's alone."""
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o755)
        yield Path(name)


def _folder(shared: Path, mode: int) -> Path:
    folder = shared / f"{mode:o}"
    folder.mkdir()
    if ROOT:
        os.chown(folder, 1000, GROUP)
    os.chmod(folder, mode)
    return folder / "store"


def test_users_of_a_setgid_folder_with_primary_groups_of_their_own(shared: Path) -> None:
    root = _folder(shared, 0o2770)
    assert [_append(root, user, user, "660") for user in (1000, 1001, 1000)] == [3, 7, 11]
    assert root.stat().st_mode & stat.S_ISGID
    assert [path for path in (root, *_everything(root)) if not _is_shared(path)] == []
    assert _append(root, 1001, 1001, "") == 15, "who names no mode takes the store's"
    assert [path for path in _everything(root) if not _is_shared(path)] == []


@pytest.mark.parametrize("mode", [pytest.param(0o770, marks=pytest.mark.slow), 0o2770])
def test_roots_commands_lock_nobody_out(shared: Path, mode: int) -> None:
    root = _folder(shared, mode)
    assert _append(root, 1000, GROUP, "660") == 3
    for arguments in (
        ["topic", "create", "x"],
        ["produce", "a"],
        ["produce", "x"],
        ["topic", "alter", "x", "-c", "retention.ms=5"],
    ):
        command = [sys.executable, "-m", "logstore.cli", "--path", str(root), *arguments]
        subprocess.run(
            command, input="hello\n" * 300, text=True, check=True, capture_output=True, timeout=120
        )
    assert [path for path in _everything(root) if not _is_shared(path)] == []
    assert {path.stat().st_uid for path in _everything(root)} == {1000 if ROOT else os.geteuid()}, (
        "root works for the folder's owner"
    )
    assert _append(root, 1001, GROUP, "660") > 3
    assert _append(root, 1000, GROUP, "") > 7


def test_a_caller_without_mode_bits_takes_those_of_the_store(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        with logstore.open(tmp_path / "s", mode_bits=0o664) as store:
            store.create_topic("a")
        with logstore.open(tmp_path / "s") as store:
            store.create_topic("b")
            store.partition("b", 0).append([(None, b"x")])
        with logstore.open(tmp_path / "s", mode_bits=0o600) as store:  # what it replaces stays as it was
            store.create_topic("c")
    finally:
        os.umask(before)
    modes = {stat.S_IMODE(path.stat().st_mode) for path in _everything(tmp_path / "s") if path.is_file()}
    assert modes == {0o664}
    assert stat.S_IMODE((tmp_path / "s" / "b-0").stat().st_mode) == 0o775
    with logstore.open(tmp_path / "private") as store:
        store.create_topic("a")
    assert stat.S_IMODE((tmp_path / "private" / "topics.json").stat().st_mode) == 0o600
