"""Planted bugs on the seams between Raft and the engine, each of which the simulated cluster has to find.

    python -m tests.replication.sim.storage_plants

plants each one and says how many seeds it took to find it.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from typing import Any, Final, TypeAlias
from unittest import mock

import replication.replicas.log_adapter as log_adapter
import replication.replicas.standalone_log as standalone_log
from logstore.format.batch import read_header
from logstore.log.append_validation import CheckedBatch
from logstore.log.log_offsets import Appended
from logstore.log.producers.producer_journal import ProducerJournal
from logstore.log.replica_log import ReplicaLog
from logstore.seams.memory_fs import MemoryFileSystem
from replication.replicas import repair, replica_round
from replication.replicas.log_adapter import LogAdapter
from replication.replicas.member_file import MemberFile
from replication.replicas.pending import PendingAppends, ReplicatedAppend
from replication.replicas.replica import Replica
from replication.replicas.vote_round import Outcome
from replication.replicas.vote_store import COPIES, VoteStore
from replication.replicas.vote_writer import VoteWriter
from tests.replication.sim.schedule import SeedFailedError
from tests.replication.sim.storage_schedule import run_seed

Plant: TypeAlias = Callable[[], AbstractContextManager[Any]]
SEEDS: Final = 600


def durable_before_the_sync() -> Any:
    """What was written counts as durable at once."""

    def sync_together(fs: Any, logs: Sequence[ReplicaLog]) -> list[None]:
        del fs
        for log in logs:
            log.flushed_offset = log.log_end_offset
        return [None] * len(logs)

    return mock.patch.object(replica_round, "sync_together", sync_together)


def files_are_not_synced_together() -> Any:
    """What the file system is asked to make durable of many files at once is so of none, and it says it is."""
    return mock.patch.object(MemoryFileSystem, "sync_files", return_value=None)


def no_directory_is_synced() -> Any:
    """Names of files are as they were after a power loss."""
    return mock.patch.object(MemoryFileSystem, "sync_dir", return_value=None)


def what_is_damaged_is_cut() -> Any:
    """A log ends where it is damaged, and that counts as all it ever was."""
    original = standalone_log.load

    def load(pool: Any, directory: str, topic: str, partition: int, rules: Any) -> Any:
        return original(pool, directory, topic, partition, replace(rules, recovery_point=0, high_watermark=0))

    return _both(
        mock.patch.object(standalone_log, "load", load),
        mock.patch.object(ReplicaLog, "check_whole", return_value=None),
    )


def a_repaired_replica_votes_at_once() -> Any:
    return mock.patch.object(repair, "abstains", return_value=False)


def members_are_those_of_the_beginning() -> Any:
    """A replica that starts does not know who has come and gone."""
    original = MemberFile.open.__func__  # type: ignore[attr-defined]

    def opened(kind: Any, fs: Any, directory: str) -> Any:
        found = original(kind, fs, directory)
        if found is not None:
            found.rows = found.rows[:1]
        return found

    return mock.patch.object(MemberFile, "open", classmethod(opened))


def vote_is_not_synced() -> Any:
    def write(store: VoteStore) -> None:
        for copy in COPIES:
            store.put(copy)

    def store_together(fs: Any, writers: Sequence[VoteWriter]) -> list[Outcome]:
        with mock.patch.object(fs, "sync_files", return_value=None):
            return store_votes(fs, writers)

    store_votes = replica_round.store_together
    return _both(
        mock.patch.object(VoteStore, "_write", write),
        mock.patch.object(replica_round, "store_together", store_together),
    )


def vote_in_one_copy() -> Any:
    """A replica is asked about what it promised, and its file has what it began with."""
    original = VoteStore.put

    def put(votes: VoteStore, copy: int) -> None:
        if votes._sequence == 0:
            original(votes, copy)

    return mock.patch.object(VoteStore, "put", put)


def all_that_is_recovered_is_committed() -> Any:
    original = standalone_log.load

    def load(pool: Any, directory: str, topic: str, partition: int, rules: Any) -> Any:
        return original(pool, directory, topic, partition, replace(rules, high_watermark=None))

    return mock.patch.object(standalone_log, "load", load)


def recovery_begins_an_epoch() -> Any:
    """A restarted replica is in a term that nobody elected."""
    original = standalone_log.load

    def load(pool: Any, directory: str, topic: str, partition: int, rules: Any) -> Any:
        return original(pool, directory, topic, partition, replace(rules, epochs="step"))

    return mock.patch.object(standalone_log, "load", load)


def damaged_batches_are_taken() -> Any:
    """A follower does not look whether a batch changed on its way."""

    def checked(data: memoryview) -> CheckedBatch:
        return CheckedBatch(memoryview(data), read_header(data))

    return mock.patch.object(log_adapter, "_checked", checked)


def repetitions_are_acknowledged_at_once() -> Any:
    """A batch that the leader has already counts as committed."""
    original = Replica._appended

    def appended(replica: Replica, append: Any, acks: Any, time_ms: int, known: bool) -> ReplicatedAppend:
        end = replica.log.log_end_offset
        pending = original(replica, append, acks, time_ms, known)
        if replica.log.log_end_offset == end:
            pending.decide(None)
        return pending

    return mock.patch.object(Replica, "_appended", appended)


def appends_outlive_their_leader() -> Any:
    """What a deposed leader had appended is acknowledged by another leader's commits."""
    return mock.patch.object(PendingAppends, "end", return_value=None)


def truncation_leaves_producers() -> Any:
    """A follower that was cut remembers batches that are gone."""
    return mock.patch.object(ReplicaLog, "_producers_again", return_value=None)


def dedupe_state_is_the_leaders_alone() -> Any:
    """What followers take in is not remembered of its producer."""
    original = ReplicaLog.append_as_follower

    def append(log: ReplicaLog, batches: Any) -> Appended:
        with mock.patch.object(ProducerJournal, "note", return_value=None):
            return original(log, batches)

    return mock.patch.object(ReplicaLog, "append_as_follower", append)


def snapshot_without_producers() -> Any:
    original = LogAdapter.install

    def install(adapter: LogAdapter, snapshot: Any) -> None:
        from logstore.log.producers.producer_snapshot import encode_snapshot

        original(adapter, snapshot._replace(data=encode_snapshot(())))

    return mock.patch.object(LogAdapter, "install", install)


def failed_syncs_are_forgotten() -> Any:
    """After a failed sync the log goes on as if the disk had taken all."""

    def poison(log: ReplicaLog, failure: Any) -> None:
        del failure
        log.flushed_offset = log.log_end_offset

    return mock.patch.object(ReplicaLog, "_poison", poison)


def a_failed_replica_goes_on() -> Any:
    """What Raft believes of the log is not looked at again after an append that failed."""

    def begin(replica: Replica, now_s: float) -> None:
        del now_s
        replica.failure = None

    return mock.patch.object(Replica, "_begin_anew", begin)


def start_beyond_what_is_committed() -> Any:
    """A follower gives up records that the leader deleted before it knows them."""

    def raise_start(log: ReplicaLog, offset: int) -> bool:
        moved = offset > log.log_start_offset
        log.log_start_offset = max(log.log_start_offset, min(offset, log.log_end_offset))
        log.high_watermark = max(log.high_watermark, log.log_start_offset)
        return moved

    return mock.patch.object(ReplicaLog, "raise_start", raise_start)


@contextmanager
def _both(*patches: Any) -> Iterator[None]:
    with ExitStack() as stack:
        for patch in patches:
            stack.enter_context(patch)
        yield


PLANTS: Final[dict[str, Plant]] = {
    plant.__name__: plant
    for plant in (
        durable_before_the_sync,
        files_are_not_synced_together,
        no_directory_is_synced,
        what_is_damaged_is_cut,
        a_repaired_replica_votes_at_once,
        members_are_those_of_the_beginning,
        vote_is_not_synced,
        vote_in_one_copy,
        all_that_is_recovered_is_committed,
        recovery_begins_an_epoch,
        damaged_batches_are_taken,
        repetitions_are_acknowledged_at_once,
        appends_outlive_their_leader,
        truncation_leaves_producers,
        dedupe_state_is_the_leaders_alone,
        snapshot_without_producers,
        failed_syncs_are_forgotten,
        a_failed_replica_goes_on,
        start_beyond_what_is_committed,
    )
}


def found(plant: Plant, seeds: int = SEEDS) -> tuple[int, str] | None:
    """How many seeds it took, and what was said; None: it was not found."""
    for seed in range(seeds):
        try:
            with plant():
                run_seed(seed)
        except SeedFailedError as error:
            return seed + 1, str(error)
    return None


def main() -> int:
    logging.disable(logging.CRITICAL)
    words = sys.argv[1:]
    lived = 0
    for name, plant in PLANTS.items():
        if words and not any(word in name for word in words):
            continue
        answer = found(plant)
        lived += answer is None
        told = f"not found in {SEEDS} seeds" if answer is None else f"seed {answer[0]}: {answer[1][:140]}"
        sys.stdout.write(f"{name}: {told}\n")
        sys.stdout.flush()
    return 1 if lived else 0


if __name__ == "__main__":
    sys.exit(main())
