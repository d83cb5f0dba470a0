"""Users: their tokens, of which only hashes are kept, and what proves a password without telling it."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

from logstore.errors import InvalidArgumentError
from rpc.errors import UnknownUserError
from rpc.security.principals import principal_of
from rpc.security.scram import MECHANISMS, Verifier

MOST_USERS: Final = 100_000
MOST_TOKENS: Final = 100
"""Of one user."""
_TOKEN: Final = "lst"
_ID_BYTES, _SECRET_BYTES, _DECOY_BYTES = 8, 32, 32


@dataclass(frozen=True, slots=True)
class Token:
    """``digest``: SHA-256 of the secret part; ``expires_ms``: since 1970 UTC, None: never."""

    token_id: str
    digest: bytes = field(repr=False)
    created_ms: int
    expires_ms: int | None = None


@dataclass(frozen=True, slots=True)
class User:
    """``verifiers``: by mechanism; empty: no password."""

    name: str
    tokens: tuple[Token, ...] = ()
    verifiers: Mapping[str, Verifier] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def principal(self) -> str:
        return f"User:{self.name}"


@dataclass(frozen=True, slots=True)
class Users:
    """``decoy_key``: what challenges of users that there are not are made from, so that they look like those that
    there are."""

    by_name: Mapping[str, User]
    decoy_key: bytes = field(repr=False)
    by_token: Mapping[str, tuple[User, Token]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        found = {token.token_id: (user, token) for user in self.by_name.values() for token in user.tokens}
        object.__setattr__(self, "by_token", found)

    def user(self, name: str) -> User:
        """UnknownUserError."""
        found = self.by_name.get(name)
        if found is None:
            raise UnknownUserError(f"there is no user {name[:200]!r}")
        return found

    def _with(self, user: User) -> Users:
        if principal_of(user.name) is None:
            raise InvalidArgumentError(
                f"{user.name[:60]!r} cannot be a user's name",
                hint="1 to 200 printable characters without a comma, and neither * nor ANONYMOUS",
            )
        if user.name not in self.by_name and len(self.by_name) >= MOST_USERS:
            raise InvalidArgumentError(f"there are {MOST_USERS} users, and more cannot be")
        return Users({**self.by_name, user.name: user}, self.decoy_key)

    def with_verifiers(self, name: str, verifiers: Mapping[str, Verifier]) -> Users:
        """The user has this password, and no other one any more."""
        user = self.by_name.get(name, User(name))
        return self._with(replace(user, verifiers=MappingProxyType(dict(verifiers))))

    def with_token(self, name: str, token: Token) -> Users:
        user = self.by_name.get(name, User(name))
        if len(user.tokens) >= MOST_TOKENS:
            raise InvalidArgumentError(f"user {name!r} has {MOST_TOKENS} tokens: revoke one")
        if token.token_id in self.by_token:
            raise InvalidArgumentError(f"there is a token {token.token_id!r} already")
        return self._with(replace(user, tokens=(*user.tokens, token)))

    def without_token(self, token_id: str) -> Users:
        """UnknownUserError."""
        if token_id not in self.by_token:
            raise UnknownUserError(f"there is no token {token_id[:60]!r}")
        user, token = self.by_token[token_id]
        return self._with(replace(user, tokens=tuple(one for one in user.tokens if one is not token)))

    def without(self, name: str) -> Users:
        """UnknownUserError."""
        self.user(name)
        return Users({one: user for one, user in self.by_name.items() if one != name}, self.decoy_key)


def no_users() -> Users:
    return Users({}, secrets.token_bytes(_DECOY_BYTES))


# --- tokens ---


def make_token(now_ms: int, expires_ms: int | None = None) -> tuple[str, Token]:
    """A new token, which is shown once, and what is kept of it."""
    token_id, secret = secrets.token_hex(_ID_BYTES), secrets.token_urlsafe(_SECRET_BYTES)
    return f"{_TOKEN}_{token_id}_{secret}", Token(token_id, digest_of(secret), now_ms, expires_ms)


def split_token(text: str) -> tuple[str, str]:
    """Its id and its secret part; two empty texts for what is no token."""
    kind, _, rest = text.partition("_")
    token_id, _, secret = rest.partition("_")
    return (token_id, secret) if kind == _TOKEN and token_id and secret else ("", "")


def digest_of(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()


# --- the file's content ---


def users_to_json(found: Users) -> object:
    return {
        "decoy_key": found.decoy_key.hex(),
        "users": {
            user.name: {
                "tokens": {
                    token.token_id: {
                        "sha256": token.digest.hex(),
                        "created_ms": token.created_ms,
                        "expires_ms": token.expires_ms,
                    }
                    for token in user.tokens
                },
                "scram": {
                    mechanism: {
                        "salt": one.salt.hex(),
                        "iterations": one.iterations,
                        "stored_key": one.stored_key.hex(),
                        "server_key": one.server_key.hex(),
                    }
                    for mechanism, one in user.verifiers.items()
                },
            }
            for user in found.by_name.values()
        },
    }


def users_from_json(values: object) -> Users:
    """ValueError, KeyError, TypeError."""
    if not isinstance(values, dict) or set(values) != {"decoy_key", "users"}:
        raise TypeError("it does not hold users")
    users = {name: _user(name, value) for name, value in values["users"].items()}
    found = Users(users, bytes.fromhex(values["decoy_key"]))
    if len(found.by_token) != sum(len(user.tokens) for user in users.values()):
        raise ValueError("two users have a token of one id")
    return found


def _user(name: str, value: dict[str, dict[str, dict[str, object]]]) -> User:
    if principal_of(name) is None or set(value) != {"tokens", "scram"}:
        raise ValueError(f"user {name[:60]!r} cannot be")
    tokens = tuple(_token(token_id, one) for token_id, one in value["tokens"].items())
    return User(
        name, tokens, MappingProxyType({kind: _verifier(kind, one) for kind, one in value["scram"].items()})
    )


def _token(token_id: str, value: dict[str, object]) -> Token:
    expires_ms = value["expires_ms"]
    digest = bytes.fromhex(str(value["sha256"]))
    if len(digest) != hashlib.sha256().digest_size:
        raise ValueError("a token's hash has a wrong length")
    return Token(
        token_id, digest, _number(value["created_ms"]), None if expires_ms is None else _number(expires_ms)
    )


def _verifier(mechanism: str, value: dict[str, object]) -> Verifier:
    if mechanism not in MECHANISMS:
        raise ValueError(f"mechanism {mechanism[:60]!r} is not known")
    return Verifier(
        bytes.fromhex(str(value["salt"])),
        _number(value["iterations"]),
        bytes.fromhex(str(value["stored_key"])),
        bytes.fromhex(str(value["server_key"])),
    ).checked(mechanism)


def _number(value: object) -> int:
    if type(value) is not int:
        raise TypeError(f"{value!r} is no whole number")
    return value
