"""Files of users and rules: whole or refused, private, followed while they change."""

from __future__ import annotations

import json
import logging
import os
import threading
from functools import partial
from pathlib import Path

import pytest

from logstore.errors import InvalidArgumentError
from rpc.errors import DamagedSecurityError, SecretFileError, SecurityBusyError
from rpc.handlers.caller import Operation, Resource
from rpc.security.access import AccessFiles
from rpc.security.users import make_token
from tests.beside import Beside
from tests.rpc.security.secured import Secured, rule

READ = rule("a", "read", Resource.TOPIC, "t")
WRITE = rule("a", "write", Resource.TOPIC, "t")


@pytest.fixture
def files(tmp_path: Path) -> AccessFiles:
    made = AccessFiles(str(tmp_path))
    made.alter_rules([READ], ())
    made.add_token("a", make_token(1)[1])
    return made


def test_what_is_written_is_read(files: AccessFiles, tmp_path: Path) -> None:
    again = AccessFiles(str(tmp_path))
    assert again.list_rules() == [READ]
    assert again.list_users() == files.list_users()
    assert again.alter_rules([READ, WRITE], ()) == (1, 0)
    assert files.alter_rules((), [READ, rule("b", "all", Resource.TOPIC, "t")]) == (0, 1)
    assert again.list_rules() == files.list_rules() == [WRITE]


def test_files_are_private(files: AccessFiles, tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        AccessFiles(str(tmp_path)).alter_rules([WRITE], ())
    finally:
        os.umask(old)
    folder = tmp_path / ".security"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir()} == dict.fromkeys(
        ("rules.json", "rules.json.lock", "users.json", "users.json.lock"), 0o600
    )


def damaged(text: str, kind: str) -> str:
    whole = json.loads(text)
    content = whole["content"]
    if kind == "cut":
        return text[: len(text) // 2]
    if kind == "empty":
        return ""
    if kind == "no json":
        return "allow all"
    if kind == "a list":
        return "[]"
    if kind == "newer format":
        return json.dumps({**whole, "format": 2})
    if kind == "no checksum":
        return json.dumps({"format": 1, "content": content})
    return text.replace('"User:a"', '"User:*"').replace('"a"', '"b"', 1)  # changed by hand


@pytest.mark.parametrize("name", ["rules.json", "users.json"])
@pytest.mark.parametrize(
    "kind", ["cut", "empty", "no json", "a list", "newer format", "no checksum", "changed by hand"]
)
def test_a_damaged_file_is_refused(files: AccessFiles, tmp_path: Path, name: str, kind: str) -> None:
    path = tmp_path / ".security" / name
    path.write_text(damaged(path.read_text(), kind))
    with pytest.raises(DamagedSecurityError, match=name):
        AccessFiles(str(tmp_path))
    with pytest.raises(DamagedSecurityError, match=name):
        files.alter_rules([WRITE], ()) if name == "rules.json" else files.remove_user("a")


def test_every_flipped_bit_is_found(files: AccessFiles, tmp_path: Path) -> None:
    path = tmp_path / ".security" / "rules.json"
    whole, told = path.read_bytes(), AccessFiles(str(tmp_path)).list_rules()
    for position in range(len(whole)):
        path.write_bytes(
            whole[:position] + bytes([whole[position] ^ 1 << position % 8]) + whole[position + 1 :]
        )
        try:
            assert AccessFiles(str(tmp_path)).list_rules() == told  # a blank for a blank
        except DamagedSecurityError:
            continue  # as it should


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o666])
def test_a_file_that_others_can_use_is_refused(files: AccessFiles, tmp_path: Path, mode: int) -> None:
    path = tmp_path / ".security" / "users.json"
    path.chmod(mode)
    with pytest.raises(SecretFileError, match=f"{mode:04o}"):
        AccessFiles(str(tmp_path))
    path.chmod(0o600)
    path.parent.chmod(0o755)
    with pytest.raises(SecretFileError, match=r"0755.*chmod 700"):
        AccessFiles(str(tmp_path))


def test_a_link_is_refused(files: AccessFiles, tmp_path: Path) -> None:
    path = tmp_path / ".security" / "rules.json"
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(DamagedSecurityError, match="symbolic link"):
        AccessFiles(str(tmp_path))


def test_what_was_in_force_stays_when_the_file_is_damaged(
    files: AccessFiles, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / ".security" / "rules.json"
    whole = path.read_bytes()
    for broken in (lambda: path.write_bytes(b"{"), path.unlink):
        broken()
        files.rules.look()
        files.rules.look()
        assert files.rules.current().allows("User:a", Operation.READ, Resource.TOPIC, "t")
    assert caplog.text.count("what was in force stays") == 2
    caplog.set_level(logging.INFO)
    path.write_bytes(whole)
    path.chmod(0o600)
    files.rules.look()
    assert "has changed, and is in force" in caplog.text


def test_a_file_that_would_be_too_large(files: AccessFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rpc.security.document._MAX_BYTES", 500)
    with pytest.raises(InvalidArgumentError, match="would be larger than 500 bytes"):
        files.alter_rules([rule(f"u{number}", "read", Resource.TOPIC, "t") for number in range(10)], ())
    assert files.list_rules() == [READ]


def test_another_process_that_does_not_end_its_change(
    files: AccessFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import fcntl

    monkeypatch.setattr("rpc.security.document._LOCK_S", 0.1)
    with open(tmp_path / ".security" / "rules.json.lock", "rb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(SecurityBusyError, match="another process is changing"):
            files.alter_rules([WRITE], ())
    assert files.alter_rules([WRITE], ()) == (1, 0)


def test_files_belong_to_the_owner_of_the_store(tmp_path: Path) -> None:
    if os.geteuid() == 0:  # root makes them for the store's owner; others can make none but their own
        os.chown(tmp_path, 1234, 1234)
    made = AccessFiles(str(tmp_path))
    made.alter_rules([READ], ())
    folder = tmp_path / ".security"
    assert {path.stat().st_uid for path in (folder, *folder.iterdir())} == {tmp_path.stat().st_uid}


def test_a_change_that_waits_holds_up_no_call(files: AccessFiles, tmp_path: Path) -> None:
    import fcntl

    entered, leave = threading.Event(), threading.Event()
    with open(tmp_path / ".security" / "rules.json.lock", "rb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)

        def change() -> None:
            entered.set()
            files.alter_rules([WRITE], ())
            leave.set()

        with Beside(change, stop=other.close):
            assert entered.wait(60)
            for _ in range(100):
                files.rules.look()
                assert files.rules.current().rules == {READ}
            assert not leave.is_set()
    assert files.rules.current().rules == {READ, WRITE}


def test_changes_of_many_at_once_are_all_there(files: AccessFiles, tmp_path: Path) -> None:
    def add(number: int) -> None:
        AccessFiles(str(tmp_path)).alter_rules([rule(f"u{number}", "read", Resource.TOPIC, "t")], ())

    Beside(*[partial(add, number) for number in range(8)]).run()
    assert len(files.list_rules()) == 9


def test_a_change_by_another_process_reaches_the_broker(secured: Secured) -> None:
    outside = AccessFiles(str(secured.broker.settings.data))
    secured.access.rules.look()
    outside.alter_rules([READ], ())
    secured.access.rules.look()
    assert secured.access.rules.current().rules == {READ}
