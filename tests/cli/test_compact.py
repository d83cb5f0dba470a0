"""`logstore log compact`, and compaction in `logstore topic describe`."""

from __future__ import annotations

import os

import pytest

import logstore
from logstore.cli.compact import _fields, _held_text
from logstore.errors import CorruptBatchError
from logstore.upkeep import cleaning_manager as cleaning_room
from tests.cli.conftest import Shell
from tests.engines import PlainCleaning


@pytest.fixture
def keyed(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """A compacted topic "c" of two partitions, 200 records of 5 keys, in many segments."""
    monkeypatch.setattr(cleaning_room, "Cleaning", PlainCleaning)
    config = ["-c", "cleanup.policy=compact", "-c", "segment.bytes=2048"]
    shell.run("topic", "create", "c", "-p", "2", *config, "-c", "min.cleanable.dirty.ratio=1")
    lines = "".join(f"k{number % 5}:{'x' * 80}{number}\n" for number in range(200))
    open_store = logstore.open
    with monkeypatch.context() as patch:  # the producing command would compact before it ends
        patch.setattr(logstore, "open", lambda path, **more: open_store(path, maintenance_s=0, **more))
        shell.run("produce", "c", "--format", "kv", "-s", ":", "--batch-bytes", "500", stdin=lines)
    return shell


def test_it_cleans_and_says_what_it_did(keyed: Shell) -> None:
    done = keyed.run("log", "compact", "c", "--roll")
    header, *rows = done.stdout.splitlines()
    assert header.split("  ")[0] == "PARTITION"
    assert [row.split()[0] for row in rows] == ["0", "1"]
    assert "c: " in done.stderr
    assert " before, " in done.stderr
    again = keyed.json_lines("log", "compact", "c", "--partition", "1")
    assert again[0]["topic"] == "c"
    assert again[0]["records_before"] == again[0]["records_after"] > 0


def test_progress_is_told_where_it_is_wanted(keyed: Shell) -> None:
    assert "writing" not in keyed.run("log", "compact", "c").stderr
    assert "c-0: writing" in keyed.run("log", "compact", "c", "--roll", "--progress").stderr


def test_refusals(keyed: Shell) -> None:
    keyed.run("topic", "create", "plain")
    assert "does not compact" in keyed.run("log", "compact", "plain", code=1).stderr
    assert "not 7" in keyed.run("log", "compact", "c", "-p", "7", code=1).stderr
    assert "no topic" in keyed.run("log", "compact", "nope", code=1).stderr
    keyed.run("log", "compact", code=2)


def test_a_failure_is_one_sentence(keyed: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        PlainCleaning, "fail", CorruptBatchError("x.log at byte 7: bad", path="x", position=7)
    )
    assert "x.log at byte 7: bad" in keyed.run("log", "compact", "c", code=1).stderr


def test_a_topic_of_another_process_names_its_holder(keyed: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    open_store = logstore.open
    with open_store(keyed.store) as owner:
        owner.pin("c")
        monkeypatch.setattr(
            logstore, "open", lambda path, **more: open_store(path, lock_timeout_s=0.0, **more)
        )
        assert f"pid {os.getpid()}" in keyed.run("log", "compact", "c", code=1).stderr


def test_describe_shows_how_far_it_is_clean(keyed: Shell) -> None:
    text = keyed.run("topic", "describe", "c").stdout
    assert "CLEAN TO" in text
    assert "100%" in text
    keyed.run("log", "compact", "c", "--roll")
    found = keyed.json("topic", "describe", "c")[0]["partitions"]
    assert [row["compaction"]["dirty_bytes"] for row in found] == [0, 0]
    assert [row["compaction"]["cleaner_point"] for row in found] == [row["log_end_offset"] for row in found]
    assert found[0]["compaction"]["last"] is None, "that was another process"
    keyed.run("topic", "create", "plain")
    assert keyed.json("topic", "describe", "plain")[0]["partitions"][0]["compaction"] is None
    assert "CLEAN TO" not in keyed.run("topic", "describe", "plain").stdout


def test_a_line_without_a_key_is_refused_by_its_number(keyed: Shell) -> None:
    lines = '{"key": "a", "value": "1"}\n{"value": "2"}\n{"key": "b", "value": "3"}\n'
    told = keyed.run("produce", "c", "--format", "json", stdin=lines, code=1).stderr
    assert "stdin, line 2" in told
    assert "has no key, and the topic is compacted" in told


def test_what_holds_it_back_is_told(keyed: Shell) -> None:
    with (
        logstore.open(keyed.store) as store,
        store.producer(transactional_id="copy") as producer,
        producer.transaction() as tx,
    ):
        offset = tx.send("c", b"v", key=b"k", partition=0).result().offset
        (row,) = store.admin.compact("c", 0, roll=True)
        assert row.held_by is not None
        assert _held_text(row.held_by).startswith(
            f"held back by the open transaction at offset {offset} (transactional id 'copy', producer id "
        )
        assert _fields(row)["held_by"]["transactional_id"] == "copy"
    assert all(row["held_by"] is None for row in keyed.json_lines("log", "compact", "c"))
