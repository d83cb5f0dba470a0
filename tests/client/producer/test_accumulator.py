"""The accumulator step by step: no thread, no clock, the time is a number."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import pytest

from logstore.api.records import ProduceResult
from logstore.api.topics import TopicMetadata
from logstore.client.producer.accumulator import (
    FLIGHT_BYTES,
    FLIGHT_GRACE_S,
    Accumulator,
    PartitionQueue,
)
from logstore.client.producer.pending import PendingBatch
from logstore.client.producer.route import TopicRoute
from logstore.client.producer.settings import ProducerSettings
from logstore.errors import (
    DeliveryTimeoutError,
    DiskFullError,
    InvalidTimestampError,
    InvariantError,
    OutcomeUnknownError,
    PartitionPoisonedError,
)
from logstore.format.rows import alone_bytes, row_bytes


def route_of(partitions: int, max_message_bytes: int = 1 << 20) -> TopicRoute:
    metadata = TopicMetadata(
        name="t",
        topic_id="id",
        partitions=partitions,
        partitioner="murmur3",
        compression="producer",
        max_message_bytes=max_message_bytes,
    )
    route = TopicRoute(metadata, 1, None, 0)
    route.set_queues([PartitionQueue(route, partition) for partition in range(partitions)], 0)
    return route


def made(**settings: Any) -> Accumulator:
    return Accumulator(ProducerSettings(**settings))


def put(
    accumulator: Accumulator, queue: PartitionQueue, value: bytes, now_s: float = 0.0
) -> tuple[PendingBatch, int] | None:
    row = (None, value)
    return accumulator.append(
        queue, row, row_bytes(None, value, None), alone_bytes(None, value, None), False, now_s
    )


def good(batches: Any, base: int = 0) -> list[ProduceResult]:
    """The results of a flight that went well."""
    ends = accumulate((batch.count for batch in batches), initial=base)
    return [ProduceResult(start) for start, _ in zip(ends, batches, strict=False)]


def values(batches: Any) -> list[bytes]:
    return [row[1] for batch in batches for row in batch.rows]


def test_a_batch_lingers_then_flies_and_frees_the_buffer() -> None:
    accumulator, route = made(linger_s=1.0), route_of(1)
    queue = route.queues[0]
    for value in (b"a", b"b", b"c"):
        assert put(accumulator, queue, value, 10.0) is not None
    assert accumulator.take_ready(10.9) == []
    assert accumulator.next_event_s(10.9) == 11.0
    taken = accumulator.take_ready(11.0)
    assert values(taken) == [b"a", b"b", b"c"]
    assert accumulator.take_ready(99.0) == []
    done = accumulator.land(queue, good(taken, 7), 11.1)
    assert done == taken
    assert (taken[0].base_offset, taken[0].done, taken[0].rows) == (7, True, [])
    assert accumulator.buffer.held_bytes == 0
    assert not accumulator.active


@pytest.mark.parametrize("error", [None, PartitionPoisonedError("no")], ids=["in", "failed"])
def test_an_outcome_that_can_be_seen_holds_nothing_of_the_buffer(
    error: PartitionPoisonedError | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever sees it, without the lock, may drop the producer at once: nothing is reported as held."""
    accumulator, route = made(), route_of(1)
    held: list[int] = []
    outcome = "resolve" if error is None else "fail"
    finish = getattr(PendingBatch, outcome)

    def seen(batch: PendingBatch, *told: object) -> None:
        held.append(accumulator.buffer.held_bytes)
        finish(batch, *told)

    monkeypatch.setattr(PendingBatch, outcome, seen)
    queue = route.queues[0]
    put(accumulator, queue, b"a")
    flight = accumulator.take_ready(1.0)
    accumulator.land(queue, [ProduceResult(0 if error is None else -1, error=error)] * len(flight), 1.0)
    assert held == [0]


def test_a_full_batch_does_not_linger_and_the_next_begins() -> None:
    accumulator, route = made(batch_bytes=300, linger_s=100.0), route_of(1)
    queue = route.queues[0]
    for number in range(4):
        put(accumulator, queue, b"%d" % number * 80)
    assert [batch.count for batch in queue.closed] == [2]
    taken = accumulator.take_ready(0.0)
    assert values(taken) == [b"0" * 80, b"1" * 80]
    assert all(batch.size <= 300 for batch in taken)
    assert queue.open is not None


def test_a_record_larger_than_a_batch_goes_alone() -> None:
    accumulator, route = made(batch_bytes=300, linger_s=100.0), route_of(1)
    queue = route.queues[0]
    for value in (b"a", b"B" * 5000, b"c"):
        put(accumulator, queue, value)
    taken = accumulator.take_ready(1.0)
    assert [batch.count for batch in taken] == [1, 1]
    assert queue.open is not None
    assert values([queue.open]) == [b"c"]


def test_only_one_flight_at_a_time_and_order_is_kept() -> None:
    accumulator, route = made(linger_s=0.0), route_of(1)
    queue = route.queues[0]
    put(accumulator, queue, b"first")
    taken = accumulator.take_ready(0.0)
    put(accumulator, queue, b"second")
    assert accumulator.take_ready(5.0) == []
    with pytest.raises(InvariantError):
        accumulator.take(queue, 0.0)
    accumulator.land(queue, good(taken), 5.0)
    assert values(accumulator.take_ready(5.0)) == [b"second"]


def test_a_retriable_error_backs_off_and_keeps_the_order() -> None:
    accumulator, route = made(linger_s=0.0, batch_bytes=300), route_of(1)
    queue = route.queues[0]
    for number in range(6):
        put(accumulator, queue, b"%d" % number * 80)
    first = accumulator.take_ready(0.0)
    assert len(first) == 3
    full = DiskFullError("no space")
    done = accumulator.land(queue, [ProduceResult(-1, error=full)] * 3, 0.0)
    assert done == []
    assert accumulator.take_ready(0.01) == []
    retried = accumulator.take_ready(0.02)
    assert values(retried) == [b"0" * 80, b"1" * 80]  # alone, so that it cannot overtake itself
    accumulator.land(queue, good(retried), 0.02)
    rest = accumulator.take_ready(0.03)
    assert values(rest) == [b"2" * 80, b"3" * 80, b"4" * 80, b"5" * 80]
    assert accumulator.counters.retries == 1


def test_back_off_doubles_up_to_a_bound() -> None:
    accumulator, route = made(linger_s=0.0), route_of(1)
    queue = route.queues[0]
    put(accumulator, queue, b"v")
    now_s, waits = 0.0, []
    for _ in range(9):
        accumulator.take_ready(now_s)
        accumulator.land(queue, [ProduceResult(-1, error=DiskFullError("full"))], now_s)
        waits.append(round(queue.retry_at_s - now_s, 6))
        now_s = queue.retry_at_s
    assert waits == [0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.0, 1.0, 1.0]


def test_behind_a_failed_batch_nothing_is_lost_or_sent_twice() -> None:
    accumulator, route = made(linger_s=0.0, batch_bytes=300), route_of(1)
    queue = route.queues[0]
    for number in range(8):
        put(accumulator, queue, b"%d" % number * 80)
    accumulator.draining = True
    taken = accumulator.take_ready(0.0)
    assert len(taken) == 4
    poisoned = PartitionPoisonedError("earlier failure")
    results = [
        ProduceResult(-1, error=poisoned),
        ProduceResult(-1, error=OutcomeUnknownError("sync failed")),  # may be in
        ProduceResult(40),  # in all the same
        ProduceResult(-1, error=poisoned),  # not tried
    ]
    done = accumulator.land(queue, results, 0.0)
    assert done == taken[:3]
    assert isinstance(taken[0].error, PartitionPoisonedError)
    assert isinstance(taken[1].error, OutcomeUnknownError)
    assert taken[2].base_offset == 40
    assert not taken[3].done
    assert accumulator.take_ready(0.0) == [taken[3]]
    assert accumulator.take_unreported() == [taken[0], taken[1]]
    assert accumulator.take_unreported() == []


def test_a_batch_refused_for_one_record_is_cut_until_only_that_one_fails() -> None:
    accumulator, route = made(linger_s=0.0), route_of(1)
    queue = route.queues[0]
    placed = [put(accumulator, queue, b"%d" % number) for number in range(7)]
    landed: list[bytes] = []
    for now_s in range(100):
        for batch in accumulator.take_ready(float(now_s)):
            sent = values([batch])
            if b"4" in sent:
                result = ProduceResult(-1, error=InvalidTimestampError("too far in the future"))
            else:
                result = ProduceResult(len(landed))
                landed += sent
            accumulator.land(queue, [result], float(now_s))
    assert landed == [b"0", b"1", b"2", b"3", b"5", b"6"]
    leaves = [spot[0].locate(spot[1]) for spot in placed if spot is not None]
    assert [leaf.error is not None for leaf, _ in leaves] == [False] * 4 + [True] + [False] * 2
    offsets = [leaf.base_offset + index for leaf, index in leaves if leaf.error is None]
    assert offsets == [0, 1, 2, 3, 4, 5]
    assert accumulator.buffer.held_bytes == 0


def test_what_is_late_fails_and_frees_the_buffer() -> None:
    accumulator, route = made(linger_s=0.0, delivery_timeout_s=10.0, batch_bytes=300), route_of(2)
    for number in range(3):
        put(accumulator, route.queues[0], b"%d" % number * 80, 0.0)
    put(accumulator, route.queues[1], b"young", 5.0)
    assert accumulator.expire(9.9) == []
    late = accumulator.expire(10.0)
    assert [batch.count for batch in late] == [2, 1]
    assert all(isinstance(batch.error, DeliveryTimeoutError) for batch in late)
    assert "delivery_timeout_ms=10000" in str(late[0].error)
    assert list(accumulator.active) == [route.queues[1]]
    assert accumulator.counters.failed_records == 3


def test_a_flight_that_does_not_return_is_given_up_and_its_answer_ignored() -> None:
    accumulator, route = made(linger_s=0.0, delivery_timeout_s=10.0), route_of(1)
    queue = route.queues[0]
    put(accumulator, queue, b"v", 0.0)
    taken = accumulator.take_ready(0.0)
    assert accumulator.expire(10.0) == []
    assert accumulator.next_event_s(10.0) == 10.0 + FLIGHT_GRACE_S
    assert accumulator.expire(10.0 + FLIGHT_GRACE_S) == taken
    assert "may be in or not" in str(taken[0].error)
    put(accumulator, queue, b"behind", 11.0)
    assert accumulator.take_ready(12.0) == []  # the flight is still out: nothing may overtake it
    assert accumulator.land(queue, good(taken), 13.0) == []
    assert isinstance(taken[0].error, DeliveryTimeoutError)
    assert values(accumulator.take_ready(13.0)) == [b"behind"]


def test_the_buffer_is_bounded_and_never_overdrawn() -> None:
    accumulator, route = made(buffer_bytes=10_000, batch_bytes=5_000, linger_s=100.0), route_of(8)
    count = 0
    while put(accumulator, route.queues[count % 8], b"v" * 100) is not None:
        count += 1
        assert accumulator.buffer.held_bytes <= 10_000
    assert count > 40  # small open batches hold what they need, not what they might
    taken = []
    accumulator.draining = True
    for queue in route.queues:
        taken = list(accumulator.take(queue, 0.0))
        accumulator.land(queue, good(taken), 0.0)
    assert accumulator.buffer.held_bytes == 0


def test_who_waits_for_room_is_let_go_when_bytes_come_back() -> None:
    accumulator, route = made(linger_s=100.0), route_of(1)
    queue = route.queues[0]
    put(accumulator, queue, b"v")
    left, waiting = accumulator.buffer.join_queue(), accumulator.buffer.join_queue()
    accumulator.buffer.leave_queue(left)
    taken = accumulator.take_ready(0.0)  # nothing lingers while somebody waits
    assert values(taken) == [b"v"]
    accumulator.land(queue, good(taken), 0.0)
    assert waiting.acquire(blocking=False)
    assert not left.acquire(blocking=False)
    assert not accumulator.buffer.is_waited_for


def test_what_was_ready_for_a_waiter_for_room_flies_though_the_first_batch_lets_it_go() -> None:
    """Closing an open batch gives back what it had reserved; the others were found ready before that."""
    accumulator, route = made(linger_s=60.0, buffer_bytes=1 << 20), route_of(3)
    for queue in route.queues:
        assert put(accumulator, queue, b"x") is not None
    accumulator.buffer.join_queue()
    taken = accumulator.take_ready(0.0)
    assert not accumulator.buffer.is_waited_for
    assert [batch.queue for batch in taken] == list(route.queues)


def test_the_quick_path_has_no_room_in_batches_with_timestamps_or_closed() -> None:
    accumulator, route = made(), route_of(2)
    timed, plain = route.queues
    accumulator.append(timed, (None, b"v", None, 5), 1, 70, True, 0.0)
    put(accumulator, plain, b"v")
    assert timed.open is not None
    assert timed.open.room == -1
    assert plain.open is not None
    assert plain.open.room == 65536
    accumulator.close_open(plain)
    assert plain.closed[0].room == -1


def test_a_flight_takes_a_backlog_up_to_its_bound() -> None:
    accumulator, route = made(), route_of(1)
    queue = route.queues[0]
    while not queue.closed or sum(batch.size for batch in queue.closed) < FLIGHT_BYTES + 200_000:
        put(accumulator, queue, b"v" * 30_000)
    taken = accumulator.take_ready(0.0)
    assert FLIGHT_BYTES - 70_000 < sum(batch.size for batch in taken) <= FLIGHT_BYTES
    assert queue.closed


def test_null_keys_move_on_when_a_batch_is_full_or_landed() -> None:
    accumulator, route = made(batch_bytes=300, linger_s=0.0), route_of(3)
    went = []
    for _ in range(7):
        queue = accumulator.sticky_queue(route, 80, False)
        put(accumulator, queue, b"v" * 80)
        went.append(queue.partition)
    assert went == [0, 0, 1, 1, 2, 2, 0]
    queue = route.sticky
    accumulator.land(queue, good(accumulator.take(queue, 1.0)), 1.0)
    assert route.sticky.partition == 1


def test_null_keys_stay_where_others_wait() -> None:
    accumulator, route = made(linger_s=0.0), route_of(3)
    put(accumulator, route.sticky, b"first")
    taken = accumulator.take_ready(0.0)
    put(accumulator, route.sticky, b"waits behind the flight")
    accumulator.land(taken[0].queue, good(taken), 0.0)
    assert route.sticky.partition == 0
    taken = accumulator.take_ready(0.0)
    accumulator.land(taken[0].queue, good(taken), 0.0)
    assert route.sticky.partition == 1
