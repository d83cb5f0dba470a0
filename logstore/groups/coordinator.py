"""The coordinator of all groups of a store: members, the partitions they read, committed offsets.

A ``StateMachine`` over ``__consumer_offsets``. ``decide_*`` look and return records with a reply, replaying
changes; time, ids and facts about topics come as arguments. How a group comes to rest: ``group.py``.

A member's life: *join* (the reply says what it may read), then whenever its view shows partitions being revoked,
finish and commit them and *sync* with what it still owns; *update* when it wants other topics or sees that topics
grew, came or went; *leave*. The process that finds a member dead decides its *expiry*.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from logstore.api.groups import Assignor, MemberView, validate_assignor, validate_group
from logstore.arguments import shown, whole
from logstore.errors import (
    GroupBusyError,
    InvalidArgumentError,
    MemberFencedError,
    StaleGenerationError,
    UnknownGroupError,
    UnknownMemberError,
)
from logstore.groups import group_records
from logstore.groups.group import NOTHING, Group
from logstore.groups.group_records import LIVENESS_BYTES, Current, Member
from logstore.groups.offset_values import TopicIds
from logstore.groups.offsets import OFFSET_KIND, OffsetStore
from logstore.groups.views import GroupDescription, MemberSession, awaited, describe_group, member_view
from logstore.machine import Change, Decision, TransactionalWriter
from logstore.types import OffsetAndMetadata, TopicPartition

EXEMPT_PREFIX: Final = "spark-sink-"
EXPIRED_AT_ONCE: Final = 10_000
MAX_ID_BYTES: Final = 1000
INT32_MAX: Final = 2**31 - 1

Offsets = Mapping[TopicPartition, OffsetAndMetadata]


class GroupCoordinator:
    """All groups. Not thread-safe, like every machine. ``ignored_records``: replayed ones of other programs."""

    def __init__(self) -> None:
        self._offsets = OffsetStore()
        self._groups: dict[str, Group] = {}
        self._ignored = 0

    @property
    def ignored_records(self) -> int:
        return self._ignored + self._offsets.ignored_records

    # --- membership ---

    def decide_join(
        self,
        group: str,
        member_id: str,
        *,
        instance_id: str | None,
        client: str,
        topics: Collection[str],
        pattern: str | None,
        assignor: Assignor,
        session_timeout_ms: int,
        max_poll_interval_ms: int,
        liveness: bytes,
        partitions: Mapping[str, int],
        now_ms: int,
    ) -> Decision[MemberView]:
        """Become a member. ``member_id``: made by the caller, used once; ``topics``: names, those that match
        ``pattern`` now among them; ``liveness``: see ``Member``; ``partitions``: all topics that there are.

        A member with the same ``instance_id`` is fenced, and what it had is the new one's, without any movement
        if both want the same. Raises InvalidGroupError, InvalidArgumentError.
        """
        validate_group(group)
        validate_assignor(assignor)
        wanted = _checked_topics(topics)
        member = Member(
            instance_id=None if instance_id is None else _checked_id(instance_id, "instance_id"),
            client=_text(client, "client"),
            topics=wanted,
            pattern=None if pattern is None else _text(pattern, "pattern"),
            assignor=assignor,
            session_timeout_ms=whole(session_timeout_ms, "session_timeout_ms", 1, INT32_MAX),
            max_poll_interval_ms=whole(max_poll_interval_ms, "max_poll_interval_ms", 1, INT32_MAX),
            liveness=_checked_liveness(liveness),
            joined_ms=now_ms,
        )
        name = _checked_id(member_id, "member_id")
        draft = self._draft(group)
        holder = None if instance_id is None else draft.holder_of(instance_id)
        if holder is not None and holder != name:
            draft.take_over(holder, name)
            member = member._replace(replaced=holder)
        before = draft.members.get(name)
        patterns = {other.pattern for other in draft.members.values()} - {None}
        draft.members[name] = member
        draft.empty_since_ms = -1
        known = dict(draft.topics)
        draft.learn(partitions, came_later=pattern in patterns)
        same = before is not None and (before.topics, before.assignor) == (wanted, assignor)
        if not same or draft.topics != known:
            draft.advance()
        return self._settled(group, draft, name)

    def decide_sync(
        self,
        group: str,
        member_id: str,
        epoch: int,
        owned: Collection[TopicPartition],
        now_ms: int,  # noqa: ARG002 - every decision is told the time
    ) -> Decision[MemberView]:
        """The member owns just these now; what it gave up goes to whom it is meant for.

        ``epoch``: of the view by which it acted. Partitions in ``owned`` that are not its own are passed over.
        Raises UnknownMemberError, MemberFencedError, StaleGenerationError (an epoch that is yet to come).
        """
        self._checked(group, member_id, epoch)
        draft = self._draft(group)
        draft.give_up(member_id, frozenset(TopicPartition(*place) for place in owned), epoch)
        return self._settled(group, draft, member_id)

    def decide_update(
        self,
        group: str,
        member_id: str,
        epoch: int,
        topics: Collection[str],
        partitions: Mapping[str, int],
        now_ms: int,  # noqa: ARG002 - every decision is told the time
    ) -> Decision[MemberView]:
        """The member wants these topics, and this is what topics there are: new partitions, topics that match
        its pattern now, topics that are gone. No records if nothing is new. Errors as ``decide_sync``."""
        self._checked(group, member_id, epoch)
        draft = self._draft(group)
        member = draft.members[member_id]
        draft.members[member_id] = member._replace(topics=_checked_topics(topics))
        known = dict(draft.topics)
        draft.learn(partitions, came_later=member.pattern is not None)
        if draft.members[member_id] == member and draft.topics == known:
            return self._settled(group, draft, None, member_id)
        draft.advance()
        return self._settled(group, draft, member_id)

    def decide_leave(
        self, group: str, member_id: str, now_ms: int, *, forget: bool = False
    ) -> Decision[bool]:
        """The member goes. A static one's place is kept until its session has ended, unless ``forget``. The reply:
        whether it was one; a member that has gone or was fenced may leave again."""
        validate_group(group)
        draft = self._draft(group)
        member = draft.members.get(member_id)
        if member is None or (member.left_ms >= 0 and not forget):
            return Decision((), False)
        if member.instance_id is not None and not forget:
            draft.members[member_id] = member._replace(left_ms=now_ms)
        else:
            draft.remove(member_id, now_ms)
            draft.advance()
        draft.settle()
        return Decision(self._records(group, draft), True)

    def decide_expire(self, group: str, member_ids: Collection[str], now_ms: int) -> Decision[list[str]]:
        """These are dead, as the caller judged: what they had is free. The reply: those that were members."""
        validate_group(group)
        draft = self._draft(group)
        gone = sorted(set(member_ids) & draft.members.keys())
        if not gone:
            return Decision((), [])
        for member_id in gone:
            draft.remove(member_id, now_ms)
        draft.advance()
        draft.settle()
        return Decision(self._records(group, draft), gone)

    def _draft(self, group: str) -> Group:
        found = self._groups.get(group)
        return Group() if found is None else found.copy()

    def _records(self, group: str, draft: Group) -> tuple[Change, ...]:
        return self._groups.get(group, Group()).records_to(draft, group)

    def _settled(
        self, group: str, draft: Group, acting: str | None, shown_to: str | None = None
    ) -> Decision[MemberView]:
        draft.settle(acting)
        view = member_view(draft, shown_to or acting or "")
        if view is None:
            raise UnknownMemberError(f"group {group!r}: member {acting!r} has left")
        return Decision(self._records(group, draft), view)

    # --- members' rights ---

    def view(self, group: str, member_id: str) -> MemberView | None:
        """What the member has now. None: it is no member (any more): gone, expired or fenced."""
        found = self._groups.get(group)
        return None if found is None else member_view(found, member_id)

    def awaited(self, group: str, member_id: str) -> dict[str, list[TopicPartition]]:
        """What the member is to get and another one has yet to give up, by the other one's id and client."""
        found = self._groups.get(group)
        return {} if found is None else awaited(found, member_id)

    def check_member(self, group: str, member_id: str, epoch: int | None = None) -> MemberView:
        """UnknownMemberError or MemberFencedError unless it is one; StaleGenerationError for an ``epoch`` that is
        yet to come."""
        self._checked(group, member_id, epoch)
        view = self.view(group, member_id)
        if view is None:
            raise UnknownMemberError(f"group {group!r}: member {member_id!r} has left")
        return view

    def _checked(self, group: str, member_id: str, epoch: int | None) -> Current:
        validate_group(group)
        found = self._groups.get(group)
        member = None if found is None else found.members.get(member_id)
        if found is None or member is None or member.left_ms >= 0:
            successor = None if found is None else found.successor_of(member_id)
            if found is not None and successor is not None:
                instance_id = found.members[successor].instance_id
                raise MemberFencedError(
                    f"group {group!r}: member {member_id!r} with instance_id {instance_id!r} was replaced by "
                    f"{successor!r} ({found.members[successor].client})"
                )
            raise UnknownMemberError(f"group {group!r} has no member {member_id!r}")
        current = found.current.get(member_id, NOTHING)
        if epoch is not None and epoch > current.epoch:
            raise StaleGenerationError(
                f"group {group!r}, member {member_id!r}: generation {current.epoch} is its newest, {epoch} given",
                expected=current.epoch,
                found=epoch,
            )
        return current

    def _check_commit(
        self, group: str, places: Collection[TopicPartition], member_id: str | None, epoch: int | None
    ) -> None:
        validate_group(group)
        if member_id is None:
            self._check_empty(group, "commit without being a member of")
            return
        if epoch is None:
            raise InvalidArgumentError(
                f"group {group!r}: member {member_id!r} commits without its generation"
            )
        current = self._checked(group, member_id, epoch)
        for place in places:
            since = current.assigned.get(place, current.revoking.get(place))
            if since is None or epoch < since:
                topic, partition = place
                why = "is not its own" if since is None else f"is its own since generation {since}"
                raise StaleGenerationError(
                    f"group {group!r}: member {member_id!r} cannot commit for {topic}-{partition} under "
                    f"generation {epoch}: the partition {why}, its generation now is {current.epoch}",
                    expected=current.epoch if since is None else since,
                    found=epoch,
                )

    def _check_empty(self, group: str, what: str) -> None:
        found = self._groups.get(group)
        if found is None or not found.members:
            return
        names = [f"{name} ({member.client})" for name, member in sorted(found.members.items())]
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        raise GroupBusyError(
            f"cannot {what} group {group!r}: it has members: {', '.join(names[:3])}{more}",
            hint="close its members first, or use another group",
        )

    # --- offsets ---

    def decide_commit(
        self,
        group: str,
        offsets: Offsets,
        now_ms: int,
        end_offsets: Mapping[TopicPartition, int] | None = None,
        topic_ids: Mapping[str, bytes] | None = None,
        *,
        member_id: str | None = None,
        epoch: int | None = None,
    ) -> Decision[dict[TopicPartition, OffsetAndMetadata]]:
        """Commit positions, as ``OffsetStore.decide_commit``. A group with members takes commits of members only,
        each for partitions that it has, or still has to give up, since ``epoch`` or before.

        Raises GroupBusyError, UnknownMemberError, MemberFencedError, StaleGenerationError as well.
        """
        self._check_commit(group, offsets.keys(), member_id, epoch)
        return self._offsets.decide_commit(group, offsets, now_ms, end_offsets, topic_ids)

    def decide_transactional_commit(
        self,
        group: str,
        offsets: Offsets,
        writer: TransactionalWriter,
        now_ms: int,
        end_offsets: Mapping[TopicPartition, int] | None = None,
        topic_ids: Mapping[str, bytes] | None = None,
        *,
        member_id: str | None = None,
        epoch: int | None = None,
    ) -> Decision[dict[TopicPartition, OffsetAndMetadata]]:
        """The same as a part of ``writer``'s transaction: pending until its marker."""
        self._check_commit(group, offsets.keys(), member_id, epoch)
        decided = self._offsets.decide_commit(group, offsets, now_ms, end_offsets, topic_ids)
        return Decision(decided.records, decided.reply, producer=writer)

    def decide_delete_group(self, group: str) -> Decision[list[TopicPartition]]:
        """Forget the group and its offsets; the reply lists their partitions. UnknownGroupError,
        GroupBusyError."""
        validate_group(group)
        self._check_empty(group, "delete")
        found = self._groups.get(group)
        places = self._offsets.places(group)
        if found is None and not places:
            raise UnknownGroupError(
                f"there is no group {group!r} to delete", hint="`logstore group list` shows the groups"
            )
        records = () if found is None else found.tombstones(group)
        return Decision(self._offsets.decide_delete_offsets(group, places).records + records, places)

    def decide_delete_offsets(
        self, group: str, places: Collection[TopicPartition]
    ) -> Decision[list[TopicPartition]]:
        """Forget the offsets of these partitions; the reply lists those that had one. GroupBusyError for a topic
        that members are subscribed to, UnknownGroupError."""
        validate_group(group)
        found = self._groups.get(group)
        if found is None and not self._offsets.places(group):
            raise UnknownGroupError(
                f"there is no group {group!r} to delete offsets of",
                hint="`logstore group list` shows the groups",
            )
        topics = {topic for topic, _ in places}
        if found is not None and any(topics & member.topics for member in found.members.values()):
            self._check_empty(group, f"delete offsets in {', '.join(sorted(topics))} of")
        return self._offsets.decide_delete_offsets(group, places)

    def decide_delete_topic(self, topic: str, topic_ids: TopicIds) -> Decision[list[str]]:
        """The topic is gone: so are its offsets in every group, and no member has its partitions any more. The reply
        lists the groups that had offsets there. A topic made anew under that name keeps what is its own."""
        decided = self._offsets.decide_delete_topic(topic, topic_ids)
        records = list(decided.records)
        made_anew = topic_ids(topic) is not None
        for name, found in sorted(self._groups.items()):
            if topic in found.topics and not made_anew:
                draft = found.copy()
                draft.drop_topic(topic)
                if draft.members:
                    draft.advance()
                    draft.settle()
                records += self._records(name, draft)
        return Decision(tuple(records), decided.reply)

    def decide_expire_offsets(
        self,
        now_ms: int,
        retention_ms: int,
        topic_ids: TopicIds | None = None,
        exempt_prefix: str = EXEMPT_PREFIX,
        limit: int = EXPIRED_AT_ONCE,
    ) -> Decision[dict[str, list[TopicPartition]]]:
        """Forget the offsets of groups that have been without members for ``retention_ms`` (Kafka's
        offsets.retention.minutes), each as long after its commit at the least, and then the groups. What is
        pending stays, and groups named ``exempt_prefix...``. With ``topic_ids`` at once, and of all groups, those
        whose topics are gone: a deletion that was cut short left them. About ``limit`` records at once: ask again
        until there are none. The reply: what was forgotten, by group."""
        records: list[Change] = []
        gone: dict[str, list[TopicPartition]] = {}
        for name in self.groups():
            if len(records) >= limit:
                break
            lost = [] if topic_ids is None else self._offsets.lost(name, topic_ids)[: limit - len(records)]
            if lost:
                records += self._offsets.decide_delete_offsets(name, lost).records
                gone[name] = lost
                continue  # what has expired is found when asked again
            found = self._groups.get(name)
            if name.startswith(exempt_prefix) or (found is not None and found.members):
                continue
            since_ms = -1 if found is None else found.empty_since_ms
            expired = self._offsets.expired(name, now_ms, retention_ms, since_ms)[: limit - len(records)]
            records += self._offsets.decide_delete_offsets(name, expired).records
            if expired:
                gone[name] = expired
            overdue = found is not None and since_ms <= now_ms - retention_ms
            if found is not None and overdue and len(expired) == len(self._offsets.places(name)):
                records += found.tombstones(name)
                gone.setdefault(name, [])
        return Decision(tuple(records), gone)

    # --- replay ---

    def replay(self, key: bytes | None, value: bytes | None) -> None:
        """Apply one record. InvalidRecordError, UnsupportedStoreVersionError if it cannot be understood."""
        if key is None or len(key) < 2 or key[0] or key[1] not in group_records.KINDS:
            self._offsets.replay(key, value)
            return
        decoded = group_records.decode_key(key)
        if decoded is None:
            self._ignored += 1
            return
        found = self._groups.setdefault(decoded.group, Group())
        try:
            self._ignored += not found.replay(decoded, value)
        finally:
            if found.is_gone():
                del self._groups[decoded.group]

    def replay_many(self, changes: Sequence[tuple[bytes | None, bytes | None]]) -> None:
        """As ``replay`` for each. Group records keep their order; among the offsets between two of them only the
        last of a key is looked at."""
        kinds = {None if change[0] is None else change[0][:2] for change in changes}
        if kinds == {OFFSET_KIND}:
            self._offsets.replay_many(changes)
            return
        run: list[tuple[bytes | None, bytes | None]] = []
        for change in changes:
            key = change[0]
            if key is None or len(key) < 2 or key[0] or key[1] not in group_records.KINDS:
                run.append(change)
                continue
            self._offsets.replay_many(run)
            run.clear()
            self.replay(*change)
        self._offsets.replay_many(run)

    def replay_pending(self, producer_id: int, epoch: int, key: bytes | None, value: bytes | None) -> None:
        """A transaction's commit: it counts when ``replay_marker`` says so."""
        self._offsets.replay_pending(producer_id, epoch, key, value)

    def replay_marker(self, producer_id: int, epoch: int, committed: bool) -> None:
        self._offsets.replay_marker(producer_id, epoch, committed)

    # --- looks ---

    def committed(
        self, group: str, topic_ids: TopicIds | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """See ``OffsetStore.committed``."""
        return self._offsets.committed(group, topic_ids)

    def commit_times_ms(self, group: str) -> dict[TopicPartition, int]:
        """When each of the group's offsets was committed, in ms since 1970 UTC."""
        return self._offsets.commit_times_ms(group)

    def pending(self, group: str, topic_ids: TopicIds | None = None) -> dict[TopicPartition, int]:
        """See ``OffsetStore.pending``."""
        return self._offsets.pending(group, topic_ids)

    def pending_producers(self) -> dict[int, int]:
        """Producer ids with open transactions here, and their epochs."""
        return self._offsets.pending_producers()

    def groups(self) -> list[str]:
        """Names of all groups: with members, offsets, or the memory of members; sorted."""
        return sorted(self._groups.keys() | set(self._offsets.groups()))

    def describe(self, group: str) -> GroupDescription:
        """InvalidGroupError, UnknownGroupError."""
        validate_group(group)
        found = self._groups.get(group)
        if found is None and not self._offsets.places(group):
            raise UnknownGroupError(
                f"there is no group {group!r}", hint="`logstore group list` shows the groups"
            )
        return describe_group(group, Group() if found is None else found)

    def sessions(self) -> list[MemberSession]:
        """Every member of every group, for the runtime to judge which of them are alive."""
        return [
            MemberSession(
                group=name,
                member_id=member_id,
                instance_id=member.instance_id,
                liveness=member.liveness,
                session_timeout_ms=member.session_timeout_ms,
                joined_ms=member.joined_ms,
                left_ms=member.left_ms,
            )
            for name, found in sorted(self._groups.items())
            for member_id, member in sorted(found.members.items())
        ]


def _text(value: object, name: str) -> str:
    try:
        if isinstance(value, str) and value.encode():
            return value
    except UnicodeEncodeError:
        raise InvalidArgumentError(f"{name}={shown(value)} holds half of a surrogate pair") from None
    if value == "":
        return ""
    raise InvalidArgumentError(f"{name}={shown(value)}", hint="it is text")


def _checked_id(value: object, name: str) -> str:
    text = _text(value, name)
    if not 1 <= len(text.encode()) <= MAX_ID_BYTES:
        raise InvalidArgumentError(f"{name}={shown(value)}", hint=f"it is text of 1 to {MAX_ID_BYTES} bytes")
    return text


def _checked_liveness(value: object) -> bytes:
    if isinstance(value, bytes) and len(value) == LIVENESS_BYTES:
        return value
    raise InvalidArgumentError(f"liveness={shown(value)}", hint=f"it is {LIVENESS_BYTES} bytes")


def _checked_topics(topics: Collection[str]) -> frozenset[str]:
    if isinstance(topics, str | bytes):
        raise InvalidArgumentError(f"topics={shown(topics)}", hint="it is a collection of topic names")
    return frozenset(_text(topic, "topic") for topic in topics)
