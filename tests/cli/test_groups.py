"""`logstore group`: list, describe, seek (dry run first), delete."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.cli.conftest import Shell


@pytest.fixture
def grouped(filled: Shell) -> Shell:
    """Group "g" has read everything of "t"."""
    filled.run("consume", "t", "-g", "g", "-e")
    return filled


def offsets(shell: Shell, group: str = "g") -> list[int]:
    (described,) = shell.json("group", "describe", group)
    return [row["committed_offset"] for row in described["partitions"]]


def test_list_and_describe(grouped: Shell) -> None:
    grouped.run("consume", "t", "-g", "slow", "-n", "10")
    assert grouped.json("group", "list") == [
        {"group": "g", "state": "empty", "members": 0, "partitions": 3, "lag": 0},
        {"group": "slow", "state": "empty", "members": 0, "partitions": 3, "lag": 20},
    ]
    assert grouped.run("group", "list").stdout.splitlines()[2].split() == ["slow", "empty", "0", "3", "20"]
    text = grouped.run("group", "describe", "g", "slow").stdout
    assert "group     g\nstate     empty\nassignor  sticky\n" in text
    assert text.count("TOPIC  PARTITION  COMMITTED  END  LAG  MEMBER") == 2
    assert "no group 'nobody'" in grouped.run("group", "describe", "nobody", code=1).stderr


def test_a_live_member_is_shown(grouped: Shell) -> None:
    process = grouped.process("consume", "t", "-g", "g", "-o", "start")
    try:
        members: list[Any] = []
        deadline = time.monotonic() + 60
        while not members:
            assert process.poll() is None
            assert time.monotonic() < deadline
            (found,) = grouped.json("group", "describe", "g")
            members = found["members"]
        assert f"pid {process.pid}" in members[0]["client"]
        assert (found["state"], members[0]["assigned"]) == ("stable", [["t", 0], ["t", 1], ["t", 2]])
        assert {row["member"] for row in found["partitions"]} == {members[0]["member_id"]}
        text = grouped.run("group", "describe", "g").stdout
        assert text.splitlines()[3].split() == ["MEMBER", "INSTANCE", "CLIENT", "PARTITIONS", "REVOKING"]
        assert "has members: pid" in grouped.run("group", "seek", "g", "--to-earliest", code=1).stderr
        assert grouped.run("group", "seek", "g", "--to-earliest", "--execute", code=1).stderr.startswith(
            "Error: "
        )
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (["--to-earliest"], lambda ends: [0, 0, 0]),
        (["--to-latest"], lambda ends: ends),
        (["--to-offset", "2"], lambda ends: [2, 2, 2]),
        (["--to-offset", "1000"], lambda ends: ends),
        (["--shift", "-3"], lambda ends: [end - 3 for end in ends]),
        (["--shift", "-1000"], lambda ends: [0, 0, 0]),
        (["--to-timestamp", "0"], lambda ends: [0, 0, 0]),
        (["--to-timestamp", "2000-01-01"], lambda ends: [0, 0, 0]),
        (["--to-timestamp", "9000000000000"], lambda ends: ends),
    ],
)
def test_seek_shows_first_and_moves_when_told(grouped: Shell, where: list[str], expected: Any) -> None:
    ends = offsets(grouped)
    shown = grouped.json("group", "seek", "g", *where)
    assert shown["executed"] is False
    assert [move["after"] for move in shown["moves"]] == expected(ends)
    assert offsets(grouped) == ends
    assert "add --execute" in grouped.run("group", "seek", "g", *where).stderr
    assert "moved group 'g'" in grouped.run("group", "seek", "g", *where, "--execute").stderr
    assert offsets(grouped) == expected(ends)


def test_seek_of_some_topics_and_of_a_new_group(grouped: Shell) -> None:
    grouped.run("topic", "create", "u")
    grouped.run("produce", "u", stdin="a\nb\nc\n")
    moved = grouped.json("group", "seek", "fresh", "--to-offset", "1", "--topic", "u", "--execute")
    assert moved["moves"] == [{"topic": "u", "partition": 0, "before": None, "after": 1}]
    assert grouped.run("consume", "u", "-g", "fresh", "-e").stdout == "b\nc\n"
    assert "no committed offsets" in grouped.run("group", "seek", "fresher", "--to-earliest", code=1).stderr


def test_seek_needs_one_destination(grouped: Shell) -> None:
    for where in ([], ["--to-earliest", "--to-latest"], ["--shift", "0", "--to-offset", "0"]):
        assert "exactly one of" in grouped.run("group", "seek", "g", *where, code=2).stderr
    assert "is no time" in grouped.run("group", "seek", "g", "--to-timestamp", "soon", code=2).stderr
    assert grouped.json("group", "seek", "g", "--shift", "0")["moves"][0]["after"] == offsets(grouped)[0]


def test_delete(grouped: Shell) -> None:
    assert grouped.json("group", "delete", "g") == {"group": "g", "deleted": True}
    assert grouped.json("group", "list") == []
    assert grouped.run("group", "delete", "g", code=1).stderr.startswith("Error: ")
