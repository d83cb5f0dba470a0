"""``SecuritySettings``: what can be set of a broker's security, and which combinations are refused."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import Final

from rpc.errors import BrokerConfigError
from rpc.security.principals import principal_of

COMMON_NAME: Final = "common-name"
ALTERNATIVE_NAME: Final = "subject-alternative-name"


@dataclass(frozen=True, kw_only=True, slots=True)
class SecuritySettings:
    """All off: a broker for one machine. Paths of PEM files are looked at anew for new connections."""

    tls_certificate: str = ""
    """File of the broker's certificate and the chain behind it; "": no TLS."""
    tls_key: str = ""
    """File of the certificate's private key; only its owner may read it."""
    tls_client_ca: str = ""
    """File of the authorities whose clients may connect: each client shows a certificate (mutual TLS)."""
    tls_principal: str = COMMON_NAME
    """What names a client in its certificate: common-name or subject-alternative-name; there must be exactly one."""
    authentication_required: bool = False
    """Refuse calls without credentials. Else they are User:ANONYMOUS's."""
    access_control: bool = False
    """Allow only what rules allow (`logstore acl`), and super users everything."""
    super_users: str = ""
    """Principals that may do everything, with commas between them: User:admin,User:ops."""
    session_s: float = 3600.0
    """How long a log-in by password lasts; clients renew it by themselves."""
    max_handshakes: int = 1000
    """Log-ins by password that are under way at once; what comes beyond is refused."""
    insecure_listen_beyond_loopback: bool = False
    """Let a listener without TLS be reached from other machines. Anybody between them can then read and write."""
    insecure_anonymous_beyond_loopback: bool = False
    """Let a listener with TLS, without authentication and access control be reached from other machines. Anybody
    there can then read and write."""

    @property
    def has_tls(self) -> bool:
        return bool(self.tls_certificate)

    @property
    def super_user_names(self) -> frozenset[str]:
        return frozenset(name.strip() for name in self.super_users.split(",") if name.strip())


def check_security(settings: SecuritySettings, listen: str, host: str) -> None:
    """BrokerConfigError names the setting that cannot be, or the one that is lacking."""
    for name, needs in (("tls_certificate", "tls_key"), ("tls_key", "tls_certificate")):
        if getattr(settings, name) and not getattr(settings, needs):
            raise BrokerConfigError(f"{name} is set, and {needs} is not", hint=f"set {needs}, too")
    if settings.tls_client_ca and not settings.has_tls:
        raise BrokerConfigError(
            "tls_client_ca is set, and tls_certificate is not", hint="mutual TLS needs the broker's own"
        )
    if settings.tls_principal not in (COMMON_NAME, ALTERNATIVE_NAME):
        raise BrokerConfigError(
            f"tls_principal={settings.tls_principal!r}", hint=f"it is {COMMON_NAME} or {ALTERNATIVE_NAME}"
        )
    for principal in settings.super_user_names:
        kind, colon, name = principal.partition(":")
        if kind != "User" or not colon or principal_of(name) is None:
            raise BrokerConfigError(
                f"super_users has {principal!r}, which is no principal", hint="e.g. User:admin,User:ops"
            )
    if is_loopback(host):
        return
    if not settings.has_tls and not settings.insecure_listen_beyond_loopback:
        raise BrokerConfigError(
            f"listen={listen!r} can be reached from other machines, and this listener has no TLS",
            hint="listen on 127.0.0.1, set tls_certificate and tls_key, or insecure_listen_beyond_loopback",
        )
    known = settings.authentication_required or settings.access_control or bool(settings.tls_client_ca)
    if settings.has_tls and not known and not settings.insecure_anonymous_beyond_loopback:
        raise BrokerConfigError(
            f"listen={listen!r} can be reached from other machines, and anybody there could read and write",
            hint="set authentication_required, tls_client_ca or access_control, or by name "
            "insecure_anonymous_beyond_loopback",
        )


def is_loopback(host: str) -> bool:
    """Whether an address leads to this machine alone. A name but "localhost" may lead anywhere."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
