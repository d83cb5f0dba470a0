"""``RebalanceWatch``: tells which members of this process wait for partitions, and for whose, after a second."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from typing import Final

from logstore.coordination.group_member import GroupMember
from logstore.types import TopicPartition

logger = logging.getLogger(__name__)

_TELL_AFTER_S: Final = 1.0
_SHOWN: Final = 5  # partitions that a sentence names

Awaited = Mapping[str, Collection[TopicPartition]]
"""Partitions that a member is to get, by the member that still has them, in words."""


class RebalanceWatch:
    """``awaited(members)``: what each waits for. A wait is told once for every generation."""

    def __init__(self, awaited: Callable[[Collection[GroupMember]], Mapping[str, Awaited]]) -> None:
        self._awaited = awaited
        self._next_s = 0.0
        self._since_s: dict[tuple[str, int], float] = {}  # by member and generation; -1: told

    def look(self, members: Collection[GroupMember], now_s: float) -> None:
        """At most every second, as many members may be here."""
        if now_s < self._next_s:
            return
        self._next_s = now_s + _TELL_AFTER_S
        found = self._awaited(members)
        before, self._since_s = self._since_s, {}
        for member in members:
            view = member.view()
            if view is None or not found.get(member.member_id):
                continue
            wait = (member.member_id, view.group_epoch)
            since_s = before.get(wait, now_s)
            if 0 <= since_s <= now_s - _TELL_AFTER_S:
                _tell(member, found[member.member_id], now_s - since_s)
                since_s = -1.0  # told
            self._since_s[wait] = since_s


def _tell(member: GroupMember, awaited: Awaited, waited_s: float) -> None:
    for holder, places in sorted(awaited.items()):
        shown = ", ".join(f"{place.topic}-{place.partition}" for place in sorted(places)[:_SHOWN])
        more = f" and {len(places) - _SHOWN} more" if len(places) > _SHOWN else ""
        logger.warning(
            "group %r: member %s has waited %.1f s for %s%s, which member %s has yet to give up: it does when it polls",
            member.group,
            member.member_id,
            waited_s,
            shown,
            more,
            holder,
        )
