"""`logstore topic`: create, list, describe, alter, delete, add-partitions."""

from __future__ import annotations

import os

import logstore
from tests.cli.conftest import Shell


def test_create_list_describe(shell: Shell) -> None:
    result = shell.run(
        "topic", "create", "flights", "-p", "3", "-c", "segment.bytes=4096", "-c", "flush.ms=50"
    )
    assert "created topic 'flights' with 3 partitions" in result.stderr
    assert shell.run("topic", "list").stdout.splitlines() == [
        "TOPIC    PARTITIONS  RECORDS  SIZE",
        "flights           3        0  0 B",
    ]
    text = shell.run("topic", "describe", "flights").stdout
    assert "settings  flush.ms=50, segment.bytes=4096" in text
    described = shell.json("topic", "describe", "flights")[0]
    assert described["config"] == {"segment.bytes": "4096", "flush.ms": "50"}
    assert [row["partition"] for row in described["partitions"]] == [0, 1, 2]


def test_create_refuses_what_cannot_be(filled: Shell) -> None:
    cases = (
        (["t"], "exists already"),
        (["a/b"], "cannot name a topic"),
        (["__x"], "internal topics"),
        (["x", "-p", "0"], "0 partitions"),
        (["x", "-c", "segment.byts=1"], "did you mean segment.bytes?"),
        (["x", "-c", "segment.bytes=big"], "segment.bytes='big' is not valid"),
        (["x", "-c", "preallocate=true"], "not built yet"),
        (["x", "--replication-factor", "2"], "a store without a cluster has one copy of each partition"),
    )
    for arguments, message in cases:
        assert message in filled.run("topic", "create", *arguments, code=1).stderr
    assert "is not key=value" in filled.run("topic", "create", "x", "-c", "segment.bytes", code=2).stderr
    assert "x" not in filled.run("topic", "list").stdout.split()
    filled.run("topic", "create", "one", "--replication-factor", "1")


def test_if_not_exists(filled: Shell) -> None:
    assert filled.json("topic", "create", "t", "--if-not-exists")["created"] is False
    assert filled.json("topic", "create", "u", "--if-not-exists")["created"] is True
    assert len(filled.json("topic", "describe", "t")[0]["partitions"]) == 3


def test_list_counts_and_internal_topics(filled: Shell) -> None:
    filled.run("consume", "t", "-e", "--group", "g")
    assert [row["name"] for row in filled.json("topic", "list")] == ["t"]
    assert [row["name"] for row in filled.json("topic", "list", "--internal")] == ["__consumer_offsets", "t"]
    (line,) = [line for line in filled.run("topic", "list").stdout.splitlines() if line.startswith("t ")]
    assert line.split()[:3] == ["t", "3", "30"]


def test_alter(filled: Shell) -> None:
    filled.run("topic", "alter", "t", "-c", "flush.ms=5", "-c", "segment.ms=1000")
    assert filled.json("topic", "describe", "t")[0]["config"] == {"flush.ms": "5", "segment.ms": "1000"}
    altered = filled.json("topic", "alter", "t", "--delete-config", "flush.ms")
    assert altered["config"] == {"segment.ms": "1000"}
    assert "nothing to change" in filled.run("topic", "alter", "t", code=2).stderr
    assert "did you mean" in filled.run("topic", "alter", "t", "-c", "flush.mss=1", code=1).stderr


def test_add_partitions_asks_for_consent_where_keys_would_move(filled: Shell) -> None:
    filled.run("topic", "create", "empty")
    assert "now has 4 partitions" in filled.run("topic", "add-partitions", "empty", "--total", "4").stderr
    filled.run("topic", "add-partitions", "t", "--total", "5", code=1)
    assert len(filled.json("topic", "describe", "t")[0]["partitions"]) == 3
    grown = filled.json("topic", "add-partitions", "t", "--total", "5", "--allow-keyed")
    assert len(grown["partitions"]) == 5


def test_delete_needs_consent(filled: Shell) -> None:
    assert "needs --yes" in filled.run("topic", "delete", "t", code=2).stderr
    assert filled.json("topic", "delete", "t", "--yes") == {"topic": "t", "deleted": True, "records": 30}
    assert filled.json("topic", "list") == []
    assert "there is no topic" in filled.run("topic", "delete", "t", "--yes", code=1).stderr


def test_describe_names_the_owner(filled: Shell) -> None:
    assert filled.json("topic", "describe", "t")[0]["owner"] is None
    with logstore.open(filled.store) as store:
        store.partition("t", 0).append([(None, b"x")])
        assert f"pid {os.getpid()}" in filled.json("topic", "describe", "t")[0]["owner"]
        assert f"owner     pid {os.getpid()}" in filled.run("topic", "describe", "t").stdout


def test_trim_moves_the_start_at_once(filled: Shell) -> None:
    whole = {
        row["partition"]: row["high_watermark"]
        for row in filled.json("topic", "describe", "t")[0]["partitions"]
    }
    assert filled.run("topic", "trim", "t", code=2).stderr.count("--before-offset") >= 1
    filled.run("topic", "trim", "t", "--before-offset", "1", "--before-timestamp", "5", code=2)
    filled.run("topic", "trim", "t", "--before-offset", "4000", code=1)
    filled.run("topic", "trim", "t", "--before-timestamp", "soon", code=2)
    assert "STARTS AT" in filled.run("topic", "trim", "t", "--partition", "0", "--before-offset", "1").stdout
    starts = {
        row["partition"]: row["log_start_offset"]
        for row in filled.json("topic", "describe", "t")[0]["partitions"]
    }
    assert starts == {number: int(number == 0) for number in whole}
    filled.run("topic", "trim", "t", "--before-offset", "-1")
    starts = {
        row["partition"]: row["log_start_offset"]
        for row in filled.json("topic", "describe", "t")[0]["partitions"]
    }
    assert starts == whole
    assert filled.run("consume", "t", "-e").stdout == ""
    filled.run("produce", "t", stdin="again\n")
    assert filled.run("consume", "t", "-e").stdout == "again\n"
    filled.run("topic", "trim", "t", "--before-timestamp", "2001-01-01")
    assert filled.run("consume", "t", "-e").stdout == "again\n"
