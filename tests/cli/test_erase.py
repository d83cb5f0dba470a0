"""`logstore topic erase-key`."""

from __future__ import annotations

from pathlib import Path

import pytest

from logstore.upkeep import cleaning_manager as cleaning_room
from tests.cli.conftest import Shell
from tests.engines import PlainCleaning


@pytest.fixture
def erasable(filled: Shell, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """The store of ``filled``: topic "t", 30 records of the keys k0 to k6 in three partitions."""
    monkeypatch.setattr(cleaning_room, "Cleaning", PlainCleaning)
    return filled


def left(shell: Shell) -> set[str]:
    return {row["key"] for row in shell.json_lines("log", "dump", "t", "--records")}


def test_a_key_is_gone_and_it_is_said(erasable: Shell) -> None:
    done = erasable.run("topic", "erase-key", "t", "k3", "--yes")
    assert "4 records of 1 keys erased; proved by reading" in done.stderr
    assert done.stdout.splitlines()[0].startswith("PARTITION  RECORDS ERASED")
    assert left(erasable) == {"k0", "k1", "k2", "k4", "k5", "k6"}


def test_keys_come_in_many_shapes(erasable: Shell, tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("k1\nk2\nk1")
    found = erasable.json("topic", "erase-key", "t", "k0", "--key-file", str(file), "-y")
    assert (found["keys"], found["proven"], found["records_removed"]) == (3, True, 14)
    assert erasable.json("topic", "erase-key", "t", "6b33", "--hex", "-y")["records_removed"] == 4
    assert (
        erasable.json("topic", "erase-key", "t", "k4", "--encoding", "utf-16", "-y")["records_removed"] == 0
    )
    assert left(erasable) == {"k4", "k5", "k6"}
    found = erasable.run("--json", "topic", "erase-key", "t", "--key-file", "-", "-y", stdin="k5\r\nk6\n")
    assert left(erasable) == {"k4"}


def test_wrong_usage(erasable: Shell) -> None:
    for arguments, told in (
        (["k1"], "needs --yes"),
        (["-y"], "which keys?"),
        (["xyz", "--hex", "-y"], "non-hexadecimal"),
        (["k", "--encoding", "klingon", "-y"], "no such encoding"),
    ):
        assert told in erasable.run("topic", "erase-key", "t", *arguments, code=2).stderr
    assert (
        "cannot read" in erasable.run("topic", "erase-key", "t", "--key-file", "nowhere", "-y", code=1).stderr
    )
    assert "no topic" in erasable.run("topic", "erase-key", "nope", "k", "-y", code=1).stderr
    assert len(left(erasable)) == 7
