"""The root: help, targets, exit codes, errors as one sentence, commands of other packages."""

from __future__ import annotations

import importlib.metadata
import json
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from logstore.cli import main as main_module
from logstore.cli.main import cli
from tests.cli.conftest import Shell


def test_help_names_every_command_and_is_the_default(shell: Shell) -> None:
    text = shell.bare("--help").output
    for name in (
        "backup",
        "consume",
        "demo",
        "group",
        "log",
        "perf",
        "produce",
        "producer",
        "restore",
        "topic",
    ):
        assert f"\n  {name} " in text
    assert "_LOGSTORE_COMPLETE" in text
    assert "Exit codes" in text


@pytest.mark.parametrize(
    "command", [*main_module._COMMANDS, "topic create", "log verify", "group seek", "perf consume"]
)
def test_every_command_has_help_and_the_common_options(shell: Shell, command: str) -> None:
    text = shell.bare(*command.split(), "--help").output
    assert "Usage: " in text
    if command not in ("topic", "log", "group", "perf", "producer", "transaction"):
        for option in ("--path", "--bootstrap-server", "--json"):
            assert option in text


def test_completion_is_there(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "from logstore.cli.main import main; main()"]
    environment = {"_LOGSTORE_COMPLETE": "bash_complete", "COMP_WORDS": "logstore to", "COMP_CWORD": "1"}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=True, cwd=Path.cwd()
    )
    assert "topic" in done.stdout


def test_version(shell: Shell) -> None:
    assert importlib.metadata.version("logstore-engine") in shell.bare("--version").output


def test_the_target_comes_from_options_or_the_environment(shell: Shell, tmp_path: Path) -> None:
    one, two = str(tmp_path / "one"), str(tmp_path / "two")
    shell.bare("--path", one, "topic", "create", "in-one")
    shell.bare("topic", "create", "in-two", "--path", two)
    assert "in-one" in shell.bare("topic", "list", LOGSTORE_PATH=one).output
    assert "in-two" in shell.bare("--path", two, "topic", "list", LOGSTORE_PATH=one).output
    assert "in-two" in shell.bare("topic", "list", "--path", two, LOGSTORE_PATH=one).output
    assert "in-two" in shell.bare("topic", "list", "--path", two, LOGSTORE_BOOTSTRAP="h:1").output
    assert "'h' is not HOST:PORT" in shell.bare("topic", "list", code=1, LOGSTORE_BOOTSTRAP="h").output
    bare = ("--bootstrap-server", "h", "topic", "list")
    assert "'h' is not HOST:PORT" in shell.bare(*bare, code=1, LOGSTORE_PATH=one).output
    assert "which store?" in shell.bare("topic", "list", code=2).output
    assert "works on a directory" in shell.bare("--bootstrap-server", "h:1", "log", "verify", code=2).output


def test_a_mistyped_path_makes_no_store(shell: Shell) -> None:
    for command in (
        ["topic", "list"],
        ["produce", "t"],
        ["consume", "t"],
        ["group", "list"],
        ["log", "verify"],
    ):
        result = shell.run(*command, stdin="x\n", code=1)
        assert "there is no log store at" in result.stderr
        assert "Traceback" not in result.output
    assert not shell.store.exists()


def test_errors_are_one_sentence_or_one_object(filled: Shell) -> None:
    result = filled.run("topic", "describe", "nope", code=1)
    assert result.stdout == ""
    assert result.stderr.startswith("Error: there is no topic 'nope' (")
    assert result.stderr.count("\n") == 1
    error = json.loads(filled.run("--json", "topic", "describe", "nope", code=1).stderr)["error"]
    assert (error["name"], error["code"], error["retriable"]) == ("UnknownTopicError", 3, False)
    error = json.loads(filled.run("produce", "t", "--json", stdin="{", code=1).stderr)["error"]
    assert (error["name"], error["file"], error["line"]) == ("InputError", "stdin", 1)


def test_an_operating_system_error_is_a_sentence_too(filled: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str) -> int:
        raise PermissionError(13, "Permission denied", name)

    monkeypatch.setattr("os.path.getsize", refuse)
    result = filled.run("produce", "t", __file__, code=1)
    assert "Permission denied" in result.stderr
    assert "Traceback" not in result.stderr


class _Point:
    """An entry point as ``importlib.metadata`` gives it."""

    def __init__(self, name: str, loaded: object) -> None:
        self.name = name
        self.value = f"elsewhere:{name}"
        self._loaded = loaded

    def load(self) -> object:
        if isinstance(self._loaded, Exception):
            raise self._loaded
        return self._loaded


def test_other_packages_add_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    @click.command()
    def broker() -> None:
        """Run a broker."""
        click.echo("broker runs")

    points = [
        _Point("broker", broker),
        _Point("broken", ImportError("no module named x")),
        _Point("odd", 7),
        _Point("topic", broker),
    ]
    monkeypatch.setattr(
        importlib.metadata, "entry_points", lambda group: points if group == "logstore.commands" else []
    )
    runner = CliRunner()
    text = runner.invoke(cli, ["--help"]).output
    assert "Run a broker." in text
    assert "broken" in text
    assert runner.invoke(cli, ["broker"]).output == "broker runs\n"
    failed = runner.invoke(cli, ["broken"])
    assert failed.exit_code == 1
    assert "elsewhere:broken cannot be imported: no module named x" in failed.output
    assert "elsewhere:odd is no click command" in runner.invoke(cli, ["odd"]).output
    assert "add-partitions" in runner.invoke(cli, ["topic", "--help"]).output  # our own come first


def test_an_unknown_command_is_wrong_usage(shell: Shell) -> None:
    assert "No such command 'topics'. Did you mean 'topic'?" in shell.bare("topics", code=2).output
    assert "No such command '0'.\n" in shell.bare("0", code=2).output
