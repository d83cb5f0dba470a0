"""Processes of a bench find compiled modules, also where the environment keeps none."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench.__main__ import keep_bytecode


def kept(code: str, folder: Path) -> set[str]:
    """The modules that a process, started after ``keep_bytecode``, leaves compiled in the folder."""
    script = (
        f"import subprocess, sys\nfrom bench.__main__ import keep_bytecode\nkeep_bytecode({str(folder)!r})\n"
        f"subprocess.run([sys.executable, '-c', {code!r}], check=True)\n"
    )
    environment = {name: text for name, text in os.environ.items() if name != "PYTHONPYCACHEPREFIX"}
    subprocess.run(
        [sys.executable, "-c", script], env={**environment, "PYTHONDONTWRITEBYTECODE": "1"}, check=True
    )
    return {path.name.split(".")[0] for path in (folder / "bytecode").rglob("*.pyc")}


def test_what_the_environment_does_not_keep_is_in_the_runs_folder(tmp_path: Path) -> None:
    assert "colorsys" not in kept("import json", tmp_path / "one")
    assert "colorsys" in kept("import colorsys", tmp_path / "two")


def test_an_environment_that_keeps_modules_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    before = dict(os.environ)
    keep_bytecode(str(tmp_path))
    assert dict(os.environ) == before
