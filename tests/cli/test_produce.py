"""`logstore produce`: every format into partitions; what is in is reported, also when it stops half way."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from logstore.seams.fs import OpenMode, OsFile, OsFileSystem
from logstore.types import Buffer
from tests.cli.conftest import Shell


def records(shell: Shell, topic: str = "t") -> list[dict[str, object]]:
    return shell.json_lines("consume", topic, "-e")


def test_lines_from_stdin_and_files(shell: Shell, tmp_path: Path) -> None:
    shell.run("topic", "create", "t")
    (tmp_path / "a").write_bytes(b"one\ntwo\n")
    (tmp_path / "b").write_bytes(b"\n\xff\nlast")
    result = shell.run("produce", "t", str(tmp_path / "a"), "-", str(tmp_path / "b"), stdin="from stdin\n")
    assert result.stdout == ""
    assert "6 records to 't' in" in result.stderr
    assert "partition 0: offsets 0 to 5 (6 records)" in result.stderr
    assert shell.run("consume", "t", "-e").stdout_bytes == b"one\ntwo\nfrom stdin\n\n\xff\nlast\n"


def test_the_report_as_json(shell: Shell) -> None:
    shell.run("topic", "create", "t", "-p", "2")
    report = shell.json("produce", "t", "--format", "kv", stdin="a\t1\nb\t2\nc\t3\n")
    assert report["records"] == 3
    assert sum(row["records"] for row in report["partitions"]) == 3
    for row in report["partitions"]:
        assert (row["first_offset"], row["end_offset"]) == (0, row["records"])


def test_keys_choose_partitions_as_the_topic_says(filled: Shell) -> None:
    where: dict[object, set[object]] = {}
    for record in records(filled):
        where.setdefault(record["key"], set()).add(record["partition"])
    assert len(where) == 7
    assert {len(partitions) for partitions in where.values()} == {1}


def test_partition_and_codec_and_acks(shell: Shell) -> None:
    shell.run("topic", "create", "t", "-p", "3")
    for codec in ("gzip", "snappy", "lz4", "zstd"):
        shell.run("produce", "t", "-p", "2", "-z", codec, "--acks", "1", stdin="x" * 1000 + "\n")
    assert {record["partition"] for record in records(shell)} == {2}
    batches = shell.json_lines("log", "dump", "t-2")
    assert [batch["codec"] for batch in batches] == ["gzip", "snappy", "lz4", "zstd"]
    quiet = shell.json("produce", "t", "--format", "lines", "--acks", "0", stdin="y\n")
    assert quiet["records"] == 1
    assert "has no partition 7" in shell.run("produce", "t", "-p", "7", stdin="x\n", code=1).stderr


def test_create(shell: Shell) -> None:
    assert "no log store" in shell.run("produce", "t", stdin="x\n", code=1).stderr
    shell.run("produce", "t", "--create", "--partitions", "4", stdin="x\n")
    shell.run("produce", "t", "--create", stdin="x\n")
    assert "there is no topic 'u'" in shell.run("produce", "u", stdin="x\n", code=1).stderr
    (topic,) = shell.json("topic", "list")
    assert (topic["name"], len(topic["partitions"])) == ("t", 4)


def test_json_lines_round_trip_between_topics(filled: Shell) -> None:
    odd = [
        {"key": None, "value": None},
        {"key": "", "value": ""},
        {"key_base64": "/w==", "value_base64": "gA==", "headers": [{"name": "h", "value": None}]},
        {
            "value": "with time",
            "timestamp_ms": 1357034400000,
            "headers": [{"name": "a", "value_base64": "/w=="}],
        },
    ]
    filled.run("produce", "t", "--format", "json", stdin="".join(json.dumps(line) + "\n" for line in odd))
    printed = filled.run("--json", "consume", "t", "-e").stdout
    filled.run("topic", "create", "copy", "-p", "3")
    filled.run("produce", "copy", "--json", "--keep-partitions", stdin=printed)

    def comparable(text: str) -> list[dict[str, object]]:
        return [{**json.loads(line), "topic": ""} for line in text.splitlines()]

    assert comparable(filled.run("--json", "consume", "copy", "-e").stdout) == comparable(printed)
    assert len(printed.splitlines()) == 34


def test_csv(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "f.csv").write_text("id,at,n\na,2013-01-01T10:00:00Z,1\n,2013-01-01,2\nNA,0,3\n")
    arguments = ("--format", "csv", "-k", "id", "--timestamp-column", "at", "--null-key", "NA")
    shell.run("produce", "t", str(tmp_path / "f.csv"), "--create", *arguments)
    found = [(record["key"], record["timestamp_ms"], record["value"]) for record in records(shell)]
    assert found == [
        ("a", 1357034400000, '{"id":"a","at":"2013-01-01T10:00:00Z","n":"1"}'),
        (None, 1356998400000, '{"id":"","at":"2013-01-01","n":"2"}'),
        (None, 0, '{"id":"NA","at":"0","n":"3"}'),
    ]


def test_a_bad_line_is_named_and_what_came_before_it_is_in(shell: Shell, tmp_path: Path) -> None:
    shell.run("topic", "create", "t")
    path = tmp_path / "f.jsonl"
    path.write_text('{"value": "1"}\n\n{"value": "2"}\n{"value": 3}\n{"value": "4"}\n')
    result = shell.run("produce", "t", "--format", "json", str(path), code=1)
    assert f"Error: {path}, line 4: value is a number, not text or null" in result.stderr
    assert "2 records to 't'" in result.stderr
    assert [record["value"] for record in records(shell)] == ["1", "2"]


def test_a_record_that_the_topic_refuses_is_named_by_its_line(shell: Shell) -> None:
    shell.run("topic", "create", "t", "-c", "max.message.bytes=1000")
    lines = "a\nb\n" + "x" * 2000 + "\nc\n"
    result = shell.run("produce", "t", stdin=lines, code=1)
    assert "stdin, line 3: the record for topic 't' makes a batch of" in result.stderr
    assert "max.message.bytes is 1000" in result.stderr
    assert [record["value"] for record in records(shell)] == ["a", "b"]
    late = '{"value": "a"}\n{"value": "b", "timestamp_ms": -9223372036854775808}\n'
    result = shell.run("produce", "t", "--format", "json", stdin=late, code=1)
    assert "line 2: the record for topic 't': timestamp_ms=-9223372036854775808" in result.stderr


def test_options_that_do_not_go_with_a_format(filled: Shell) -> None:
    cases = (
        (["-k", "id"], "--key-column goes with --format csv, not with lines"),
        (["--format", "json", "-s", ":"], "--separator goes with --format kv or csv"),
        (["--format", "csv", "--keep-partitions"], "--keep-partitions goes with --format json"),
        (["--format", "csv", "-s", "::"], "is one character"),
        (["no such file"], "does not exist"),
    )
    for arguments, message in cases:
        assert message in filled.run("produce", "t", *arguments, code=2).stderr
    assert len(records(filled)) == 30


def test_many_records_stream_through(shell: Shell, tmp_path: Path) -> None:
    path = tmp_path / "many"
    path.write_bytes(b"".join(b"record number %d\n" % number for number in range(60_000)))
    shell.run("topic", "create", "t", "-p", "2", "-c", "segment.bytes=1000000")
    assert shell.json("produce", "t", "--format", "lines", str(path))["records"] == 60_000
    found = sorted(int(line.split()[2]) for line in shell.run("consume", "t", "-e").stdout.splitlines())
    assert found == list(range(60_000))
    shell.run("log", "verify")


def test_what_a_person_types_arrives_at_once(filled: Shell) -> None:
    """A line goes out when it is there, not when the pipe is closed."""
    process = filled.process("produce", "t", stdin=subprocess.PIPE)
    try:
        assert process.stdin is not None
        process.stdin.write(b"typed\n")
        process.stdin.flush()
        deadline = time.monotonic() + 60
        while not any(record["value"] == "typed" for record in records(filled)):
            assert time.monotonic() < deadline
            assert process.poll() is None
        _, errors = process.communicate()
        assert process.returncode == 0
        assert b"1 records to 't'" in errors
    finally:
        process.kill()
        process.communicate()


def test_ctrl_c_sends_what_was_read_and_reports_it(filled: Shell) -> None:
    process = filled.process("produce", "t", stdin=subprocess.PIPE)
    try:
        assert process.stdin is not None
        process.stdin.write(b"typed\n")
        process.stdin.flush()
        deadline = time.monotonic() + 60
        while not any(record["value"] == "typed" for record in records(filled)):
            assert time.monotonic() < deadline
        process.send_signal(signal.SIGINT)
        out, errors = process.communicate(timeout=60)
        assert (process.returncode, out) == (130, b"")
        assert errors.startswith(b"1 records to 't'")
        assert b"Traceback" not in errors
    finally:
        process.kill()
        process.communicate()


def test_a_kill_in_the_middle_loses_nothing_that_was_acknowledged(shell: Shell) -> None:
    """kill -9 with batches in flight: the log holds an unbroken start of the input, and verifies."""
    shell.run("topic", "create", "t", "-c", "segment.bytes=100000")
    process = shell.process("produce", "t", "--batch-bytes", "2000", stdin=subprocess.PIPE)
    assert process.stdin is not None
    number = 0
    deadline = time.monotonic() + 60
    while not records(shell):
        assert time.monotonic() < deadline
        process.stdin.write(b"".join(b"%d\n" % value for value in range(number, number + 2000)))
        process.stdin.flush()
        number += 2000
    process.kill()
    process.communicate()
    assert shell.json("log", "verify")["clean"]
    found = [record["value"] for record in records(shell)]
    assert found == [str(value) for value in range(len(found))]
    shell.run("produce", "t", stdin="after\n")
    found = [record["value"] for record in records(shell)]
    assert found == [*map(str, range(len(found) - 1)), "after"]
    assert shell.json("log", "verify")["clean"]


class _FullFile(OsFile):
    __slots__ = ()

    def pwritev(self, buffers: Sequence[Buffer], position: int) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_is_told_within_seconds(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    shell.run("topic", "create", "a")
    opened = OsFileSystem.open

    def on_full_disk(self: OsFileSystem, path: str, mode: OpenMode) -> OsFile:
        file = opened(self, path, mode)
        if path.endswith(".log"):
            file.__class__ = _FullFile
        return file

    monkeypatch.setattr(OsFileSystem, "open", on_full_disk)
    started_s = time.monotonic()
    assert "No space left on device" in shell.run("produce", "a", stdin="x\n", code=1).stderr
    assert time.monotonic() - started_s < 60, "a second or two, and what a busy machine adds"
