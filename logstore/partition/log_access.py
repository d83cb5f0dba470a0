"""``LogAccess``: what the facade of a partition's log needs of its store."""

from __future__ import annotations

from logstore.partition.context import StoreContext


class LogAccess:
    """What a ``PartitionLog`` needs of the store."""

    __slots__ = ("_context",)

    def __init__(self, context: StoreContext) -> None:
        self._context = context

    def check_usable(self) -> None:
        self._context.check_usable()

    def check_writable(self) -> None:
        self._context.check_writable()

    def now_ms(self) -> int:
        return self._context.clock.wall_ms()
