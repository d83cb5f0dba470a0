"""``ByteBudget``: how many bytes of requests and answers may be under way, in all and for one connection."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from rpc.errors import BrokerBusyError

_RETRY_AFTER_MS: Final = 50


class ByteBudget:
    """Of the event loop alone. A single request is always let in where nothing else of its kind is under way, so that
    no limit is too small for it."""

    def __init__(self, what: str, total_bytes: int, connection_bytes: int) -> None:
        self._what = what
        self._total_bytes = total_bytes
        self._connection_bytes = connection_bytes
        self._by_connection: dict[str, int] = {}
        self.taken_bytes = 0
        self.refused = 0

    def has_room(self, connection: str, size: int) -> bool:
        used = self._by_connection.get(connection, 0)
        return (used == 0 or used + size <= self._connection_bytes) and (
            self.taken_bytes == 0 or self.taken_bytes + size <= self._total_bytes
        )

    @contextmanager
    def hold(self, connection: str, size: int) -> Iterator[None]:
        """The bytes are under way until the block ends. BrokerBusyError where they would be too many."""
        if not self.has_room(connection, size):
            self.refused += 1
            raise BrokerBusyError(
                f"{self._what}: {self.taken_bytes} bytes are under way, and {size} more would be too many",
                retry_after_ms=_RETRY_AFTER_MS,
            )
        self._by_connection[connection] = self._by_connection.get(connection, 0) + size
        self.taken_bytes += size
        try:
            yield
        finally:
            self.taken_bytes -= size
            left = self._by_connection.pop(connection, 0) - size  # an empty request holds nothing
            if left:
                self._by_connection[connection] = left
