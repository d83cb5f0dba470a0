"""The disk of one simulated replica: a log and a vote, each with what is durable apart from what is only written."""

from __future__ import annotations

import random

from replication.raft.trail import Trail
from replication.raft.types import Entry, Membership, Snapshot, VoteState


class SimulatedDisk:
    """``log``: what a reader finds; ``durable_end``: how much of it a crash cannot take. ``base``: a snapshot that
    stands for what is before the log."""

    def __init__(self, membership: Membership | None) -> None:
        self.base = Snapshot(0, (), membership or Membership(frozenset()))
        self.log: list[Entry] = []
        self.durable_end = 0
        self.vote = VoteState()
        self.unsynced_vote: VoteState | None = None
        self.commit = 0  # the durable high watermark, which may be behind

    # --- reading ---

    @property
    def start(self) -> int:
        return self.log[0].base_offset if self.log else self.end

    @property
    def end(self) -> int:
        return self.log[-1].end_offset if self.log else self.base.end_offset

    def entries(self, start: int, max_bytes: int) -> tuple[Entry, ...]:
        """A ``LogView``; each entry counts as 100 bytes."""
        found = [entry for entry in self.log if entry.base_offset >= start]
        return tuple(found[: max(1, max_bytes // 100)])

    def term_before(self, position: int) -> int:
        for entry in reversed(self.log):
            if entry.end_offset == position:
                return entry.term
        if not self.base.epochs or position != self.base.end_offset:
            return -1
        return int(self.base.epochs[-1][0])

    def trail(self) -> Trail:
        """What a replica that starts on this disk knows."""
        memberships = [(self.base.end_offset, self.base.membership)] if self.base.membership.voters else []
        trail = Trail(self.base.epochs, self.base.end_offset, self.base.end_offset, memberships)
        for entry in self.log:
            trail.append(entry)
        return trail

    # --- writing ---

    def append(self, entries: tuple[Entry, ...]) -> None:
        assert entries[0].base_offset == self.end, f"append at {entries[0].base_offset}, end {self.end}"
        self.log += entries

    def truncate(self, offset: int) -> None:
        self.log = [entry for entry in self.log if entry.base_offset < offset]
        self.durable_end = min(self.durable_end, offset)

    def sync(self, end: int) -> None:
        self.durable_end = max(self.durable_end, min(end, self.end))

    def install(self, snapshot: Snapshot) -> None:
        self.base, self.log = snapshot, []
        self.durable_end = snapshot.end_offset

    def drop_prefix(self, position: int) -> None:
        """Retention: records before ``position`` go."""
        trail = self.trail()
        gone = [entry for entry in self.log if entry.end_offset <= position]
        if gone:
            end = gone[-1].end_offset
            epochs = tuple(epoch for epoch in trail.epochs if epoch[1] < end)
            self.base = Snapshot(end, epochs, trail.membership_at(end) or self.base.membership)
            self.log = self.log[len(gone) :]

    def crash(self, dice: random.Random) -> None:
        """Of what was not synced any prefix is left; a vote that was not synced is there or not."""
        unsynced = [entry for entry in self.log if entry.end_offset > self.durable_end]
        kept = dice.randint(0, len(unsynced))
        self.log = self.log[: len(self.log) - len(unsynced) + kept]
        self.durable_end = self.end
        if self.unsynced_vote is not None and dice.random() < 0.5:
            self.vote = self.unsynced_vote
        self.unsynced_vote = None
