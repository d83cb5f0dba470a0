"""``Target``: the store of a read: a directory, or brokers."""

from __future__ import annotations

from typing import NamedTuple


class Target(NamedTuple):
    """``path``: a directory, "" for brokers; ``brokers``: HOST:PORT[,HOST:PORT...]; ``config``: a TOML file with the
    settings of the connection, on every machine."""

    path: str = ""
    brokers: str = ""
    config: str = ""

    def __str__(self) -> str:
        return self.path or self.brokers
