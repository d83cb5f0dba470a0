"""``LogAccess``: what the facade of a partition's log needs of its store."""

from __future__ import annotations

from logstore.partition.context import StoreContext


class LogAccess:
    """What a ``PartitionLog`` needs of the store. ``store`` is held, so that it is not collected before."""

    __slots__ = ("_context", "_store")

    def __init__(self, context: StoreContext, store: object = None) -> None:
        self._context = context
        self._store = store

    def check_usable(self) -> None:
        self._context.check_usable()

    def check_writable(self) -> None:
        self._context.check_writable()

    def now_ms(self) -> int:
        return self._context.clock.wall_ms()
