"""``RoutedPipeline`` and ``RoutedProduce`` over nodes that a test moves leaders between."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from logstore.api.records import ProduceItem, ProduceResult
from logstore.errors import LogStoreError, OutcomeUnknownError
from logstore.format.batch import encode_batch
from logstore.types import TopicPartition
from replication.errors import NotConfirmedError, NotEnoughReplicasError, NotLeaderError
from rpc.client.channel.settings import ConnectionSettings
from rpc.client.routing import routed_produce as module
from rpc.client.routing.brokers import NOBODY
from rpc.client.routing.routed_produce import RoutedPipeline, note_results, redirected, refused
from rpc.errors import BrokerBusyError, BrokerTimeoutError, BrokerUnavailableError


def item(partition: int, *, numbered: bool = True) -> ProduceItem:
    ids: dict[str, int] = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0} if numbered else {}
    return ProduceItem("t", partition, encode_batch([(None, b"v")], now_ms=0, **ids))


class FakeLeaders:
    """``led``: the node of each partition."""

    def __init__(self) -> None:
        self.led: dict[int, int] = {}
        self.noted: list[tuple[TopicPartition, int, LogStoreError]] = []
        self.refreshed = 0

    def of(self, topic: str, partition: int) -> int:
        return self.led.get(partition, 1)

    def split(self, items: Iterable[ProduceItem]) -> dict[int, list[int]]:
        parts: dict[int, list[int]] = {}
        for index, one in enumerate(items):
            parts.setdefault(self.of(one.topic, one.partition), []).append(index)
        return parts

    def connection(self, node: int) -> str:
        if node == NOBODY:
            raise NotLeaderError("nobody")
        return f"connection to {node}"

    def note(self, place: TopicPartition, node: int, error: LogStoreError) -> None:
        self.noted.append((place, node, error))

    def refresh(self) -> None:
        self.refreshed += 1

    def is_deposed(self, node: int, places: Iterable[TopicPartition]) -> bool:
        return all(self.of(*place) not in (node, NOBODY) for place in places)


class FakePipeline:
    """Of one node. ``answers``: what the next requests come to: an error of the request, or None."""

    made: dict[str, FakePipeline]
    window = 5

    def __init__(self, connection: str, given_up: Any) -> None:
        self.given_up = given_up
        self.sent: list[list[int]] = []
        self.answers: deque[LogStoreError | None] = deque()
        self.rested = False
        FakePipeline.made[connection[-1]] = self

    def begin(self, items: Sequence[ProduceItem], acks: Any, timeout_s: float) -> FakePending:
        self.sent.append([one.partition for one in items])
        return FakePending(self, len(items), len(self.sent))

    def rest(self) -> None:
        self.rested = True


class FakePending:
    def __init__(self, pipeline: FakePipeline, count: int, number: int) -> None:
        self._pipeline, self._count, self._number = pipeline, count, number

    def results(self) -> list[ProduceResult]:
        error = self._pipeline.answers.popleft() if self._pipeline.answers else None
        if error is not None:
            raise error
        return [ProduceResult(self._number)] * self._count


class FakeBrokers:
    settings = ConnectionSettings()


@pytest.fixture
def leaders(monkeypatch: pytest.MonkeyPatch) -> FakeLeaders:
    FakePipeline.made = {}
    monkeypatch.setattr(module, "RemotePipeline", FakePipeline)
    return FakeLeaders()


def pipeline_of(leaders: FakeLeaders) -> RoutedPipeline:
    return RoutedPipeline(FakeBrokers(), leaders)  # type: ignore[arg-type]


def test_a_request_is_split_by_leader_and_joined_in_order(leaders: FakeLeaders) -> None:
    leaders.led = {0: 1, 1: 2, 2: 1}
    pending = pipeline_of(leaders).begin([item(0), item(1), item(2)], "all", 10)
    assert FakePipeline.made["1"].sent == [[0, 2]]
    assert FakePipeline.made["2"].sent == [[1]]
    FakePipeline.made["2"].answers.append(BrokerUnavailableError("away"))
    first, second, third = pending.results()
    assert first == third == ProduceResult(1)
    assert isinstance(second.error, BrokerUnavailableError)
    assert second.doubtful
    assert leaders.refreshed == 1


def test_what_is_behind_goes_where_the_first_went_until_that_is_back(leaders: FakeLeaders) -> None:
    """With the new leader it would be in before what the old one refuses."""
    pipeline = pipeline_of(leaders)
    first = pipeline.begin([item(0)], 1, 10)
    leaders.led = {0: 2}
    second = pipeline.begin([item(0), item(1)], 1, 10)
    assert FakePipeline.made["1"].sent == [[0], [0, 1]]
    first.results()
    third = pipeline.begin([item(0)], 1, 10)
    assert FakePipeline.made["1"].sent == [[0], [0, 1], [0]], "the second is under way still"
    second.results()
    third.results()
    pipeline.begin([item(0)], 1, 10).results()
    assert FakePipeline.made["2"].sent == [[0]]


def test_what_nobody_leads_is_refused_and_so_is_what_is_behind_it(leaders: FakeLeaders) -> None:
    pipeline = pipeline_of(leaders)
    leaders.led = {0: NOBODY}
    first = pipeline.begin([item(0), item(1)], "all", 10)
    leaders.led = {0: 2}
    second = pipeline.begin([item(0)], "all", 10)
    refusal, done = first.results()
    assert isinstance(refusal.error, NotLeaderError)
    assert not refusal.doubtful
    assert done == ProduceResult(1)
    (behind,) = second.results()
    assert isinstance(behind.error, NotLeaderError)
    assert "2" not in FakePipeline.made


def test_a_node_that_leads_no_more_is_not_waited_for(leaders: FakeLeaders) -> None:
    pipeline = pipeline_of(leaders)
    pipeline.begin([item(0)], "all", 10)
    given_up = FakePipeline.made["1"].given_up
    assert not given_up(1)
    leaders.led = {0: 2}
    assert not given_up(1), "one that was deposed says so itself"
    assert given_up(1)
    leaders.led = {0: NOBODY}
    assert not given_up(1)


def test_a_node_that_answers_is_waited_for_however_often_leaders_move(leaders: FakeLeaders) -> None:
    pipeline = pipeline_of(leaders)
    pipeline.begin([item(0)], "all", 10)
    given_up = FakePipeline.made["1"].given_up
    leaders.led = {0: 2}
    assert not any(given_up(request) for request in range(1, 9))
    assert given_up(8)


NAMED, UNNAMED = NotLeaderError("moved", leader_id=2), NotLeaderError("moved")


@pytest.mark.parametrize(
    ("errors", "sent_on"),
    [
        ([None, None, None], []),
        ([NAMED, NAMED, NAMED], [0, 1, 2]),
        ([NAMED, None, NAMED], [0, 2]),
        ([UNNAMED, NAMED, NAMED], [1]),
        ([NAMED, NAMED, UNNAMED], [1]),
        ([NAMED, NAMED, BrokerTimeoutError("slow")], [1]),
    ],
)
def test_a_partition_is_sent_on_whole_or_stays(
    errors: list[LogStoreError | None], sent_on: list[int]
) -> None:
    """Partitions 0, 1, 0: what is behind a failed batch is not in before that one."""
    items = [item(0), item(1), item(0)]
    results = [ProduceResult(-1, error=error) for error in errors]
    assert redirected(items, range(3), results) == sent_on


def test_an_idle_pipeline_lets_go_of_all_nodes(leaders: FakeLeaders) -> None:
    leaders.led = {0: 1, 1: 2}
    pipeline = pipeline_of(leaders)
    pipeline.begin([item(0), item(1)], "all", 10).results()
    pipeline.rest()
    assert all(one.rested for one in FakePipeline.made.values())


@pytest.mark.parametrize(
    ("error", "doubtful"),
    [
        (NotLeaderError("deposed amid it"), True),
        (NotConfirmedError("no majority in time"), True),
        (NotEnoughReplicasError("nothing was appended"), False),
    ],
)
def test_what_a_leader_may_have_taken_is_doubtful(error: LogStoreError, doubtful: bool) -> None:
    results = [ProduceResult(-1, error=error), ProduceResult(7)]
    first, second = note_results(FakeLeaders(), 1, [item(0), item(1)], results)  # type: ignore[arg-type]
    assert (first.doubtful, second) == (doubtful, ProduceResult(7))


@pytest.mark.parametrize(
    ("error", "numbered", "kind", "doubtful"),
    [
        (BrokerTimeoutError("slow"), True, BrokerTimeoutError, True),
        (BrokerTimeoutError("slow"), False, OutcomeUnknownError, True),
        (BrokerUnavailableError("broke"), False, OutcomeUnknownError, True),
        (BrokerUnavailableError("refused", unreached=True), False, BrokerUnavailableError, False),
        (BrokerBusyError("later"), True, BrokerBusyError, False),
        (NotLeaderError("nobody"), False, NotLeaderError, False),
    ],
)
def test_a_call_that_failed_says_whether_the_batches_may_be_in(
    error: LogStoreError, numbered: bool, kind: type[LogStoreError], doubtful: bool
) -> None:
    (result,) = refused([item(0, numbered=numbered)], error)
    assert type(result.error) is kind
    assert result.doubtful == doubtful
