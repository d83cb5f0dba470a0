"""`logstore broker start` with security, as a process: what it takes, tells and refuses."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import logstore
from rpc.client.store import connect
from rpc.errors import AccessDeniedError
from rpc.handlers.caller import Resource
from rpc.security.access import AccessFiles
from rpc.security.scram import make_verifier
from rpc.security.users import make_token
from tests.rpc.broker_process import PATIENCE_S, REPOSITORY, BrokerUnderTest, command, environment
from tests.rpc.security.authority import Authority, Pair
from tests.rpc.security.secured import rule


def settings(pair: Pair) -> dict[str, str]:
    return {
        "LOGSTORE_BROKER_TLS_CERTIFICATE": pair.certificate,
        "LOGSTORE_BROKER_TLS_KEY": pair.key,
        "LOGSTORE_BROKER_ACCESS_CONTROL": "true",
        "LOGSTORE_BROKER_AUTHENTICATION_REQUIRED": "true",
    }


def test_a_broker_with_tls_users_and_rules(tmp_path: Path, pair: Pair, authority: Authority) -> None:
    data = tmp_path / "data"
    with logstore.open(str(data)) as store:
        store.create_topic("t")
    access = AccessFiles(str(data))
    text, token = make_token(0)
    access.add_token("alice", token)
    broker = BrokerUnderTest(data, **settings(pair))
    try:
        with connect(broker.address, tls_ca=authority.file, token=text) as alice:
            with pytest.raises(AccessDeniedError):
                alice.backend.describe_topic("t")
            access.alter_rules([rule("alice", "write", Resource.TOPIC, "t")], [])
            until_allowed(lambda: alice.backend.describe_topic("t"))
            with alice.producer() as producer:
                assert producer.send("t", b"v").result(timeout_s=PATIENCE_S).offset == 0
        code, logged = broker.end()
    finally:
        broker.dispose()
    assert code == 0
    assert 'WARNING logstore.audit: denied operation=describe resource=topic name="t"' in logged
    assert text not in logged


def test_clients_log_in_anew_at_a_broker_that_was_killed(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with logstore.open(str(data)) as store:
        store.create_topic("t")
    access = AccessFiles(str(data))
    access.set_password("alice", {"SCRAM-SHA-256": make_verifier("word", "SCRAM-SHA-256", 4096)})
    access.alter_rules(
        [rule("alice", "all", Resource.TOPIC, "*"), rule("alice", "all", Resource.GROUP, "*")], []
    )
    broker = BrokerUnderTest(data, LOGSTORE_BROKER_ACCESS_CONTROL="true")
    try:
        with connect(broker.address, user="alice", password="word") as alice, alice.producer() as producer:
            for number in range(2):
                sent = producer.send("t", b"%d" % number)
                assert sent.result(timeout_s=PATIENCE_S).offset == number
                broker.kill()
                broker.restart()
            with alice.consumer("t", group="g", until_end=True) as consumer:
                assert [record.value for record in consumer] == [b"0", b"1"]
    finally:
        broker.dispose()


def until_allowed(act: object) -> None:
    import time

    assert callable(act)
    until_s = time.monotonic() + PATIENCE_S
    while True:
        try:
            act()
            return
        except AccessDeniedError:
            assert time.monotonic() < until_s
            time.sleep(0.05)


@pytest.mark.parametrize("what", ["rules", "a certificate", "a key that others can read"])
def test_a_broker_that_does_not_start(what: str, tmp_path: Path, pair: Pair, authority: Authority) -> None:
    data = tmp_path / "data"
    with logstore.open(str(data)):
        pass
    mine = authority.issue_for_broker()
    if what == "rules":
        AccessFiles(str(data)).alter_rules([rule("alice", "write", Resource.TOPIC, "t")], [])
        (data / ".security" / "rules.json").write_text("{}")
        told = "rules.json cannot be understood"
    elif what == "a certificate":
        Path(mine.certificate).write_text("none")
        told = "are no certificate and its key"
    else:
        Path(mine.key).chmod(0o644)
        told = "chmod 600"
    done = subprocess.run(
        command(data, "--listen", "127.0.0.1:0"),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        cwd=REPOSITORY,
        env=environment(**settings(mine)),
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert told in done.stderr
    assert "Traceback" not in done.stderr
