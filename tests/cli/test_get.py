"""`logstore topic get`."""

from __future__ import annotations

import json

import pytest

from tests.cli.conftest import Shell


@pytest.fixture
def compacted(shell: Shell) -> Shell:
    """Topic "c" with the keys a (deleted), b and k0 to k9, over two partitions."""
    shell.run("topic", "create", "c", "-p", "2", "-c", "cleanup.policy=compact")
    rows = [
        {"key": f"k{number % 10}", "value": f"v{number}", "timestamp_ms": 1_000 + number}
        for number in range(20)
    ]
    rows += [{"key": "a", "value": "1"}, {"key": "a", "value": None}, {"key": "b", "value_base64": "/wA="}]
    shell.run("produce", "c", "--format", "json", stdin="".join(json.dumps(row) + "\n" for row in rows))
    return shell


def test_the_latest_value(compacted: Shell) -> None:
    assert compacted.run("topic", "get", "c", "k3").stdout == "v13\n"
    assert compacted.run("topic", "get", "c", "6b33", "--hex").stdout == "v13\n"
    assert compacted.run("topic", "get", "c", "b").stdout_bytes == b"\xff\x00\n"
    found = compacted.json("topic", "get", "c", "k3")
    assert (found["key"], found["value"], found["timestamp_ms"]) == ("k3", "v13", 1_013)
    assert compacted.run("topic", "get", "c", "k3", "--as-of", "1012").stdout == "v3\n"
    assert compacted.run("topic", "get", "c", "k3", "--as-of", "1970-01-01T00:00:01.013Z").stdout == "v13\n"


def test_what_is_not_there(compacted: Shell) -> None:
    for key in ("a", "nobody"):
        told = compacted.run("topic", "get", "c", key, code=1).stderr
        assert f"topic 'c' has no value for key '{key}'" in told
    assert (
        "no value for key 'k3'" in compacted.run("topic", "get", "c", "k3", "--as-of", "1002", code=1).stderr
    )
    assert "no topic" in compacted.run("topic", "get", "nope", "k", code=1).stderr
    assert "--as-of 'then'" in compacted.run("topic", "get", "c", "k3", "--as-of", "then", code=2).stderr
    compacted.run("topic", "create", "plain")
    assert "does not compact" in compacted.run("topic", "get", "plain", "k", code=1).stderr
    assert "no value" in compacted.run("topic", "get", "plain", "k", "--any-policy", code=1).stderr
