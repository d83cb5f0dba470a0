"""Planted bugs of whole clusters, as switches, and in which seed the simulator finds each.

python -m tests.sim.cluster.plants [--start 0] [--seeds 60] [WORD ...]
"""

from __future__ import annotations

import argparse
import logging
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final
from unittest import mock

from logstore.coordination.runtime import CoordinatorRuntime
from logstore.errors import LogStoreError
from logstore.log.producers.producer_journal import ProducerJournal
from logstore.log.replica_log import ReplicaLog
from replication.coordination import backend
from replication.coordination.partition_calls import PartitionCalls
from replication.coordination.replicated_log import LeaderHold, ReplicatedCoordinatorLog
from replication.partition import ReplicatedPartition
from replication.raft import membership
from replication.replicas import replica
from tests.replication.sim import storage_plants
from tests.sim.cluster.run import run_seed

Plant = Callable[[], Any]


@contextmanager
def dedupe_state_is_the_leaders_alone() -> Iterator[None]:
    """What followers take in is not remembered of its producer. (A switch of each thread: several are in there.)"""
    append, note, inside = ReplicaLog.append_as_follower, ProducerJournal.note, threading.local()

    def appended(log: ReplicaLog, batches: Any) -> Any:
        inside.yes = True
        try:
            return append(log, batches)
        finally:
            inside.yes = False

    def noted(journal: ProducerJournal, *of: Any, **more: Any) -> Any:
        return None if getattr(inside, "yes", False) else note(journal, *of, **more)

    with (
        mock.patch.object(ReplicaLog, "append_as_follower", appended),
        mock.patch.object(ProducerJournal, "note", noted),
    ):
        yield


@contextmanager
def _held_at_its_own_end(log: ReplicatedCoordinatorLog, timeout_s: float) -> Iterator[LeaderHold]:
    """``ReplicatedCoordinatorLog.held``, without a look at how much of the log is committed."""
    log._check_leads()
    log.await_turn(log._holding, timeout_s)
    try:
        term = log._wait_ready(max(timeout_s, 0.0))
        yield LeaderHold(log._partition, term, log._partition.reader().bounds().log_end_offset)
    finally:
        log._holding.release()


@contextmanager
def group_commits_are_answered_before_they_are_committed() -> Iterator[None]:
    """What a coordinator has decided counts, and is decided on, as soon as it is in its own log: it goes when the
    coordinator does."""

    def append(hold: LeaderHold, batches: Any) -> Any:
        pending = hold._partition.append(batches, 1, expected_offset=hold.log_end_offset)
        hold.log_end_offset = pending.next_offset
        return pending

    with (
        mock.patch.object(LeaderHold, "append", append),
        mock.patch.object(ReplicatedCoordinatorLog, "held", _held_at_its_own_end),
    ):
        yield


def markers_for_other_nodes_are_lost() -> Any:
    """A marker that another node is to write counts as written."""

    def mark(calls: PartitionCalls, node: int, requests: Sequence[Any], timeout_s: float) -> list[None]:
        return [None] * len(requests)

    return mock.patch.object(PartitionCalls, "mark", mark)


def the_end_is_what_this_node_knows() -> Any:
    """No majority is asked whether this node still leads."""

    def confirmed(partitions: Sequence[ReplicatedPartition], timeout_s: float) -> list[int]:
        return [one.replica().log.high_watermark for one in partitions]

    return mock.patch.object(backend, "confirm_leaders", confirmed)


def coordinators_answer_without_a_majority() -> Any:
    """A coordinator that was cut off tells what it has."""
    return mock.patch.object(ReplicatedCoordinatorLog, "confirm", return_value=None)


@contextmanager
def members_change_without_a_guard() -> Iterator[None]:
    """Several voters at once, and new ones that hold nothing."""
    with (
        mock.patch.object(membership, "_check_step", return_value=None),
        mock.patch.object(membership, "_check_caught_up", return_value=None),
    ):
        yield


def a_deposed_leader_refuses_for_good() -> Any:
    """A gap in the sequences of a producer is told without asking who leads. Was a bug."""

    def refused(by: Any, end: int, error: LogStoreError) -> Any:
        raise error

    return mock.patch.object(replica, "refused", refused)


@contextmanager
def coordinators_decide_on_what_they_know_to_be_committed() -> Iterator[None]:
    """A new coordinator does not wait for what its log holds to be committed, and takes what it knows to be committed
    for all that is. (Three guards: readers of a new leader wait by themselves, and an opening asks a majority before it
    is decided on, which a new leader answers once all that it found is committed.)"""

    def ready(log: ReplicatedCoordinatorLog, timeout_s: float) -> int:
        log._check_leads()
        return log._partition.term

    def caught_up(runtime: CoordinatorRuntime[Any], held: Any) -> None:
        runtime._followed.start_over()
        runtime._replay(held._partition.reader().bounds().high_watermark)

    with (
        mock.patch.object(ReplicatedCoordinatorLog, "_wait_ready", ready),
        mock.patch.object(ReplicatedCoordinatorLog, "confirm", return_value=None),
        mock.patch.object(ReplicatedPartition, "_wait_ready", return_value=None),
        mock.patch.object(ReplicatedCoordinatorLog, "held", _held_at_its_own_end),
        mock.patch.object(CoordinatorRuntime, "_catch_up", caught_up),
    ):
        yield


PLANTS: Final[Mapping[str, Plant]] = {
    one.__name__: one
    for one in (
        storage_plants.durable_before_the_sync,
        storage_plants.no_directory_is_synced,
        dedupe_state_is_the_leaders_alone,
        storage_plants.snapshot_without_producers,
        storage_plants.appends_outlive_their_leader,
        storage_plants.members_are_those_of_the_beginning,
        group_commits_are_answered_before_they_are_committed,
        markers_for_other_nodes_are_lost,
        the_end_is_what_this_node_knows,
        coordinators_answer_without_a_majority,
        coordinators_decide_on_what_they_know_to_be_committed,
        members_change_without_a_guard,
        a_deposed_leader_refuses_for_good,
    )
}


def found(plant: Plant, start: int, seeds: int, *, witnessed: bool = False) -> tuple[int, str] | None:
    """The first seed from there that breaks with the bug, and what it broke; None: none of them."""
    for seed in range(start, start + seeds):
        broken = run_seed(seed, plant=plant, witnessed=witnessed).broken
        if broken:
            return seed, broken
    return None


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=60)
    parser.add_argument("--witnessed", action="store_true", help="with traps")
    parser.add_argument("words", nargs="*")
    given = parser.parse_args(words)
    logging.disable(logging.CRITICAL)
    lived = 0
    for name, plant in PLANTS.items():
        if given.words and not any(word in name for word in given.words):
            continue
        answer = found(plant, given.start, given.seeds, witnessed=given.witnessed)
        lived += answer is None
        where = f"seeds {given.start} to {given.start + given.seeds - 1}"
        told = f"not in {where}" if answer is None else f"seed {answer[0]}: {answer[1][:140]}"
        sys.stdout.write(f"{name}: {told}\n")
        sys.stdout.flush()
    return 1 if lived else 0


if __name__ == "__main__":
    sys.exit(main())
