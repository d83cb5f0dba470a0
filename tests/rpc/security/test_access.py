"""What callers may do: each operation on each kind of resource, allowed and refused, and what lists show."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from logstore.errors import InvalidArgumentError, UnknownMemberError, UnknownTopicError
from logstore.types import COUNTER_TOPIC, OffsetAndMetadata, TopicPartition
from rpc.client.store import RemoteStore
from rpc.errors import AccessDeniedError, AuthenticationError, SecurityDisabledError
from rpc.handlers.caller import CLUSTER, Resource
from rpc.security.scram import make_verifier
from rpc.security.users import make_token
from tests.beside import Beside
from tests.rpc.security.authority import Authority, Pair
from tests.rpc.security.secured import Secured, rule
from tests.rpc.served import Served

TOPIC, GROUP, TRANSACTION, PRODUCER = (
    Resource.TOPIC,
    Resource.GROUP,
    Resource.TRANSACTION,
    Resource.PRODUCER,
)
PLACE = TopicPartition("t", 0)


@pytest.fixture(scope="module")
def shared(
    tmp_path_factory: pytest.TempPathFactory, pair: Pair, authority: Authority
) -> Iterator[tuple[Secured, RemoteStore]]:
    """A broker, and a client of alice's. Each test begins without rules."""
    root = tmp_path_factory.mktemp("access") / "store"
    with Secured(root, pair, authority) as served:
        with served.client("admin") as admin:
            admin.create_topic("t", partitions=2)
            admin.create_topic("secret")
            admin.create_topic("keyed", config={"cleanup.policy": "compact"})
            with admin.producer() as producer:
                producer.send("t", b"v", key=b"k", partition=0).result(timeout_s=60)
            admin.backend.commit_offsets("g", {PLACE: OffsetAndMetadata(0)})
        with served.client("alice") as alice:
            yield served, alice


@pytest.fixture
def served(shared: tuple[Secured, RemoteStore]) -> Secured:
    served = shared[0]
    served.forbid(*served.access.list_rules())
    return served


@pytest.fixture
def alice(shared: tuple[Secured, RemoteStore]) -> RemoteStore:
    return shared[1]


def produce(client: RemoteStore) -> None:
    with client.producer(idempotence=False) as producer:
        producer.send("t", b"v", partition=0).result(timeout_s=60)


def consume(client: RemoteStore) -> None:
    with client.consumer([PLACE], start="earliest") as consumer:
        assert consumer.poll(timeout_s=60)


def join(client: RemoteStore) -> None:
    with client.consumer("t", group="g", start="earliest") as consumer:
        consumer.poll(timeout_s=0)


def transact(client: RemoteStore) -> None:
    with client.producer(transactional_id="x") as producer, producer.transaction() as tx:
        tx.send("t", b"v", partition=1)


def named(client: RemoteStore) -> None:
    with client.producer(name="import") as producer:
        producer.send("t", b"v", partition=1).result(timeout_s=60)


def delete_producer(client: RemoteStore) -> None:
    with suppress(InvalidArgumentError):  # there is none of the name
        client.backend.delete_producer("none")


def end_hanging(client: RemoteStore) -> None:
    from logstore.api.transactions import HangingTransaction

    client.backend.end_hanging(HangingTransaction("t", 0, 1, 0, 0, None))


Act = Callable[[RemoteStore], object]
READ_T = rule("alice", "read", TOPIC, "t")
WRITE_T = rule("alice", "write", TOPIC, "t")
DESCRIBE_T = rule("alice", "describe", TOPIC, "t")
ACTS: dict[str, tuple[Act, list[Any]]] = {
    "produce": (produce, [WRITE_T]),
    "consume": (consume, [READ_T]),
    "join": (join, [READ_T, rule("alice", "read", GROUP, "g")]),
    "commit": (
        lambda client: client.backend.commit_offsets("g", {PLACE: OffsetAndMetadata(0)}),
        [READ_T, rule("alice", "read", GROUP, "g")],
    ),
    "committed": (
        lambda client: client.backend.committed_offsets("g"),
        [rule("alice", "describe", GROUP, "g")],
    ),
    "delete a group": (
        lambda client: client.backend.delete_group("none"),
        [rule("alice", "delete", GROUP, "none")],
    ),
    "transaction": (transact, [WRITE_T, rule("alice", "write", TRANSACTION, "x")]),
    "abort": (
        lambda client: client.backend.abort_transaction("none"),
        [rule("alice", "alter", TRANSACTION, "none")],
    ),
    "find hanging": (
        lambda client: client.backend.find_hanging(),
        [rule("alice", "describe", Resource.CLUSTER, CLUSTER)],
    ),
    "end hanging": (end_hanging, [rule("alice", "alter", Resource.CLUSTER, CLUSTER)]),
    "named producer": (named, [WRITE_T, rule("alice", "write", PRODUCER, "import")]),
    "list producers": (
        lambda client: client.backend.list_producers(),
        [rule("alice", "describe", Resource.CLUSTER, CLUSTER)],
    ),
    "delete a producer": (
        delete_producer,
        [rule("alice", "delete", PRODUCER, "none")],
    ),
    "create a topic": (
        lambda client: client.create_topic("new", exist_ok=True),
        [rule("alice", "create", TOPIC, "new"), rule("alice", "describe", TOPIC, "new")],
    ),
    "delete a topic": (
        lambda client: client.admin.delete_topic("none"),
        [rule("alice", "delete", TOPIC, "none")],
    ),
    "alter a topic": (
        lambda client: client.backend.alter_topic("t", {"retention.ms": "-1"}),
        [rule("alice", "alter", TOPIC, "t")],
    ),
    "add partitions": (
        lambda client: client.backend.add_partitions("t", 2, allow_keyed=True),
        [rule("alice", "alter", TOPIC, "t")],
    ),
    "describe a topic": (lambda client: client.backend.describe_topic("t"), [DESCRIBE_T]),
    "list offsets": (
        lambda client: client.backend.list_offsets([PLACE], "latest", "read_committed"),
        [DESCRIBE_T],
    ),
    "describe partitions": (lambda client: client.backend.describe_partitions([PLACE]), [DESCRIBE_T]),
    "delete records": (
        lambda client: client.backend.delete_records({PLACE: 0}),
        [rule("alice", "delete", TOPIC, "t")],
    ),
    "compact": (
        lambda client: client.backend.start_compaction("keyed", None, roll=False),
        [rule("alice", "alter", TOPIC, "keyed")],
    ),
    "erase": (
        lambda client: client.backend.start_erasure("t", [b"k"]),
        [rule("alice", "delete", TOPIC, "t")],
    ),
    "list rules": (
        lambda client: client.security.list_rules(),
        [rule("alice", "describe", Resource.CLUSTER, CLUSTER)],
    ),
    "list users": (
        lambda client: client.security.list_users(),
        [rule("alice", "describe", Resource.CLUSTER, CLUSTER)],
    ),
    "alter rules": (
        lambda client: client.security.alter_rules([], []),
        [rule("alice", "alter", Resource.CLUSTER, CLUSTER)],
    ),
    "set a password": (
        lambda client: client.security.set_password(
            "bob", {"SCRAM-SHA-256": make_verifier("x", "SCRAM-SHA-256", 4096)}
        ),
        [rule("alice", "alter", Resource.CLUSTER, CLUSTER)],
    ),
    "add a token": (
        lambda client: client.security.add_token("bob", make_token(0)[1]),
        [rule("alice", "alter", Resource.CLUSTER, CLUSTER)],
    ),
    "revoke a token": (
        lambda client: client.security.revoke_token("none"),
        [rule("alice", "alter", Resource.CLUSTER, CLUSTER)],
    ),
    "remove a user": (
        lambda client: client.security.remove_user("none"),
        [rule("alice", "alter", Resource.CLUSTER, CLUSTER)],
    ),
}


def is_refused(client: RemoteStore, act: Act) -> bool:
    """Whether it is denied. A topic that may not be seen is not there."""
    try:
        act(client)
    except AccessDeniedError:
        return True
    except UnknownTopicError as error:
        return "'t'" in str(error)
    except Exception as error:
        if type(error).__name__ in EXPECTED:
            return False
        raise
    return False


EXPECTED = {
    "UnknownGroupError",
    "UnknownTransactionError",
    "TransactionStateError",
    "UnknownProducerError",
    "UnknownUserError",
    "InvalidPartitionsError",
    "InvalidConfigError",
}
"""What an act that is allowed may end with, as its object is not there."""


@pytest.mark.parametrize("name", ACTS)
def test_it_is_refused_and_with_the_right_rules_it_is_not(
    name: str, served: Secured, alice: RemoteStore
) -> None:
    act, rules = ACTS[name]
    assert is_refused(alice, act)
    for lacking in rules:  # with all of the others
        served.allow(*(one for one in rules if one != lacking))
        if lacking.operation != "describe" or len(rules) == 1:
            assert is_refused(alice, act), f"without {lacking}"
        served.forbid(*rules)
    served.allow(*rules)
    assert not is_refused(alice, act)
    every = CLUSTER if rules[0].resource is Resource.CLUSTER else "*"
    denying = rule("*", "all", rules[0].resource, every, allow=False)
    served.allow(denying)
    assert is_refused(alice, act)
    served.forbid(denying, *rules)
    assert is_refused(alice, act)


def test_a_producer_id_is_for_those_who_may_write_somewhere(served: Secured, alice: RemoteStore) -> None:
    with pytest.raises(AccessDeniedError, match="may not write topic"):
        alice.backend.init_producer(None)
    served.allow(READ_T)
    with pytest.raises(AccessDeniedError, match="may not write topic"):
        alice.backend.init_producer(None)
    served.allow(rule("alice", "write", TOPIC, "elsewhere", prefix=True))
    assert alice.backend.init_producer(None).producer_id >= 0


def test_a_deny_beats_super_power_of_nobody_but_super_users(served: Secured) -> None:
    served.allow(rule("*", "all", TOPIC, "*", allow=False))
    with served.client("admin") as admin:
        produce(admin)


def test_lists_show_what_may_be_seen(served: Secured, alice: RemoteStore) -> None:
    assert alice.list_topics() == []
    assert alice.backend.list_groups() == []
    with served.client("admin") as admin:
        admin.backend.commit_offsets(
            "g", {PLACE: OffsetAndMetadata(0), TopicPartition("secret", 0): OffsetAndMetadata(0)}
        )
        assert {"t", "secret"} <= set(admin.list_topics())
        transact(admin)
    served.allow(DESCRIBE_T, rule("alice", "describe", GROUP, "*"))
    assert alice.list_topics() == ["t"]
    (group,) = alice.backend.list_groups()
    assert (group.group, set(group.offsets)) == ("g", {PLACE})
    assert set(alice.backend.committed_offsets("g")) == {PLACE}
    assert alice.backend.list_transactions() == []
    served.allow(rule("alice", "describe", TRANSACTION, "x"))
    assert [one.transactional_id for one in alice.backend.list_transactions()] == ["x"]


def test_members_of_groups_show_no_topics_that_may_not_be_seen(served: Secured, alice: RemoteStore) -> None:
    served.allow(DESCRIBE_T, rule("alice", "describe", GROUP, "*"))
    with served.client("admin") as admin, admin.consumer(["t", "secret"], group="g2") as consumer:
        consumer.poll(timeout_s=0)
        (member,) = next(one for one in alice.backend.list_groups() if one.group == "g2").members
        assert member.topics == ("t",)
        assert {place.topic for place in (*member.assigned, *member.target)} == {"t"}


def test_one_denied_topic_refuses_the_whole_call(served: Secured, alice: RemoteStore) -> None:
    from logstore.api.records import FetchRequest, ProduceItem
    from logstore.format.batch import encode_batch

    served.allow(rule("alice", "all", TOPIC, "t"))
    batch = encode_batch([(None, b"v")], now_ms=1_700_000_000_000)
    ends = alice.backend.list_offsets([PLACE], "latest", "read_uncommitted")
    with pytest.raises(AccessDeniedError, match="may not write topic 'secret'"):
        alice.backend.produce([ProduceItem("t", 0, batch), ProduceItem("secret", 0, batch)], "all", 5.0)
    assert alice.backend.list_offsets([PLACE], "latest", "read_uncommitted") == ends
    with pytest.raises(AccessDeniedError, match="may not read topic 'secret'"):
        alice.backend.fetch(
            [FetchRequest("t", 0, 0, -1, 1 << 20), FetchRequest("secret", 0, 0, -1, 1 << 20)],
            isolation="read_committed",
            min_bytes=1,
            max_bytes=1 << 20,
            max_wait_s=0,
        )


def test_offsets_of_a_transaction_need_group_and_topic(served: Secured, alice: RemoteStore) -> None:
    served.allow(WRITE_T, rule("alice", "write", TRANSACTION, "x"), rule("alice", "read", GROUP, "g"))
    offsets = {TopicPartition("secret", 0): OffsetAndMetadata(0)}
    with alice.producer(transactional_id="x") as producer:
        denied = pytest.raises(AccessDeniedError, match="may not read topic 'secret'")
        with denied, producer.transaction() as tx:
            tx.commit_offsets("g", offsets)
        served.forbid(rule("alice", "read", GROUP, "g"))
        denied = pytest.raises(AccessDeniedError, match="may not read group 'g'")
        with denied, producer.transaction() as tx:
            tx.commit_offsets("g", {PLACE: OffsetAndMetadata(0)})


# --- rights that are taken away from what is under way ---


def test_a_member_whose_right_is_taken_away(served: Secured, alice: RemoteStore) -> None:
    served.allow(READ_T, rule("alice", "read", GROUP, "g"))
    membership = alice.backend.join_group("g", join_request())
    served.forbid(rule("alice", "read", GROUP, "g"))
    with pytest.raises((AccessDeniedError, UnknownMemberError)):
        membership.sync([], 0)
    membership.abandon()


def join_request() -> Any:
    from logstore.api.groups import JoinRequest

    return JoinRequest(topics=frozenset({"t"}))


def test_a_transaction_and_a_name_whose_right_is_taken_away(served: Secured, alice: RemoteStore) -> None:
    mine = [WRITE_T, rule("alice", "write", TRANSACTION, "x"), rule("alice", "write", PRODUCER, "import")]
    served.allow(*mine)
    transaction = alice.backend.init_transactions("x", 60_000)
    producer = alice.backend.init_producer("import")
    transaction.begin()
    served.forbid(*mine)
    with pytest.raises(AccessDeniedError):
        transaction.add_partitions([PLACE])
    with pytest.raises(AccessDeniedError):
        transaction.end(commit=False)
    served.allow(DESCRIBE_T)
    for use in (lambda: producer.last_sequence("t", 0), lambda: producer.producer_id_of(1)):
        with pytest.raises(AccessDeniedError, match="may not write producer 'import'"):
            use()
    transaction.release()
    producer.release()


def test_a_number_of_a_groups_own_takes_the_right_to_the_group_alone(
    served: Secured, alice: RemoteStore
) -> None:
    """Hidden for want of a right to a topic that there is not, a job would take its next batch for its first."""
    counter = {TopicPartition(COUNTER_TOPIC, 0): OffsetAndMetadata(7)}
    served.allow(rule("alice", "read", GROUP, "job"), rule("alice", "write", TRANSACTION, "x"))
    alice.commit_offsets("job", counter)
    assert alice.committed_offsets("job") == counter
    lease = alice.backend.init_transactions("x", 60_000)
    lease.begin()
    lease.send_offsets("job", {TopicPartition(COUNTER_TOPIC, 0): OffsetAndMetadata(8)})
    assert set(alice.backend.unstable_offsets("job")) == {TopicPartition(COUNTER_TOPIC, 0)}
    lease.end(commit=True)
    lease.release()
    assert alice.committed_offsets("job") == {TopicPartition(COUNTER_TOPIC, 0): OffsetAndMetadata(8)}
    (group,) = [one for one in alice.backend.list_groups() if one.group == "job"]
    assert set(group.offsets) == {TopicPartition(COUNTER_TOPIC, 0)}
    with pytest.raises(AccessDeniedError):
        alice.commit_offsets("job", {TopicPartition("t", 0): OffsetAndMetadata(0)})


def test_both_sides_of_a_prepared_transaction_need_the_right_to_both_ids(
    served: Secured, alice: RemoteStore
) -> None:
    def of(name: str) -> Any:
        return rule("alice", "write", TRANSACTION, name)

    served.allow(of("p"), WRITE_T)
    with pytest.raises(AccessDeniedError, match="'c'"):
        alice.backend.init_transactions("p", 60_000, coordinator="c")
    served.allow(of("c"))
    participant = alice.backend.init_transactions("p", 60_000, coordinator="c")
    participant.begin()
    participant.add_partitions([PLACE])
    served.forbid(of("p"))
    with pytest.raises(AccessDeniedError):
        participant.prepare()
    served.allow(of("p"))
    prepared = participant.prepare()
    assert prepared is not None
    coordinator = alice.backend.init_transactions("c", 60_000, keep_prepared=True)
    coordinator.begin()
    served.forbid(of("p"))
    with pytest.raises(AccessDeniedError, match="'p'"):
        coordinator.end(commit=True, prepared=[prepared])
    served.allow(of("p"))
    coordinator.end(commit=True, prepared=[prepared])
    for lease in (participant, coordinator):
        lease.release()


def test_what_a_removed_user_holds_is_over(served: Secured) -> None:
    served.allow(rule("carol", "write", PRODUCER, "of-carol"))
    with served.client("carol") as carol:
        lease = carol.backend.init_producer("of-carol")
        served.access.remove_user("carol")
        until(lambda: lease._keeper.ended_by(lease._lease_id) is not None)  # type: ignore[attr-defined]
        with pytest.raises(AuthenticationError):
            lease.last_sequence("t", 0)
        with suppress(
            AuthenticationError
        ):  # its name is free when the broker has not heard of it for long enough
            lease.release()


def test_a_fetch_that_waits_gives_nothing_once_the_right_is_taken_away(
    served: Secured, alice: RemoteStore
) -> None:
    from logstore.api.records import FetchRequest

    served.allow(READ_T)
    end = alice.backend.list_offsets([PLACE], "latest", "read_uncommitted")[PLACE].offset
    found: list[object] = []

    def wait() -> None:
        try:
            found.append(
                alice.backend.fetch(
                    [FetchRequest("t", 0, end, -1, 1 << 20)],
                    isolation="read_uncommitted",
                    min_bytes=1,
                    max_bytes=1 << 20,
                    max_wait_s=120,
                )
            )
        except AccessDeniedError as error:
            found.append(error)

    with Beside(wait):
        until(lambda: waits_for_records(served))
        served.forbid(READ_T)
        with served.client("admin") as admin:
            produce(admin)
    assert isinstance(found[0], AccessDeniedError)


def waits_for_records(served: Secured) -> bool:
    return bool(served.broker._waits._under_way)


def until(met: Callable[[], bool], within_s: float = 60.0) -> None:
    import time

    deadline_s = time.monotonic() + within_s
    while not met():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def test_what_others_opened_is_unknown(served: Secured, alice: RemoteStore) -> None:
    from rpc.errors import UnknownLeaseError, UnknownOperationError
    from rpc.pb import records_pb2, transactions_pb2
    from tests.rpc.security.secured import refused_as

    served.allow(rule("alice", "all", TOPIC, "*"), rule("*", "all", TRANSACTION, "*"))
    lease = alice.backend.init_transactions("x", 60_000)
    work = alice.backend.start_compaction("keyed", None, roll=False)
    shown = (("authorization", f"Bearer {served.token_of('mallory')}"),)
    with served.channel() as channel:
        begin = transactions_pb2.BeginTransactionRequest(lease_id=lease._lease_id)  # type: ignore[attr-defined]
        assert (
            refused_as(channel, "TransactionService/BeginTransaction", begin, shown)
            == UnknownLeaseError.__name__
        )
        cancel = records_pb2.CancelOperationRequest(operation_id=work._operation_id)  # type: ignore[attr-defined]
        found = refused_as(channel, "RecordService/CancelOperation", cancel, shown)
        assert found == UnknownOperationError.__name__
    lease.release()


# --- administration ---


def test_rules_changed_through_the_broker_count_at_once(served: Secured, alice: RemoteStore) -> None:
    with served.client("admin") as admin:
        for _ in range(5):
            assert admin.security.alter_rules([WRITE_T], []) == (1, 0)
            produce(alice)
            assert admin.security.list_rules() == [WRITE_T]
            assert admin.security.alter_rules([], [WRITE_T]) == (0, 1)
            assert is_refused(alice, produce)


def test_users_made_through_the_broker(served: Secured) -> None:
    text, token = make_token(0)
    with served.client("admin") as admin:
        admin.security.add_token("dave", token)
        admin.security.set_password("dave", {"SCRAM-SHA-256": make_verifier("word", "SCRAM-SHA-256", 4096)})
        (dave,) = [one for one in admin.security.list_users() if one.name == "dave"]
        assert (dave.mechanisms, [one.token_id for one in dave.tokens]) == (
            ("SCRAM-SHA-256",),
            [token.token_id],
        )
        served.allow(rule("dave", "describe", TOPIC, "t"))
        with served.connect(tls_ca=served.authority.file, token=text) as by_token:
            assert by_token.list_topics() == ["t"]
        with served.by_password("dave", "word") as by_password:
            assert by_password.list_topics() == ["t"]
        admin.security.revoke_token(token.token_id)
        admin.security.remove_user("dave")
        assert "dave" not in [one.name for one in admin.security.list_users()]


def test_without_access_control_nothing_is_planted_through_the_broker(tmp_path: Path) -> None:
    with Served(tmp_path / "store") as plain, plain.connect() as client:
        for act in (
            client.security.list_rules,
            client.security.list_users,
            lambda: client.security.alter_rules([WRITE_T], []),
            lambda: client.security.add_token("mallory", make_token(0)[1]),
            lambda: client.security.remove_user("x"),
        ):
            with pytest.raises(SecurityDisabledError):
                act()
    assert not (tmp_path / "store" / ".security").exists()


def test_a_broker_does_not_start_with_a_damaged_file(
    tmp_path: Path, pair: Pair, authority: Authority
) -> None:
    from rpc.errors import DamagedSecurityError

    with Secured(tmp_path / "store", pair, authority) as served:
        served.allow(WRITE_T)
    (tmp_path / "store" / ".security" / "rules.json").write_text("{}")
    with pytest.raises(DamagedSecurityError, match=r"rules\.json"):
        Secured(tmp_path / "store", pair, authority)
