"""The types of optional (de)serializers: plain callables, so that any library's functions fit.

Without them keys and values are ``bytes | None``. A serializer is called for None too (it may have a
representation of its own) and gives ``bytes | None``; None as a value is a tombstone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias, TypeVar

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")

Serializer: TypeAlias = Callable[[T | None], bytes | None]
Deserializer: TypeAlias = Callable[[bytes | None], T | None]
