"""``Access``: users and rules, and their administration; ``AccessFiles``: those of a store, in its directory: for a
broker that is alone, and for commands beside it.

``AccessAdministration`` is what both ``Access`` and a client of a broker offer.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from logstore.errors import InvalidArgumentError
from rpc.security.document import Document, Kept
from rpc.security.rules import Rule, RuleSet, rules_from_json, rules_to_json
from rpc.security.scram import MECHANISMS, Verifier
from rpc.security.users import Token, User, Users, no_users, users_from_json, users_to_json

RULES_FILE: Final = "rules.json"
USERS_FILE: Final = "users.json"


@dataclass(frozen=True, slots=True)
class TokenSummary:
    """Times in ms since 1970 UTC; ``expires_ms=None``: never."""

    token_id: str
    created_ms: int
    expires_ms: int | None


@dataclass(frozen=True, slots=True)
class UserSummary:
    """A user without secrets. ``mechanisms``: of the password; empty: there is none."""

    name: str
    mechanisms: Collection[str]
    tokens: Collection[TokenSummary]


class AccessAdministration(Protocol):
    """Users and rules. Errors: InvalidArgumentError, UnknownUserError, AccessDeniedError, SecurityDisabledError,
    DamagedSecurityError, SecurityBusyError, StorageError."""

    def list_rules(self) -> list[Rule]: ...
    def alter_rules(self, add: Collection[Rule], remove: Collection[Rule]) -> tuple[int, int]:
        """How many were added and removed."""
        ...

    def list_users(self) -> list[UserSummary]: ...
    def set_password(self, name: str, verifiers: Mapping[str, Verifier]) -> None: ...
    def add_token(self, name: str, token: Token) -> None: ...
    def revoke_token(self, token_id: str) -> None: ...
    def remove_user(self, name: str) -> None: ...


class Access:
    """``AccessAdministration``. Thread-safe."""

    def __init__(self, rules: Kept[RuleSet], users: Kept[Users]) -> None:
        self.rules = rules
        self.users = users

    def list_rules(self) -> list[Rule]:
        self.rules.look()
        return sorted(self.rules.current().rules)

    def alter_rules(self, add: Collection[Rule], remove: Collection[Rule]) -> tuple[int, int]:
        counts = (0, 0)

        def decide(before: RuleSet) -> RuleSet:
            nonlocal counts
            kept = before.rules - frozenset(remove)
            after = kept | frozenset(add)
            counts = len(after - before.rules), len(before.rules - after)
            return RuleSet(after)

        self.rules.change(decide)
        return counts

    def list_users(self) -> list[UserSummary]:
        self.users.look()
        return [_summary(user) for _, user in sorted(self.users.current().by_name.items())]

    def set_password(self, name: str, verifiers: Mapping[str, Verifier]) -> None:
        for mechanism, one in verifiers.items():
            try:
                one.checked(mechanism)
            except (ValueError, KeyError) as error:
                raise InvalidArgumentError(
                    f"the verifier of {mechanism[:40]!r} cannot be: {error}",
                    hint=f"mechanisms are {', '.join(MECHANISMS)}",
                ) from error
        if not verifiers:
            raise InvalidArgumentError(f"there is no verifier of a password for {name[:60]!r}")
        self.users.change(lambda users: users.with_verifiers(name, verifiers))

    def add_token(self, name: str, token: Token) -> None:
        if len(token.digest) != 32 or not token.token_id.isalnum() or not 8 <= len(token.token_id) <= 40:
            raise InvalidArgumentError("a token's id is 8 to 40 letters and digits, and its hash a SHA-256")
        self.users.change(lambda users: users.with_token(name, token))

    def revoke_token(self, token_id: str) -> None:
        self.users.change(lambda users: users.without_token(token_id))

    def remove_user(self, name: str) -> None:
        self.users.change(lambda users: users.without(name))


class AccessFiles(Access):
    """In files of ``directory``; None: in memory alone."""

    def __init__(self, directory: str | None) -> None:
        super().__init__(
            Document(directory, RULES_FILE, rules_from_json, rules_to_json, RuleSet),
            Document(directory, USERS_FILE, users_from_json, users_to_json, no_users),
        )


def _summary(user: User) -> UserSummary:
    return UserSummary(
        user.name,
        tuple(sorted(user.verifiers)),
        tuple(TokenSummary(one.token_id, one.created_ms, one.expires_ms) for one in user.tokens),
    )
