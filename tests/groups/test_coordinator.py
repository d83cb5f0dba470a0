"""The coordinator's edges: bad arguments, what records a decision needs, what others' records do, loading."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from logstore.errors import (
    InvalidArgumentError,
    InvalidGroupError,
    InvalidRecordError,
    InvariantError,
    StaleGenerationError,
    UnknownGroupError,
    UnknownMemberError,
    UnsupportedStoreVersionError,
)
from logstore.groups import group_records as layout
from logstore.groups.coordinator import GroupCoordinator
from logstore.groups.group import MAX_EPOCH, Group
from logstore.groups.group_records import Current
from logstore.groups.views import MemberSession
from logstore.machine import Decision, StateMachine, TransactionalWriter
from logstore.types import TopicPartition
from tests.groups.kafka_loading import KafkaLoading, KafkaRefusesError
from tests.groups.life import Log, Person, at, join, state_of

FLIGHTS = {"flights": 4}
WISHES: dict[str, Any] = {
    "instance_id": None,
    "client": "here",
    "topics": ["flights"],
    "pattern": None,
    "assignor": "sticky",
    "session_timeout_ms": 45_000,
    "max_poll_interval_ms": 300_000,
    "liveness": bytes(4),
    "partitions": FLIGHTS,
    "now_ms": 1,
}


def person(name: str, instance_id: str | None = None, pattern: str | None = None) -> Person:
    return Person(name, frozenset({"flights"}), instance_id, pattern)


def kinds(decision: Decision[Any]) -> list[tuple[int, str, bool]]:
    """Kind, member, and whether it deletes, of each record."""
    found = []
    for key, value in decision.records:
        decoded = layout.decode_key(key)
        assert decoded is not None
        found.append((decoded.kind, decoded.member_id, value is None))
    return found


# --- arguments --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wish", "value", "why"),
    [
        ("instance_id", "", "instance_id=''"),
        ("instance_id", "i" * 1001, "1 to 1000 bytes"),
        ("client", 5, "client=5"),
        ("client", "\ud800", "half of a surrogate pair"),
        ("topics", "flights", "collection of topic names"),
        ("topics", [b"flights"], "topic=b'flights'"),
        ("pattern", b".", "pattern="),
        ("assignor", "random", "range, round_robin, sticky"),
        ("session_timeout_ms", 0, "session_timeout_ms=0"),
        ("session_timeout_ms", 2**31, "session_timeout_ms"),
        ("max_poll_interval_ms", 1.5, "max_poll_interval_ms=1.5"),
        ("liveness", b"123", "it is 4 bytes"),
    ],
)
def test_bad_wishes_are_named(wish: str, value: object, why: str) -> None:
    machine = GroupCoordinator()
    with pytest.raises(InvalidArgumentError, match=why):
        machine.decide_join("g", "m", **(WISHES | {wish: value}))
    assert machine.groups() == []


def test_bad_names_are_named() -> None:
    machine = GroupCoordinator()
    with pytest.raises(InvalidArgumentError, match="member_id=''"):
        machine.decide_join("g", "", **WISHES)
    calls = [
        lambda: machine.decide_join("", "m", **WISHES),
        lambda: machine.decide_sync("", "m", 1, [], 1),
        lambda: machine.decide_update("", "m", 1, [], {}, 1),
        lambda: machine.decide_leave("", "m", 1),
        lambda: machine.decide_expire("", ["m"], 1),
        lambda: machine.decide_commit("", {}, 1),
        lambda: machine.decide_transactional_commit("", {}, TransactionalWriter(1, 0), 1),
        lambda: machine.decide_delete_group(""),
        lambda: machine.decide_delete_offsets("", []),
        lambda: machine.describe(""),
        lambda: machine.committed(""),
    ]
    for call in calls:
        with pytest.raises(InvalidGroupError):
            call()
    for look in (machine.describe, machine.decide_delete_group):
        with pytest.raises(UnknownGroupError, match="no group 'g'"):
            look("g")


def test_a_member_says_its_generation_when_it_commits() -> None:
    log = Log()
    join(log, person("a"), FLIGHTS)
    with pytest.raises(InvalidArgumentError, match="'a' commits without its generation"):
        log.machine.decide_commit("g", {}, 1, member_id="a")


def test_errors_say_what_was_expected() -> None:
    log = Log()
    view = join(log, person("a"), FLIGHTS)
    with pytest.raises(StaleGenerationError) as caught:
        log.machine.check_member("g", "a", view.epoch + 1)
    assert (caught.value.expected, caught.value.found) == (1, 2)
    assert log.machine.check_member("g", "a", view.epoch) == view
    with pytest.raises(UnknownMemberError):
        log.machine.check_member("h", "a")


def test_positions_are_checked_for_members_too() -> None:
    log = Log()
    join(log, person("a"), FLIGHTS)
    place = TopicPartition("flights", 0)
    for decide in (
        lambda: log.machine.decide_commit("g", {place: at(9)}, 1, {place: 8}, member_id="a", epoch=1),
        lambda: log.machine.decide_transactional_commit(
            "g", {place: at(9)}, TransactionalWriter(1, 0), 1, {place: 8}, member_id="a", epoch=1
        ),
    ):
        with pytest.raises(InvalidArgumentError, match="its end is 8"):
            decide()


# --- decisions --------------------------------------------------------------------------------------


def test_a_decision_changes_nothing_until_it_is_replayed() -> None:
    log = Log()
    join(log, person("a"), FLIGHTS)
    before = state_of(log.machine)
    log.machine.decide_join("g", "b", **WISHES)
    log.machine.decide_sync("g", "a", 1, [], 1)
    log.machine.decide_update("g", "a", 1, ["other"], {"other": 2}, 1)
    log.machine.decide_leave("g", "a", 1)
    log.machine.decide_expire("g", ["a"], 1)
    log.machine.decide_delete_topic("flights", lambda _: None)
    log.machine.decide_expire_offsets(10**15, 1)
    assert state_of(log.machine) == before


def test_a_repeated_join_is_the_same_member() -> None:
    """Its reply was lost: no rebalance for that."""
    log = Log()
    first = join(log, person("a"), FLIGHTS)
    decision = log.machine.decide_join("g", "a", **(WISHES | {"now_ms": 9}))
    assert log.append(decision) == first
    assert kinds(decision) == [(layout.MEMBER, "a", False)]


def test_only_what_changed_is_written() -> None:
    log = Log()
    join(log, person("a"), FLIGHTS)
    decision = log.machine.decide_join("g", "b", **WISHES)
    group, target, both = layout.GROUP, layout.TARGET, (layout.TARGET_MEMBER, layout.CURRENT)
    assert kinds(decision) == [
        (group, "", False),
        (layout.MEMBER, "b", False),
        (target, "", False),
        *((kind, name, False) for kind in both for name in "ab"),
    ]
    log.append(decision)
    view = log.machine.view("g", "a")
    assert view is not None
    given = log.machine.decide_sync("g", "a", view.epoch, view.assigned, 1)
    assert kinds(given) == [(layout.CURRENT, name, False) for name in "ab"]
    log.append(given)
    gone = log.machine.decide_expire("g", ["b"], 5)
    assert [row for row in kinds(gone) if row[2]] == [
        (kind, "b", True) for kind in (layout.CURRENT, layout.TARGET_MEMBER, layout.MEMBER)
    ]


def test_what_came_after_its_view_is_not_given_up_by_it() -> None:
    log = Log()
    for name in "ab":
        join(log, person(name), FLIGHTS)
    seen = log.machine.view("g", "a")
    assert seen is not None
    log.append(log.machine.decide_expire("g", ["b"], 1))
    log.append(log.machine.decide_sync("g", "a", seen.epoch, seen.assigned, 1))  # has all of it, 2 of it anew
    join(log, person("c"), FLIGHTS)
    now = log.machine.view("g", "a")
    assert now is not None
    assert now.revoking
    log.append(log.machine.decide_sync("g", "a", seen.epoch, seen.assigned, 1))
    again = log.machine.view("g", "a")
    assert again is not None
    assert again.revoking == now.revoking  # it may have seen those since, and read them


def test_the_assignor_is_what_most_ask_for() -> None:
    log = Log()
    for name, assignor in (("a", "sticky"), ("b", "range"), ("c", "range")):
        log.append(log.machine.decide_join("g", name, **(WISHES | {"assignor": assignor})))
    assert log.machine.describe("g").assignor == "range"
    log.append(log.machine.decide_leave("g", "c", 1))
    assert log.machine.describe("g").assignor == "range"  # of as many, the first by name
    log.append(log.machine.decide_leave("g", "b", 1))
    assert log.machine.describe("g").assignor == "sticky"


def test_a_group_remembers_what_it_began_with_while_it_is_empty() -> None:
    log = Log()
    join(log, person("a"), {"flights": 2})
    log.append(log.machine.decide_leave("g", "a", 1))
    assert join(log, person("b"), {"flights": 5}).initial == {"flights": 2}


def test_sessions() -> None:
    log = Log()
    join(log, person("b", "i"), FLIGHTS, liveness=b"beat", now_ms=10)
    join(log, person("a"), FLIGHTS, liveness=b"beta", now_ms=20, group="h")
    log.append(log.machine.decide_leave("g", "b", 30))
    assert log.machine.sessions() == [
        MemberSession("g", "b", "i", b"beat", 45_000, 10, 30),
        MemberSession("h", "a", None, b"beta", 45_000, 20, -1),
    ]


def test_an_epoch_that_ends_is_a_named_error() -> None:
    group = Group()
    group.epoch = MAX_EPOCH
    with pytest.raises(InvariantError, match="31 bits"):
        group.advance()


def test_expiry_goes_in_pieces() -> None:
    log = Log()
    for number in range(7):
        places = {TopicPartition("t", partition): at(1) for partition in range(3)}
        log.append(log.machine.decide_commit(f"g{number}", places, 1))
    sizes = []
    while records := (decision := log.machine.decide_expire_offsets(100, 10, limit=5)).records:
        sizes.append(len(records))
        log.append(decision)
    assert sizes == [5, 5, 5, 5, 1]
    assert log.machine.groups() == []


# --- replay -----------------------------------------------------------------------------------------


def test_it_is_a_state_machine() -> None:
    machine: StateMachine = GroupCoordinator()
    machine.replay(None, b"no key")
    machine.replay(struct.pack(">h", 2) + b"\0\1g", b"classic group")
    machine.replay(struct.pack(">h", 17) + b"\0\1g", b"streams group")
    broker_member = bytes.fromhex("0000 00 00 01 01 01 00 ffffffff 0278 01 00 01 00")
    machine.replay(layout.encode_key(layout.MEMBER, "g", "m"), broker_member)
    assert isinstance(machine, GroupCoordinator)
    assert machine.ignored_records == 4
    assert machine.groups() == []


def test_what_cannot_be_read_is_named_and_leaves_no_trace() -> None:
    machine = GroupCoordinator()
    for kind in sorted(layout.KINDS):
        key = layout.encode_key(kind, "g", "m")
        with pytest.raises(InvalidRecordError, match="malformed"):
            machine.replay(key, b"\0\0")
        with pytest.raises(InvalidRecordError, match="malformed key of a group"):
            machine.replay(key[:-1], b"")
        with pytest.raises(UnsupportedStoreVersionError):
            machine.replay(key, b"\0\1")
        machine.replay(key, None)
    assert machine.groups() == []


def test_a_transaction_holds_committed_offsets_alone() -> None:
    machine = GroupCoordinator()
    for key in (None, layout.encode_key(layout.MEMBER, "g", "m")):
        with pytest.raises(InvalidRecordError, match=r"producer 7 .*only committed offsets"):
            machine.replay_pending(7, 0, key, b"")


def test_two_owners_in_a_log_are_noticed() -> None:
    log = Log()
    for name in "ab":
        join(log, person(name), FLIGHTS)
    twice = Current(2, 0, 0, {TopicPartition("flights", 0): 2}, {})
    log.machine.replay(layout.encode_key(layout.CURRENT, "g", "b"), layout.encode_current(twice))
    with pytest.raises(InvariantError, match="a partition has one owner in its group"):
        log.machine.decide_sync("g", "b", 2, twice.assigned, 1)


def test_replaying_again_right_away_changes_nothing() -> None:
    log = Log()
    for name in "ab":
        join(log, person(name, "i" if name == "a" else None), FLIGHTS)
    log.append(log.machine.decide_leave("g", "a", 5))
    state = state_of(log.machine)
    for key, value in log.entries[-1].records:
        log.machine.replay(key, value)
    assert state_of(log.machine) == state


def test_static_members_that_have_left_exchange_partitions_in_an_order_that_kafka_loads() -> None:
    """Nobody gives up first of his own: the records make one of them do so."""
    old = {
        name: Current(3, 2, layout.STABLE, {TopicPartition("t", at): 1}, {}) for at, name in enumerate("abc")
    }
    new = {
        name: Current(4, 3, layout.STABLE, {TopicPartition("t", (at + 1) % 3): 4}, {})
        for at, name in enumerate("abc")
    }
    before, after = Group(), Group()
    before.current, after.current = old, new
    kafka, group = KafkaLoading(), before.copy()
    for name in "abc":
        kafka.replay(layout.encode_key(layout.MEMBER, "g", name), b"a member")
        kafka.replay(layout.encode_key(layout.CURRENT, "g", name), layout.encode_current(old[name]))
    records = before.records_to(after, "g")
    assert len(records) == 4
    for key, value in records:
        kafka.replay(key, value)
        decoded = layout.decode_key(key)
        assert decoded is not None
        group.replay(decoded, value)
    assert group == after


def test_a_group_that_is_deleted_goes_after_its_members() -> None:
    log = Log()
    join(log, person("a"), FLIGHTS)
    group = log.machine._groups["g"]
    assert [kinds(Decision((record,), None))[0][0] for record in group.tombstones("g")] == [8, 7, 5, 6, 4, 3]
    for key, value in group.tombstones("g"):
        log.kafka.replay(key, value)


@pytest.mark.parametrize(
    "kinds_in_order", [(layout.MEMBER, layout.TARGET_MEMBER, layout.CURRENT), (layout.CURRENT, layout.MEMBER)]
)
def test_the_model_of_kafkas_loading_refuses_other_orders(kinds_in_order: tuple[int, ...]) -> None:
    log = Log()
    join(log, person("a"), FLIGHTS)

    def replay() -> None:
        for kind in kinds_in_order:
            log.kafka.replay(layout.encode_key(kind, "g", "a"), None)

    with pytest.raises(KafkaRefusesError):
        replay()
