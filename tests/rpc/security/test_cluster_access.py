"""Users and rules that a cluster has: as those of files, for the broker that asks; and how files become them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from replication.cluster.image import ClusterImage
from replication.cluster.machine import AccessChange
from replication.errors import MetadataConflictError
from rpc.errors import UnknownUserError
from rpc.handlers.caller import Operation, Resource
from rpc.security.access import AccessFiles
from rpc.security.cluster_access import ClusterAccess, Pieces, local_pieces
from rpc.security.rules import Pattern, Rule
from rpc.security.users import make_token


class Store:
    """An ``AccessStore`` that others may change right before this broker does."""

    def __init__(self) -> None:
        self.image = ClusterImage()
        self.before: list[AccessChange] = []

    def access(self) -> Pieces:
        return self.image.access

    def change_access(self, changes: Sequence[AccessChange], timeout_s: float) -> None:
        assert timeout_s > 0
        others, self.before = self.before, []
        self.image = self.image.with_access({one.key: one.after for one in others})
        if any(self.image.access.get(one.key) not in (one.before, one.after) for one in changes):
            raise MetadataConflictError("changed meanwhile")
        self.image = self.image.with_access({one.key: one.after for one in changes})


def rule(name: str, *, allow: bool = True) -> Rule:
    return Rule("User:alice", Resource.TOPIC, Pattern.LITERAL, name, "read", allow)


def test_what_one_broker_changes_is_in_force_at_the_other() -> None:
    store = Store()
    one, other = ClusterAccess(store), ClusterAccess(store)
    assert one.alter_rules([rule("t"), rule("u")], []) == (2, 0)
    assert other.list_rules() == [rule("t"), rule("u")]
    assert other.rules.current().allows("User:alice", Operation.READ, Resource.TOPIC, "t")
    assert other.alter_rules([rule("t")], [rule("u"), rule("v")]) == (0, 1)
    assert not one.rules.current().allows("User:alice", Operation.READ, Resource.TOPIC, "u")
    _, token = make_token(1)
    one.add_token("alice", token)
    assert [user.name for user in other.list_users()] == ["alice"]
    assert other.users.current().decoy_key == one.users.current().decoy_key
    other.revoke_token(token.token_id)
    assert one.users.current().user("alice").tokens == ()
    one.remove_user("alice")
    with pytest.raises(UnknownUserError):
        other.remove_user("alice")
    assert {kind for kind, _ in store.access()} == {"rule", "decoy"}


def test_changes_that_meet_are_decided_anew() -> None:
    store = Store()
    access = ClusterAccess(store)
    (_, first), (_, second) = make_token(1), make_token(2)
    access.add_token("alice", first)
    known = store.access()
    other = ClusterAccess(store)
    other.add_token("alice", second)
    changed = store.access()[("user", "alice")]
    store.image = store.image.with_access(dict(known))
    store.before = [AccessChange(("user", "alice"), None, changed)]
    (_, third) = make_token(3)
    access.add_token("alice", third)
    assert len(access.users.current().user("alice").tokens) == 3


def test_pieces_that_cannot_be_understood_change_nothing(caplog: pytest.LogCaptureFixture) -> None:
    store = Store()
    access = ClusterAccess(store)
    access.alter_rules([rule("t")], [])
    store.image = store.image.with_access({("rule", "x"): {"of": "a later version"}})
    assert access.list_rules() == [rule("t")]
    assert "cannot be understood" in caplog.text


def test_files_become_the_clusters(tmp_path: Path) -> None:
    files = AccessFiles(str(tmp_path))
    assert local_pieces(str(tmp_path)) == {}
    _, token = make_token(1)
    files.add_token("alice", token)
    files.alter_rules([rule("t", allow=False)], [])
    store = Store()
    store.image = store.image.with_access(local_pieces(str(tmp_path)))
    access = ClusterAccess(store)
    assert access.list_rules() == files.list_rules()
    assert access.users.current() == files.users.current()
