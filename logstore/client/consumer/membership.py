"""``Membership``: a consumer's place in its group. What the group gives is taken up, what it takes away is given up
first: positions committed, the hook called, and only then the next owner may have it."""

from __future__ import annotations

import logging
import warnings
import weakref
from math import inf

from logstore.api.backend import Backend
from logstore.api.cancellation import CancelHandle
from logstore.api.groups import GroupMembership, JoinRequest, MemberView
from logstore.client.consumer.assignment import Assignment
from logstore.client.consumer.assignment_changes import Following, Hooks
from logstore.client.consumer.offset_commits import OffsetCommits
from logstore.client.consumer.settings import ConsumerSettings
from logstore.client.consumer.wakeup import Wakeup
from logstore.errors import ClientClosedError, MemberFencedError, StaleGenerationError, UnknownMemberError
from logstore.seams.clock import Clock
from logstore.types import TopicPartition

logger = logging.getLogger(__name__)

_TELL_AFTER_S = 1.0

NOT_A_MEMBER = (UnknownMemberError, MemberFencedError, StaleGenerationError)


class Membership(Following):
    """A ``Following`` by what the group deals out. ``leave`` may be called from any thread, the rest belongs to
    the consumer's.

    A member that the group has given up (its session ended, it did not poll) loses all it had and joins again
    by itself; one whose ``instance_id`` another consumer has taken raises MemberFencedError from then on.
    """

    def __init__(
        self,
        backend: Backend,
        group: str,
        assignment: Assignment,
        settings: ConsumerSettings,
        commits: OffsetCommits,
        hooks: Hooks,
        wakeup: Wakeup,
        clock: Clock,
    ) -> None:
        super().__init__(assignment, hooks)
        self._clock = clock
        self._backend = backend
        self._group = group
        self._settings = settings
        self._commits = commits
        wakeup.watch = self._watch
        self._member: GroupMembership | None = None
        self._seen: MemberView | None = None
        self._wanted = assignment.wanted
        self._unsettled = False  # some partition's offset is in an open transaction
        self._unsettled_since_s: float | None = None  # inf: told
        self._dropped: weakref.finalize[[GroupMembership, str], Membership] | None = None

    @property
    def identity(self) -> tuple[str, int] | None:
        """(member id, generation) by what was last taken note of; None while it is no member."""
        view = self._seen
        return None if view is None else (view.member_id, view.epoch)

    def start(self) -> None:
        super().start()
        self._join()
        try:
            self._news = self._take_up()
        except BaseException:
            self.leave()
            raise

    def _join(self) -> None:
        settings, assignment = self._settings, self._assignment
        self._wanted = assignment.wanted
        member = self._backend.join_group(
            self._group,
            JoinRequest(
                topics=assignment.topic_names(),
                pattern=assignment.pattern,
                instance_id=settings.instance_id,
                assignor=settings.assignor,
                session_timeout_ms=settings.session_timeout_ms,
                heartbeat_interval_ms=settings.heartbeat_interval_ms,
                max_poll_interval_ms=settings.max_poll_interval_ms,
            ),
        )
        self._forget_dropped()
        self._member = member
        self._dropped = weakref.finalize(self, _report_dropped, member, self._group)
        self._dropped.atexit = False  # a process that ends frees what it held
        view = member.view()
        while view is not None and view.revoking:
            # Another member joined before this one looked: it waits for partitions that were never read here.
            member.sync(view.assigned, view.epoch)
            view = member.view()
        self._note(view)

    def _watch(self, handle: CancelHandle | None) -> None:
        """A wait begins (None: is over): it ends when the group says something else than what was acted on."""
        member = self._member
        if member is not None:
            member.cancel_on_change(handle, self._seen)

    def _note(self, view: MemberView | None) -> None:
        self._seen = view
        self._commits.member, self._commits.epoch = (None, -1) if view is None else (self._member, view.epoch)

    def follow(self) -> None:
        member = self._member
        if member is None:
            return  # the store that lent this consumer is closing
        member.polled()
        _, lost = self._assignment.refresh()
        news, self._news = self._news, []
        self._hooks.lost(lost)
        self._hooks.assigned([where for where in news if where in self._assignment.states])
        if self._assignment.wanted is not self._wanted:
            member.update(self._assignment.topic_names())
            self._wanted = self._assignment.wanted
            self._seen = None
        if self._unsettled or member.view() is not self._seen or self._seen is None:
            self._reconcile(member)
        self._assignment.tell_missing()

    def _reconcile(self, member: GroupMembership) -> None:
        """Until what is read here is what the group says. What fails on the way is done again by the next poll."""
        try:
            while True:
                view = member.view()
                if view is None:
                    self._lose()
                    self._rejoin(member)
                    return
                self._note(view)
                self._give_up(view)
                if view.revoking:
                    member.sync(view.assigned, view.epoch)
                    continue
                self._hooks.assigned(self._take_up())
                if member.view() is self._seen:
                    return
        except BaseException:
            self._seen = None
            raise

    def _give_up(self, view: MemberView) -> None:
        states = self._assignment.states
        gone = [where for where in states if where not in view.assigned and where not in view.revoking]
        self._assignment.drop(gone)  # not asked for: its topic was deleted
        self._hooks.lost(gone)
        going = [where for where in states if where in view.revoking]
        if not going:
            return
        try:
            self._commits.before_revocation(going)
        except NOT_A_MEMBER as error:
            logger.warning("group %r: what was being given up is lost: %s", self._group, error)
        try:
            self._hooks.revoked(going)
            self._commits.flush()
        except NOT_A_MEMBER as error:
            logger.warning("group %r: what was being given up is lost: %s", self._group, error)
        finally:
            self._commits.note_gone(going)
            self._assignment.drop(going)

    def _take_up(self) -> list[TopicPartition]:
        """What the view gives and is not read yet: at the committed offsets, once no open transaction holds one."""
        view = self._seen
        if view is None:
            return []
        states, wanted = self._assignment.states, self._assignment.wanted
        new = sorted(where for where in view.assigned if where not in states and where in wanted)
        self._unsettled = False
        if not new:
            return []
        unstable = set(self._backend.unstable_offsets(self._group)).intersection(new)
        self._unsettled = bool(unstable)
        self._tell_unsettled(unstable)
        new = [where for where in new if where not in unstable]
        begun = self._assignment.take(new, view.initial)
        try:
            # A position that `start` gave now may be another one tomorrow: the next owner must go on here.
            # One past the end is left to the fetch to refuse, or to ``on_reset``.
            ends = self._assignment.end_offsets(begun)
            points = {where: states[where].commit_point() for where in begun}
            self._commits.commit({where: at for where, at in points.items() if at.offset <= ends[where]})
        except NOT_A_MEMBER as error:
            self._assignment.drop(new)
            logger.warning("group %r: lost %d partitions on taking them up: %s", self._group, len(new), error)
            return []
        except BaseException:
            self._assignment.drop(new)
            raise
        return new

    def _tell_unsettled(self, unstable: set[TopicPartition]) -> None:
        """At WARNING, once, what has been waited for for more than a second."""
        now_s = self._clock.monotonic_s()
        if not unstable:
            self._unsettled_since_s = None
        elif self._unsettled_since_s is None:
            self._unsettled_since_s = now_s
        elif now_s - self._unsettled_since_s > _TELL_AFTER_S:
            self._unsettled_since_s = inf
            logger.warning(
                "group %r: %d partitions, %s-%d among them, wait for open transactions that hold their committed "
                "offsets: `logstore transaction list` names the transactions",
                self._group,
                len(unstable),
                *min(unstable),
            )

    def _lose(self) -> None:
        lost = list(self._assignment.states)
        self._commits.note_gone(lost)
        self._assignment.drop(lost)
        self._note(None)
        self._news = []
        self._unsettled = False
        self._hooks.lost(lost)

    def _rejoin(self, member: GroupMembership) -> None:
        if self._member is None:
            raise ClientClosedError("this consumer is closed: its store was closed while it polled")
        reason = member.ended_by()
        if isinstance(reason, MemberFencedError):
            raise reason
        logger.warning("group %r: joining again: %s", self._group, reason)
        member.leave()
        self._join()
        self._hooks.assigned(self._take_up())

    def unsettled(self) -> bool:
        """Whether to look again soon, though no change of the group will tell."""
        return self._unsettled

    def has_its_share(self) -> bool:
        """Whether nothing is on its way here from another member."""
        member = self._member
        return member is None or (not self._unsettled and member.view() is self._seen and member.is_settled())

    @property
    def is_lost(self) -> bool:
        """Whether the group has given it up."""
        return self._member is not None and self._member.view() is None

    def leave(self) -> None:
        self._forget_dropped()
        member, self._member = self._member, None
        if member is not None:
            member.leave()

    def _forget_dropped(self) -> None:
        dropped, self._dropped = self._dropped, None
        if dropped is not None:
            dropped.detach()


def _report_dropped(member: GroupMembership, group: str) -> None:
    """Takes no lock: a collection of garbage may run anywhere."""
    member.abandon()
    report = f"a consumer of group {group!r} was dropped without close(): it leaves the group uncommitted"
    logger.warning(report)
    warnings.warn(report, ResourceWarning, stacklevel=2)
