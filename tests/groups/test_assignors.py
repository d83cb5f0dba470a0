"""Assignors: everything given out once to who wants it, evenly, and nothing moved without need."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from logstore.api.groups import ASSIGNORS, Assignor
from logstore.errors import InvalidArgumentError
from logstore.groups.assignors import Assignment, MemberSubscription, assign
from logstore.types import TopicPartition

TOPICS = ("a", "b", "c", "d")
COUNTS = st.dictionaries(st.sampled_from(TOPICS), st.integers(0, 7))
WANTED = st.frozensets(st.sampled_from((*TOPICS, "absent")))
IDS = st.sampled_from([f"m{number}" for number in range(8)])
PLACES = st.frozensets(st.builds(TopicPartition, st.sampled_from(TOPICS), st.integers(0, 8)), max_size=12)
INSTANCES = st.none() | st.sampled_from(["i1", "i2", "i3"])
MEMBERS = st.dictionaries(IDS, st.builds(MemberSubscription, WANTED, INSTANCES, PLACES), max_size=6)
ALIKE = st.dictionaries(
    IDS, st.builds(MemberSubscription, st.just(frozenset(TOPICS)), INSTANCES, PLACES), min_size=1, max_size=6
)
NAMES: st.SearchStrategy[Assignor] = st.sampled_from(["range", "round_robin", "sticky"])


def wants(topics: str, owned: str = "", instance_id: str | None = None) -> MemberSubscription:
    places = frozenset(TopicPartition(word[0], int(word[1:])) for word in owned.split())
    return MemberSubscription(frozenset(topics), instance_id, places)


def shown(given: Assignment) -> dict[str, str]:
    return {
        name: " ".join(f"{topic}{partition}" for topic, partition in places) for name, places in given.items()
    }


def owned_by(members: Mapping[str, MemberSubscription], given: Assignment) -> dict[str, MemberSubscription]:
    return {name: member._replace(owned=frozenset(given[name])) for name, member in members.items()}


def moved(members: Mapping[str, MemberSubscription], given: Assignment) -> int:
    """Partitions that somebody had and has no more."""
    return sum(len(members[name].owned - set(places)) for name, places in given.items())


# --- by example -------------------------------------------------------------------------------------


def test_range_gives_runs_topic_by_topic() -> None:
    members = {"x": wants("ab"), "y": wants("ab"), "z": wants("b")}
    assert shown(assign("range", members, {"a": 3, "b": 5})) == {
        "x": "a0 a1 b0 b1",
        "y": "a2 b2 b3",
        "z": "b4",
    }


def test_range_cuts_topics_alike() -> None:
    members = {name: wants("ab") for name in "xyz"}
    given = assign("range", members, {"a": 8, "b": 8})
    for places in given.values():
        assert {at.partition for at in places if at.topic == "a"} == {
            at.partition for at in places if at.topic == "b"
        }


def test_round_robin_passes_over_who_is_not_subscribed() -> None:
    members = {"x": wants("a"), "y": wants("ab"), "z": wants("b")}
    assert shown(assign("round_robin", members, {"a": 3, "b": 3})) == {
        "x": "a0 a2",
        "y": "a1 b0 b2",
        "z": "b1",
    }


@pytest.mark.parametrize("assignor", ["range", "round_robin"])
def test_a_static_member_keeps_its_place_under_another_id(assignor: Assignor) -> None:
    members = {
        "m5": wants("a", instance_id="first"),
        "m1": wants("a", instance_id="second"),
        "m2": wants("a"),
    }
    renamed = {"m9": members["m5"], "m1": members["m1"], "m2": members["m2"]}
    before, after = (shown(assign(assignor, each, {"a": 7})) for each in (members, renamed))
    assert after.pop("m9") == before.pop("m5")
    assert after == before


def test_sticky_moves_what_is_above_a_share_and_no_more() -> None:
    members = {"x": wants("a", "a0 a1 a2 a3"), "y": wants("a", "a4 a5"), "z": wants("a")}
    assert shown(assign("sticky", members, {"a": 6})) == {"x": "a0 a1", "y": "a4 a5", "z": "a2 a3"}


def test_sticky_leaves_one_more_with_who_has_it() -> None:
    members = {"x": wants("a", "a0"), "y": wants("a", "a1 a2")}
    assert shown(assign("sticky", members, {"a": 3})) == {"x": "a0", "y": "a1 a2"}


def test_sticky_where_members_want_different_topics_goes_through_a_third() -> None:
    """x alone may read b. z cannot take x's a, but y can, and gives z its c."""
    members = {"x": wants("ab", "a0 a1 b0 b1"), "y": wants("ac", "c0 c1"), "z": wants("c")}
    given = assign("sticky", members, {"a": 2, "b": 2, "c": 2})
    assert shown(given) == {"x": "b0 b1", "y": "a0 a1", "z": "c0 c1"}


def test_of_two_who_claim_the_same_the_first_keeps_it() -> None:
    members = {"x": wants("a", "a0 a1"), "y": wants("a", "a0 a1")}
    assert shown(assign("sticky", members, {"a": 4})) == {"x": "a0 a1", "y": "a2 a3"}


@pytest.mark.parametrize("assignor", ASSIGNORS)
def test_nobody_nothing_and_nowhere(assignor: Assignor) -> None:
    assert assign(assignor, {}, {"a": 3}) == {}
    assert assign(assignor, {"x": wants("")}, {"a": 3}) == {"x": []}
    assert assign(assignor, {"x": wants("z")}, {"a": 3}) == {"x": []}
    assert assign(assignor, {"x": wants("a", "a7 b0 z1")}, {"a": 0}) == {"x": []}


def test_an_unknown_assignor_is_named() -> None:
    with pytest.raises(InvalidArgumentError, match="range, round_robin, sticky"):
        assign("random", {}, {})  # type: ignore[arg-type]


# --- properties -------------------------------------------------------------------------------------


@settings(derandomize=True, deadline=None, max_examples=200)
@given(NAMES, MEMBERS, COUNTS)
def test_each_partition_goes_to_one_subscriber(
    assignor: Assignor, members: dict[str, MemberSubscription], counts: dict[str, int]
) -> None:
    given = assign(assignor, members, counts)
    assert given.keys() == members.keys()
    for name, places in given.items():
        assert all(place.topic in members[name].topics for place in places)
        assert places == sorted(places)
        assert all(type(place) is TopicPartition for place in places)
    everything = [place for places in given.values() for place in places]
    wanted = frozenset().union(*(member.topics for member in members.values()))
    assert sorted(everything) == sorted(
        TopicPartition(topic, number) for topic in wanted for number in range(counts.get(topic, 0))
    )


@settings(derandomize=True, deadline=None, max_examples=100)
@given(NAMES, MEMBERS, COUNTS, st.randoms(use_true_random=False))
def test_the_order_of_the_arguments_does_not_matter(
    assignor: Assignor, members: dict[str, MemberSubscription], counts: dict[str, int], random: object
) -> None:
    names, topics = list(members), list(counts)
    random.shuffle(names)  # type: ignore[attr-defined]
    random.shuffle(topics)  # type: ignore[attr-defined]
    again = assign(assignor, {name: members[name] for name in names}, {name: counts[name] for name in topics})
    assert again == assign(assignor, members, counts)


@settings(derandomize=True, deadline=None, max_examples=100)
@given(st.sampled_from(["round_robin", "sticky"]), ALIKE, COUNTS)
def test_even_within_one_where_all_want_the_same(
    assignor: Assignor, members: dict[str, MemberSubscription], counts: dict[str, int]
) -> None:
    loads = [len(places) for places in assign(assignor, members, counts).values()]
    assert max(loads) - min(loads) <= 1


@settings(derandomize=True, deadline=None, max_examples=100)
@given(ALIKE, COUNTS)
def test_range_is_even_within_one_in_each_topic(
    members: dict[str, MemberSubscription], counts: dict[str, int]
) -> None:
    given = assign("range", members, counts)
    for topic, count in counts.items():
        runs = [[at.partition for at in places if at.topic == topic] for places in given.values()]
        assert {len(run) for run in runs} <= {count // len(members), -(-count // len(members))}
        assert all(run == list(range(run[0], run[-1] + 1)) for run in runs if run)


@settings(derandomize=True, deadline=None, max_examples=200)
@given(ALIKE, COUNTS)
def test_no_even_assignment_moves_less(
    members: dict[str, MemberSubscription], counts: dict[str, int]
) -> None:
    """What a member may keep is bounded by its share, and only as many members as there are left-overs get one
    more: the sum over the best choice of those is a bound that no even assignment beats."""
    taken: set[TopicPartition] = set()
    kept = {}
    order = sorted(
        members, key=lambda at: (members[at].instance_id is None, members[at].instance_id or "", at)
    )
    for name in order:
        mine = {at for at in members[name].owned if at.partition < counts.get(at.topic, 0)} - taken
        taken |= mine
        kept[name] = mine
    total = sum(counts.values())
    each, more = divmod(total, len(members))
    bound = sum(min(len(mine), each) for mine in kept.values())
    bound += min(more, sum(len(mine) > each for mine in kept.values()))
    given = assign("sticky", members, counts)
    assert sum(len(kept[name] & set(places)) for name, places in given.items()) == bound


@settings(derandomize=True, deadline=None, max_examples=100)
@given(MEMBERS, COUNTS)
def test_sticky_rests(members: dict[str, MemberSubscription], counts: dict[str, int]) -> None:
    given = assign("sticky", members, counts)
    assert assign("sticky", owned_by(members, given), counts) == given


@settings(derandomize=True, deadline=None, max_examples=100)
@given(ALIKE, COUNTS, IDS)
def test_only_the_share_of_one_who_goes_or_comes_moves(
    members: dict[str, MemberSubscription], counts: dict[str, int], other: str
) -> None:
    assume(other not in members)
    given = assign("sticky", members, counts)
    settled = owned_by(members, given)
    joined = {**settled, other: MemberSubscription(frozenset(TOPICS))}
    after = assign("sticky", joined, counts)
    assert moved(joined, after) == len(after[other])
    if len(members) > 1:
        gone = min(members)
        rest = {name: member for name, member in settled.items() if name != gone}
        assert moved(rest, assign("sticky", rest, counts)) == 0
