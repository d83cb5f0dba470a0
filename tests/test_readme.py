"""README's snippets run as they stand, and what it names exists."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from rpc.testing.cluster import HeldPort
from tests.house import ROOT
from tests.rpc.served import Served

README = (ROOT / "README.md").read_text("utf-8")
PORT = "9095"
PAGES = ["README.md", "logstore/GUIDES.md", "CONTRIBUTING.md", "bench/README.md", "tests/README.md"]


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def scripts_path() -> str:
    """PATH with this environment's commands first, as after ``. .venv/bin/activate``."""
    return os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])


def run_shell(script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """In one shell; its jobs end with it. A broker listens on a free port in place of the usual one."""
    held = HeldPort()
    port = str(held.port)
    script = "trap 'kill $(jobs -p) 2> /dev/null || true' EXIT\n" + re.sub(rf"\b{PORT}\b", port, script)
    environment = {key: text for key, text in os.environ.items() if not key.startswith("LOGSTORE_")}
    with closing(held):
        return subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=folder,
            env={**environment, "PATH": scripts_path(), "LOGSTORE_BROKER_LISTEN": f"127.0.0.1:{port}"},
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


def run_python(snippet: str, folder: Path) -> str:
    """What the snippet prints, run with warnings as errors."""
    program = folder / "snippet.py"
    with ExitStack() as broker:
        if PORT in snippet:
            served = Served(Path(broker.enter_context(tempfile.TemporaryDirectory())))
            broker.callback(served.close)
            snippet = re.sub(rf"\b{PORT}\b", str(served.port), snippet)
        program.write_text(snippet)
        done = subprocess.run(
            [sys.executable, "-W", "error", str(program)],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=120,
        )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    program.unlink()
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(blocks("python"))))
def test_a_snippet_stands_alone_and_runs_again(number: int, tmp_path: Path) -> None:
    for _ in range(2):
        run_python(blocks("python")[number], tmp_path)


@pytest.mark.slow
def test_python_tour(tmp_path: Path) -> None:
    """All snippets one after the other, each by itself, twice; nothing is left behind."""
    snippets = blocks("python")
    assert len(snippets) >= 4
    shown = ""
    for _ in range(2):
        shown = "".join(run_python(snippet, tmp_path) for snippet in snippets)
        assert list(tmp_path.iterdir()) == []
    assert "RecordMetadata(topic='flights'" in shown
    values = ("EWR to IAH", "LGA to IAH", "JFK to MIA", "IAH to EWR")
    assert [shown.count(value) for value in values] == [2, 1, 1, 1]  # by the consumer and by the log


@pytest.mark.slow
def test_shell_tour(tmp_path: Path) -> None:
    """All shell snippets in one shell, in their order; the last line cleans up, so they run again."""
    first, script = "".join(blocks("bash")).split("\n", 1)
    assert first == ". .venv/bin/activate"
    script, cleaning = script.rstrip().rsplit("\n", 1)
    assert cleaning.startswith("rm -r tour ")
    for _ in range(2):
        done = run_shell(script, tmp_path)
        assert done.returncode == 0, done.stderr
        check_tour(done.stdout, tmp_path)
        assert run_shell(cleaning, tmp_path).returncode == 0
        assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_three_commands_start_a_cluster_and_a_fourth_shows_that_nothing_is_lost(tmp_path: Path) -> None:
    (script,) = [block for block in blocks("sh") if "--peers" in block]
    with ExitStack() as holding:
        ports = {
            port: str(holding.enter_context(closing(HeldPort())).port)
            for port in set(re.findall(r"127\.0\.0\.1:(\d+)", script))
        }
        named = rf"\b({'|'.join(ports)})\b"
        script = re.sub(named, lambda found: ports[found[1]], script)
        shorter = script.replace("cluster drill", "cluster drill --seconds 6 --rate 200")
        done = run_shell(f"exec 2>&1\n{shorter}", tmp_path)
    assert done.returncode == 0, done.stdout
    assert re.search(r"^killed node [123] ", done.stdout, re.MULTILINE), done.stdout
    assert re.search(r"^lost +0$", done.stdout, re.MULTILINE), done.stdout
    assert re.search(r"^brokers +2 of 3 ", done.stdout, re.MULTILINE), done.stdout
    assert {path.name for path in tmp_path.iterdir()} == {"tour-1", "tour-2", "tour-3"}


def check_tour(shown: str, folder: Path) -> None:
    assert "alice=tea" in shown
    assert re.search(r"^listening on 127\.0\.0\.1:\d+$", shown, re.MULTILINE)
    assert "1\n2\n3\n" in shown
    assert len((folder / "orders.jsonl").read_text().splitlines()) == 3

    def drained(topic: str, store: str = "tour") -> str:
        run = run_shell(f"LOGSTORE_PATH={store} logstore consume {topic} -e -f '%p/%o %k=%s\\n'", folder)
        assert run.returncode == 0, run.stderr
        return run.stdout

    assert sorted(drained("copy").split()) == sorted(drained("orders").split())
    assert drained("orders", "tour-restored") == drained("orders")
    described = run_shell("LOGSTORE_PATH=tour logstore group describe bar --json", folder)
    assert described.returncode == 0, described.stderr
    assert '"lag": 0' in described.stdout
    assert "balance 1000" in shown
    assert "balance 999" not in shown
    assert "alice" not in drained("accounts")  # and then erased
    imported = drained("imported")
    again = "LOGSTORE_PATH=tour logstore produce imported --name numbers numbers.txt"
    assert run_shell(again, folder).returncode == 0
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
