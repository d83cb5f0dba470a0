"""The types of optional (de)serializers: plain callables, so that any library's functions fit.

Without them keys and values are ``bytes | None``. A serializer is called for None too (it may have a
representation of its own) and gives ``bytes | None``; None as a value is a tombstone. A deserializer is called for
None too; one that takes bytes only (``int``, ``json.loads``) and refuses None leaves it as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from logstore.types import Headers

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    # What no argument tells (a lambda's parameter) is an object: any value may be sent.
    KeyT = TypeVar("KeyT", default=object)
    ValueT = TypeVar("ValueT", default=object)
else:
    from typing import TypeVar

    KeyT = TypeVar("KeyT")
    ValueT = TypeVar("ValueT")

Serializer: TypeAlias = Callable[[ValueT | None], bytes | None]
Deserializer: TypeAlias = Callable[[bytes], ValueT | None]

SendRow: TypeAlias = (
    tuple[KeyT | None, ValueT | None]
    | tuple[KeyT | None, ValueT | None, Headers | None]
    | tuple[KeyT | None, ValueT | None, Headers | None, int | None]
)
"""A row of ``send_many``: (key, value), (key, value, headers) or (key, value, headers, timestamp_ms)."""
