"""`logstore acl` and `logstore user` on a directory and over a broker, and credentials of commands."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from logstore.cli.main import cli
from rpc.client.channel.configuration import configure
from rpc.client.store import connect
from rpc.handlers.caller import Resource
from tests.rpc.security.secured import Secured, rule


class Shell:
    """Commands with these words before them."""

    def __init__(self, *words: str, **environment: str) -> None:
        self._words = words
        self._environment = environment

    def run(self, *words: str, stdin: str = "", code: int = 0) -> Result:
        result = CliRunner().invoke(cli, [*self._words, *words], input=stdin, env=self._environment)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == code, result.output
        return result


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOGSTORE_PATH", raising=False)
    monkeypatch.delenv("LOGSTORE_BOOTSTRAP", raising=False)


@pytest.fixture(params=["directory", "broker", "broker by environment"])
def shell(request: pytest.FixtureRequest, secured: Secured, tmp_path: Path) -> Shell:
    if request.param == "directory":
        return Shell("--path", secured.broker.settings.data)
    token = tmp_path / "token"
    token.write_text(secured.token_of("admin"))
    token.chmod(0o600)
    if request.param == "broker by environment":
        return Shell(
            LOGSTORE_BOOTSTRAP=secured.address,
            LOGSTORE_CLIENT_TLS_CA=secured.authority.file,
            LOGSTORE_CLIENT_TOKEN_FILE=str(token),
        )
    config = tmp_path / "client.toml"
    config.write_text(f'tls_ca = "{secured.authority.file}"\ntoken_file = "{token}"\n')
    return Shell("--bootstrap-server", secured.address, "--client-config", str(config))


def test_rules(shell: Shell, secured: Secured) -> None:
    words = ("User:alice", "-o", "read", "-o", "write", "--topic", "t", "--topic", "u", "--group", "g")
    failed = shell.run("acl", "add", *words, code=1)
    assert "no operation 'write' on a group" in failed.stderr
    words = ("User:alice", "-o", "read", "--topic", "t.", "--group", "g", "--prefix")
    assert json.loads(shell.run("--json", "acl", "add", *words).stdout) == {"added": 2}
    assert json.loads(shell.run("--json", "acl", "add", *words).stdout) == {"added": 0}
    shell.run("acl", "add", "User:*", "-o", "all", "--topic", "*", "--deny")
    shell.run("acl", "add", "User:ops", "-o", "alter", "--cluster")
    rows = json.loads(shell.run("--json", "acl", "list").stdout)
    assert {(row["principal"], row["allow"], row["pattern"], row["name"]) for row in rows} == {
        ("User:alice", True, "prefix", "t."),
        ("User:alice", True, "prefix", "g"),
        ("User:*", False, "literal", "*"),
        ("User:ops", True, "literal", "cluster"),
    }
    assert "t." in shell.run("acl", "list", "--principal", "User:alice").stdout
    assert "ops" not in shell.run("acl", "list", "--principal", "User:alice").stdout
    secured.access.rules.look()
    assert len(secured.access.rules.current().rules) == 4  # in force at once
    assert json.loads(shell.run("--json", "acl", "remove", *words).stdout) == {"removed": 2}
    assert "on what?" in shell.run("acl", "add", "User:a", "-o", "read", code=2).stderr


def test_users(shell: Shell, secured: Secured, tmp_path: Path) -> None:
    told = json.loads(shell.run("--json", "user", "add-token", "bob", "--expires-days", "1").stdout)
    token = shell.run("user", "add-token", "bob").stdout.strip()
    file = tmp_path / "password"
    file.write_text("open sesame\n")
    file.chmod(0o644)
    assert "0644" in shell.run("user", "set-password", "bob", "--password-file", str(file), code=1).stderr
    file.chmod(0o600)
    shell.run("user", "set-password", "bob", "--password-file", str(file))
    shell.run("user", "set-password", "eve", "--password-file", "-", stdin="x y\n")
    assert "Say --password-file" in shell.run("user", "set-password", "bob", code=2).stderr
    assert "is empty" in shell.run("user", "set-password", "bob", "--password-file", "-", code=1).stderr
    listed = shell.run("user", "list").stdout + shell.run("--json", "user", "list").stdout
    assert told["token_id"] in listed
    for secret in (token.split("_", 2)[2], told["token"].split("_", 2)[2], "sesame"):
        assert secret not in listed
    secured.allow(rule("bob", "describe", Resource.TOPIC, "*"), rule("eve", "describe", Resource.TOPIC, "*"))
    secured.store.create_topic("t")
    secured.access.users.look()
    for settings in (
        {"token": token},
        {"token": told["token"]},
        {"user": "bob", "password": "open sesame"},
        {"user": "eve", "password": "x y"},
    ):
        with connect(secured.address, tls_ca=secured.authority.file, **settings) as client:
            assert client.list_topics() == ["t"]
    shell.run("user", "revoke", told["token_id"])
    assert "there is no token" in shell.run("user", "revoke", told["token_id"], code=1).stderr
    shell.run("user", "delete", "bob")
    assert "there is no user 'bob'" in shell.run("user", "delete", "bob", code=1).stderr


def test_a_client_s_file(tmp_path: Path) -> None:
    file = tmp_path / "client.toml"
    file.write_text('tls_ca = "ca"\nrequest_timeout_s = 3\nuser = "a"\npassword = "b"\n')
    file.chmod(0o600)
    environment = {"LOGSTORE_CLIENT_TLS": "true", "LOGSTORE_CLIENT_USER": "c", "LOGSTORE_CLIENT_CONFIG": "x"}
    found = configure(str(file), environment, {"request_timeout_s": 4.0})
    assert (found.tls_ca, found.tls, found.user, found.request_timeout_s) == ("ca", True, "c", 4.0)


@pytest.mark.parametrize(
    ("text", "mode", "told"),
    [
        ('token = "x"', 0o644, "mode 0644"),
        ('password = "x"', 0o640, "mode 0640"),
        ('tls_ca = "x"', 0o666, "anybody may write"),
        ("tls_ca = 1", 0o600, "not of the kind str"),
        ("tls = 1", 0o600, "not of the kind bool"),
        ("request_timeout_s = true", 0o600, "not of the kind float"),
        ('tls_cas = "x"', 0o600, "did you mean 'tls_ca'"),
        ("tls_ca", 0o600, "is no TOML"),
    ],
)
def test_a_client_s_file_that_is_refused(tmp_path: Path, text: str, mode: int, told: str) -> None:
    from logstore.errors import LogStoreError

    file = tmp_path / "client.toml"
    file.write_text(text)
    file.chmod(mode)
    with pytest.raises(LogStoreError, match=told):
        configure(str(file), {}, {})


@pytest.mark.parametrize(
    ("variable", "text", "told"),
    [
        ("LOGSTORE_CLIENT_TLS_CAA", "x", "did you mean 'tls_ca'"),
        ("LOGSTORE_CLIENT_TLS", "yes", "not of the kind bool"),
        ("LOGSTORE_CLIENT_REQUEST_TIMEOUT_S", "soon", "not of the kind float"),
        ("LOGSTORE_CLIENT_MAX_MESSAGE_BYTES", "1.5", "not of the kind int"),
    ],
)
def test_variables_that_are_refused(variable: str, text: str, told: str) -> None:
    from logstore.errors import InvalidArgumentError

    with pytest.raises(InvalidArgumentError, match=told):
        configure(None, {variable: text}, {})


def test_a_directory_needs_no_grpc(tmp_path: Path) -> None:
    """The extra is for brokers and their clients."""
    import subprocess
    import sys

    import logstore

    with logstore.open(str(tmp_path / "store")):
        pass
    words = ["--path", str(tmp_path / "store"), "acl", "add", "User:a", "-o", "read", "--topic", "t"]
    code = (
        "import sys; sys.modules['grpc'] = None; sys.modules['google.protobuf'] = None\n"
        f"from logstore.cli.main import cli; cli({words!r})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, "added 1" in done.stderr) == (0, True), done.stderr
