"""The commands over a broker: those that need the client API alone work as on a directory, the others say so."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from logstore.cli.main import cli
from tests.cli.commands import COMMANDS, good_call
from tests.cli.test_every_command import stock_node
from tests.rpc.served import Served

NEED_A_DIRECTORY = {
    "backup",
    "log compact",
    "log verify",
    "maintain",
}
OWN_PLACE = {"broker start", "demo", "log dump", "log salvage", "restore"}
"""Commands whose own words name directories or files."""
NEED_A_CLUSTER = {"cluster add", "cluster drain", "cluster move", "cluster remove"}
NEED_ACCESS_CONTROL = {name for name in COMMANDS if name.startswith(("acl ", "user "))}


class BrokerShell:
    """``run("topic", "list")`` is `logstore --bootstrap-server ADDRESS topic list`."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._runner = CliRunner()

    def run(self, *words: str, stdin: str = "", code: int | None = 0) -> Result:
        result = self._runner.invoke(cli, ["--bootstrap-server", self.address, *words], input=stdin)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert code is None or result.exit_code == code, result.output
        return result


@pytest.fixture
def broker_shell(served: Served, monkeypatch: pytest.MonkeyPatch) -> BrokerShell:
    monkeypatch.delenv("LOGSTORE_PATH", raising=False)
    monkeypatch.delenv("LOGSTORE_BOOTSTRAP", raising=False)
    return BrokerShell(served.address)


@pytest.fixture
def stocked(served: Served, broker_shell: BrokerShell) -> BrokerShell:
    """What ``good_call`` wants."""
    broker_shell.run("topic", "create", "t", "--partitions", "3")
    lines = "".join(f"k{number % 7}:value {number}\n" for number in range(30))
    broker_shell.run("produce", "t", "--format", "kv", "-s", ":", "--name", "p", stdin=lines)
    broker_shell.run("topic", "create", "c", "-c", "cleanup.policy=compact")
    broker_shell.run("topic", "create", "d")
    broker_shell.run("produce", "c", "--format", "kv", "-s", ":", stdin="k1:v\n")
    with (
        served.connect() as client,
        client.producer(transactional_id="x") as producer,
        producer.transaction() as transaction,
    ):
        transaction.send("t", b"v")
    broker_shell.run("consume", "t", "-e", "-n", "3", "--group", "g")
    return broker_shell


@pytest.mark.parametrize("name", sorted(COMMANDS.keys() - OWN_PLACE))
def test_every_command_works_or_says_that_it_needs_a_directory(
    stocked: BrokerShell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    words = good_call(name, tmp_path, tmp_path / "store")
    if name in NEED_ACCESS_CONTROL:
        (tmp_path / "password").write_text("word")
        (tmp_path / "password").chmod(0o600)
        assert "this broker has no access control" in stocked.run(*words, code=1).stderr
    elif name in NEED_A_CLUSTER:
        assert "this broker is alone" in stocked.run(*words, code=1).stderr
    elif name in NEED_A_DIRECTORY:
        assert "works on a directory: name it with --path" in stocked.run(*words, code=2).stderr
    else:
        stock_node(tmp_path)
        stocked.run(*words)


def test_records_go_in_and_out(stocked: BrokerShell) -> None:
    printed = stocked.run("consume", "t", "-e", "-f", "%k=%s\\n").stdout.splitlines()
    assert sorted(printed)[1:4] == ["k0=value 0", "k0=value 14", "k0=value 21"]
    last = stocked.run("consume", "t", "-p", "0", "-o", "-2", "-e", "--json").stdout.splitlines()
    every = stocked.run("consume", "t", "-p", "0", "-e", "--json").stdout.splitlines()
    assert last == every[-2:]
    assert json.loads(stocked.run("topic", "get", "c", "k1", "--json").stdout)["value"] == "v"
    (row,) = json.loads(stocked.run("--json", "group", "describe", "g").stdout)
    assert sum(place["committed_offset"] or 0 for place in row["partitions"]) == 3


def test_a_named_import_goes_on_where_it_was(stocked: BrokerShell) -> None:
    lines = "".join(f"k{number % 7}:value {number}\n" for number in range(40))
    again = stocked.run("produce", "t", "--format", "kv", "-s", ":", "--name", "p", "--json", stdin=lines)
    told = json.loads(again.stdout)
    assert (told["records"], told["skipped"]) == (10, 30)


def test_trim_by_offset_and_by_time(stocked: BrokerShell) -> None:
    (row,) = stocked.run(
        "--json", "topic", "trim", "t", "-p", "0", "--before-offset", "2"
    ).stdout.splitlines()
    assert json.loads(row)["log_start_offset"] == 2
    later = str(int(time.time() * 1000) + 3_600_000)
    rows = stocked.run("--json", "topic", "trim", "t", "--before-timestamp", later).stdout.splitlines()
    ends = [json.loads(row)["log_start_offset"] for row in rows]
    found = json.loads(stocked.run("--json", "topic", "describe", "t").stdout)[0]["partitions"]
    assert [row["high_watermark"] for row in found] == ends


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("topic", "describe", "nope"), "there is no topic 'nope'"),
        (("produce", "nope"), "there is no topic 'nope'"),
        (("produce", "t", "-p", "7"), "topic 't' has no partition 7"),
        (("topic", "trim", "t", "-p", "7", "--before-offset", "1"), "topic 't' has no partition 7"),
        (("topic", "trim", "t", "--before-offset", "9" * 30), "9999"),
        (("topic", "add-partitions", "t", "-t", "9" * 30), "9999"),
        (("topic", "create", "u", "-p", "9" * 30), "9999"),
        (("topic", "create", "t"), "'t'"),
        (("group", "describe", "nope"), "nope"),
    ],
)
def test_errors_are_one_sentence(stocked: BrokerShell, words: tuple[str, ...], told: str) -> None:
    failed = stocked.run(*words, stdin="x\n", code=1)
    assert told in failed.stderr.splitlines()[-1]
    assert failed.stderr.splitlines()[-1].startswith("Error: ")


def test_a_broker_that_is_not_there_is_waited_for_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("logstore.cli.target._CONNECT_S", (0.1, 0.2))
    failed = BrokerShell("127.0.0.1:1").run("topic", "list", code=1)
    assert failed.stderr.startswith("no broker answers at 127.0.0.1:1 yet: trying for 0.2 s more")
    assert "check that a broker runs at the address: `logstore broker start`" in failed.stderr
