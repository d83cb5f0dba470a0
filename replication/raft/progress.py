"""``Progress``: what a leader knows of one peer's log, and what it may send there."""

from __future__ import annotations

from collections import deque
from enum import Enum


class Mode(Enum):
    PROBE = "probe"
    """The leader looks for where the logs agree: one message with entries at a time."""
    STREAM = "stream"
    """Entries are sent ahead of their answers."""
    SNAPSHOT = "snapshot"
    """A snapshot is on its way."""


class Progress:
    """``match``: position up to which the peer is durable and agrees; ``next``: what is sent next; ``inflight``: ends
    of messages with entries that are not answered; ``answers``: how many came. Ticks are the leader's: of the last word
    to the peer, and of the last time that the peer came further. ``sent_piece``: byte of the snapshot from which the
    piece goes that was sent last, or that is ``piece_due``. ``recovers``: what the peer lacks comes out of the budget
    for recovery, as the driver says. ``heard_tick``: of the last answer."""

    __slots__ = (
        "active",
        "answers",
        "further_tick",
        "heard_tick",
        "inflight",
        "match",
        "mode",
        "next",
        "piece_due",
        "recovers",
        "round",
        "sent_piece",
        "sent_tick",
    )

    def __init__(self, next_position: int, tick: int) -> None:
        self.match = 0
        self.next = next_position
        self.mode = Mode.PROBE
        self.inflight: deque[int] = deque()
        self.active = False  # heard of since the leader last looked
        self.round = self.answers = 0
        self.recovers = self.piece_due = False
        self.sent_piece = 0
        self.sent_tick = self.further_tick = self.heard_tick = tick

    def note_heard(self, tick: int) -> None:
        self.active, self.heard_tick = True, tick

    def is_silent(self, tick: int, patience_ticks: int) -> bool:
        """Whether it takes nothing, as far as can be told: it has answered nothing for so long."""
        return tick - self.heard_tick >= patience_ticks

    def can_send(self, most: int) -> bool:
        if self.mode is Mode.SNAPSHOT:
            return False
        return len(self.inflight) < (most if self.mode is Mode.STREAM else 1)

    def note_sent(self, end: int, tick: int) -> None:
        """Entries up to ``end`` are on their way."""
        if not self.inflight:
            self.further_tick = tick
        self.sent_tick = tick
        self.inflight.append(end)
        if self.mode is Mode.STREAM:
            self.next = end

    def note_accepted(self, end: int, tick: int) -> bool:
        """Whether the peer has come further."""
        while self.inflight and self.inflight[0] <= end:
            self.inflight.popleft()
        further = end > self.match
        if further:
            self.match, self.further_tick = end, tick
        self.next = max(self.next, self.match)
        if self.mode is Mode.PROBE and self.next == self.match:
            self.mode = Mode.STREAM
            self.inflight.clear()
        return further

    def note_rejected(self, next_position: int) -> None:
        """Look again from there; what is on its way will be refused, too."""
        self.mode, self.piece_due = Mode.PROBE, False
        self.inflight.clear()
        self.next = max(next_position, self.match)

    def forget(self, position: int) -> None:
        """The peer has lost its log: what it held does not count any more."""
        if self.mode is not Mode.SNAPSHOT:
            self.match = min(self.match, position)
            self.note_rejected(position)

    def note_snapshot(self, tick: int) -> None:
        self.mode = Mode.SNAPSHOT
        self.inflight.clear()
        self.sent_tick = self.further_tick = tick
        self.sent_piece, self.piece_due = 0, False

    def note_piece(self, at: int, tick: int) -> None:
        """The peer has the snapshot's bytes up to there, and is to get those behind."""
        self.sent_piece, self.further_tick, self.piece_due = at, tick, True

    def note_piece_sent(self, tick: int) -> None:
        self.sent_tick = self.further_tick = tick
        self.piece_due = False

    def note_installed(self) -> None:
        """The peer's log begins anew at ``match``."""
        self.mode, self.next, self.piece_due = Mode.STREAM, self.match, False

    def is_stuck(self, tick: int, patience_ticks: int) -> bool:
        """Whether what is on its way may be lost."""
        waits = bool(self.inflight) or self.mode is Mode.SNAPSHOT
        return waits and tick - self.further_tick >= patience_ticks

    def begin_again(self, tick: int) -> None:
        self.further_tick = tick
        self.note_rejected(self.match)
