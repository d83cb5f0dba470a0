"""``MemberLiveness``: how members of groups show that they live, and how other members' ends are noticed."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Protocol

from logstore.groups.views import MemberSession


class MemberLiveness(Protocol):
    """Of the members that live in this process, and of all others of their groups. Thread-safe."""

    def begin(self, member_id: str) -> bytes:
        """The member of this process shows that it lives from now on; the ``liveness`` of its record, which is
        written afterwards. StorageError, DiskFullError."""
        ...

    def beat(self, liveness: bytes, member_id: str) -> None:
        """The member still lives. LockLostError where other processes do not see that any more."""
        ...

    def end(self, liveness: bytes) -> None:
        """The member has left, or was judged dead."""
        ...

    def note_looking(self, regularly: bool) -> None:
        """From now on ``dead`` is asked ``regularly``, so that a long pause means that this process was stopped; or
        only now and then."""
        ...

    def dead(self, sessions: Iterable[MemberSession], groups: Collection[str]) -> dict[str, list[str]]:
        """Ids of dead members by group, of ``groups``; ``sessions``: of all groups, members of this process apart."""
        ...

    def close(self) -> None:
        """Members of this process are dead to the others. Safe to call again."""
        ...
