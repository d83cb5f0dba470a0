"""What replicas of a node wait for is made durable together: their votes, of which Raft is told, then their logs.

Votes come first, since elections wait for them; a replica whose vote could not be stored has failed, and its log is
left as it is.
"""

from __future__ import annotations

from collections.abc import Sequence

from logstore.errors import LogStoreError
from logstore.log.sync_round import sync_together
from replication.replicas.replica import Replica
from replication.replicas.vote_round import store_together


def sync_replicas(replicas: Sequence[Replica]) -> None:
    """One at least; all are on the file system of their node's store, and none comes twice. No lock of theirs is held
    while the disk works."""
    fs = replicas[0].fs
    voters = [replica for replica in replicas if replica.votes.is_due]
    failed: set[Replica] = set()
    for replica, outcome in zip(voters, store_together(fs, [one.votes for one in voters]), strict=True):
        if isinstance(outcome, LogStoreError):
            replica.disk_failed(outcome)
            failed.add(replica)
        elif outcome is not None:
            replica.vote_stored(outcome)
    rest = [replica for replica in replicas if replica not in failed]
    for replica, failure in zip(rest, sync_together(fs, [one.log for one in rest]), strict=True):
        if failure is not None:
            replica.disk_failed(failure)
        else:
            replica.log_synced()
