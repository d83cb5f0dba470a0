"""Checks that are always on: they name what must hold and catch programmers' mistakes, never users'."""

from __future__ import annotations

from logstore.errors import InvariantError


def invariant(condition: object, what_must_hold: str) -> None:
    """Raise ``InvariantError`` unless ``condition`` is true."""
    if not condition:
        raise InvariantError(f"invariant broken: {what_must_hold}")
