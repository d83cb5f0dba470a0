"""The general balance: against every assignment there is, and against chains that would make it flatter."""

from __future__ import annotations

import itertools
import random

from hypothesis import given, settings
from hypothesis import strategies as st

from logstore.groups.assignors import MemberSubscription, assign
from logstore.types import TopicPartition

TOPICS = ("a", "b", "c")
WANTED = st.frozensets(st.sampled_from(TOPICS), min_size=1)
PLACES = st.frozensets(st.builds(TopicPartition, st.sampled_from(TOPICS), st.integers(0, 2)))
FEW = st.lists(st.builds(MemberSubscription, WANTED, st.none(), PLACES), min_size=2, max_size=4)


def squares(loads: list[int]) -> int:
    return sum(load * load for load in loads)


@settings(derandomize=True, deadline=None, max_examples=60)
@given(FEW, st.fixed_dictionaries(dict.fromkeys(TOPICS, st.integers(0, 2))))
def test_no_assignment_is_flatter(wishes: list[MemberSubscription], counts: dict[str, int]) -> None:
    members = {f"m{rank}": wish for rank, wish in enumerate(wishes)}
    choices = []
    for topic, count in counts.items():
        takers = [name for name, member in members.items() if topic in member.topics]
        choices += [takers] * count if takers else []
    best = min(squares([chosen.count(name) for name in members]) for chosen in itertools.product(*choices))
    given = assign("sticky", members, counts)
    assert squares([len(places) for places in given.values()]) == best


def flatter_chain(members: dict[str, MemberSubscription], given: dict[str, list[TopicPartition]]) -> bool:
    """Whether a chain of hand-overs leads to somebody with two fewer."""
    for top, mine in given.items():
        reached, new = {top}, [top]
        while new:
            topics = {place.topic for name in new for place in given[name]}
            new = [name for name, member in members.items() if name not in reached and member.topics & topics]
            if any(len(given[name]) <= len(mine) - 2 for name in new):
                return True
            reached.update(new)
    return False


def test_many_members_with_different_wishes() -> None:
    chance = random.Random(11)
    topics = {f"t{number:02}": chance.randrange(0, 20) for number in range(30)}
    for _ in range(5):
        members = {
            f"m{number:02}": MemberSubscription(
                frozenset(chance.sample(sorted(topics), chance.randrange(1, 6)))
            )
            for number in range(40)
        }
        given = assign("sticky", members, topics)
        assert not flatter_chain(members, given)
        # One goes: the others keep what they had, but for what evens out the loads.
        left = {
            name: member._replace(owned=frozenset(given[name]))
            for name, member in members.items()
            if name != "m07"
        }
        after = assign("sticky", left, topics)
        assert not flatter_chain(left, after)
        moved = sum(len(left[name].owned - set(places)) for name, places in after.items())
        assert moved <= 2 * len(given["m07"])


def test_a_chain_is_found_by_the_check_itself() -> None:
    members = {"x": MemberSubscription(frozenset("a")), "y": MemberSubscription(frozenset("a"))}
    assert flatter_chain(members, {"x": [TopicPartition("a", 0), TopicPartition("a", 1)], "y": []})


def test_gains_are_traded_for_what_was_lost() -> None:
    """x must give one of its a to y; y's old b is free for x: nobody ends with another's for nothing."""
    members = {
        "x": MemberSubscription(frozenset("ab"), None, frozenset(TopicPartition("a", n) for n in range(4))),
        "y": MemberSubscription(frozenset("ab"), None, frozenset()),
        "z": MemberSubscription(frozenset("b"), None, frozenset({TopicPartition("b", 0)})),
    }
    given = assign("sticky", members, {"a": 4, "b": 2})
    assert sorted(map(len, given.values())) == [2, 2, 2]
    assert sum(len(members[name].owned - set(places)) for name, places in given.items()) == 2
