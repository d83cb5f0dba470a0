"""The commands in hostile hands: one sentence on stderr, the exit code as documented, and nothing harmed."""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from logstore.cli.main import cli
from logstore.cli.streams.record_json import LineError, decode_record
from tests.cli.conftest import Shell

BYTE = "\udcff"  # how Python shows a byte of the command line that is no UTF-8

USAGE = [
    ("--path", "", "topic", "list"),
    ("--bootstrap-server", "", "topic", "list"),
    ("topic", "create", "a", "-c", "segment.bytes=2048", "-c", "segment.bytes=4096"),
    ("topic", "create", "a", "-c", "segment.bytes"),
    ("topic", "alter", "t", "-c", "segment.bytes=2048", "-d", "segment.bytes"),
    ("produce", "t", "--partitions", "3"),
    ("produce", "t", "-k", ""),
    ("produce", "t", "-f", "kv", "-s", ""),
    ("produce", "t", "-f", "kv", "-s", "a\nb"),
    ("produce", "t", "-f", "csv", "-s", "ab"),
    ("produce", "t", "-f", "csv", "-s", '"'),
    ("produce", "t", "-f", "csv", "-s", "\r"),
    ("produce", "t", "-f", "json", "-p", "0", "--keep-partitions"),
    ("produce", "t", "--batch-bytes", "9" * 30),
    ("consume", "t", "-o", "nonsense"),
    ("consume", "t", "-o", ""),
    ("consume", "t", "-o", "--1"),
    ("consume", "t", "-o", "@"),
    ("consume", "t", "-o", "@" + "9" * 18),
    ("consume", "t", "-o", "@" + "9" * 30),
    ("consume", "t", "-f", "%q"),
    ("consume", "t", "-f", "%"),
    ("consume", "t", "-f", "\\x4"),
    ("group", "seek", "g", "--to-earliest", "--to-latest"),
    ("log", "dump", ""),
    ("log", "salvage", ".", ""),
    ("backup", ""),
    ("perf", "produce", "-s", "99999999999"),
]
REFUSED = [
    ("topic", "create", "a", "-c", "segment.bytes=1_000_000"),
    ("topic", "create", "a", "-c", "segment.bytes=x"),
    ("topic", "create", "../a"),
    ("topic", "create", f"a{BYTE}"),
    ("topic", "describe", f"a{BYTE}"),
    ("produce", "nope"),
    ("produce", "t", "-p", "7"),
    ("produce", "t", "-p", "-1"),
    ("consume", "t", "-o", "99", "-e"),
    ("consume", "t", "-o", "9" * 30, "-e"),
    ("consume", "t", "-g", "", "-e"),
    ("consume", "t", "-g", f"g{BYTE}", "-e"),
    ("group", "describe", f"g{BYTE}"),
    ("log", "dump", "nope"),
    ("log", "verify", f"a{BYTE}"),
]


@pytest.mark.parametrize("arguments", USAGE, ids=" ".join)
def test_wrong_usage(filled: Shell, arguments: tuple[str, ...]) -> None:
    errors = filled.run(*arguments, stdin="x\n", code=2).stderr
    assert "Error: " in errors
    assert "Traceback" not in errors


@pytest.mark.parametrize("arguments", REFUSED, ids=ascii)
def test_a_refusal_is_one_line(filled: Shell, arguments: tuple[str, ...]) -> None:
    errors = filled.run(*arguments, stdin="", code=1).stderr
    assert re.fullmatch(r"Error: .{20,600}\n", errors), errors
    assert "invalid literal" not in errors
    found = json.loads(filled.run("--json", *arguments, stdin="", code=1).stderr)
    assert found["error"]["message"]


def test_a_store_in_memory_is_no_target() -> None:
    result = CliRunner().invoke(cli, ["--path", ":memory:", "topic", "create", "t"])
    assert (result.exit_code, "gone with this command" in result.stderr) == (2, True)


# --- input ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"value": "a", "value": "b"}', "it has the field 'value' twice"),
        (b'{"value": "a", "headers": [{"name": "\\ud800"}]}', "half a surrogate pair"),
        (b'{"value": ' + b"9" * 5000 + b"}", "a number of thousands of digits"),
        (b"[" * 100_000, "nested too deep"),
        (b"\xff\xfe{\x00}\x00", "it is not UTF-8"),
        (b"{", "it is not JSON: .* at character 2"),
        (b'{"timestamp_ms": NaN, "value": ""}', "not a whole number"),
    ],
)
def test_json_lines_that_are_no_records(line: bytes, reason: str) -> None:
    with pytest.raises(LineError, match=reason):
        decode_record(line)


def test_a_byte_order_mark_is_no_part_of_a_line() -> None:
    assert decode_record(b'\xef\xbb\xbf{"value": "a"}').value == b"a"


def test_bytes_of_the_command_line_that_are_no_text(filled: Shell) -> None:
    filled.run("topic", "create", "raw")
    filled.run("produce", "raw", "-f", "kv", "-s", BYTE, stdin=b"k\xffv\n")
    assert filled.json_lines("consume", "raw", "-e")[0]["key"] == "k"
    assert filled.run("consume", "raw", "-e", "-f", f"{BYTE}%s").stdout_bytes == b"\xffv"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("a,b\r1,2\r", "line 1: a carriage return stands in a field without quotes"),
        ('a,b\n1,"x\n', "line 2: a quoted field is not closed before the input ends"),
        ("a,a\n1,2\n", "line 1: the header has the column 'a' twice"),
        ("a,b\n1\n", "line 2: 1 fields where the header has 2"),
        ("a,b\n1,2,3\n", "line 2: 3 fields where the header has 2"),
        ("a,b\n" + "1," + "x" * 2_000_000 + "\n", "line 2: the record for topic 't' makes a batch"),
    ],
)
def test_csv_that_is_none(filled: Shell, content: str, reason: str) -> None:
    assert reason in filled.run("produce", "t", "-f", "csv", stdin=content, code=1).stderr


def test_a_csv_field_may_be_as_long_as_a_record(filled: Shell) -> None:
    filled.run("topic", "create", "wide")
    filled.run("produce", "wide", "-f", "csv", stdin="a\n" + "x" * 500_000 + "\n")
    assert len(filled.json_lines("consume", "wide", "-e")[0]["value"]) > 500_000


def test_a_topic_without_records_has_nothing_to_dump(filled: Shell) -> None:
    filled.run("topic", "create", "new")
    for what in ("new", "new-0"):
        result = filled.run("log", "dump", what)
        assert (result.stdout, "holds no segment yet" in result.stderr) == ("", True)


def test_a_wrong_start_in_a_group_is_told_and_commits_nothing(filled: Shell) -> None:
    errors = filled.run("consume", "t", "-g", "g", "-o", "99", "-e", code=1).stderr
    assert "offset 99 is outside" in errors
    assert [(row["members"], row["partitions"]) for row in filled.json("group", "list")] == [(0, 0)]


def test_an_unfinished_copy_is_named_as_such(filled: Shell, tmp_path: Path) -> None:
    (tmp_path / "half" / ".state").mkdir(parents=True)
    (tmp_path / "half" / "t-0").mkdir()
    errors = filled.run("backup", str(tmp_path / "half"), code=1).stderr
    assert "a copy that was cut short: remove it" in errors


# --- streams ----------------------------------------------------------------------------------------


def run_in_shell(filled: Shell, line: str) -> subprocess.CompletedProcess[bytes]:
    """``line`` with `$L` for the command."""
    command = f"{sys.executable} -m logstore.cli --path {filled.store}"
    return subprocess.run(
        ["bash", "-c", line], env={**os.environ, "L": command}, capture_output=True, timeout=60, check=False
    )


@pytest.mark.parametrize(
    ("line", "code", "told"),
    [
        ("$L topic list >/dev/full", 1, b"Error: cannot write to stdout: No space left on device\n"),
        ("$L consume t -e >/dev/full", 1, b"Error: cannot write to stdout: No space left on device\n"),
        ("$L --help >/dev/full", 1, b"Error: cannot write to stdout: No space left on device\n"),
        ("$L topic list >&-", 1, b"Error: cannot write to stdout: Bad file descriptor\n"),
        ("$L consume t -e >&-", 1, b"Error: cannot write to stdout: Bad file descriptor\n"),
        ("$L produce t <&-", 1, b"Error: cannot read stdin: Bad file descriptor\n"),
        ("$L log verify 2>&-", 0, b""),
        ("echo x | $L produce t 2>&-", 0, b""),
        ("echo x | $L produce t 2>/dev/full", 0, b""),
        ("$L topic delete t <&-", 2, b"where nobody can be asked\n"),
    ],
)
def test_streams_that_are_closed_or_full(filled: Shell, line: str, code: int, told: bytes) -> None:
    result = run_in_shell(filled, line)
    assert result.returncode == code, result
    assert result.stderr.endswith(told)
    assert b"Traceback" not in result.stderr
    assert filled.json("log", "verify")["clean"]


def test_a_terminal_that_lacks_a_character(filled: Shell) -> None:
    filled.run("consume", "t", "-g", "a→b", "-e")
    result = run_in_shell(
        filled, "PYTHONIOENCODING=latin-1 $L group list; PYTHONIOENCODING=latin-1 $L --json group list"
    )
    assert b"a\\u2192b" in result.stdout
    assert json.loads(result.stdout.splitlines()[-1])[0]["group"] == "a→b"


def test_a_file_size_limit_stops_a_producer_with_a_word(filled: Shell) -> None:
    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))

    process = filled.process(
        "produce", "t", "-p", "0", "--batch-bytes", "20000", stdin=subprocess.PIPE, preexec_fn=limit
    )
    _, errors = process.communicate(b"".join(b"%0100d\n" % number for number in range(5000)), timeout=60)
    assert process.returncode == 1
    assert b"File too large (raise the limit on file sizes" in errors
    found = re.match(rb"([\d,]+) records to 't'", errors)
    assert found is not None
    records = filled.json_lines("consume", "t", "-p", "0", "-e")
    sent = [record for record in records if len(record["value"]) == 100]
    assert len(sent) == int(found[1].replace(b",", b""))  # what is in was reported, all of it
    assert filled.json("log", "verify")["clean"]


@pytest.mark.parametrize(
    ("separator", "line", "key"),
    [("\\t", b"k\tv\n", "k"), ("\\x1f", b"k\x1fv\n", "k"), ("\\\\", b"k\\v\n", "k"), ("\\", b"k\\v\n", "k")],
)
def test_a_separator_may_be_written_as_an_escape(
    filled: Shell, separator: str, line: bytes, key: str
) -> None:
    filled.run("topic", "create", "kv")
    filled.run("produce", "kv", "-f", "kv", "-s", separator, stdin=line)
    assert [(row["key"], row["value"]) for row in filled.json_lines("consume", "kv", "-e")] == [(key, "v")]
    text = b"a" + line[1:2] + b"b\n1" + line[1:2] + b"2\n"
    filled.run("produce", "kv", "-f", "csv", "-s", separator, stdin=text)
    assert filled.json_lines("consume", "kv", "-e")[1]["value"] == '{"a":"1","b":"2"}'


@pytest.mark.parametrize("separator", ["\\n", "\\q", "\\x1"])
def test_a_separator_that_is_none(filled: Shell, separator: str) -> None:
    assert (
        "--separator" in filled.run("produce", "t", "-f", "kv", "-s", separator, stdin="x\n", code=2).stderr
    )


def test_a_record_too_large_names_the_setting_that_says_so(filled: Shell) -> None:
    filled.run("topic", "create", "small", "-c", "segment.bytes=2048")
    for line in (b'{"value": "%s"}\n' % (b"x" * 3000),):
        errors = filled.run("produce", "small", "-f", "json", stdin=line, code=1).stderr
        assert re.search(r"stdin, line 1: the record .* 30[0-9][0-9] bytes, segment.bytes is 2048", errors)
