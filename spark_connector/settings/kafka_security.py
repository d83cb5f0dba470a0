"""Options of a Kafka client about security, as settings of a connection to brokers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from logstore.errors import InvalidArgumentError
from spark_connector.settings.target import Settings

_PROTOCOL: Final = "kafka.security.protocol"
_MECHANISM: Final = "kafka.sasl.mechanism"
_JAAS: Final = "kafka.sasl.jaas.config"
_TRUST: Final = "kafka.ssl.truststore.location"
_TRUST_TYPE: Final = "kafka.ssl.truststore.type"
_KEYS: Final = "kafka.ssl.keystore.location"
_KEYS_TYPE: Final = "kafka.ssl.keystore.type"
_PROTOCOLS: Final = {  # by name: whether it is TLS, whether users log in
    "PLAINTEXT": (False, False),
    "SSL": (True, False),
    "SASL_PLAINTEXT": (False, True),
    "SASL_SSL": (True, True),
}
SECURITY_OPTIONS: Final = frozenset({_PROTOCOL, _MECHANISM, _JAAS, _TRUST, _TRUST_TYPE, _KEYS, _KEYS_TYPE})
"""Options of a Kafka client about security that have a meaning here, in lower case."""
_TLS_OPTIONS: Final = (_TRUST, _TRUST_TYPE, _KEYS, _KEYS_TYPE)
_SASL_OPTIONS: Final = (_MECHANISM, _JAAS)
_SCRAM_LOGIN: Final = re.compile(r"\s*(?:[\w.]*\.)?ScramLoginModule\s+required\s+(.*?)\s*;\s*", re.DOTALL)
_WORD: Final = re.compile(r'(\w+)\s*=\s*"((?:[^"\\]|\\.)*)"\s*')
_JAAS_HINT: Final = (
    'org.apache.kafka.common.security.scram.ScramLoginModule required username="alice" password="...";'
)


def security_settings(values: Mapping[str, str]) -> Settings:
    """``values``: options by lower-case name. ``InvalidArgumentError`` names the option; files are read when a
    connection is made."""
    protocol = values.get(_PROTOCOL, "PLAINTEXT").strip().upper()
    if protocol not in _PROTOCOLS:
        raise InvalidArgumentError(
            f"{_PROTOCOL}={values[_PROTOCOL]}", hint=f"it is {', '.join(sorted(_PROTOCOLS))}"
        )
    tls, logs_in = _PROTOCOLS[protocol]
    for used, names in ((tls, _TLS_OPTIONS), (logs_in, _SASL_OPTIONS)):
        given = [name for name in names if name in values]
        if given and not used:
            fitting = sorted(name for name, kinds in _PROTOCOLS.items() if kinds[names is _SASL_OPTIONS])
            raise InvalidArgumentError(
                f"option {given[0]} is set, but {_PROTOCOL} is {protocol}",
                hint=f"set {_PROTOCOL} to {' or '.join(fitting)}",
            )
    settings: dict[str, str | bool] = {}
    if tls:
        settings |= _tls(values)
    if logs_in:
        settings |= _login(values)
    return tuple(sorted(settings.items()))


def _tls(values: Mapping[str, str]) -> dict[str, str | bool]:
    settings: dict[str, str | bool] = {"tls": True}
    for location, kind, names in (
        (_TRUST, _TRUST_TYPE, ("tls_ca",)),
        (_KEYS, _KEYS_TYPE, ("tls_certificate", "tls_key")),
    ):
        if location in values and values.get(kind, "JKS").strip().upper() != "PEM":
            raise InvalidArgumentError(
                f"{location} without {kind}=PEM: Java's key stores cannot be read here",
                hint="give a PEM file (keytool and openssl convert) and set the type to PEM",
            )
        if location in values:
            settings |= dict.fromkeys(names, values[location])
    return settings


def _login(values: Mapping[str, str]) -> dict[str, str | bool]:
    mechanism = values.get(_MECHANISM, "GSSAPI").strip().upper()
    if mechanism not in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        raise InvalidArgumentError(
            f"{_MECHANISM}={mechanism}: brokers here know other mechanisms",
            hint="set SCRAM-SHA-256 or SCRAM-SHA-512",
        )
    login = _SCRAM_LOGIN.fullmatch(values.get(_JAAS, ""))
    words = {} if login is None else {name: _unescaped(text) for name, text in _WORD.findall(login[1])}
    if login is None or _WORD.sub("", login[1]) or words.keys() != {"username", "password"}:
        # The option's text stays out of the message: it holds a password.
        raise InvalidArgumentError(f"{_JAAS} has no user's name and password", hint=f"write {_JAAS_HINT}")
    return {"user": words["username"], "password": words["password"], "mechanism": mechanism}


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text, flags=re.DOTALL)
