"""``Coordinators``: the brokers that coordinate groups and transactions, found by name and remembered.

Each group and each transactional id has one of them. Any broker says which one that is; a name that is asked for again
goes where it was last, until that broker says otherwise or is away.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Final

from rpc.client.routing.brokers import Brokers
from rpc.client.routing.role import Role

_MOST_KNOWN: Final = 1_000


class Coordinators:
    """Thread-safe. ``anyone``: for what any broker answers, as it asks all coordinators."""

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers
        self._closing = threading.Event()
        self._lock = threading.Lock()
        self._groups: OrderedDict[str, Role] = OrderedDict()
        self._ids: OrderedDict[str, Role] = OrderedDict()
        self.anyone = self._role()

    def of_group(self, group: str) -> Role:
        return self._of(self._groups, group)

    def of_id(self, transactional_id: str) -> Role:
        return self._of(self._ids, transactional_id)

    def _of(self, known: OrderedDict[str, Role], name: str) -> Role:
        with self._lock:
            role = known.get(name)
            if role is None:
                role = known[name] = self._role()
                if len(known) > _MOST_KNOWN:
                    known.popitem(last=False)
            else:
                known.move_to_end(name)
            return role

    def _role(self) -> Role:
        return Role(self._brokers, closing=self._closing)

    def close(self) -> None:
        """End the pauses between tries."""
        self._closing.set()
