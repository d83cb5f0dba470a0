"""`logstore demo`: the main job on real input."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from logstore.cli.main import cli
from logstore.samples import sample_path
from tests.cli.conftest import Shell


def test_a_newcomers_run(shell: Shell, tmp_path: Path) -> None:
    """As a process of its own, from any directory, with no option: within the 15 seconds of the README, on a machine
    that has nothing else to do."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-m", "logstore.cli", "demo"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 15
    assert done.stderr == ""
    for text in (
        "1. Created topic 'flights' with 3 partitions, keyed by tailnum.",
        "2. Produced 842 records",
        "3. A consumer of group 'flights-readers' read 421 of them, committed, and stopped.",
        "The group's lag is 421 records:",
        "4. A new consumer went on where the group was",
        "and read the other 421: lag 0.",
        "Each of the 842 records came out once",
        "N228JB, 4 records",
        "5. On disk, in Apache Kafka's own format",
        f"flights-0/{0:020d}.log",
        "Try next:",
    ):
        assert text in done.stdout
    store = Shell(tmp_path / "logstore-demo")
    assert store.json("log", "verify")["clean"]
    assert [row["lag"] for row in store.json("group", "list")] == [0]


@pytest.mark.slow
def test_what_it_says_to_try_next_works(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = shell.bare("demo", "--dir", "d").output
    commands = [
        line.strip() for line in text.partition("Try next:")[2].splitlines() if "logstore --path" in line
    ]
    assert len(commands) == 6
    script = (
        "set -eo pipefail\nlogstore() { "
        + f"{sys.executable} -m logstore.cli"
        + ' "$@"; }\n'
        + "\n".join(commands)
    )
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_again_in_the_same_store_loses_nothing(shell: Shell) -> None:
    first = json.loads(shell.bare("--json", "demo", "--dir", str(shell.store)).stdout)
    second = json.loads(shell.bare("--json", "demo", "--dir", str(shell.store)).stdout)
    assert (first["topic"], second["topic"]) == ("flights", "flights-2")
    assert first["records"] == second["records"] == 842
    assert [topic["name"] for topic in shell.json("topic", "list")] == ["flights", "flights-2"]
    assert len(shell.json("group", "list")) == 2


def test_a_file_of_ones_own(shell: Shell, tmp_path: Path) -> None:
    table = tmp_path / "my table.csv"
    table.write_text("city,n\nBern,1\nRome,2\nBern,3\n")
    text = shell.bare("demo", str(table), "--dir", str(shell.store), "--partitions", "2").output
    assert "Created topic 'my-table' with 2 partitions, keyed by city." in text
    assert "Produced 3 records" in text
    assert "Bern, 2 records" in text
    found = shell.json_lines("consume", "my-table", "-e")
    assert sorted(record["key"] for record in found) == ["Bern", "Bern", "Rome"]
    lines = tmp_path / "log.txt"
    lines.write_text("one\ntwo\n")
    assert (
        "Created topic 'log' with 3 partitions.\n"
        in shell.bare("demo", str(lines), "--dir", str(shell.store)).output
    )


def test_what_it_refuses(shell: Shell, tmp_path: Path) -> None:
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "precious").write_text("x")
    assert "is no log store" in shell.bare("demo", "--dir", str(foreign), code=1).output
    assert [path.name for path in foreign.iterdir()] == ["precious"]
    table = tmp_path / "t.csv"
    table.write_text("a,b\n1,2\n")
    assert "no column 'c'; it has a, b" in shell.bare("demo", str(table), "-k", "c", code=2).output
    (tmp_path / "empty.csv").write_text("")
    assert "is empty" in shell.bare("demo", str(tmp_path / "empty.csv"), code=1).output
    (tmp_path / "t.txt").write_text("x\n")
    assert "goes with a .csv file" in shell.bare("demo", str(tmp_path / "t.txt"), "-k", "a", code=2).output


def test_the_sample_is_the_day_it_says() -> None:
    lines = Path(sample_path()).read_text(encoding="utf-8").splitlines()
    assert len(lines) == 843
    columns = lines[0].split(",")
    day, due = columns.index("day"), columns.index("sched_dep_time")
    rows = [line.split(",") for line in lines[1:]]
    assert {tuple(row[:3]) for row in rows} == {("2013", "1", "1")}
    assert day == 2
    assert [int(row[due]) for row in rows] == sorted(int(row[due]) for row in rows)
    assert cli.name == "cli"
