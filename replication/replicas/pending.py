"""``ReplicatedAppend``: an append to a replicated log, decided by its commit index or by the end of its leader, and
``PendingAppends``, ``PendingReads``: all of a leader that are not decided yet."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Final, Protocol, TypeAlias

from logstore.errors import LogStoreError, OutcomeUnknownError
from logstore.log.log_offsets import Appended
from logstore.partition.partition import PendingAppend, Told
from replication.errors import NotConfirmedError, NotLeaderError

LONGEST_S: Final = 30.0
"""How long an append waits for its commit: a majority whose disks hang must not hold it for ever."""
LONGEST_KNOWN_S: Final = 3.0
"""One that may be made again: a request to many partitions is answered once all are decided, so that one of them which
commits nothing, as its leader was just elected, would hold up what all others have acknowledged."""


ReadAnswer: TypeAlias = Callable[[int, LogStoreError | None], None]
"""Called once with the position to read up to, or the error."""


class Awaited(Protocol):
    @property
    def done(self) -> bool: ...


class Decides(Protocol):
    """What decides appends (``Replica``). ``lock``: around ``done`` and ``error``."""

    lock: threading.RLock

    def read_index(self, answer: ReadAnswer) -> None:
        """Have a majority confirm that this node leads."""
        ...

    def help_on(self, what: Awaited) -> None:
        """Where nothing runs in the background: go on until it is done."""
        ...


class ReplicatedAppend:
    """A ``PendingAppend``. ``known``: all of its batches have producer ids, so that the same append again, at the next
    leader, is found to be a repetition; ``since_s``: of the monotonic clock; ``longest_s``: it waits so long."""

    __slots__ = (
        "_by",
        "_event",
        "_told",
        "append_time_ms",
        "base_offset",
        "done",
        "error",
        "known",
        "longest_s",
        "next_offset",
        "since_s",
    )

    def __init__(
        self, by: Decides, appended: Appended, append_time_ms: int, *, done: bool, known: bool, since_s: float
    ) -> None:
        self._by = by
        self.base_offset, self.next_offset = appended
        self.append_time_ms = append_time_ms
        self.done = done
        self.known = known
        self.since_s = since_s
        self.longest_s = LONGEST_S
        self.error: LogStoreError | None = None
        self._told: list[Told] | None = None
        self._event: threading.Event | None = None

    def hurried(self) -> ReplicatedAppend:
        """The append itself, which may be made again and therefore waits less long."""
        self.longest_s = LONGEST_KNOWN_S
        return self

    def decide(self, error: LogStoreError | None) -> None:
        """With the lock held; told at once."""
        if self.done:
            return
        self.error, self.done = error, True
        told, self._told = self._told, None
        if self._event is not None:
            self._event.set()
        for tell in told or ():
            tell(error)

    def then(self, tell: Told) -> None:
        with self._by.lock:
            if not self.done:
                if self._told is None:
                    self._told = []
                self._told.append(tell)
                return
        tell(self.error)

    def wait_with(self, others: Sequence[PendingAppend]) -> None:
        del others  # each partition has a commit index of its own
        with self._by.lock:
            if self.done:
                return
            event = self._event = self._event or threading.Event()
        self._by.help_on(self)
        event.wait()


def refused(by: Decides, end: int, error: LogStoreError) -> ReplicatedAppend:
    """An append that fails with this once a majority has confirmed that its leader leads: the log of a leader of
    before lacks what was acknowledged since, and a refusal is final to its producer."""
    refusal = ReplicatedAppend(by, Appended(end, end), -1, done=False, known=True, since_s=0.0)
    by.read_index(lambda _, lost: refusal.decide(lost or error))
    return refusal


class PendingAppends:
    """Of one leader, few. Not thread-safe: its replica's lock is held."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._waiting: list[ReplicatedAppend] = []

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, append: ReplicatedAppend) -> None:
        self._waiting.append(append)

    def settle(self, high_watermark: int) -> None:
        """All up to there is committed. They are not in order: a repetition waits for what was appended before."""
        if self._waiting:
            decided = [one for one in self._waiting if one.next_offset <= high_watermark]
            self._waiting = [one for one in self._waiting if one.next_offset > high_watermark]
            for one in decided:
                one.decide(None)

    def end(self, leader_id: int) -> None:
        """This replica leads no more: another leader may commit what it had appended, or cut it off."""
        ended, self._waiting = self._waiting, []
        for one in ended:
            one.decide(self._lost(one, leader_id))

    def _lost(self, append: ReplicatedAppend, leader_id: int) -> LogStoreError:
        if append.known:
            return NotLeaderError(
                f"the leader of {self._where} changed before an append was committed", leader_id=leader_id
            )
        return OutcomeUnknownError(
            f"the leader of {self._where} changed before records at offset {append.base_offset} were committed: they "
            "may be there or not",
            hint="read what is there; a producer with an id finds out by itself",
        )

    def give_up_late(self, now_s: float) -> None:
        late = [one for one in self._waiting if now_s - one.since_s > one.longest_s]
        if not late:
            return
        self._waiting = [one for one in self._waiting if now_s - one.since_s <= one.longest_s]
        for one in late:
            words = (
                f"records at offset {one.base_offset} of {self._where} were not committed within "
                f"{one.longest_s:g} s: they may be yet"
            )
            hint = "find out why a majority of the replicas does not answer"
            # A producer with an id may try again: the same records are found to be a repetition.
            kind = NotConfirmedError if one.known else OutcomeUnknownError
            one.decide(kind(words, hint=hint))


class PendingReads:
    """Questions of one leader whether it leads, which a majority has not answered yet. Not thread-safe: as above."""

    def __init__(self) -> None:
        self._waiting: dict[int, ReadAnswer] = {}
        self._number = 0

    def add(self, answer: ReadAnswer) -> int:
        """Its number."""
        self._number += 1
        self._waiting[self._number] = answer
        return self._number

    def answer(self, number: int, position: int, error: LogStoreError | None = None) -> None:
        self._waiting.pop(number)(position, error)

    def end(self, why: str) -> None:
        waiting, self._waiting = self._waiting, {}
        for answer in waiting.values():
            answer(-1, NotLeaderError(why))
