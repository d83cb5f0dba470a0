"""``Target``: the store of a read: a directory, or brokers."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

Settings: TypeAlias = tuple[tuple[str, str | bool], ...]


class Target(NamedTuple):
    """``path``: a directory, "" for brokers; ``brokers``: HOST:PORT[,HOST:PORT...]; ``config``: a TOML file with the
    settings of the connection, on every machine; ``settings``: those of ``logstore.connect`` that options say."""

    path: str = ""
    brokers: str = ""
    config: str = ""
    settings: Settings = ()

    def __repr__(self) -> str:
        """Without the settings: a password may be among them."""
        return f"Target(path={self.path!r}, brokers={self.brokers!r}, config={self.config!r})"

    def __str__(self) -> str:
        return self.path or self.brokers
