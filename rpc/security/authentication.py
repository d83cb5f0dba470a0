"""``Authentication``: which principal a call is of, by its connection and its one ``authorization`` alone.

A credential that is shown counts, and if it is wrong the call is refused: it never falls back to the certificate's
name or to ``User:ANONYMOUS``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from rpc.errors import AuthenticationError
from rpc.handlers.caller import ANONYMOUS
from rpc.security.audit import AuditLog
from rpc.security.principals import principal_of_certificate
from rpc.security.settings import COMMON_NAME

AUTHORIZATION: Final = "authorization"
_ATTRIBUTES: Final = {COMMON_NAME: "x509_common_name"}
_ALTERNATIVE: Final = "x509_subject_alternative_name"
_MAX_CREDENTIAL: Final = 4096


class CallFacts(Protocol):
    """What is known of a call's connection: a ``grpc.aio.ServicerContext``."""

    def auth_context(self) -> Mapping[str, Sequence[bytes]]: ...
    def peer(self) -> str: ...


class Credentials(Protocol):
    """One kind of ``authorization``."""

    def principal(self, secret: str, facts: CallFacts) -> str:
        """AuthenticationError, SessionExpiredError."""
        ...


class Authentication:
    """``mutual``: clients show certificates; ``required``: a call without any credentials is refused;
    ``principal_from``: the part of a certificate that names the client; ``schemes``: what may stand in
    ``authorization``, by its first word."""

    def __init__(
        self,
        *,
        mutual: bool = False,
        required: bool = False,
        principal_from: str = COMMON_NAME,
        schemes: Mapping[str, Credentials] | None = None,
        audit: AuditLog | None = None,
    ) -> None:
        self._audit = audit or AuditLog()
        self._mutual = mutual
        self._required = required
        self._attribute = _ATTRIBUTES.get(principal_from, _ALTERNATIVE)
        self._schemes = {name.lower(): kind for name, kind in (schemes or {}).items()}

    def __call__(self, context: CallFacts, metadata: Sequence[tuple[str, str | bytes]]) -> str:
        """The principal. AuthenticationError, SessionExpiredError."""
        try:
            return self._principal(context, metadata)
        except AuthenticationError as error:
            self._audit.refused(context.peer(), error.message)
            raise

    def _principal(self, context: CallFacts, metadata: Sequence[tuple[str, str | bytes]]) -> str:
        shown = [value for key, value in metadata if key == AUTHORIZATION]
        if shown:
            return self._by_credential(context, shown)
        if self._mutual:
            return principal_of_certificate(context.auth_context(), self._attribute)
        if self._required:
            raise AuthenticationError("the call has no credentials, and this broker wants some")
        return ANONYMOUS

    def _by_credential(self, context: CallFacts, shown: Sequence[str | bytes]) -> str:
        value = shown[0]
        if len(shown) > 1 or not isinstance(value, str) or len(value) > _MAX_CREDENTIAL:
            raise AuthenticationError("the call has no single authorization of a reasonable size")
        scheme, space, secret = value.partition(" ")
        kind = self._schemes.get(scheme.lower())
        if kind is None or not space or not secret or secret != secret.strip():
            raise AuthenticationError(
                "the call's authorization is of no kind that this broker takes",
                hint=f"it is one of {', '.join(self._schemes) or 'none at all'}, a space, and the credential",
            )
        return kind.principal(secret, context)
