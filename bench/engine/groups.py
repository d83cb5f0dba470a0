"""The group coordinator's decisions, without the log's append and sync: a rebalance, a commit, loading."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from bench.harness import Bench, Row, Run, Side, alone, latencies, rates
from logstore.format.batch import encode_batch
from logstore.groups.coordinator import GroupCoordinator
from logstore.machine import Change, Decision
from logstore.types import OffsetAndMetadata, TopicPartition

QUESTION = "groups"
MILLISECONDS = 1e3
TOPICS = 10
NOW_MS = 1_700_000_000_000
SIZES = ((10, 100), (100, 1_000), (300, 10_000))  # members, partitions


def apply(machine: GroupCoordinator, records: tuple[Change, ...]) -> None:
    for key, value in records:
        machine.replay(key, value)


def decide_join(machine: GroupCoordinator, number: int, partitions: int) -> Decision[Any]:
    names = [f"topic-{topic}" for topic in range(TOPICS)]
    return machine.decide_join(
        "g",
        f"{number:032x}",
        instance_id=None,
        client="bench",
        topics=names,
        pattern=None,
        assignor="sticky",
        session_timeout_ms=45_000,
        max_poll_interval_ms=300_000,
        liveness=number.to_bytes(4, "big"),
        partitions=dict.fromkeys(names, partitions // TOPICS),
        now_ms=NOW_MS,
    )


def settled(members: int, partitions: int) -> GroupCoordinator:
    """A group in which each has its share: all joined, then each gave up what it should."""
    machine = GroupCoordinator()
    for number in range(members):
        apply(machine, decide_join(machine, number, partitions).records)
    for number in range(members):
        name = f"{number:032x}"
        view = machine.check_member("g", name)
        apply(machine, machine.decide_sync("g", name, view.epoch, view.assigned, NOW_MS).records)
    return machine


def rebalance(members: int, partitions: int) -> dict[str, Callable[[], Any]]:
    """What is decided when one more comes, and when a tenth of them is dead at once: new target, all members'
    parts, records encoded."""
    machine = settled(members, partitions)
    dead = [f"{number:032x}" for number in range(0, members, 10)]
    return {
        "one joins": lambda: decide_join(machine, members, partitions),
        "a tenth dies": lambda: machine.decide_expire("g", dead, NOW_MS),
    }


def commit(partitions: int) -> Callable[[], Any]:
    """A member's commit: checked, decided, encoded as the batch that the log takes, replayed."""
    machine = GroupCoordinator()
    apply(machine, decide_join(machine, 0, max(partitions, TOPICS)).records)
    view = machine.check_member("g", f"{0:032x}")
    places = sorted(view.assigned)[:partitions]
    ends = dict.fromkeys(places, 2**40)
    offsets = dict.fromkeys(places, OffsetAndMetadata(123_456))

    def once() -> None:
        decision = machine.decide_commit(
            "g", offsets, NOW_MS, ends, member_id=view.member_id, epoch=view.epoch
        )
        encode_batch(decision.records, now_ms=NOW_MS)
        apply(machine, decision.records)

    return once


def load(records: int) -> Side:
    """Offset records replayed into an empty machine; each of another partition, as after a compaction."""

    @contextmanager
    def side(_folder: str) -> Iterator[Run]:
        source = GroupCoordinator()
        changes: list[Change] = []
        for number in range(-(-records // 1_000)):
            offsets = {TopicPartition("flights", at): OffsetAndMetadata(at) for at in range(1_000)}
            changes += source.decide_commit(f"group-{number}", offsets, NOW_MS).records

        def run() -> int:
            machine = GroupCoordinator()
            apply(machine, tuple(changes[:records]))
            return records

        yield run

    return side


def run(bench: Bench) -> Iterator[Row]:
    for members, partitions in SIZES:
        calls = rebalance(members, partitions)
        figures = latencies(calls, rounds=bench.rounds, each=bench.size(20, 5))
        for case, seconds in figures.items():
            yield alone(
                QUESTION,
                f"rebalance decided, {case}: {members} members, {partitions:,} partitions",
                seconds,
                unit="ms",
                scale=MILLISECONDS,
                at_most=200 if members == 100 else None,
                note="target, members' parts and records; without append and sync",
            )
    for partitions in (1, 100, 1_000):
        figures = latencies({"commit": commit(partitions)}, rounds=bench.rounds, each=bench.size(200, 50))
        yield alone(
            QUESTION,
            f"commit of {partitions:,} partitions",
            figures["commit"],
            unit="ms",
            scale=MILLISECONDS,
            at_most=1 if partitions == 100 else None,
            note="checked, decided, encoded, replayed; without append and sync",
        )
    for count in (10_000, 100_000, bench.size(1_000_000, 300_000)):
        figures = rates(bench, {"load": load(count)}, rounds=3)
        yield alone(
            QUESTION,
            f"{count:,} offset records replayed",
            figures["load"],
            unit="k/s",
            scale=1e-3,
            at_least=200 if count == 1_000_000 else None,
            note="in the machine alone; 200 k/s is 1 M in 5 s",
        )
