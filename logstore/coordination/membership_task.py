"""``MembershipTask``: what members of groups need done for them while their consumers work.

The task beats for them, takes those out that do not poll, ends dead members of their groups, and looks whether the
groups have changed. ``step()`` does what is due; one thread per store with members drives it (a simulator calls it
itself). Without members there are no wake-ups.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from logstore.coordination.group_manager import GroupManager
from logstore.coordination.group_member import GroupMember
from logstore.coordination.rebalance_watch import RebalanceWatch
from logstore.errors import LogStoreError, RetriableError, StoreClosedError, UnknownMemberError
from logstore.seams.step_thread import Complaints, StepThread

logger = logging.getLogger(__name__)

# Between two looks at what others decided: soon after something happened, then less and less often.
_FIRST_LOOK_S: Final = 0.001
_LONGEST_LOOK_S: Final = 0.05
# Between two looks at other members' locks and beats, at the least; and for each of them.
_JUDGE_S: Final = 0.1
_JUDGE_PER_MEMBER_S: Final = 0.0002
# Between two looks for offsets that have expired; as Kafka's offsets.retention.check.interval.ms.
_EXPIRY_S: Final = 600.0


class MembershipTask:
    """``threads``: whether it has a thread of its own."""

    def __init__(self, manager: Callable[[], GroupManager], *, threads: bool) -> None:
        self._manager = manager
        self._look_s = _FIRST_LOOK_S
        self._next_judge_s = 0.0
        self._next_expiry_s: float | None = None
        self._rebalances = RebalanceWatch(lambda members: self._manager().awaited(members))
        self._thread = StepThread("logstore-groups", lambda: self.step(), enabled=threads)
        self._complaints = Complaints(logger, "looking after")

    def note_member(self) -> None:
        """A member joined: from now on there is something to look after."""
        self._look_s = _FIRST_LOOK_S
        self._thread.start()

    def step(self) -> float | None:
        """Do all that is due; seconds until the next look, None while there are no members."""
        manager = self._manager()
        members = manager.members()
        manager.liveness.note_looking(bool(members))
        if not members:
            return None
        lost = manager.lost()
        if lost is not None:
            manager.drop(lost)
            return None
        now_s = manager.clock.monotonic_s()
        for member in members:
            self._guarded(member.group, lambda member=member: self._look_after(manager, member, now_s))  # type: ignore[misc]
        self._guarded("rebalances", lambda: self._rebalances.look(members, now_s))
        if now_s >= self._next_judge_s:
            groups = {member.group for member in members}
            self._guarded("dead members", lambda: manager.expire_dead(groups))
            self._next_judge_s = now_s + _JUDGE_S + _JUDGE_PER_MEMBER_S * len(members)
        if self._next_expiry_s is None:
            self._next_expiry_s = now_s + _EXPIRY_S
        elif now_s >= self._next_expiry_s:
            self._next_expiry_s = now_s + _EXPIRY_S
            self._guarded("expired offsets", manager.expire_offsets)
        news = self._guarded("groups", manager.follow)
        self._look_s = _FIRST_LOOK_S if news else min(2 * self._look_s, _LONGEST_LOOK_S)
        return self._look_s

    def _look_after(self, manager: GroupManager, member: GroupMember, now_s: float) -> None:
        limit_ms = member.request.max_poll_interval_ms
        if member.abandoned:
            manager.leave(member)
        elif now_s - member.polled_s > limit_ms / 1000:
            subject = f"group {member.group!r}: member {member.member_id!r}"
            why = f"{subject} did not poll for {limit_ms} ms and was taken out"
            hint = "poll more often: hand out less at once, or raise max_poll_interval_ms"
            logger.warning("%s: %s", why, hint)
            manager.leave(member, UnknownMemberError(why, hint=hint))
        elif now_s >= member.next_beat_s:
            manager.liveness.beat(member.liveness, member.member_id)
            member.next_beat_s = now_s + member.request.heartbeat_interval_ms / 1000

    def _guarded(self, what: str, work: Callable[[], object]) -> object:
        """One failing group must not stop the others; what is wrong is logged once for each kind and place."""
        try:
            return work()
        except StoreClosedError:
            raise
        except LogStoreError as error:
            if isinstance(error, RetriableError) and error.passes:
                logger.debug("looking after %s waits: %s", what, error)
            else:
                self._complaints.tell(what, error)
            return None

    def close(self) -> None:
        self._thread.close()
