"""A Hypothesis state machine: positions against a model of plain lists, over both backends."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

import logstore
from logstore.api.backend import Backend
from logstore.client.consumer.consumer import Consumer
from logstore.client.producer.producer import Producer
from logstore.types import TopicPartition
from tests.client.fake_backend import FakeBackend

PARTITIONS = 3
partitions = st.integers(0, PARTITIONS - 1)


class ConsumerMachine(RuleBasedStateMachine):
    """``log``: what each partition holds; ``position``, ``committed``, ``paused``: as they must be."""

    def __init__(self) -> None:
        super().__init__()
        self.log: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
        self.position = [0] * PARTITIONS
        self.committed: list[int | None] = [None] * PARTITIONS
        self.paused: set[int] = set()
        self.backend = self.make_backend()
        self.producer: Producer[bytes, bytes] = Producer(self.backend, batch_bytes=150)
        self.consumer: Consumer[Any, Any] = self.join()

    def make_backend(self) -> Backend:
        backend = FakeBackend()
        backend.create_topic("t", PARTITIONS, {})
        return backend

    def join(self) -> Consumer[Any, Any]:
        return Consumer(self.backend, "t", group="g", max_partition_fetch_bytes=400)

    @initialize(counts=st.lists(st.integers(0, 12), min_size=PARTITIONS, max_size=PARTITIONS))
    def fill(self, counts: list[int]) -> None:
        for partition, count in enumerate(counts):
            self.append(partition, count)

    @rule(partition=partitions, count=st.integers(1, 9))
    def append(self, partition: int, count: int) -> None:
        log = self.log[partition]
        new = [b"%d-%d" % (partition, offset) for offset in range(len(log), len(log) + count)]
        self.producer.send_many("t", [(None, value) for value in new], partition=partition)
        self.producer.flush(60)
        log += new

    @rule(most=st.integers(1, 30))
    def poll(self, most: int) -> None:
        records = self.consumer.poll(most, timeout_s=0)
        assert len(records) <= most
        self.check(records)
        waiting = sum(
            len(self.log[partition]) - self.position[partition]
            for partition in range(PARTITIONS)
            if partition not in self.paused
        )
        assert records or not waiting, "poll(0) fetches what is there"

    def check(self, records: list[Any]) -> None:
        for record in records:
            assert record.partition not in self.paused
            assert record.offset == self.position[record.partition]
            assert record.value == self.log[record.partition][record.offset]
            self.position[record.partition] += 1

    @rule(most=st.integers(1, 6), commit=st.booleans())
    def iterate(self, most: int, commit: bool) -> None:
        left = sum(
            len(self.log[partition]) - self.position[partition]
            for partition in range(PARTITIONS)
            if partition not in self.paused
        )
        most = min(most, left)  # the loop would wait for more
        if not most:
            return
        for record in self.consumer:
            self.check([record])
            most -= 1
            if commit:
                self.commit()
            if not most:
                break

    @rule(partition=partitions, share=st.floats(0, 1))
    def seek(self, partition: int, share: float) -> None:
        offset = int(share * len(self.log[partition]))
        self.consumer.seek("t", partition, offset)
        self.position[partition] = offset

    @rule(partition=partitions)
    def pause(self, partition: int) -> None:
        self.consumer.pause([("t", partition)])
        self.paused.add(partition)

    @rule(partition=partitions)
    def resume(self, partition: int) -> None:
        self.consumer.resume([("t", partition)])
        self.paused.discard(partition)

    @rule()
    def commit(self) -> None:
        self.consumer.commit()
        self.committed = list(self.position)

    @rule()
    def reopen(self) -> None:
        self.consumer.close()
        self.consumer = self.join()
        self.position = [offset or 0 for offset in self.committed]
        self.paused = set()

    @invariant()
    def positions_agree(self) -> None:
        for partition in range(PARTITIONS):
            assert self.consumer.position("t", partition) == self.position[partition]
            committed = self.consumer.committed("t", partition)
            assert (None if committed is None else committed.offset) == self.committed[partition]
        lag = self.consumer.lag()
        for partition in range(PARTITIONS):
            expected = len(self.log[partition]) - self.position[partition]
            assert lag[TopicPartition("t", partition)] == expected

    def teardown(self) -> None:
        self.consumer.close()
        self.producer.close()


class EmbeddedConsumerMachine(ConsumerMachine):
    def make_backend(self) -> Backend:
        self.store = logstore.open(":memory:")
        self.store.create_topic("t", partitions=PARTITIONS)
        return self.store.backend

    def teardown(self) -> None:
        super().teardown()
        self.store.close()


TestConsumerMachine = ConsumerMachine.TestCase
TestConsumerMachine.settings = settings(
    derandomize=True, deadline=None, max_examples=60, stateful_step_count=40
)
TestEmbeddedConsumerMachine = EmbeddedConsumerMachine.TestCase
TestEmbeddedConsumerMachine.settings = settings(
    derandomize=True, deadline=None, max_examples=15, stateful_step_count=30
)
