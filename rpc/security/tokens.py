"""``TokenCredentials``: ``authorization: Bearer TOKEN``, over TLS alone."""

from __future__ import annotations

import hmac
from collections.abc import Callable
from typing import Final

from rpc.errors import AuthenticationError
from rpc.security.authentication import CallFacts
from rpc.security.document import Kept
from rpc.security.users import Users, digest_of, split_token

SCHEME: Final = "Bearer"
_NO_DIGEST: Final = bytes(32)


class TokenCredentials:
    """``Credentials``. A token is found by the part of it that is no secret; the rest is compared in constant time."""

    def __init__(self, users: Kept[Users], *, secure: bool, wall_ms: Callable[[], int]) -> None:
        self._users = users
        self._secure = secure
        self._wall_ms = wall_ms

    def principal(self, secret: str, facts: CallFacts) -> str:
        del facts
        if not self._secure:
            raise AuthenticationError(
                "a token was sent over a connection without TLS: it can have been read by others",
                hint="revoke it (`logstore user revoke`), and connect over TLS",
            )
        token_id, rest = split_token(secret)
        found = self._users.current().by_token.get(token_id)
        digest = _NO_DIGEST if found is None else found[1].digest
        if not hmac.compare_digest(digest_of(rest), digest) or found is None:
            raise AuthenticationError("the token is not known")
        user, token = found
        if token.expires_ms is not None and self._wall_ms() >= token.expires_ms:
            raise AuthenticationError(f"token {token.token_id} of {user.principal} has expired")
        return user.principal
