"""Commands run in process: a runner bound to one store's directory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from logstore.cli.main import cli


class Shell:
    """``run("topic", "list")`` is `logstore --path STORE topic list`; stdout and stderr are kept apart."""

    def __init__(self, store: Path) -> None:
        self.store = store
        self._runner = CliRunner()

    def run(self, *arguments: str, stdin: str | bytes | None = None, code: int = 0) -> Result:
        """Fails the test unless the exit code is ``code``."""
        result = self._runner.invoke(cli, ["--path", str(self.store), *arguments], input=stdin)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == code, result.output
        return result

    def bare(self, *arguments: str, code: int = 0, **environment: str) -> Result:
        """Without --path."""
        result = self._runner.invoke(cli, list(arguments), env=dict(environment))
        assert result.exit_code == code, result.output
        return result

    def json(self, *arguments: str, stdin: str | bytes | None = None, code: int = 0) -> Any:
        return json.loads(self.run("--json", *arguments, stdin=stdin, code=code).stdout)

    def json_lines(self, *arguments: str, code: int = 0) -> list[Any]:
        return [json.loads(line) for line in self.run("--json", *arguments, code=code).stdout.splitlines()]

    def process(self, *arguments: str, **settings: Any) -> subprocess.Popen[bytes]:
        """The command as a real process."""
        command = [sys.executable, "-m", "logstore.cli", "--path", str(self.store), *arguments]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **settings)


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    monkeypatch.delenv("LOGSTORE_PATH", raising=False)
    monkeypatch.delenv("LOGSTORE_BOOTSTRAP", raising=False)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
    return Shell(tmp_path / "store")


@pytest.fixture
def filled(shell: Shell) -> Shell:
    """A store whose topic "t" has 3 partitions and 30 keyed records."""
    shell.run("topic", "create", "t", "--partitions", "3")
    lines = "".join(f"k{number % 7}:value {number}\n" for number in range(30))
    shell.run("produce", "t", "--format", "kv", "-s", ":", stdin=lines)
    return shell
