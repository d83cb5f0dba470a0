"""Principals: the names under which callers are known, ``User:NAME``, and how certificates give them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from rpc.errors import AuthenticationError

KIND: Final = "User:"
ANYBODY: Final = "User:*"
"""In a rule: every principal, User:ANONYMOUS among them."""
_RESERVED: Final = ("*", "ANONYMOUS")
_MAX_NAME: Final = 200


def principal_of(name: str) -> str | None:
    """The principal of a user's name; None for a name that cannot be: it is 1 to 200 printable characters without
    a comma and without a space at its ends, and neither ``*`` nor ``ANONYMOUS``."""
    fits = 0 < len(name) <= _MAX_NAME and name.isprintable() and "," not in name and name == name.strip()
    return KIND + name if fits and name not in _RESERVED else None


def principal_of_certificate(found: Mapping[str, Sequence[bytes]], attribute: str) -> str:
    """The principal of a client that has shown a certificate. ``found``: the channel's facts, as gRPC gives them;
    ``attribute``: the one that names the client. AuthenticationError unless it is there exactly once."""
    values = found.get(attribute, ())
    if len(values) != 1:
        raise AuthenticationError(
            f"the client's certificate has {len(values)} names of the kind that the broker takes for the "
            f"principal ({attribute}), and not one",
            hint="use another certificate, or another tls_principal",
        )
    principal = principal_of(values[0].decode("utf-8", "replace"))
    if principal is None:
        raise AuthenticationError("the name in the client's certificate cannot be a principal's")
    return principal
