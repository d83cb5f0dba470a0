"""Every command of the tree, also one that is added later, called wrongly: huge numbers, odd words, no store, Ctrl-C at
a question. One sentence or one object on stderr, the documented exit code, and no traceback."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import click
import pytest
from click.testing import Result

from logstore.cli.main import cli
from tests.cli.commands import COMMANDS, arguments, filled_with, option_words, options, required_options
from tests.cli.conftest import Shell

NO_BYTES = "\udcff"
ODD = ("", NO_BYTES, "../x", "-", "a\nb")
MORE_ODD = (" ", "é→😀", "a" * 5000, "%", "{}", "9" * 5000)
HUGE = ("9" * 30, "-" + "9" * 30, "9" * 5000, "1e3", "0x10", "", NO_BYTES)
NEEDS_NO_STORE = {"demo", "perf consume", "perf end-to-end", "perf produce"}
MAKES_STORE = {"topic create"}


def tried(shell: Shell, words: list[str]) -> Result:
    """The result of a call, whatever it is: an exception that is not an exit fails the test."""
    result = shell._runner.invoke(cli, ["--path", str(shell.store), *words], input="")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise AssertionError(f"{words} ended with a traceback") from result.exception
    return result


def check_told(result: Result, words: list[str], *, codes: tuple[int, ...] = (1, 2)) -> None:
    assert result.exit_code in codes, (words, result.output)
    assert "Traceback" not in result.output, words
    if result.exit_code == 1:
        told = result.stderr.splitlines()
        assert any(re.match(r"(\{.*)?Error: .{15,}|.*\d", line) for line in told), (words, told)
    if result.exit_code == 2:
        assert re.search(r"^Error: .{8,}", result.stderr, re.MULTILINE), (words, result.stderr)


def test_no_number_is_too_long_to_be_refused(filled: Shell) -> None:
    for name, command in COMMANDS.items():
        for option in options(command, type(click.INT), click.IntRange):
            for value in HUGE:
                needed = required_options(command, option)
                words = [*filled_with(name, "t"), *needed, *option_words(option, value)]
                check_told(tried(filled, words), words)


@pytest.mark.parametrize("name", COMMANDS)
def test_no_store_and_a_file_for_one(shell: Shell, tmp_path: Path, name: str) -> None:
    words = [*filled_with(name, "t"), *required_options(COMMANDS[name])]
    if name not in NEEDS_NO_STORE | MAKES_STORE:
        check_told(tried(shell, words), words)
        assert not shell.store.exists()
        failed = tried(shell, ["--json", *words])
        assert json.loads(failed.stderr.splitlines()[-1])["error"]["message"], failed.stderr
    file = tmp_path / "file"
    file.write_bytes(b"no store")
    check_told(tried(Shell(file), words), words)
    check_told(tried(Shell(file / "below"), words), words)
    assert file.read_bytes() == b"no store"


@pytest.mark.parametrize("values", [ODD, pytest.param(MORE_ODD, marks=pytest.mark.long)], ids=["odd", "more"])
def test_odd_words(
    filled: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, values: tuple[str, ...]
) -> None:
    """Where a word is odd but good (a group may have any name) the command may succeed."""
    for name, command in COMMANDS.items():
        monkeypatch.chdir(tmp_path)
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)  # where a demo or a backup may make a store of that name
        for value in values:
            if arguments(command):
                words = [*filled_with(name, value), *required_options(command)]
                check_told(tried(filled, words), words, codes=(0, 1, 2))
            for option in options(command, type(click.STRING)):
                needed = required_options(command, option)
                words = [*filled_with(name, "t"), *needed, *option_words(option, value)]
                if name not in NEEDS_NO_STORE:
                    check_told(tried(filled, words), words, codes=(0, 1, 2))
    assert filled.json("log", "verify")["clean"]


@pytest.mark.parametrize("keys", [b"\x03", b"n\n", b"\x04"], ids=["ctrl-c", "no", "end"])
def test_a_question_that_is_not_answered_with_yes(filled: Shell, keys: bytes) -> None:
    controller, terminal = pty.openpty()
    with filled.process("topic", "delete", "t", stdin=terminal, preexec_fn=_lead_terminal) as process:
        os.close(terminal)
        assert process.stderr is not None
        asked = b""
        while not asked.endswith(b"]:"):
            asked += process.stderr.read(1) or pytest.fail(f"ended with {asked!r}")
        for _ in range(60):  # a signal between Python's last look and its read is only seen with the next one
            os.write(controller, keys)
            with suppress(subprocess.TimeoutExpired):
                process.communicate(timeout=1)
                break
        else:
            process.kill()
            pytest.fail("the command did not end")
    os.close(controller)
    assert process.returncode == (130 if keys == b"\x03" else 1)
    assert filled.json("topic", "describe", "t")


def _lead_terminal() -> None:
    """In the child: stdin is the controlling terminal, which turns Ctrl-C into a signal."""
    import fcntl
    import termios

    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGINT, signal.default_int_handler)
