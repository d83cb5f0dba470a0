"""Every command of the tree, also one that is added later: its help, a wrong option, a call that succeeds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import Result

import logstore
from logstore.cli.main import cli
from logstore.seams.fs import OsFileSystem
from replication.cluster.identity import IdentityFile
from rpc.security.access import AccessFiles
from rpc.security.users import Token
from tests.cli.commands import (
    COMMANDS,
    NEED_BROKERS,
    good_call,
)
from tests.cli.conftest import Shell

NODE_READERS = {
    *(
        "backup",
        "broker start",
        "cluster recover",
        "consume",
        "demo",
        "group describe",
        "group list",
        "log dump",
    ),
    *("log salvage", "log verify", "producer list", "restore", "topic describe", "topic get", "topic list"),
    *("transaction describe", "transaction find-hanging", "transaction list"),
}
"""Commands that a cluster's node's directory answers, or that write elsewhere; all others leave it to the cluster."""

every_command = pytest.mark.parametrize("name", COMMANDS)


def tried(shell: Shell, *words: str) -> Result:
    """The result of a call, whatever it is: an exception that is not an exit fails the test."""
    result = shell._runner.invoke(cli, ["--path", str(shell.store), *words], input="")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


@pytest.fixture
def stocked(filled: Shell) -> Shell:
    """What ``good_call`` wants: a group, a producer's name, a transactional id, a compacted topic, one to delete."""
    with logstore.open(str(filled.store)) as store:
        store.create_topic("c", config={"cleanup.policy": "compact"})
        store.create_topic("d")
        store.partition("c", 0).append([(b"k1", b"v")])
        with store.producer(name="p") as producer:
            producer.send("t", b"v")
        with store.producer(transactional_id="x") as producer, producer.transaction() as tx:
            tx.send("t", b"v")
        with store.consumer("t", group="g", until_end=True) as consumer:
            consumer.poll(timeout_s=60)
            consumer.commit()
    stock_node(filled.store.parent)
    stock_users(filled.store.parent, filled.store)
    return filled


def stock_node(tmp: Path) -> None:
    """A directory that is a cluster's node."""
    node = tmp / "node"
    logstore.open(str(node)).close()
    IdentityFile(OsFileSystem(), str(node), 1).take_up("AAAAAAAAAAAAAAAAAAAAAA")


def stock_users(tmp: Path, store: Path) -> None:
    """A user with a token, and a file with a password."""
    AccessFiles(str(store)).add_token("alice", Token("0123456789abcdef", bytes(32), 0))
    (tmp / "password").write_text("word\n")
    (tmp / "password").chmod(0o600)


def files_of(root: Path) -> dict[str, bytes]:
    """What the files of all partitions hold, and the catalogue."""
    files = [
        file
        for file in root.rglob("*")
        if file.is_file() and not file.relative_to(root).parts[0].startswith(".")
    ]
    return {str(file.relative_to(root)): file.read_bytes() for file in files}


@every_command
def test_help_and_unknown_options(shell: Shell, name: str) -> None:
    assert "Usage: " in shell.bare(*name.split(), "--help").stdout
    assert "No such option" in shell.bare(*name.split(), "--no-such", code=2).stderr
    told = json.loads(shell.bare("--json", *name.split(), "--no-such", code=2).stderr)
    assert (told["error"]["name"], "no-such" in told["error"]["message"]) == ("UsageError", True)


@every_command
def test_a_good_call_succeeds(
    stocked: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    result = tried(stocked, *good_call(name, tmp_path, stocked.store))
    if name in NEED_BROKERS:
        assert result.exit_code == 2
        assert "name one with --bootstrap-server" in result.stderr
        return
    assert result.exit_code == 0, result.output


@every_command
def test_a_nodes_directory_is_read_or_refused_by_name(
    stocked: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    IdentityFile(OsFileSystem(), str(stocked.store), 1).take_up("AAAAAAAAAAAAAAAAAAAAAA")
    before = files_of(stocked.store)
    result = tried(stocked, *good_call(name, tmp_path, stocked.store))
    if name in NEED_BROKERS:
        return
    if name in NODE_READERS:
        assert result.exit_code == 0, result.output
    else:
        assert result.exit_code == 1
        assert "is a directory of a cluster's node" in result.stderr
    assert files_of(stocked.store) == before
