"""The commands on a Kafka broker's directory: those that read work, those that write say why not."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from logstore.cli.streams.failures import EXIT_FAILED, EXIT_PARTIAL, EXIT_USAGE
from logstore.directory.catalogue import decode_uuid
from logstore.format.batch import encode_batch
from tests.cli.conftest import Shell
from tests.golden_broker import expected, unpack
from tests.kafka_directory import test_live_groups as live_groups


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


@pytest.fixture
def second(broker: Shell, tmp_path: Path) -> Path:
    """Another of the broker's directories, with three partitions of its own."""
    other = tmp_path / "second"
    other.mkdir()
    shutil.copy(broker.store / "meta.properties", other)
    for name in ("codecs-1", "codecs-3", "plain-0"):
        (broker.store / name).rename(other / name)
    return other


def test_all_log_dirs_together_answer_in_full(broker: Shell, second: Path) -> None:
    both = ("--path", str(broker.store), "--path", str(second))
    behind = broker.run("topic", "list", *both).stdout  # a command's own --path stands for the ones before it
    listed = broker.bare(*both, "topic", "list").stdout
    assert listed == behind
    assert [line.split()[1:3] for line in listed.splitlines() if line.startswith("codecs")] == [["5", "312"]]
    assert len(broker.bare(*both, "consume", "codecs", "--exit", "-f", "%p %o\\n").stdout.splitlines()) == 312
    verified = json.loads(broker.bare(*both, "--json", "log", "verify").stdout)
    assert (verified["clean"], verified["partitions"]) == (True, 20)
    assert json.loads(broker.bare(*both, "--json", "log", "verify", "codecs").stdout)["partitions"] == 5
    assert "belongs to a topic nope" in broker.bare(*both, "log", "verify", "nope", code=EXIT_FAILED).stderr
    dumped = broker.bare(*both, "--json", "log", "dump", "plain-0", "--records").stdout
    assert len(dumped.splitlines()) == 48
    refused = broker.bare(*both, "backup", str(second.parent / "copy"), code=EXIT_USAGE)
    assert "works on one directory" in refused.stderr


def test_one_log_dir_reads_what_is_there_and_names_the_rest(broker: Shell, second: Path) -> None:
    told = broker.run("consume", "codecs", "--exit", "-f", "%p\\n", code=EXIT_PARTIAL)
    assert set(told.stdout.split()) == {"0", "2", "4"}
    assert "partial: partitions 1, 3 of 'codecs' lie in another directory" in told.stderr
    described = broker.run("topic", "describe", "codecs", code=EXIT_PARTIAL).stdout
    assert "elsewhere partitions 1, 3" in described
    assert broker.json("topic", "describe", "codecs", code=EXIT_PARTIAL)[0]["missing"] == [1, 3]
    assert broker.json("topic", "describe", "epochs")[0]["missing"] == []
    assert broker.run("topic", "list", code=EXIT_PARTIAL).stderr.count("partial: ") == 2
    group = broker.run("group", "describe", "readers", code=EXIT_PARTIAL)
    assert "plain          0         17  elsewhere" in group.stdout
    (row,) = broker.json("group", "describe", "readers", code=EXIT_PARTIAL)[0]["elsewhere"]
    assert row == {"topic": "plain", "partition": 0, "committed_offset": 17}
    assert broker.json("group", "list", code=EXIT_PARTIAL)[0]["partitions"] == 1
    broker.run("transaction", "find-hanging", code=EXIT_PARTIAL)
    assert "no folder plain-0" in broker.run("consume", "plain", "--exit", code=EXIT_FAILED).stderr
    assert "no folder codecs-1" in broker.run("consume", "codecs", "-p", "1", "-e", code=EXIT_FAILED).stderr
    broker.run("consume", "epochs", "--exit")


def test_one_log_dir_without_the_metadata_log(broker: Shell, second: Path) -> None:
    broker.store = second
    described = broker.run("topic", "describe", "codecs", code=EXIT_PARTIAL).stdout
    assert "settings  not known: the metadata log is in another directory" in described
    assert broker.json("topic", "describe", "plain")[0]["config_known"] is False


def test_live_groups_show_state_members_and_assignor(broker: Shell) -> None:
    ids = (broker.store / "plain-0" / "partition.metadata").read_text().split()[-1]
    segment = sorted((broker.store / "__consumer_offsets-0").glob("*.log"))[-1]
    end = broker.json("topic", "describe", "__consumer_offsets")[0]["partitions"][0]["log_end_offset"]
    batch = encode_batch(live_groups.rows("new", decode_uuid(ids)), now_ms=1)
    with segment.open("ab") as file:
        file.write(end.to_bytes(8, "big") + batch[8:])
    text = broker.run("group", "describe", "new").stdout
    assert "state     stable" in text
    assert "assignor  uniform" in text
    assert "m-1     static-1  consumer-1/10.0.0.7" in text
    assert [row["members"] for row in broker.json("group", "list") if row["group"] == "new"] == [1]
