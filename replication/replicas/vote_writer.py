"""``VoteWriter``: the votes of one replica on their way to its disk, beside what it does meanwhile.

A vote takes two syncs. Where a node is silent all groups that it led vote at the same time: were each vote stored by
the thread that delivers messages, the last of many groups would be asked long after their election times, stand again,
and never have a leader. So votes are stored as logs are, by threads of their own, those of many replicas by two syncs
for all (``vote_round.py``). Nothing that depends on a vote is said before (``RaftCore.vote_stored``). The log may have
records of a term before the vote's file knows it: of whatever a log holds, its replica is in that term at least.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from logstore.errors import LogStoreError
from logstore.seams.fs import File
from replication.raft.types import VoteState
from replication.replicas.vote_store import VoteStore


class VoteWriter:
    """Thread-safe. ``reopen``: the same file again, after a write that failed."""

    def __init__(self, store: VoteStore, reopen: Callable[[], VoteStore]) -> None:
        self._store = store
        self._reopen = reopen
        self.writing = threading.Lock()  # around the file
        self._lock = threading.Lock()  # around ``_due``; taken last
        self._due: VoteState | None = None
        self._closed = False

    @property
    def state(self) -> VoteState:
        """What is durable."""
        return self._store.state

    @property
    def is_due(self) -> bool:
        return self._due is not None

    def want(self, vote: VoteState) -> None:
        """It is due, in place of one that was."""
        with self._lock:
            self._due = vote

    def write(self) -> VoteState | None:
        """Store what is due; durable when it returns. None: nothing is. Errors as ``VoteStore.store``."""
        with self.writing:
            vote = self._due
            if vote is None or self._closed:
                return None
            self._store.store(vote)
            self._stored(vote)
            return vote

    def _stored(self, vote: VoteState) -> None:
        with self._lock:
            if self._due == vote:
                self._due = None

    # Its parts, with ``writing`` held, for the votes of many replicas at once (``vote_round.py``).

    def begin(self) -> bool:
        """See ``VoteStore.begin``; False: nothing is due."""
        vote = self._due
        if vote is None or self._closed:
            return False
        self._store.begin(vote)
        return True

    @property
    def file(self) -> File:
        return self._store.file

    def put(self, copy: int) -> None:
        self._store.put(copy)

    def end(self) -> VoteState:
        self._store.end()
        self._stored(self._store.state)
        return self._store.state

    def failed(self, error: OSError) -> LogStoreError:
        return self._store.failed(error)

    def begin_anew(self) -> None:
        """With what the file holds; what was due was never spoken of. Errors as ``reopen``."""
        with self.writing:
            with self._lock:
                self._due = None
            self._store.close()
            self._store = self._reopen()

    def close(self) -> None:
        with self.writing:
            self._closed = True
            self._store.close()
