"""Three brokers as real processes: users and rules are changed at any of them, and in force at all."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

import logstore
from logstore.cli.main import cli
from logstore.errors import LogStoreError
from rpc.errors import AccessDeniedError, AuthenticationError
from rpc.handlers.caller import Resource
from rpc.security.access import AccessFiles
from rpc.security.rules import Pattern, Rule
from rpc.security.scram import MECHANISMS, Verifier, make_verifier
from rpc.testing.broker import BrokerForTests
from rpc.testing.cluster import ClusterForTests
from tests.rpc.peers.world import until


def allowed(operation: str) -> Rule:
    return Rule("User:alice", Resource.TOPIC, Pattern.LITERAL, "t", operation, True)


def verifiers(password: str) -> dict[str, Verifier]:
    return {one: make_verifier(password, one, 4096) for one in MECHANISMS}


@pytest.mark.slow
def test_users_and_rules_are_the_clusters(tmp_path: Path) -> None:
    """The first of them comes from a directory that was a single broker's."""
    with logstore.open(tmp_path / "node-1") as store:
        store.create_topic("t")
    AccessFiles(str(tmp_path / "node-1")).set_password("admin", verifiers("open"))
    admins = {"user": "admin", "password": "open"}
    with ClusterForTests(tmp_path, access_control=True, super_users="User:admin") as cluster:
        one, two, three = (cluster.brokers[node].address for node in (1, 2, 3))
        with logstore.connect(one, **admins) as admin:
            admin.security.set_password("alice", verifiers("sesame"))
        with logstore.connect(two, **admins) as admin:
            admin.security.alter_rules([allowed("write")], [])

        def write() -> str:
            try:
                with logstore.connect(three, user="alice", password="sesame") as alice:
                    alice.partition("t", 0).append([(b"k", b"v")])
            except LogStoreError as error:
                return type(error).__name__
            return "written"

        until(lambda: write() == "written", "alice may write")
        cluster.kill(2)
        cluster.restart(2)
        with (
            logstore.connect(two, user="alice", password="sesame") as alice,
            pytest.raises(AccessDeniedError),
        ):
            alice.delete_topic("t")
        with logstore.connect(two, **admins) as admin:
            assert admin.security.list_rules() == [allowed("write")]
            admin.security.alter_rules([], [allowed("write")])
        until(lambda: write() == AccessDeniedError.__name__, "alice may write no more")
        with logstore.connect(three, **admins) as admin:
            admin.security.remove_user("alice")
        until(lambda: write() == AuthenticationError.__name__, "alice is no user")
        result = CliRunner().invoke(cli, ["--path", str(tmp_path / "node-1"), "user", "list"])
        assert result.exit_code == 1
        assert "a directory of a cluster's node" in result.output
    BrokerForTests.end_spares()
