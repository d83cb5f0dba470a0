"""Upkeep of copies that several brokers have: what is told of a partition is its leader's word, but for what any copy
may lack."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from logstore.embedded.upkeep_everywhere import UpkeepEverywhere
from logstore.types import CleaningProgress, ErasureReport, LastCleaning, PartitionCompaction
from logstore.upkeep.compactor import Steps

LAST = LastCleaning(
    finished_ms=1,
    took_ms=2,
    cleaned_to=3,
    bytes_before=4,
    bytes_after=5,
    records_before=6,
    records_after=7,
)
HERE = {
    0: PartitionCompaction(cleaner_point=3, dirty_bytes=10, dirty_ratio=0.1, exact_from=3, last=LAST),
    1: PartitionCompaction(cleaner_point=9, dirty_bytes=11, dirty_ratio=0.2, exact_from=9),
}
SECOND = {
    0: PartitionCompaction(cleaner_point=0, dirty_bytes=99, dirty_ratio=0.9, exact_from=0),
    1: PartitionCompaction(
        cleaner_point=5,
        dirty_bytes=12,
        dirty_ratio=0.3,
        exact_from=5,
        running=CleaningProgress("map", 1, 2),
        error="full",
        retry_in_s=1.5,
    ),
    2: PartitionCompaction(cleaner_point=2, dirty_bytes=13, dirty_ratio=0.4, exact_from=4),
}


class Three:
    """``Leadership`` of node 1, which follows partition 1, and has none of partition 2."""

    def __init__(self, second: UpkeepEverywhere | None) -> None:
        self.second = second
        self.calls: list[str] = []

    def leaders_of(self, topic: str) -> Sequence[int]:
        return [1, 2, 3]

    def away_from(self, topic: str) -> Sequence[int]:
        return []

    def ends_of(self, topic: str) -> Mapping[int, int]:
        return {0: 7}

    def await_records(self, topic: str, ends: Mapping[int, int]) -> None:
        self.calls.append(f"wait for {dict(ends)}")

    def everywhere(self, operation: str, request: bytes) -> Callable[[], Mapping[int, bytes]]:
        self.calls.append(operation)
        return dict

    def heard(self, operation: str, request: bytes) -> Mapping[int, bytes]:
        return {} if self.second is None else {2: self.second.answer(operation, request)}


def of_node(rows: Mapping[int, PartitionCompaction], leadership: Three, calls: list[str]) -> UpkeepEverywhere:
    def erase(name: str, keys: Collection[bytes]) -> Steps[ErasureReport]:
        calls.append("erase here")
        yield from ()
        return ErasureReport(topic=name, keys=len(keys), partitions=(), proven=True)

    def compact(name: str, partition: int | None, roll: bool) -> Steps[list[object]]:
        raise AssertionError("not asked for")

    return UpkeepEverywhere(leadership, compact, erase, lambda name: rows)  # type: ignore[arg-type]


def test_how_clean_a_partition_is_by_its_leaders_word() -> None:
    """But for what some copy lacks: a reader may have been there, or at the leader before this one."""
    second = of_node(SECOND, Three(None), [])
    found = of_node(HERE, Three(second), []).clean("t")
    assert found[0] == HERE[0]
    assert (found[1].running, found[1].error, found[1].exact_from) == (
        CleaningProgress("map", 1, 2),
        "full",
        9,
    )
    assert found[2] == SECOND[2], "its leader does not answer: as another copy is"
    assert of_node(HERE, Three(None), []).clean("t") == HERE, "nobody else answers"


def test_the_broker_that_is_asked_erases_once_it_has_the_records() -> None:
    """It may follow, and lack what was acknowledged before the wish."""
    leadership = Three(None)
    steps = of_node(HERE, leadership, leadership.calls).erase("t", [b"k"])
    assert list(steps) == []
    assert leadership.calls == ["upkeep.erase", "wait for {0: 7}", "erase here"]
