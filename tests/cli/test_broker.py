"""The commands on a Kafka broker's directory: those that read work, those that write say why not."""

from __future__ import annotations

from pathlib import Path

import pytest

from logstore.cli.failures import EXIT_FAILED
from tests.cli.conftest import Shell
from tests.golden_broker import expected, unpack


@pytest.fixture
def broker(shell: Shell, tmp_path: Path) -> Shell:
    shell.store = unpack("killed", tmp_path)
    return shell


def test_topics_groups_and_records(broker: Shell) -> None:
    listed = broker.run("topic", "list").stdout
    assert "squeezed" in listed
    assert "__consumer_offsets" not in listed
    assert "removed" not in listed
    assert "cleanup.policy=compact" in broker.run("topic", "describe", "squeezed").stdout
    assert "readers" in broker.run("group", "list").stdout
    found = broker.json_lines("consume", "epochs", "--exit")
    assert [row["offset"] for row in found] == list(range(52))


def test_files_are_dumped_and_verified(broker: Shell) -> None:
    dumped = broker.json_lines("log", "dump", "squeezed-1", "--records")
    offsets = [row["offset"] for row in dumped]
    # A dump shows what stands in the files, aborted records as well.
    assert offsets == [row[0] for row in expected("killed")["squeezed", 1].records]
    report = broker.json("log", "verify")
    assert report["clean"]
    assert report["partitions"] == 20
    (broker.store / "replication-offset-checkpoint").write_text("0\n1\n")
    assert not broker.json("log", "verify", code=EXIT_FAILED)["clean"]


@pytest.mark.parametrize(
    "command",
    [
        ("produce", "plain"),
        ("topic", "create", "new"),
        ("topic", "delete", "plain", "--yes"),
        ("consume", "plain", "--group", "readers"),
        ("group", "delete", "readers"),
    ],
)
def test_what_writes_is_refused(broker: Shell, command: tuple[str, ...]) -> None:
    before = {path: path.stat().st_mtime_ns for path in broker.store.rglob("*")}
    told = broker.run(*command, stdin="x\n", code=EXIT_FAILED)
    assert "is a Kafka broker's directory" in told.stderr
    assert "only read" in told.stderr
    assert {path: path.stat().st_mtime_ns for path in broker.store.rglob("*")} == before
