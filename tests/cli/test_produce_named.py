"""`logstore produce --name`: killed at any time and run again, the log holds the input exactly once."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import pytest

from logstore.client.partitioner import murmur3_partition
from tests.cli.conftest import Shell

PATIENCE_S = 60.0


def flights(path: Path, count: int) -> list[tuple[str, str]]:
    """A kv file of ``count`` rows, some without a key; (key, value) as they stand there."""
    rows = [("" if number % 5 == 0 else f"N{number % 37}", f"flight {number}") for number in range(count)]
    path.write_text("".join(f"{key}\t{value}\n" for key, value in rows))
    return rows


def expected(rows: list[tuple[str, str]], partitions: int) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {partition: [] for partition in range(partitions)}
    for number, (key, value) in enumerate(rows):
        place = murmur3_partition(key.encode(), partitions) if key else number % partitions
        found[place].append(value)
    return found


def stored(shell: Shell, partitions: int) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {partition: [] for partition in range(partitions)}
    for record in shell.json_lines("consume", "t", "-e"):
        found[record["partition"]].append(record["value"])
    return found


def test_the_same_input_again_adds_nothing(shell: Shell, tmp_path: Path) -> None:
    shell.run("topic", "create", "t", "-p", "3")
    rows = flights(tmp_path / "f", 900)
    command = ("produce", "t", "--name", "import", "--format", "kv", str(tmp_path / "f"))
    report = shell.json(*command)
    assert (report["records"], report["skipped"]) == (900, 0)
    report = shell.json(*command)
    assert (report["records"], report["skipped"], report["partitions"]) == (0, 900, [])
    with (tmp_path / "f").open("a") as file:
        file.write("N1\tone more\n")
    again = shell.run(*command)
    assert "1 records to 't' in" in again.stderr
    assert "900 rows were in already and skipped" in again.stderr
    assert stored(shell, 3) == expected([*rows, ("N1", "one more")], 3)


@pytest.mark.slow
def test_killed_again_and_again_it_stores_each_row_once(shell: Shell, tmp_path: Path) -> None:
    partitions, kills = 3, 4
    shell.run("topic", "create", "t", "-p", str(partitions))
    rows = flights(tmp_path / "f", 40_000)
    command = ("--json", "produce", "t", "--name", "import", "--format", "kv", "--batch-bytes", "2000")
    segments = [shell.store / f"t-{partition}" / f"{0:020}.log" for partition in range(partitions)]

    def size() -> int:
        return sum(path.stat().st_size for path in segments if path.exists())

    killed = 0
    for _ in range(kills):
        process = shell.process(*command, str(tmp_path / "f"))
        before, end_s = size(), time.monotonic() + PATIENCE_S
        while size() < before + 30_000 and process.poll() is None:
            assert time.monotonic() < end_s
            time.sleep(0.001)
        killed += process.poll() is None
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=PATIENCE_S)
    assert killed >= 2
    process = shell.process(*command, str(tmp_path / "f"))
    out, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, errors
    report = json.loads(out)
    assert report["skipped"] > 0
    assert report["records"] + report["skipped"] == len(rows)
    assert stored(shell, partitions) == expected(rows, partitions)


def test_partitions_added_since_do_not_move_rows(shell: Shell, tmp_path: Path) -> None:
    shell.run("topic", "create", "t", "-p", "2")
    rows = flights(tmp_path / "f", 100)
    command = ("produce", "t", "--name", "import", "--format", "kv", str(tmp_path / "f"))
    shell.run(*command)
    shell.run("topic", "add-partitions", "t", "-t", "5", "--allow-keyed")
    assert "rows go to partitions 0 to 1 of 5" in shell.run(*command).stderr
    assert {key: part for key, part in stored(shell, 5).items() if part} == expected(rows, 2)


def test_an_input_that_cannot_be_the_first_one_is_refused(shell: Shell) -> None:
    shell.run("topic", "create", "t")
    shell.run("produce", "t", "--name", "import", stdin="a\nb\nc\n")
    result = shell.run("produce", "t", "--name", "import", stdin="a\n", code=1)
    assert "holds 2 more records of producer 'import'" in result.stderr
    assert "--name does not go with --acks 1" in shell.run(
        "produce", "t", "--name", "n", "--acks", "1", stdin="a\n", code=2
    ).stderr  # fmt: skip
    assert "cannot name a producer" in shell.run("produce", "t", "--name", "a b", stdin="", code=1).stderr


def test_a_bad_line_is_named_and_its_repair_goes_on(shell: Shell, tmp_path: Path) -> None:
    shell.run("topic", "create", "t", "-p", "2")
    path = tmp_path / "f"
    path.write_text("a\t1\nb\t2\nbad\nc\t3\n")
    command = ("produce", "t", "--name", "import", "--format", "kv", str(path))
    assert "line 3" in shell.run(*command, code=1).stderr
    path.write_text("a\t1\nb\t2\nd\tgood\nc\t3\n")
    assert shell.json(*command)["records"] == 2
    assert stored(shell, 2) == expected([("a", "1"), ("b", "2"), ("d", "good"), ("c", "3")], 2)


def test_names_are_listed_and_deleted(shell: Shell) -> None:
    shell.run("topic", "create", "t")
    shell.run("produce", "t", "--name", "import", stdin="a\n")
    (row,) = shell.json("producer", "list")
    assert (row["name"], row["epoch"], row["holder"]) == ("import", 0, None)
    assert "import" in shell.run("producer", "list").stdout
    assert "deleted producer 'import'" in shell.run("producer", "delete", "import").stderr
    assert shell.json("producer", "list") == []
    assert "no producer 'import'" in shell.run("producer", "delete", "import", code=1).stderr
    again = shell.run("produce", "t", "--name", "import", stdin="a\n")
    assert "1 records to 't'" in again.stderr
    assert "skipped" not in again.stderr
