"""``Security``: what a broker is given to know its callers and what they may do."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import grpc

from rpc.handlers.caller import AllowAll, Authorizer
from rpc.handlers.logins import LoginHandler
from rpc.security import sessions, tokens
from rpc.security.access import Access, AccessFiles
from rpc.security.audit import AuditLog
from rpc.security.authentication import Authentication
from rpc.security.authorizer import AuditedAuthorizer, ByRules, EverythingAllowed
from rpc.security.sessions import Sessions
from rpc.security.settings import SecuritySettings
from rpc.security.tls import ServerTls
from rpc.security.tokens import TokenCredentials
from rpc.servicers.service import Identify


@dataclass(frozen=True, kw_only=True, slots=True)
class Security:
    """Without arguments: a listener without TLS, where every caller is ``User:ANONYMOUS`` and may do everything.
    ``credentials``: of the listener, for TLS; ``access``: what is administrated through the broker, None: nothing is;
    ``logins``: None: there are no users."""

    identify: Identify = field(default_factory=Authentication)
    authorizer: Authorizer = field(default_factory=AllowAll)
    credentials: Callable[[], grpc.ServerCredentials] | None = None
    access: Access | None = None
    logins: LoginHandler | None = None
    audit: AuditLog = field(default_factory=AuditLog)


def open_security(
    settings: SecuritySettings, directory: str | None, access: Access | None = None
) -> Security:
    """As the settings say. ``directory``: the store's, None: it is in memory; ``access``: users and rules, if not those
    of the directory. SecretFileError, TlsConfigError, DamagedSecurityError."""
    tls = None
    if settings.has_tls:
        tls = ServerTls(settings.tls_certificate, settings.tls_key, settings.tls_client_ca)
    audit, access = AuditLog(), access or AccessFiles(directory)
    begun = Sessions(access.users, secure=tls is not None, lifetime_s=settings.session_s)
    shown = TokenCredentials(access.users, secure=tls is not None, wall_ms=_wall_ms)
    identify = Authentication(
        mutual=tls is not None and tls.mutual,
        required=settings.authentication_required,
        principal_from=settings.tls_principal,
        schemes={tokens.SCHEME: shown, sessions.SCHEME: begun},
        audit=audit,
    )
    decisions = (
        ByRules(access.rules, settings.super_user_names) if settings.access_control else EverythingAllowed()
    )
    return Security(
        identify=identify,
        authorizer=AuditedAuthorizer(decisions, audit),
        credentials=None if tls is None else tls.credentials,
        access=access if settings.access_control else None,
        logins=LoginHandler(access.users, begun, audit, secure=tls is not None, most=settings.max_handshakes),
        audit=audit,
    )


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000
