"""What every command says of the store it opens: how long a lock may be waited for, and whose the files are."""

from __future__ import annotations

import os
import stat
import time

import pytest

import logstore
from tests.cli.conftest import Shell


def _modes(shell: Shell) -> set[int]:
    paths = [os.path.join(folder, name) for folder, _, names in os.walk(shell.store) for name in names]
    return {stat.S_IMODE(os.stat(path).st_mode) for path in paths}


def test_mode_bits_by_option_by_environment_and_from_the_store(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOGSTORE_MODE_BITS", "640")
    shell.run("topic", "create", "t", "--mode-bits", "660")
    assert _modes(shell) == {0o660}
    monkeypatch.delenv("LOGSTORE_MODE_BITS")
    shell.run("produce", "t", stdin="a\n")
    assert _modes(shell) == {0o660}
    monkeypatch.setenv("LOGSTORE_MODE_BITS", "640")
    shell.run("topic", "create", "u")
    shell.run("produce", "u", stdin="a\n")
    assert stat.S_IMODE((shell.store / "u-0" / f"{0:020d}.log").stat().st_mode) == 0o640
    for wrong in ("888", "0", "rw", "1777"):
        assert "no mode of files" in shell.run("topic", "list", "--mode-bits", wrong, code=2).output


def test_the_lock_timeout_bounds_every_wait(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    shell.run("topic", "create", "t")
    with logstore.open(shell.store) as store:
        store.pin("t")
        for arguments, environment in (
            (["--lock-timeout", "0.3", "produce", "t"], "240"),
            (["produce", "t", "--lock-timeout", "0.3"], "240"),
            (["produce", "t"], "0.3"),
            (["topic", "trim", "t", "--before-offset", "0"], "0.3"),
        ):
            monkeypatch.setenv("LOGSTORE_LOCK_TIMEOUT", environment)
            started = time.monotonic()
            failed = shell.run(*arguments, stdin="a\n", code=1)
            assert time.monotonic() - started < 60
            assert f"is locked by pid {os.getpid()}" in failed.stderr
    assert "--lock-timeout" in shell.run("topic", "list", "--lock-timeout", "-1", code=2).output
