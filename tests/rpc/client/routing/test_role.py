"""``Role``: follows what brokers say of who has it, remembers that, and tries others where a broker is away."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from logstore.errors import LogStoreError, UnknownTopicError
from replication.errors import LeaderNotReadyError, NotLeaderError
from rpc.client.channel.connection import Connection
from rpc.client.channel.settings import ConnectionSettings
from rpc.client.routing.role import Role
from rpc.errors import BrokerBusyError, BrokerTimeoutError, BrokerUnavailableError
from rpc.pb import groups_pb2 as pb

PATH = "GroupService/ListGroups"


class FakeConnection(Connection):
    """``answers``: an error, or None for an answer, of each call in turn; the last one goes on."""

    def __init__(self, node: int, asked: list[tuple[int, str]]) -> None:
        super().__init__(f"127.0.0.1:{node}", ConnectionSettings())
        self.node = node
        self.answers: list[LogStoreError | None] = [None]
        self._asked = asked

    def send(
        self, path: str, data: bytes, timeout_s: float, metadata: tuple[tuple[str, str], ...] = ()
    ) -> bytes:
        self._asked.append((self.node, metadata[-1][1]))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if answer is not None:
            raise answer
        return b""


class FakeBrokers:
    """Nodes 1 to 3; home is 1 at first."""

    only = None
    target = "tests"
    settings = ConnectionSettings(request_timeout_s=1.0)

    def __init__(self) -> None:
        self.asked: list[tuple[int, str]] = []
        self.nodes = {node: FakeConnection(node, self.asked) for node in (1, 2, 3)}
        self.at_home = 1

    def to(self, node: int) -> Connection:
        return self.nodes[node]

    def home(self) -> Connection:
        return self.nodes[self.at_home]

    def move_home(self, asked: Connection, *, away: bool = True) -> None:
        if asked is self.home():
            self.at_home = self.at_home % 3 + 1

    def until_s(self, timeout_s: float) -> float:
        return Connection("127.0.0.1:1", self.settings)._limits.until_s(timeout_s)


@pytest.fixture
def brokers() -> FakeBrokers:
    return FakeBrokers()


def role_of(brokers: FakeBrokers) -> Role:
    return Role(brokers)  # type: ignore[arg-type]


def ask(role: Role, *, again: bool = True) -> None:
    role.call(PATH, pb.ListGroupsRequest(), pb.ListGroupsResponse, again=again)


def nodes(brokers: FakeBrokers) -> list[int]:
    return [node for node, _ in brokers.asked]


def elsewhere(node: int) -> NotLeaderError:
    return NotLeaderError("not here", leader_id=node)


def test_a_redirection_is_followed_under_the_same_call_id_and_remembered(brokers: FakeBrokers) -> None:
    brokers.nodes[1].answers = [elsewhere(3)]
    role = role_of(brokers)
    ask(role)
    assert len({call_id for _, call_id in brokers.asked}) == 1
    ask(role)
    assert nodes(brokers) == [1, 3, 3]
    assert len({call_id for _, call_id in brokers.asked}) == 2


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (elsewhere(-1), [1, 2]),
        (BrokerUnavailableError("away"), [1, 2]),
        (BrokerTimeoutError("slow"), [1, 2]),
        (LeaderNotReadyError("soon"), [1, 1]),
        (BrokerBusyError("later"), [1, 1]),
    ],
)
def test_what_may_pass_is_tried_again(
    brokers: FakeBrokers, answer: LogStoreError, expected: list[int]
) -> None:
    brokers.nodes[1].answers = [answer, None]
    ask(role_of(brokers))
    assert nodes(brokers) == expected


def test_a_node_that_is_away_is_forgotten(brokers: FakeBrokers) -> None:
    brokers.nodes[1].answers = [elsewhere(3)]
    brokers.nodes[3].answers = [None, BrokerUnavailableError("away"), None]
    role = role_of(brokers)
    ask(role)
    ask(role)
    assert nodes(brokers) == [1, 3, 3, 1, 3]


@pytest.mark.parametrize(
    "make",
    [lambda: elsewhere(-1), lambda: elsewhere(1), lambda: LeaderNotReadyError("soon")],
)
def test_the_last_error_is_raised_when_the_time_is_over(
    brokers: FakeBrokers, make: Callable[[], LogStoreError]
) -> None:
    for connection in brokers.nodes.values():
        connection.answers = [make()]
    with pytest.raises(type(make())):
        ask(role_of(brokers))
    assert 3 < len(brokers.asked) < 30, "tries are spread over the time"


def test_a_call_that_may_have_acted_is_not_made_again_unless_it_may_be(brokers: FakeBrokers) -> None:
    brokers.nodes[1].answers = [BrokerUnavailableError("broke"), None]
    with pytest.raises(BrokerUnavailableError):
        ask(role_of(brokers), again=False)
    assert nodes(brokers) == [1]
    brokers.nodes[2].answers = [BrokerUnavailableError("refused", unreached=True), None]
    ask(role_of(brokers), again=False)
    assert nodes(brokers) == [1, 2, 3], "who redirects has not acted, nor who was not reached"


def test_another_error_is_the_callers(brokers: FakeBrokers) -> None:
    brokers.nodes[1].answers = [UnknownTopicError("t")]
    with pytest.raises(UnknownTopicError):
        ask(role_of(brokers))
    assert nodes(brokers) == [1]
