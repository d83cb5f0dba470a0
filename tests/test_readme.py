"""README's snippets run as they stand, and what it names exists."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house import ROOT

README = (ROOT / "README.md").read_text("utf-8")
PAGES = ["README.md", "CONTRIBUTING.md", "bench/README.md", "tests/README.md"]


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def scripts_path() -> str:
    """PATH with this environment's commands first, as after ``. .venv/bin/activate``."""
    return os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])


def run_shell(script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {key: text for key, text in os.environ.items() if not key.startswith("LOGSTORE_")}
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=folder,
        env={**environment, "PATH": scripts_path()},
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_two_commands_in_their_order() -> None:
    commands = re.findall(r"^python3 -m venv .*$", README, re.MULTILINE)
    assert [command.split(" && ")[-1] for command in commands] == [
        ".venv/bin/logstore demo",
        ".venv/bin/python -m pytest",
    ]


def test_python_tour(tmp_path: Path) -> None:
    """All snippets in one program, in their order, with warnings as errors."""
    snippets = blocks("python")
    assert len(snippets) >= 4
    program = tmp_path / "tour.py"
    program.write_text("\n".join(snippets))
    done = subprocess.run(
        [sys.executable, "-W", "error", str(program)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "RecordMetadata(topic='flights'" in done.stdout
    values = ("EWR to IAH", "LGA to IAH", "JFK to MIA", "IAH to EWR")
    assert [done.stdout.count(value) for value in values] == [2, 2, 2, 2]  # by the consumer and by the log


def test_shell_tour(tmp_path: Path) -> None:
    first, script = "".join(blocks("bash")).split("\n", 1)
    assert first == ". .venv/bin/activate"
    done = run_shell(script, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "alice=tea" in done.stdout
    assert len((tmp_path / "orders.jsonl").read_text().splitlines()) == 3

    def drained(topic: str) -> str:
        shown = run_shell(f"LOGSTORE_PATH=tour logstore consume {topic} -e -f '%p/%o %k=%s\\n'", tmp_path)
        assert shown.returncode == 0, shown.stderr
        return shown.stdout

    assert sorted(drained("copy").split()) == sorted(drained("orders").split())
    described = run_shell("LOGSTORE_PATH=tour logstore group describe bar --json", tmp_path)
    assert described.returncode == 0, described.stderr
    assert '"lag": 0' in described.stdout
    assert "balance 1000" in done.stdout
    assert "balance 999" not in done.stdout
    assert "alice" not in drained("accounts")  # and then erased
    imported = drained("imported")
    again = "LOGSTORE_PATH=tour logstore produce imported --name numbers numbers.txt"
    assert run_shell(again, tmp_path).returncode == 0
    assert drained("imported") == imported
    assert len(imported.split("\n")) == 20_001


@pytest.mark.parametrize("page", PAGES)
def test_what_a_page_names_exists(page: str) -> None:
    text = (ROOT / page).read_text("utf-8")
    links = set(re.findall(r"\]\(([^)#:]+)\)", text))
    paths = set(re.findall(r"`((?:logstore|tests|bench|proto|rpc|\.ci)/[\w./]*)`", text))
    named = {(ROOT / page).parent / link for link in links} | {ROOT / path for path in paths}
    assert sorted(str(path.relative_to(ROOT)) for path in named if not path.exists()) == []


def test_map_names_every_package() -> None:
    for folder in ("logstore", "replication", "rpc", "spark_connector", "proto", "tests", "bench"):
        assert re.search(rf"^.*\b{folder}/", README, re.MULTILINE), folder
