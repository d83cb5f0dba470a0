"""``VoteWriter``: the votes of one replica on their way to its disk, beside what it does meanwhile.

A vote takes two syncs. Where a node is silent all groups that it led vote at the same time: were each vote stored by
the thread that delivers messages, the last of many groups would be asked long after their election times, stand again,
and never have a leader. So votes are stored as logs are, by threads of their own, and several share journal commits.
Nothing that depends on a vote is said before (``RaftCore.vote_stored``), nor written: the log never has a record of a
term that the vote's file does not know.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from replication.raft.types import VoteState
from replication.replicas.vote_store import VoteStore


class VoteWriter:
    """Thread-safe. ``reopen``: the same file again, after a write that failed."""

    def __init__(self, store: VoteStore, reopen: Callable[[], VoteStore]) -> None:
        self._store = store
        self._reopen = reopen
        self._writing = threading.Lock()  # around the file
        self._lock = threading.Lock()  # around ``_due``; taken last
        self._due: VoteState | None = None
        self._closed = False

    @property
    def state(self) -> VoteState:
        """What is durable."""
        return self._store.state

    def want(self, vote: VoteState) -> None:
        """It is due, in place of one that was."""
        with self._lock:
            self._due = vote

    def write(self) -> VoteState | None:
        """Store what is due; durable when it returns. None: nothing is. Errors as ``VoteStore.store``."""
        with self._writing:
            vote = self._due
            if vote is None or self._closed:
                return None
            self._store.store(vote)
            with self._lock:
                if self._due == vote:
                    self._due = None
            return vote

    def begin_anew(self) -> None:
        """With what the file holds; what was due was never spoken of. Errors as ``reopen``."""
        with self._writing:
            with self._lock:
                self._due = None
            self._store.close()
            self._store = self._reopen()

    def close(self) -> None:
        with self._writing:
            self._closed = True
            self._store.close()
