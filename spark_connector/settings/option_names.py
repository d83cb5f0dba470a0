"""Options sorted out by name: which count, which change nothing, which are refused, and what an unknown one meant."""

from __future__ import annotations

import difflib
import re
import urllib.parse
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from logstore.errors import InvalidArgumentError
from spark_connector.settings.kafka_security import SECURITY_OPTIONS, security_settings
from spark_connector.settings.option_table import Option
from spark_connector.settings.target import Target

_UNITS_MS: Final = {
    "us": 0.001, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000,
}  # fmt: skip
_OF_A_TABLE: Final = frozenset({"provider", "owner"})  # what Spark adds to the options of CREATE TABLE
_NO_TABLE: Final = (
    "there are no options: Spark gives those of a table in its catalogue (CREATE TABLE ... USING logstore, "
    "saveAsTable) to no source in Python, so such a table has no path and cannot be read"
)
_USE_A_VIEW: Final = (
    "use a view, for SELECT and INSERT: CREATE TEMPORARY VIEW flights USING logstore OPTIONS (path 'data', subscribe "
    "'flights'); or .load(DIR)"
)
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
_TIME = re.compile(r"\s*(\d+)\s*([a-z]*)\s*", re.IGNORECASE)


class Checked(NamedTuple):
    """The options that count, by lower-case name, and what the user ought to know about the others."""

    values: dict[str, str]
    warnings: list[str]


@dataclass(frozen=True, kw_only=True, slots=True)
class OptionNames:
    """All names of one kind of use, in lower case. ``use``: as in "reading from brokers"; ``where``: as in "there is no
    option x for writes"; ``give_path``: how a directory is given; ``passed``: Spark's own, which are not ours to read;
    ``elsewhere``: what counts for the other direction, as in a view that is read and written, and changes nothing here.
    """

    known: Mapping[str, Option]
    mapped: Mapping[str, str]
    harmless: Mapping[str, str]
    refused: Mapping[str, str]
    use: str
    give_path: str
    where: str = ""
    passed: Collection[str] = field(default_factory=frozenset)
    elsewhere: Collection[str] = field(default_factory=frozenset)

    def sort(
        self, given: Mapping[str, str], counts: Callable[[Option, list[str]], bool] | None = None
    ) -> Checked:
        """``counts``: whether a known option does, here; it may add a warning. ``InvalidArgumentError`` for one that is
        unknown (it names the nearest) or refused."""
        if not given or _OF_A_TABLE.issubset(given):
            raise InvalidArgumentError(_NO_TABLE, hint=_USE_A_VIEW)
        values: dict[str, str] = {}
        warnings: list[str] = []
        for name, value in given.items():
            key = name.lower()
            if key == "paths":
                raise InvalidArgumentError(
                    f"paths={value}: a read is of one store",
                    hint="load each directory on its own and join the rows: one.unionByName(other)",
                )
            if key in self.refused:
                raise InvalidArgumentError(f"option {name} cannot be set", hint=self.refused[key])
            if key in self.harmless:
                warnings.append(f"option {name} changes nothing: {self.harmless[key]}")
            elif key in self.mapped:
                values.setdefault(self.mapped[key].lower(), value)
            elif key in self.known:
                if counts is None or counts(self.known[key], warnings):
                    values[key] = value
            elif key in SECURITY_OPTIONS:
                values[key] = value
            elif key in self.elsewhere:
                warnings.append(f"option {name} changes nothing for {self.use} a store")
            elif key not in self.passed:
                raise self._unknown(name)
        return Checked(values, warnings)

    def path(self, values: Mapping[str, str]) -> str:
        """The store's directory, also from a ``file:`` URI. ``InvalidArgumentError`` where there is none, or no local
        one."""
        text = values.get("path", "")
        if not text:
            raise InvalidArgumentError(
                "option path is missing", hint=f"give the store's directory: {self.give_path}"
            )
        found = local_folder(text)
        if found is None:
            raise InvalidArgumentError(
                f"path={text} is no directory of this machine",
                hint="a store lies on a local file system: give a path such as /srv/store or file:///srv/store",
            )
        return found

    def _unknown(self, name: str) -> InvalidArgumentError:
        names = {key: option.name for key, option in self.known.items()}
        names |= {key: key for key in (*self.harmless, *self.mapped, *SECURITY_OPTIONS)}
        near = difflib.get_close_matches(name.lower(), names, n=1, cutoff=0.5)
        suggestion = f"did you mean {names[near[0]]}?" if near else "spark_connector/README.md lists them all"
        return InvalidArgumentError(f"there is no option {name}{self.where}", hint=suggestion)


def target_of(values: Mapping[str, str], names: OptionNames, what: str) -> Target:
    """The directory or the brokers. ``InvalidArgumentError`` where there is none of the two, or both."""
    brokers, config = values.get("bootstrap.servers", "").strip(), values.get("clientconfig", "").strip()
    if not brokers:
        if config:
            raise InvalidArgumentError(
                "option clientConfig is for brokers", hint="set bootstrap.servers, or leave it out"
            )
        for name in sorted(SECURITY_OPTIONS & values.keys()):
            raise InvalidArgumentError(
                f"option {name} is for brokers", hint="set bootstrap.servers, or leave it out"
            )
        return Target(path=names.path(values))
    if values.get("path"):
        raise InvalidArgumentError(
            f"both path={values['path']} and bootstrap.servers={brokers} are given",
            hint=f"{what} is of one store: give one of the two (without a directory it is of the brokers)",
        )
    return Target(brokers=brokers, config=config, settings=security_settings(values))


def local_folder(text: str) -> str | None:
    """A path, or a ``file:`` URI as Hadoop and Spark write them, as a path of this machine; None for other URIs, and
    for an empty text."""
    if _SCHEME.match(text) is None:
        return text or None
    found = urllib.parse.urlsplit(text)
    if found.scheme.lower() != "file" or found.netloc not in ("", "localhost"):
        return None
    return urllib.parse.unquote(found.path)


def one_of(values: Mapping[str, str], name: str, choices: tuple[str, ...], default: str = "") -> str:
    """One of the words, in lower case; the first is the default unless another one is given."""
    text = values.get(name.lower(), default or choices[0]).strip().lower()
    if text not in choices:
        near = difflib.get_close_matches(text, choices, n=1)
        meant = f"did you mean {near[0]}? " if near else ""
        raise InvalidArgumentError(
            f"{name}={values[name.lower()]}", hint=f"{meant}it is {' or '.join(choices)}"
        )
    return text


def time_ms(values: Mapping[str, str], name: str, default: str) -> int:
    """A time such as 500ms or 2m; without a unit it is in ms."""
    text = values.get(name.lower(), default)
    match = _TIME.fullmatch(text)
    unit = match[2].lower() or "ms" if match is not None else ""
    if match is None or unit not in _UNITS_MS:
        raise InvalidArgumentError(f"{name}={text}", hint="write a time such as 500ms, 30s, 15m or 1h")
    return int(int(match[1]) * _UNITS_MS[unit])
