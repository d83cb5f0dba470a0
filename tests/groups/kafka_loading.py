"""What Kafka's coordinator insists on when it loads records of consumer groups (``GroupMetadataManager.replay`` and
``ConsumerGroup`` of 4.x): it refuses the whole partition where one is out of order."""

from __future__ import annotations

from dataclasses import dataclass, field

from logstore.groups import group_records as layout
from logstore.groups.group_records import Current
from logstore.types import TopicPartition


class KafkaRefusesError(Exception):
    """``IllegalStateException`` there."""


@dataclass(slots=True)
class _Group:
    members: set[str] = field(default_factory=set)
    targets: set[str] = field(default_factory=set)
    target_epoch: int = -1
    current: dict[str, Current] = field(default_factory=dict)
    owners: dict[TopicPartition, str] = field(default_factory=dict)


class KafkaLoading:
    """Replays the records of a log from its start, and raises ``KafkaRefusesError``. ``compacted``: a member's newest
    record may stand behind its assignment then, and Kafka knows it."""

    def __init__(self, compacted: bool = False) -> None:
        self.compacted = compacted
        self.groups: dict[str, _Group] = {}

    def replay(self, key: bytes, value: bytes | None) -> None:
        if key[0] or key[1] not in layout.KINDS:
            return
        decoded = layout.decode_key(key)
        assert decoded is not None
        kind, name, member_id = decoded
        group = self.groups.setdefault(name, _Group())
        if kind == layout.GROUP and value is None:
            _refuse(bool(group.members), f"group {name} goes, members are left")
            _refuse(group.target_epoch != -1, f"group {name} goes, its target is left")
            del self.groups[name]
        elif kind == layout.TARGET:
            _refuse(value is None and bool(group.targets), f"the target of {name} goes, members have one")
            group.target_epoch = -1 if value is None else layout.decode_target(value)
        elif kind == layout.TARGET_MEMBER:
            (group.targets.discard if value is None else group.targets.add)(member_id)
        elif kind == layout.MEMBER and value is not None:
            group.members.add(member_id)
        elif kind == layout.MEMBER and member_id in group.members:
            _refuse(member_id in group.current, f"{member_id} goes, its assignment is left")
            _refuse(member_id in group.targets, f"{member_id} goes, its target is left")
            group.members.remove(member_id)
        elif kind == layout.CURRENT:
            self._assign(group, member_id, None if value is None else layout.decode_current(value))

    def _assign(self, group: _Group, member_id: str, current: Current | None) -> None:
        group.owners = {place: owner for place, owner in group.owners.items() if owner != member_id}
        if current is None:
            group.current.pop(member_id, None)
            return
        known = self.compacted or member_id in group.members
        _refuse(not known, f"{member_id} is assigned partitions before it is a member")
        for place in (*current.assigned, *current.revoking):
            _refuse(
                place in group.owners, f"{place} is given to {member_id}, {group.owners.get(place)} has it"
            )
            group.owners[place] = member_id
        group.current[member_id] = current


def _refuse(condition: bool, why: str) -> None:
    if condition:
        raise KafkaRefusesError(why)
