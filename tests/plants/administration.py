"""Kind (b): retention, deletion, changes of topics, copies, and several processes that do them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from logstore.directory.backup_transactions import TransactionEndings
from logstore.log.cleaning import retention
from logstore.log.cleaning.retention import RetentionDecision, RetentionRules, SegmentFacts
from logstore.partition.topic_registry import TopicRegistry
from tests.interleave.actions import prepare
from tests.interleave.world import SPREAD, World
from tests.plants.hunts import interleaved, once, seeded
from tests.plants.plant import Patch, plant

NOW_MS = 1_700_000_000_000


def retains(seed: int) -> None:
    """What goes was beyond one of the rules, each of which is said here once more; what stays was not."""
    source = random.Random(seed)
    facts: list[SegmentFacts] = []
    for number in range(source.randrange(1, 7)):
        at_ms = source.choice((-1, NOW_MS - source.randrange(0, 4_000), NOW_MS + 50))
        facts.append(SegmentFacts(number * 10, number * 10 + 10, source.randrange(0, 50), at_ms))
    rules = RetentionRules(
        deletes=source.random() < 0.8,
        retention_ms=source.choice((-1, 1_000, 3_000)),
        retention_bytes=source.choice((-1, 0, 40, 100)),
        segment_ms=10_000,
    )
    start, high = sorted((source.randrange(0, len(facts) * 10 + 1), source.randrange(0, len(facts) * 10 + 1)))
    decision = retention.decide_retention(
        facts, rules, log_start_offset=start, high_watermark=high, now_ms=NOW_MS, active_age_ms=0
    )
    _check(facts, rules, start, high, decision)


def _check(
    facts: Sequence[SegmentFacts], rules: RetentionRules, start: int, high: int, decision: RetentionDecision
) -> None:
    def may_go(number: int) -> bool:
        one, later = facts[number], sum(fact.size for fact in facts[number + 1 :])
        if number == len(facts) - 1 or one.next_offset > high:
            return False
        old = rules.retention_ms >= 0 <= one.max_timestamp_ms < NOW_MS - rules.retention_ms
        large = 0 <= rules.retention_bytes <= later
        return one.next_offset <= start or (rules.deletes and (old or large))

    due = next((number for number in range(len(facts)) if not may_go(number)), len(facts))
    assert decision.drop == due, f"{decision.drop} go, {due} are due: {facts}, {rules}, {start}, {high}"
    assert decision.log_start_offset == max(start, facts[due].base_offset if due else 0)


def changes_of_two_processes() -> None:
    """What one process changed in the catalogue is there when the other one changes something else."""
    world = World()
    try:
        prepare(world)
        world.two.list_topics()
        world.one.admin.add_partitions(SPREAD, 3, allow_keyed=True)
        world.one.create_topic("ones")
        world.two.create_topic("twos")
        world.two.admin.alter_topic(SPREAD, {"segment.ms": "70000"})
        world.facts.made |= {"ones", "twos"}
        world.facts.partitions[SPREAD] = 3
        world.facts.settings[SPREAD, "segment.ms"] = "70000"
        world.check_images()
    finally:
        world.close()


def _rule(patch: Patch, change: Any) -> None:
    why = retention._why_gone
    patch.setattr(retention, "_why_gone", lambda *arguments: why(*change(*arguments)))


@plant("retention of one more", "a segment goes although less than the limit stays", seeded(retains), 20)
def _(patch: Patch) -> None:
    _rule(patch, lambda one, left, rules, start, now: (one, left + one.size, rules, start, now))


@plant("retention of the timeless", "a segment without a time counts as very old", seeded(retains), 20)
def _(patch: Patch) -> None:
    _rule(
        patch,
        lambda one, left, rules, start, now: (
            one._replace(max_timestamp_ms=max(one.max_timestamp_ms, 0)),
            left,
            rules,
            start,
            now,
        ),
    )


@plant("retention past the watermark", "a segment goes that readers have not seen", seeded(retains), 20)
def _(patch: Patch) -> None:
    decide = retention.decide_retention

    def planted(segments: Any, rules: Any, **now: Any) -> RetentionDecision:
        return decide(segments, rules, **{**now, "high_watermark": 1 << 60})

    patch.setattr(retention, "decide_retention", planted)


@plant(
    "start not in the middle", "a log start within a segment takes that segment along", seeded(retains), 20
)
def _(patch: Patch) -> None:
    _rule(patch, lambda one, left, rules, start, now: (one, left, rules, start + 9, now))


@plant("retention of what is only compacted", "a policy without delete removes by age", seeded(retains), 20)
def _(patch: Patch) -> None:
    _rule(patch, lambda one, left, rules, start, now: (one, left, replace(rules, deletes=True), start, now))


@plant(
    "catalogue changed from memory",
    "a change of topics is made in what this process knew",
    once(changes_of_two_processes),
    1,
)
def _(patch: Patch) -> None:
    patch.setattr(TopicRegistry, "_load", lambda self: self._catalogue)


@plant(
    "decided transactions cut in a copy",
    "a copy does not write the markers that were missing",
    interleaved("commit_transaction", "backup", "same", range(11, 20)),
    9,
)
def _(patch: Patch) -> None:
    patch.setattr(TransactionEndings, "markers", lambda self, topic, partition: [])


@plant(
    "decided transactions aborted in a copy",
    "a copy ends what was committed by an abort",
    interleaved("commit_transaction", "backup", "same", range(11, 20)),
    9,
)
def _(patch: Patch) -> None:
    markers = TransactionEndings.markers
    patch.setattr(
        TransactionEndings,
        "markers",
        lambda self, topic, partition: [
            marker._replace(committed=False) for marker in markers(self, topic, partition)
        ],
    )
