"""``ClusterAccess``: users and rules as the cluster's metadata have them: changed at any broker, in force at all.

A user and a rule are a piece each, so that changes of different ones do not meet. What a broker that was alone had in
its files becomes the cluster's when its directory joins (``local_pieces``).
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar

from replication.cluster.image import AccessKey
from replication.cluster.machine import AccessChange
from replication.errors import MetadataConflictError
from rpc.errors import SecurityBusyError
from rpc.security.access import Access, AccessFiles
from rpc.security.rules import RuleSet, rules_from_json, rules_to_json
from rpc.security.users import Users, no_users, users_from_json, users_to_json

logger = logging.getLogger(__name__)

_RULE: Final = "rule"
_USER: Final = "user"
_DECOY: Final = "decoy"
_PATIENCE_S: Final = 10.0
Content = TypeVar("Content")
Pieces: TypeAlias = Mapping[AccessKey, Any]


class AccessStore(Protocol):
    """Of this broker's node (``ClusterNode``)."""

    def access(self) -> Pieces: ...
    def change_access(self, changes: Sequence[AccessChange], timeout_s: float) -> None: ...


class ClusterAccess(Access):
    """Thread-safe."""

    def __init__(self, store: AccessStore) -> None:
        decoy = no_users().decoy_key.hex()  # until the cluster has one, with its first user
        super().__init__(
            _ClusterDocument(store, (_RULE,), _rules_of, _rule_pieces),
            _ClusterDocument(store, (_USER, _DECOY), lambda pieces: _users_of(pieces, decoy), _user_pieces),
        )


class _ClusterDocument(Generic[Content]):
    """A ``Kept``: the pieces of some ``kinds``. ``read`` raises ValueError, KeyError or TypeError."""

    def __init__(
        self,
        store: AccessStore,
        kinds: Sequence[str],
        read: Callable[[Pieces], Content],
        write: Callable[[Content], Pieces],
    ) -> None:
        self._store = store
        self._kinds = kinds
        self._read = read
        self._write = write
        self._seen: Pieces | None = None
        self._content = self._taken({})
        self.look()

    def current(self) -> Content:
        if self._store.access() is not self._seen:
            self.look()
        return self._content

    def look(self) -> None:
        """What cannot be understood is logged, and what was in force stays."""
        pieces = self._store.access()
        try:
            self._content = self._taken(pieces)
        except (ValueError, KeyError, TypeError) as error:
            logger.error(
                "users or rules of the cluster cannot be understood; what was in force stays: %s", error
            )
        self._seen = pieces

    def _taken(self, pieces: Pieces) -> Content:
        return self._read(self._own(pieces))

    def _own(self, pieces: Pieces) -> Pieces:
        return {key: value for key, value in pieces.items() if key[0] in self._kinds}

    def change(self, decide: Callable[[Content], Content]) -> Content:
        """Errors: those of ``decide``; SecurityBusyError: others change the same again and again; NotLeaderError,
        LeaderNotReadyError: the cluster has no controller."""
        deadline_s = time.monotonic() + _PATIENCE_S
        while True:
            pieces = self._store.access()
            content = self._taken(pieces)
            changed = decide(content)
            before, after = self._own(pieces), self._write(changed)
            changes = [
                AccessChange(key, before.get(key), after.get(key))
                for key in {**before, **after}
                if before.get(key) != after.get(key)
            ]
            left_s = max(deadline_s - time.monotonic(), 0.1)
            if changed == content or not changes:
                return content
            try:
                self._store.change_access(changes, left_s)
            except MetadataConflictError as error:
                if time.monotonic() >= deadline_s:
                    raise SecurityBusyError("others change the same users or rules") from error
                continue
            self.look()
            return changed


def local_pieces(directory: str) -> Pieces:
    """Users and rules in the files of a directory. DamagedSecurityError, SecretFileError."""
    files = AccessFiles(directory)
    users = files.users.current()
    return {**_rule_pieces(files.rules.current()), **(_user_pieces(users) if users.by_name else {})}


# --- rules ---


def _rules_of(pieces: Pieces) -> RuleSet:
    return rules_from_json(list(pieces.values()))


def _rule_pieces(rules: RuleSet) -> Pieces:
    values: Any = rules_to_json(rules)
    return {(_RULE, json.dumps(one, sort_keys=True)): one for one in values}


# --- users ---


def _users_of(pieces: Pieces, decoy: str) -> Users:
    users = {name: value for (kind, name), value in pieces.items() if kind == _USER}
    return users_from_json({"decoy_key": pieces.get((_DECOY, ""), decoy), "users": users})


def _user_pieces(users: Users) -> Pieces:
    values: Any = users_to_json(users)
    pieces = {(_USER, name): value for name, value in values["users"].items()}
    return {**pieces, (_DECOY, ""): values["decoy_key"]}
