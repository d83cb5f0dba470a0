"""`logstore maintain`: what it prints, and its exit codes."""

from __future__ import annotations

import pytest

import logstore
from logstore.errors import CorruptBatchError
from logstore.upkeep import cleaning_manager
from tests.cli.conftest import Shell
from tests.engines import PlainCleaning


@pytest.fixture
def dirty(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """A compacted topic "c" and one with retention by size, "r", both with something due."""
    shell.run("topic", "create", "c", "-c", "cleanup.policy=compact", "-c", "segment.bytes=2048")
    shell.run("topic", "create", "r", "-c", "retention.bytes=2048", "-c", "segment.bytes=2048")
    lines = "".join(f"k{number % 5}:{'x' * 80}{number}\n" for number in range(200))
    open_store = logstore.open
    with monkeypatch.context() as patch:  # the producing command would do it before it ends
        patch.setattr(logstore, "open", lambda path, **more: open_store(path, maintenance_s=0, **more))
        for topic in "cr":
            shell.run("produce", topic, "--format", "kv", "-s", ":", "--batch-bytes", "500", stdin=lines)
    return shell


def test_it_says_what_was_done_to_each_topic(dirty: Shell) -> None:
    done = dirty.run("maintain")
    header, *rows = done.stdout.splitlines()
    assert header.split()[:3] == ["TOPIC", "RETIRED", "SIZE"]
    found = {row.split()[0]: row for row in rows}
    assert set(found) <= {"c", "r"}
    assert "2 topics looked at" in done.stderr
    assert dirty.run("maintain").stdout == "", "nothing is due any more"


def test_in_json_one_line_a_topic_and_one_for_all(dirty: Shell) -> None:
    *rows, summary = dirty.json_lines("maintain", "--time-limit", "60")
    by_name = {row["topic"]: row for row in rows}
    assert by_name["c"]["compacted"][0]["records_after"] < by_name["c"]["compacted"][0]["records_before"]
    assert by_name["r"]["retired_segments"] > 0
    assert (summary["complete"], summary["expired_offsets"]) == (True, 0)
    assert [row["topic"] for row in dirty.json_lines("maintain", "r")[:-1]] == ["r"]


def test_exit_codes(dirty: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    dirty.run("maintain", "--time-limit", "0", code=3)
    dirty.run("maintain", "nope", code=1)
    dirty.run("maintain", "--time-limit", "-1", code=2)
    monkeypatch.setattr(cleaning_manager, "Cleaning", PlainCleaning)
    monkeypatch.setattr(
        PlainCleaning, "fail", CorruptBatchError("x.log at byte 7: bad", path="x", position=7)
    )
    assert "byte 7: bad" in dirty.run("maintain", code=1).stdout
