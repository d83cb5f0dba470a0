"""A client's settings from a TOML file, the environment and a caller's words, in rising order: secrets need not stand
in programs or on command lines."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping
from dataclasses import fields
from typing import Final

from logstore.errors import InvalidArgumentError
from rpc.client.channel.settings import ConnectionSettings
from rpc.security.secret_files import read_private, read_public

ENVIRONMENT: Final = "LOGSTORE_CLIENT_"
"""What variables of settings begin with: LOGSTORE_CLIENT_TLS_CA is ``tls_ca``."""
CONFIG_VARIABLE: Final = "LOGSTORE_CLIENT_CONFIG"
"""The variable that names the file, for commands."""
_SECRETS: Final = frozenset({"token", "password"})
_KINDS: Final = {field.name: str(field.type).removesuffix(" | None") for field in fields(ConnectionSettings)}
_TRUTHS: Final = {"true": True, "false": False}
_TYPES: Final[dict[str, tuple[type, ...]]] = {
    "str": (str,),
    "int": (int,),
    "float": (int, float),
    "bool": (bool,),
}


def configure(
    file: str | None, environment: Mapping[str, str], given: Mapping[str, object]
) -> ConnectionSettings:
    """The settings. InvalidArgumentError, SecretFileError."""
    values: dict[str, object] = {} if file is None else read_file(file)
    for variable, text in environment.items():
        if variable.startswith(ENVIRONMENT) and variable != CONFIG_VARIABLE:
            name = variable.removeprefix(ENVIRONMENT).lower()
            _refuse_unknown(name, variable)
            values[name] = _parsed(name, text, variable)
    values |= given
    return ConnectionSettings(**values)  # type: ignore[arg-type]  # checked by the class and above


def read_file(path: str) -> dict[str, object]:
    """The settings of a TOML file; one that holds a secret is its owner's alone. InvalidArgumentError,
    SecretFileError."""
    try:
        found = tomllib.loads(read_public(path, "the client's settings").decode("utf-8"))
    except ValueError as error:  # no TOML, or no UTF-8
        raise InvalidArgumentError(f"{path} is no TOML") from error
    if _SECRETS & found.keys():
        read_private(path, "the client's settings")
    for name, value in found.items():
        _refuse_unknown(name, f"{name} in {path}")
        if not isinstance(value, _TYPES[_KINDS[name]]) or (
            isinstance(value, bool) and _KINDS[name] != "bool"
        ):
            raise InvalidArgumentError(f"{name} in {path} is not of the kind {_KINDS[name]}")
    return found


def _parsed(name: str, text: str, variable: str) -> object:
    kind = _KINDS[name]
    try:
        if kind == "int":
            return int(text)
        if kind == "float":
            return float(text)
        if kind == "bool":
            return _TRUTHS[text.strip().lower()]
    except (ValueError, KeyError):
        raise InvalidArgumentError(f"{variable} is not of the kind {kind}") from None
    return text


def _refuse_unknown(name: str, shown: str) -> None:
    if name not in _KINDS:
        near = difflib.get_close_matches(name, _KINDS, 1, 0.5)
        raise InvalidArgumentError(
            f"{shown}: clients have no setting of that name",
            hint=f"did you mean {near[0]!r}?" if near else f"settings are {', '.join(_KINDS)}",
        )
