"""``Security``: what a broker is given to know its callers and what they may do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import grpc

from rpc.handlers.caller import AllowAll, Authorizer
from rpc.security.authentication import Authentication
from rpc.security.settings import SecuritySettings
from rpc.security.tls import ServerTls
from rpc.servicers.service import Identify


@dataclass(frozen=True, kw_only=True, slots=True)
class Security:
    """Without arguments: a listener without TLS, where every caller is ``User:ANONYMOUS`` and may do everything.
    ``credentials``: of the listener, for TLS."""

    identify: Identify = field(default_factory=Authentication)
    authorizer: Authorizer = field(default_factory=AllowAll)
    credentials: Callable[[], grpc.ServerCredentials] | None = None


def open_security(settings: SecuritySettings) -> Security:
    """As the settings say. SecretFileError, TlsConfigError."""
    tls = None
    if settings.has_tls:
        tls = ServerTls(settings.tls_certificate, settings.tls_key, settings.tls_client_ca)
    identify = Authentication(
        mutual=tls is not None and tls.mutual,
        required=settings.authentication_required,
        principal_from=settings.tls_principal,
    )
    return Security(identify=identify, credentials=None if tls is None else tls.credentials)
