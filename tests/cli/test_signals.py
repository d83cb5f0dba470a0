"""Ctrl-C and SIGTERM at a dozen calls of a long command: its exit code, no traceback, and nothing lost."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path

import pytest

from logstore.store import LogStore
from logstore.types import Isolation
from tests.cli.conftest import Shell
from tests.cli.signals import Ended, interrupted

READ: Isolation = "read_committed"
KEYS, ROUNDS, LINES = 20, 15, 200
COMMANDS = {
    "consume": ["consume", "c", "-g", "g", "-e", "-f", "%o\\n"],
    "backup": ["backup", "STORE-copy"],
    "verify": ["log", "verify"],
    "maintain": ["maintain"],
    "erase": ["topic", "erase-key", "c", "k1", "--yes"],
    "compact": ["log", "compact", "c", "--roll"],
    "produce": ["produce", "other", "--create", "INPUT"],
}


@pytest.fixture
def compacted(shell: Shell) -> Shell:
    shell.run("topic", "create", "c", "-c", "cleanup.policy=compact", "-c", "segment.bytes=2000")
    for number in range(ROUNDS):
        lines = "".join(f"k{key}:value {number} of {key}\n" for key in range(KEYS))
        shell.run("produce", "c", "--format", "kv", "-s", ":", stdin=lines)
    return shell


def newest(path: str) -> dict[bytes | None, bytes | None]:
    with LogStore(path) as store:
        return {record.key: record.value for record in store.partition("c", 0).records(0, isolation=READ)}


def check(command: str, ended: Ended, code: int) -> None:
    what = f"{command} at {ended.at} of {ended.calls}: {ended.code}, {ended.errors}"
    assert ended.code == code, what
    assert "Traceback" not in ended.errors, what
    Shell(Path(ended.store)).run("log", "verify")
    found = newest(ended.store)
    for key in range(KEYS):
        name = b"k%d" % key
        assert found.get(name) == b"value %d of %d" % (ROUNDS - 1, key) or (command, key) == ("erase", 1), (
            what
        )
    if command == "produce":
        check_produced(ended, what)
    if command == "consume":
        with LogStore(ended.store) as store:
            committed = {place.partition: at.offset for place, at in store.committed_offsets("g").items()}
        printed = ended.out.splitlines()
        assert committed.get(0, 0) == (int(printed[-1]) + 1 if printed else 0), what


def check_produced(ended: Ended, what: str) -> None:
    """What the command said is in, is in, and nothing else."""
    with LogStore(ended.store) as store:
        topics = store.list_topics()
        records = list(store.partition("other", 0).records(0)) if "other" in topics else []
    assert [record.value for record in records] == [b"line %d" % number for number in range(len(records))], (
        what
    )
    assert not records or f"{len(records):,} records to 'other'" in ended.errors, what
    assert "interrupted" not in ended.errors or f"line {len(records):,} of" in ended.errors, what


@pytest.mark.long
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("command", COMMANDS)
def test_it_ends_in_order(compacted: Shell, command: str, number: signal.Signals, code: int) -> None:
    lines = compacted.store.parent / "lines"
    lines.write_text("".join(f"line {number}\n" for number in range(LINES)))
    words = [word.replace("INPUT", str(lines)) for word in COMMANDS[command]]
    (whole,) = interrupted(compacted.store, words, number, [0])
    check(command, whole, 0)
    step = max(whole.calls // 12, 1)
    places = list(range(1, whole.calls, step))
    for ended in interrupted(compacted.store, words, number, places):
        check(command, ended, code)


def test_produce_says_how_far_it_came(shell: Shell) -> None:
    shell.run("topic", "create", "c")
    lines = shell.store.parent / "lines"
    lines.write_text("".join(f"line {number}\n" for number in range(LINES)))
    (ended,) = interrupted(shell.store, ["produce", "other", "--create", str(lines)], signal.SIGINT, [50])
    assert ended.code == 130
    assert "Traceback" not in ended.errors
    check_produced(ended, ended.errors)


def test_ctrl_c_ends_a_wait_for_input_at_once(shell: Shell) -> None:
    shell.run("topic", "create", "t")
    with shell.process("produce", "t", stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        process.stdin.write(b"one\ntwo\n")
        process.stdin.flush()
        with LogStore(shell.store, mode="r") as store:
            until_s = time.monotonic() + 60
            while store.partition("t", 0).high_watermark < 2 and time.monotonic() < until_s:
                time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert b"2 records to 't'" in errors
    assert b"line 2 of stdin is the last that was sent" in errors
