"""Which settings of a broker's security are refused, each by its name."""

from __future__ import annotations

from typing import Any

import pytest

from logstore.errors import InvalidArgumentError
from rpc.client.channel.settings import ConnectionSettings
from rpc.errors import BrokerConfigError
from rpc.settings import BrokerSettings

TLS = {"tls_certificate": "c.pem", "tls_key": "k.pem"}
EVERYWHERE = {"listen": "0.0.0.0:9095"}


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (EVERYWHERE, "has no TLS"),
        ({"listen": "example.org:1"}, "has no TLS"),
        ({"listen": "[::]:1"}, "has no TLS"),
        ({**EVERYWHERE, **TLS}, "anybody there could read and write"),
        ({**EVERYWHERE, "authentication_required": True}, "has no TLS"),
        ({"tls_certificate": "c.pem"}, "tls_key is not"),
        ({"tls_key": "k.pem"}, "tls_certificate is not"),
        ({"tls_client_ca": "ca.pem"}, "tls_certificate is not"),
        ({"tls_principal": "serial"}, "tls_principal='serial'"),
        ({"super_users": "admin"}, "'admin', which is no principal"),
        ({"super_users": "User:a,Group:b"}, "'Group:b'"),
        ({"super_users": "User:*"}, r"'User:\*'"),
        ({"super_users": "User:ANONYMOUS"}, "'User:ANONYMOUS'"),
        ({"session_s": 0}, "session_s=0: it is more than 0"),
        ({"max_handshakes": 0}, "max_handshakes=0: it is at least 1"),
    ],
)
def test_a_broker_is_refused(given: dict[str, Any], told: str) -> None:
    with pytest.raises(BrokerConfigError, match=told):
        BrokerSettings(data="x", **given)


@pytest.mark.parametrize(
    "given",
    [
        {"listen": "127.8.9.1:1"},
        {"listen": "[::1]:1"},
        {**EVERYWHERE, "insecure_listen_beyond_loopback": True},
        {**EVERYWHERE, **TLS, "tls_client_ca": "ca.pem"},
        {**EVERYWHERE, **TLS, "authentication_required": True},
        {**EVERYWHERE, **TLS, "access_control": True},
        {**EVERYWHERE, **TLS, "insecure_anonymous_beyond_loopback": True},
        {"super_users": "User:admin, User:CN with spaces"},
    ],
)
def test_a_broker_is_not_refused(given: dict[str, Any]) -> None:
    BrokerSettings(data="x", **given)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"token": "secret"}, "in the clear"),
        ({"token_file": "token"}, "in the clear"),
        ({"tls": True, "token": ""}, "the token is empty"),
        ({"tls": True, "token": "two words"}, "the token is empty, or has characters"),
        ({"tls": True, "token": "a\nb"}, "the token is empty, or has characters"),
        ({"tls": True, "token": "a", "token_file": "b"}, "both token and token_file"),
        ({"tls_certificate": "c"}, "tls_key is not"),
        ({"tls_key": "k"}, "tls_certificate is not"),
    ],
)
def test_a_client_is_refused(given: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidArgumentError, match=told):
        ConnectionSettings(**given)


def test_settings_do_not_show_secrets() -> None:
    assert "sesame" not in repr(ConnectionSettings(tls=True, token="sesame"))
