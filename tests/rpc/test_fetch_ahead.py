"""Fetching ahead: the same records in the same order as without, whatever a consumer does meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import grpc
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from logstore.api.cancellation import CancelHandle
from logstore.api.records import FetchRequest, FetchResult, ProduceItem
from logstore.client.consumer.consumer import Consumer
from logstore.errors import OffsetOutOfRangeError
from logstore.format.batch import encode_batch
from logstore.types import TopicPartition
from rpc.client.routing.fetch_ahead import FetchSettings, RemoteFetchAhead
from rpc.errors import BrokerUnavailableError
from rpc.wire.records import fetch_response
from tests.client.fake_backend import FakeBackend

PARTITIONS = 3


class FakeCall:
    """An answer on its way, of what ``look`` finds, now if ``wait_s`` is 0; ``fails``: it never comes."""

    def __init__(self, look: Callable[[], list[FetchResult]], wait_s: float, *, fails: bool) -> None:
        self._look = look
        self._waits = wait_s > 0
        self._fails = fails
        self._answer = None if self._waits else look()
        self.cancelled = False

    def done(self) -> bool:
        if self._answer is None:
            found = self._look()
            if any(len(result.batches) or result.error is not None for result in found):
                self._answer = found
        return self.cancelled or self._fails or self._answer is not None

    def result(self, timeout_s: float | None) -> bytes:
        if self.cancelled:
            raise grpc.FutureCancelledError
        if self._fails:
            raise grpc.RpcError("the connection broke")
        if not self.done():
            assert timeout_s is not None, "it would wait for ever"
            raise grpc.FutureTimeoutError
        return fetch_response(self._answer or [], 0)

    def cancel(self) -> None:
        self.cancelled = True


class AheadBackend(FakeBackend):
    """``failing``: what becomes of the next calls ahead: none, refused at once, or never answered."""

    def __init__(self) -> None:
        super().__init__()
        self.failing: list[str] = []
        self.calls_ahead: list[tuple[Sequence[FetchRequest], FakeCall]] = []
        self.now_s = 0.0

    def produce_limit(self) -> int:
        return 1 << 20

    def produce_pipeline(self) -> None:
        return

    def begin_fetch(
        self, requests: Sequence[FetchRequest], asked: FetchSettings, max_wait_s: float
    ) -> FakeCall:
        failing = self.failing.pop() if self.failing else ""
        if failing == "refused":
            raise BrokerUnavailableError("away")
        isolation, min_bytes, max_bytes = asked

        def look() -> list[FetchResult]:
            return self.fetch(
                requests, isolation=isolation, min_bytes=min_bytes, max_bytes=max_bytes, max_wait_s=0
            )

        self.calls_ahead.append((requests, FakeCall(look, max_wait_s, fails=failing == "lost")))
        return self.calls_ahead[-1][1]

    def fetch_ahead(self) -> RemoteFetchAhead:
        return RemoteFetchAhead(self, self.metadata_version, lambda: self.now_s)

    def add(self, partition: int, count: int) -> None:
        """Records that say their offsets, one a batch."""
        end = self.end_offset(TopicPartition("t", partition))
        for offset in range(end, end + count):
            batch = encode_batch([(None, b"%d" % offset + b"v" * 50)], now_ms=0)
            self.produce([ProduceItem("t", partition, batch)], 1, 1.0)


def offset_in(value: bytes | None) -> int:
    return int((value or b"").partition(b"v")[0])


@pytest.fixture
def backend() -> AheadBackend:
    made = AheadBackend()
    made.create_topic("t", PARTITIONS, {})
    return made


def reading(backend: AheadBackend, **given: Any) -> Consumer[bytes, bytes]:
    return Consumer(backend, "t", max_partition_fetch_bytes=300, **given)


def ask(
    ahead: RemoteFetchAhead, *requests: FetchRequest, cancel: CancelHandle | None = None, wait_s: float = 0
) -> list[Any]:
    return ahead.fetch(
        requests, isolation="read_uncommitted", min_bytes=1, max_bytes=1000, max_wait_s=wait_s, cancel=cancel
    )


def request(partition: int, offset: int, epoch: int = 0) -> FetchRequest:
    return FetchRequest("t", partition, offset, epoch, 300)


def test_what_comes_next_is_on_its_way_while_the_last_is_worked_through(backend: AheadBackend) -> None:
    backend.add(0, 6)
    ahead = backend.fetch_ahead()
    (first,) = ask(ahead, request(0, 0))
    assert [one.offset for one in backend.calls_ahead[0][0]] == [first.next_offset]
    before = backend.fetches
    (second,) = ask(ahead, request(0, first.next_offset))
    assert second.next_offset > first.next_offset
    assert backend.fetches == before + 1, "the next one ahead, and no call for this"


def test_nothing_is_asked_ahead_at_the_end_of_the_log(backend: AheadBackend) -> None:
    backend.add(0, 1)
    ahead = backend.fetch_ahead()
    ask(ahead, request(0, 0))
    assert not backend.calls_ahead


def test_an_answer_for_another_position_is_dropped(backend: AheadBackend) -> None:
    backend.add(0, 9)
    ahead = backend.fetch_ahead()
    (first,) = ask(ahead, request(0, 0))
    (other,) = ask(ahead, request(0, 5))
    assert other.next_offset > 5
    assert not isinstance(other, type(None))
    (again,) = ask(ahead, request(0, first.next_offset, epoch=-1))
    assert again.next_offset > first.next_offset


def test_partitions_that_are_left_out_are_asked_ahead_with_the_others(backend: AheadBackend) -> None:
    backend.add(0, 9)
    ahead = backend.fetch_ahead()
    first, nothing = ask(ahead, request(0, 0), request(1, 0, -1))
    assert not len(nothing.batches)
    backend.add(1, 1)
    second, not_yet = ask(ahead, request(0, first.next_offset), request(1, 0, -1))
    assert not len(not_yet.batches)
    third, found = ask(ahead, request(0, second.next_offset), request(1, 0, -1))
    assert len(third.batches)
    assert len(found.batches)


def test_a_wait_that_is_over_goes_on_for_the_next_one(backend: AheadBackend) -> None:
    ahead = backend.fetch_ahead()
    for _ in range(5):
        assert ask(ahead, request(0, 0, -1), request(1, 0, -1), wait_s=0.5) == [None, None]
    assert len(backend.calls_ahead) == 1, "one call for all of them"
    backend.add(0, 1)
    found, nothing = ask(ahead, request(0, 0, -1), request(1, 0, -1), wait_s=0.5)
    assert found.next_offset == 1
    assert not len(nothing.batches)
    assert len(backend.calls_ahead) == 1


def test_a_wait_for_others_or_elsewhere_is_begun_anew(backend: AheadBackend) -> None:
    ahead = backend.fetch_ahead()
    ask(ahead, request(0, 0, -1), request(1, 0, -1), wait_s=0.5)
    assert ask(ahead, request(1, 0, -1), wait_s=0.5) == [None]
    assert not backend.calls_ahead[0][1].cancelled, "it waits for the one that is left, too"
    backend.add(2, 1)
    _, found = ask(ahead, request(1, 0, -1), request(2, 0, -1), wait_s=0.5)
    assert found.next_offset == 1
    assert backend.calls_ahead[0][1].cancelled


def test_who_does_not_wait_is_told_what_is_there_now(backend: AheadBackend) -> None:
    ahead = backend.fetch_ahead()
    ask(ahead, request(0, 0, -1), wait_s=0.5)
    before = backend.fetches
    (now,) = ask(ahead, request(0, 0, -1))
    assert not len(now.batches)
    assert backend.fetches > before
    assert not backend.calls_ahead[0][1].cancelled


def test_an_error_of_a_partition_that_was_waited_for_is_told(backend: AheadBackend) -> None:
    backend.fetch_faults[TopicPartition("t", 0)].extend([OffsetOutOfRangeError("gone")] * 3)
    (found,) = ask(backend.fetch_ahead(), request(0, 0, -1), wait_s=0.5)
    assert isinstance(found.error, OffsetOutOfRangeError)


@pytest.mark.parametrize("failing", ["refused", "lost"])
def test_a_failed_call_ahead_is_asked_again_as_if_it_had_not_been(
    backend: AheadBackend, failing: str
) -> None:
    backend.add(0, 9)
    backend.failing = [failing]
    ahead = backend.fetch_ahead()
    (first,) = ask(ahead, request(0, 0))
    (second,) = ask(ahead, request(0, first.next_offset))
    assert second.next_offset > first.next_offset


def test_a_wait_is_cancelled_with_its_call(backend: AheadBackend) -> None:
    backend.add(0, 9)
    ahead = backend.fetch_ahead()
    (first,) = ask(ahead, request(0, 0))
    handle = CancelHandle()
    handle.cancel()
    ask(ahead, request(0, first.next_offset), cancel=handle)
    assert backend.calls_ahead[0][1].cancelled


def test_a_topic_made_anew_and_time_end_what_was_fetched_ahead(backend: AheadBackend) -> None:
    backend.add(0, 9)
    ahead = backend.fetch_ahead()
    (first,) = ask(ahead, request(0, 0))
    backend.version += 1
    ask(ahead, request(0, first.next_offset))
    assert backend.calls_ahead[0][1].cancelled
    backend.now_s += 31
    ask(ahead, request(1, 0))
    assert backend.calls_ahead[1][1].cancelled
    assert ahead._asked is None


def test_what_is_held_ahead_is_bounded(backend: AheadBackend) -> None:
    for partition in range(PARTITIONS):
        backend.add(partition, 50)
    ahead = backend.fetch_ahead()
    results = ask(ahead, *(request(partition, 0, -1) for partition in range(PARTITIONS)))
    for number in range(20):  # one partition is read on, the others have theirs at hand
        results[0], *_ = ask(ahead, request(0, results[0].next_offset))
        held = sum(len(one.result.batches) for one in ahead._held.values())
        assert held <= 1000, number


def test_a_closed_consumer_leaves_no_call_behind(backend: AheadBackend) -> None:
    backend.add(0, 50)
    with reading(backend) as consumer:
        assert consumer.poll(2)
    assert backend.calls_ahead[-1][1].cancelled


class AheadMachine(RuleBasedStateMachine):
    """Records, seeks, pauses, failures and time against a list of positions: nothing is left out or comes twice."""

    @initialize()
    def begin(self) -> None:
        self.backend = AheadBackend()
        self.backend.create_topic("t", PARTITIONS, {})
        self.consumer = reading(self.backend)
        self.positions = [0] * PARTITIONS
        self.paused: set[int] = set()

    @rule(partition=st.integers(0, PARTITIONS - 1), count=st.integers(1, 30))
    def add(self, partition: int, count: int) -> None:
        self.backend.add(partition, count)

    @rule(count=st.integers(1, 20), timeout_s=st.sampled_from([0, 0.001]))
    def poll(self, count: int, timeout_s: float) -> None:
        for record in self.consumer.poll(count, timeout_s):
            assert record.partition not in self.paused
            assert record.offset == self.positions[record.partition] == offset_in(record.value)
            self.positions[record.partition] += 1

    @rule(partition=st.integers(0, PARTITIONS - 1), share=st.floats(0, 1))
    def seek(self, partition: int, share: float) -> None:
        to = int(self.backend.end_offset(TopicPartition("t", partition)) * share)
        self.consumer.seek("t", partition, to)
        self.positions[partition] = to

    @rule(partition=st.integers(0, PARTITIONS - 1))
    def pause(self, partition: int) -> None:
        self.consumer.pause([("t", partition)])
        self.paused.add(partition)

    @rule()
    def resume(self) -> None:
        self.consumer.resume([("t", partition) for partition in self.paused])
        self.paused.clear()

    @rule(failing=st.lists(st.sampled_from(["refused", "lost", ""]), max_size=3))
    def fail(self, failing: list[str]) -> None:
        self.backend.failing = failing

    @rule(seconds=st.sampled_from([0.01, 1, 40]))
    def wait(self, seconds: float) -> None:
        self.backend.now_s += seconds

    def teardown(self) -> None:
        if not hasattr(self, "consumer"):
            return
        self.resume()
        ends = [self.backend.end_offset(TopicPartition("t", number)) for number in range(PARTITIONS)]
        for _ in range(2000):
            if self.positions == ends:
                break
            self.poll(50, 0.001)
        assert self.positions == ends
        self.consumer.close()


TestAheadMachine = AheadMachine.TestCase
TestAheadMachine.settings = settings(derandomize=True, deadline=None, max_examples=60, stateful_step_count=40)
