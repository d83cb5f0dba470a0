"""A broker's settings from a TOML file, the environment and the command line, in rising order."""

from __future__ import annotations

import difflib
import json
import tomllib
from collections.abc import Mapping
from dataclasses import fields
from typing import Final

from rpc.errors import BrokerConfigError
from rpc.peers.settings import PeerSettings
from rpc.security.settings import SecuritySettings
from rpc.settings import BrokerSettings

ENVIRONMENT: Final = "LOGSTORE_BROKER_"
"""What variables of settings begin with: LOGSTORE_BROKER_DRAIN_S is ``drain_s``."""
CONFIG_VARIABLE: Final = "LOGSTORE_BROKER_CONFIG"
"""The variable that names the file, beside ``--config``."""
_LATER: Final = [frozenset(field.name for field in fields(kind)) for kind in (PeerSettings, SecuritySettings)]
_KINDS: Final = {
    field.name: str(field.type)
    for field in sorted(
        fields(BrokerSettings), key=lambda field: sum(field.name in names for names in _LATER)
    )
}  # the broker's own first, then the cluster's, then those of security
_TRUTHS: Final = {"true": True, "false": False}


def configure(file: str | None, environment: Mapping[str, str], given: Mapping[str, str]) -> BrokerSettings:
    """The settings. ``given``: texts of the command line, by the settings' names. BrokerConfigError names the setting
    that there is not or that cannot be, and where it stands."""
    values: dict[str, object] = {} if file is None else read_file(file)
    for variable, text in environment.items():
        if variable.startswith(ENVIRONMENT) and variable != CONFIG_VARIABLE:
            name = variable.removeprefix(ENVIRONMENT).lower()
            _refuse_unknown(name, variable, "the environment")
            values[name] = parse(name, text, variable)
    for name, text in given.items():
        _refuse_unknown(name, name, "the command line")
        values[name] = parse(name, text, name)
    if "data" not in values:
        raise BrokerConfigError(
            "a broker serves a store's directory, and none was named",
            hint="give --data DIR, LOGSTORE_BROKER_DATA, or data in the file of --config",
        )
    return BrokerSettings(**values)  # type: ignore[arg-type]  # checked by the class


def read_file(path: str) -> dict[str, object]:
    """The settings that stand in a TOML file. BrokerConfigError."""
    try:
        with open(path, "rb") as file:
            found = tomllib.load(file)
    except OSError as error:
        raise BrokerConfigError(f"cannot read {path}: {error.strerror or error}") from error
    except ValueError as error:  # no TOML, or no UTF-8
        raise BrokerConfigError(f"{path} is no TOML: {error}") from error
    for name in found:
        _refuse_unknown(name, name, path)
    return found


def parse(name: str, text: str, where: str) -> object:
    """The setting's value from a text. BrokerConfigError."""
    kind = _KINDS[name]
    try:
        if kind == "int":
            return int(text)
        if kind == "float":
            return float(text)
        if kind == "bool":
            return _TRUTHS[text.strip().lower()]
    except (ValueError, KeyError):
        words = {"int": "a whole number", "float": "a number", "bool": "true or false"}
        raise BrokerConfigError(f"{where}={text[:60]!r}: it is {words[kind]}") from None
    return text


def _refuse_unknown(name: str, shown: str, where: str) -> None:
    if name not in _KINDS:
        near = difflib.get_close_matches(name, _KINDS, 1, 0.5)
        raise BrokerConfigError(
            f"{where} has a setting {shown!r}, and brokers have none of that name",
            hint=f"did you mean {near[0]!r}?" if near else f"settings are {', '.join(_KINDS)}",
        )


def as_toml(settings: BrokerSettings) -> str:
    """All settings, as a file of ``--config`` would have them."""
    return "".join(f"{name} = {_toml_value(getattr(settings, name))}\n" for name in _KINDS)


def _toml_value(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return repr(value)
