"""`logstore consume`: where it starts, where it ends, how it prints, and what a group remembers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import Any

import click
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import logstore
from logstore.cli.consume import parse_moment, parse_start
from logstore.cli.streams.rendering import compile_format, values
from logstore.types import Record
from tests.child import child
from tests.cli.conftest import Shell


def offsets(text: str) -> dict[int, list[int]]:
    """``%p %o`` lines as partition -> offsets."""
    found: dict[int, list[int]] = {}
    for line in text.splitlines():
        partition, offset = map(int, line.split())
        found.setdefault(partition, []).append(offset)
    return found


def committed(shell: Shell, group: str) -> dict[int, int]:
    (described,) = shell.json("group", "describe", group)
    return {row["partition"]: row["committed_offset"] for row in described["partitions"]}


def test_all_of_it_in_order(filled: Shell) -> None:
    found = offsets(filled.run("consume", "t", "-e", "-f", "%p %o\\n").stdout)
    assert sum(map(len, found.values())) == 30
    assert all(numbers == list(range(len(numbers))) for numbers in found.values())


def test_where_to_start(filled: Shell) -> None:
    ends = {
        row["partition"]: row["high_watermark"]
        for row in filled.json("topic", "describe", "t")[0]["partitions"]
    }

    def read(start: str) -> dict[int, list[int]]:
        return offsets(filled.run("consume", "t", "-e", "-o", start, "-f", "%p %o\\n").stdout)

    assert read("start") == read("0") == {number: list(range(end)) for number, end in ends.items()}
    assert read("end") == {}
    assert read("-2") == {number: [end - 2, end - 1] for number, end in ends.items()}
    assert read("-1000") == read("start")
    assert read("@0") == read("@1970-01-01") == read("start")
    assert read("@9000000000000") == {}
    assert read("3") == {number: list(range(3, end)) for number, end in ends.items()}
    one = filled.run("consume", "t", "-p", "1", "-o", "2", "-e", "-f", "%p %o\\n").stdout
    assert offsets(one) == {1: list(range(2, ends[1]))}
    assert "99" in filled.run("consume", "t", "-o", "99", "-n", "1", code=1).stderr


def test_from_a_moment_on(shell: Shell) -> None:
    lines = "".join(
        f'{{"value": "{hour}", "timestamp_ms": {1357034400000 + hour * 3_600_000}}}\n' for hour in range(5)
    )
    shell.run("topic", "create", "t")
    shell.run("produce", "t", "--format", "json", stdin=lines)
    for start in ("@2013-01-01T12:00:00Z", "@1357041600000", "@2013-01-01T13:00:00+01:00"):
        assert shell.run("consume", "t", "-e", "-o", start).stdout == "2\n3\n4\n"


def test_bad_starts_and_formats_are_wrong_usage(filled: Shell) -> None:
    for start in ("middle", "@yesterday", "1.5", "--5", "@"):
        filled.run("consume", "t", f"-o{start}", code=2)
        with pytest.raises(click.UsageError):
            parse_start(start)
    with pytest.raises(click.UsageError, match="--to-timestamp"):
        parse_moment("99999999999999999", "--to-timestamp")
    assert "no token %q" in filled.run("consume", "t", "-f", "%q", code=2).stderr
    assert "exclude each other" in filled.run("consume", "t", "--json", "-f", "%s", code=2).stderr
    assert "there is no topic 'u'" in filled.run("consume", "u", "-e", code=1).stderr


RECORD = Record("t", 2, 17, 1357034400000, b"key", b"v\xff", (("a", b"1"), ("b", None)))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("%t/%p/%o", b"t/2/17"),
        ("%k=%s\\n", b"key=v\xff\n"),
        ("%K %S %T", b"3 2 1357034400000"),
        ("%h", b"a=1,b="),
        ("100%%\\t\\r\\\\\\0\\x41", b"100%\t\r\\\0A"),
        ("plain \u00e4", "plain \u00e4".encode()),
        ("", b""),
    ],
)
def test_format_tokens(text: str, expected: bytes) -> None:
    assert compile_format(text)([RECORD]) == expected


def test_null_prints_nothing_and_has_the_length_minus_one() -> None:
    null = RECORD._replace(key=None, value=None, headers=())
    assert compile_format("[%k %s %K %S %h]")([null, null]) == b"[  -1 -1 ]" * 2
    assert values([null, RECORD]) == b"\nv\xff\n"


@pytest.mark.parametrize("text", ["%", "%z", "abc%", "\\q", "\\x4", "\\"])
def test_bad_formats_say_what_there_is(text: str) -> None:
    with pytest.raises(ValueError, match="there is no"):
        compile_format(text)


@settings(derandomize=True, deadline=None)
@given(st.text())
def test_any_format_prints_or_is_refused(text: str) -> None:
    try:
        render = compile_format(text)
    except ValueError:
        return
    assert render([RECORD]) == b"".join([render([RECORD])])


def test_a_group_goes_on_where_it_was(filled: Shell) -> None:
    first = filled.run("consume", "t", "-g", "g", "-n", "11", "-f", "%p %o\\n").stdout
    assert sum(committed(filled, "g").values()) == 11
    second = filled.run("consume", "t", "-g", "g", "-e", "-f", "%p %o\\n").stdout
    assert sum(committed(filled, "g").values()) == 30
    assert filled.run("consume", "t", "-g", "g", "-e").stdout == ""
    assert len({*first.splitlines(), *second.splitlines()}) == 30
    assert len(first.splitlines()) + len(second.splitlines()) == 30


def test_a_start_counts_only_where_the_group_has_no_position(filled: Shell) -> None:
    filled.run("consume", "t", "-g", "g", "-p", "0", "-e")
    found = offsets(filled.run("consume", "t", "-g", "g", "-o", "-1", "-e", "-f", "%p %o\\n").stdout)
    assert sorted(found) == [1, 2]
    assert {len(numbers) for numbers in found.values()} == {1}


def test_without_a_group_nothing_is_written(filled: Shell) -> None:
    def content() -> dict[str, bytes]:
        return {str(path): path.read_bytes() for path in filled.store.rglob("*") if path.is_file()}

    before = content()
    filled.run("consume", "t", "-e")
    assert content() == before


class FailingOut:
    """A stdout that takes some writes and then breaks."""

    def __init__(self, good: int, error: BaseException) -> None:
        self.buffer = self
        self.written: list[bytes] = []
        self._good = good
        self._error = error

    def write(self, data: bytes) -> None:
        if len(self.written) >= self._good:
            raise self._error
        self.written.append(data)

    def flush(self) -> None:
        """Nothing is held back."""

    def fileno(self) -> int:
        raise OSError("no descriptor")


@pytest.mark.parametrize(("error", "code"), [(BrokenPipeError(), 141), (KeyboardInterrupt(), 130)])
def test_the_position_covers_only_what_was_written(
    filled: Shell, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int
) -> None:
    from logstore.cli import consume as consume_module

    monkeypatch.setattr(consume_module, "_POLL_RECORDS", 4)
    out = FailingOut(3, error)
    monkeypatch.setattr(sys, "stdout", out)
    try:
        result = _invoke_with_stdout(filled, out)
    finally:
        monkeypatch.undo()
    assert result == code
    assert len(b"".join(out.written).splitlines()) == 12
    assert sum(committed(filled, "g").values()) == 12
    rest = filled.run("consume", "t", "-g", "g", "-e").stdout.splitlines()
    assert len(rest) == 18


def _invoke_with_stdout(shell: Shell, out: FailingOut) -> int:
    """The exit code of a consume whose stdout is ``out``; the runner would put its own in place."""
    from logstore.cli.main import cli

    arguments = ["--path", str(shell.store), "consume", "t", "-g", "g", "-e"]
    with pytest.raises(SystemExit) as caught:
        cli.main(arguments, prog_name="logstore")
    assert isinstance(caught.value.code, int)
    return caught.value.code


def test_a_closed_pipe_is_silent(filled: Shell) -> None:
    lines = "".join(f"a rather long value {number} {'.' * 200}\n" for number in range(20_000))
    filled.run("produce", "t", stdin=lines)
    process = filled.process("consume", "t", "-g", "g", "-f", "%p %o\\n")
    assert process.stdout is not None
    assert process.stderr is not None
    read = [process.stdout.readline() for _ in range(10)]
    process.stdout.close()
    errors = process.stderr.read()
    assert process.wait(timeout=60) == 141
    process.stderr.close()
    assert errors == b""
    assert all(read)
    assert sum(committed(filled, "g").values()) >= 10


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_ctrl_c_is_silent_and_commits_what_was_printed(filled: Shell, number: int, code: int) -> None:
    process = filled.process("consume", "t", "-g", "g", "-f", "%p %o\\n")
    assert process.stdout is not None
    printed = [process.stdout.readline() for _ in range(30)]
    assert all(printed)
    process.send_signal(number)
    out, errors = process.communicate(timeout=60)
    assert (process.returncode, out, errors) == (code, b"", b"")
    assert sum(committed(filled, "g").values()) == 30


def test_ctrl_c_while_the_reader_of_the_pipe_sleeps(filled: Shell) -> None:
    """A full pipe holds the write up for ever; Ctrl-C must get through."""
    filled.run("produce", "t", stdin="".join(f"{number} {'.' * 500}\n" for number in range(5000)))
    read_end, write_end = os.pipe()
    process = subprocess.Popen([*_command(filled), "consume", "t"], stdout=write_end, stderr=subprocess.PIPE)
    os.close(write_end)
    try:
        _wait_until_full(read_end)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 130
    finally:
        process.kill()
        _, errors = process.communicate()
        os.close(read_end)
    assert errors == b""


def _command(shell: Shell) -> list[str]:
    return [sys.executable, "-m", "logstore.cli", "--path", str(shell.store)]


def _wait_until_full(descriptor: int) -> None:
    """Until the pipe's content has stopped growing."""
    import array
    import fcntl
    import termios

    deadline = time.monotonic() + 60
    count = array.array("i", [0])
    while count[0] < 60_000:
        assert time.monotonic() < deadline
        fcntl.ioctl(descriptor, termios.FIONREAD, count)


@pytest.mark.parametrize("signalled", [True, False])
def test_a_reader_that_takes_half_of_a_record(filled: Shell, signalled: bool) -> None:
    """What a full pipe took is counted to the record: the one that was cut is not committed."""
    lines = "".join(f"{number:05d} {'.' * 994}\n" for number in range(400))
    filled.run("topic", "create", "u")
    filled.run("produce", "u", stdin=lines)
    read_end, write_end = os.pipe()
    command = [*_command(filled), "consume", "u", "-g", "g"]
    with child(command, stdout=write_end, stderr=subprocess.PIPE) as process:
        os.close(write_end)
        _wait_until_full(read_end)
        taken = os.read(read_end, 2500) if not signalled else b""
        if signalled:
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=60) == 130
            while piece := os.read(read_end, 1 << 16):
                taken += piece
            assert committed(filled, "g") == {0: len(taken) // 1001}
        os.close(read_end)
        assert process.wait(timeout=60) == (130 if signalled else 141)
    if not signalled:
        assert committed(filled, "g")[0] >= 2


def test_new_records_come_while_it_waits(filled: Shell) -> None:
    process = filled.process("consume", "t", "-o", "end", "-n", "1")
    try:
        deadline = time.monotonic() + 60
        while process.poll() is None:
            filled.run("produce", "t", stdin="news\n")
            assert time.monotonic() < deadline
        out, _ = process.communicate()
        assert out == b"news\n"
    finally:
        process.kill()
        process.communicate()


def test_a_second_member_of_a_group_shares_it(filled: Shell) -> None:
    process = filled.process("consume", "t", "-g", "g")
    try:
        assert process.stdout is not None
        assert process.stdout.readline()
        filled.run("consume", "t", "-g", "g", "-e")  # waits for its share, and finds the end of it
        (found,) = filled.json("group", "describe", "g")
        assert [f"pid {process.pid}" in member["client"] for member in found["members"]] == [True]
    finally:
        process.kill()
        process.communicate()


# --- the last N records, and round trips ------------------------------------------------------------


def fill_transactions(shell: Shell, *, abort_last: bool) -> None:
    with logstore.open(str(shell.store)) as store:
        store.create_topic("t")
        with store.producer(transactional_id="x") as producer:
            for _ in range(3):
                with producer.transaction() as tx:
                    tx.send_many("t", [(b"k", b"%d" % number) for number in range(5)])
            if abort_last:
                tx = producer.begin()
                tx.send_many("t", [(b"k", b"gone")] * 7)
                producer.flush()
                tx.abort()


@pytest.mark.parametrize("abort_last", [False, True])
def test_the_last_n_are_records_behind_markers_and_aborted_ones(shell: Shell, abort_last: bool) -> None:
    fill_transactions(shell, abort_last=abort_last)
    values = [f"{number % 5}" for number in range(15)]
    for count in (0, 1, 3, 5, 6, 14, 15, 16, 10**30):
        given = ("consume", "t", "-e", "-o", f"-{count}", "-f", "%s ")
        last = values[max(0, 15 - count) :] if count else []
        assert shell.run(*given).stdout.split() == last, count
        assert shell.run(*given, "-g", f"g{count}").stdout.split() == last, count


def test_the_last_n_are_records_behind_what_compaction_took(shell: Shell) -> None:
    with logstore.open(str(shell.store)) as store:
        store.create_topic("c", config={"cleanup.policy": "compact"})
        rows = [(b"a", b"1"), *[(b"b", b"%d" % number) for number in range(100)], (b"c", b"1")]
        store.partition("c", 0).append([*rows, *[(b"b", b"x%d" % number) for number in range(100)]])
        store.admin.compact("c", roll=True)
    for count, keys in ((1, ["b"]), (2, ["c", "b"]), (3, ["a", "c", "b"]), (4, ["a", "c", "b"])):
        assert shell.run("consume", "c", "-e", "-o", f"-{count}", "-f", "%k ").stdout.split() == keys


def test_what_consume_prints_as_json_produce_takes(shell: Shell) -> None:
    """Any bytes, nulls, headers and times, also before 1970: the copy's records are the same."""
    rows: list[Any] = [
        (b"k", b"v", None, -14_182_940_000),
        (None, None, None, -1),
        (b"", b"", [("", None), ("", b""), ("h", b"\xff\x00")], 0),
        (b"\xff\xfe", "é\u2028\ud7ff\U0001f600\x00\r\n".encode(), [("é\x00", "ü".encode())], 1),
        (b"\xed\xa0\x80", b'{"a": 1}', [("h", b"1"), ("h", b"2")], -(2**62)),
        (b"\xef\xbb\xbfk", b"\xef\xbb\xbf", [], -2),
    ]
    with logstore.open(str(shell.store)) as store:
        store.create_topic("t"), store.create_topic("copy")
        store.partition("t", 0).append(rows)
    printed = shell.run("--json", "consume", "t", "-e").stdout_bytes
    shell.run("produce", "copy", "--format", "json", stdin=printed)
    with logstore.open(str(shell.store), mode="r") as store:
        one, two = (list(store.partition(name, 0).records(0)) for name in ("t", "copy"))
        assert [record[3:] for record in one] == [record[3:] for record in two]
        assert [(record.key, record.value, record.timestamp_ms) for record in two] == [
            (row[0], row[1], row[3]) for row in rows
        ]
