"""What clients of a cluster do, each in a process of its own (``bench.child_work``)."""

from __future__ import annotations

import time
from itertools import pairwise
from typing import Any

import logstore
from bench.harness import percentile

VALUE_BYTES = 1024
PERCENTILES = (10, 50, 90, 99, 99.9)
_STEP_S = 0.001
_LOOKED_AT_S = 2000


def produce(address: str, topic: str, count: int) -> float:
    """Records a second of one producer, acks=all, from its first record after it is connected to the last answer."""
    value = bytes(VALUE_BYTES)
    with logstore.connect(address) as client, client.producer(acks="all", linger_ms=5) as producer:
        partitions = client.backend.topics()[topic].partitions
        for partition in range(partitions):
            producer.send(topic, value, partition=partition)
        producer.flush()  # connected, and all partitions in use
        send = producer.send
        began = time.perf_counter()
        for _ in range(count):
            send(topic, value)
        producer.flush()
        return count / (time.perf_counter() - began)


def paced(address: str, topic: str, rate: float, seconds: float) -> dict[str, float]:
    """Records at a steady rate whatever the answers: seconds from the moment when a record was due to its answer, at
    ``PERCENTILES``, of one record in so many that 2,000 a second are looked at; the longest time between two answers;
    failures; and the rate that was reached."""
    value, clock = bytes(VALUE_BYTES), time.perf_counter
    each = max(1, int(rate / _LOOKED_AT_S))
    took: list[float] = []
    answers: list[float] = []
    failed: list[Any] = []
    with logstore.connect(address) as client, client.producer(acks="all", linger_ms=1) as producer:
        producer.send(topic, value).result(timeout_s=30)
        began, sent = clock(), 0
        while (passed := clock() - began) < seconds:
            for number in range(sent, int(passed * rate)):
                due = began + number / rate

                def done(delivery: Any, due: float = due) -> None:
                    if delivery.exception() is not None:
                        failed.append(delivery)
                        return
                    now = clock()
                    answers.append(now)
                    took.append(now - due)

                delivery = producer.send(topic, value)
                if number % each == 0:
                    delivery.add_callback(done)
                sent += 1
            time.sleep(_STEP_S)
        producer.flush()
        ended = clock()
    pauses = [after - before for before, after in pairwise(answers)]
    return {
        **{f"p{share:g}": percentile(took, share) for share in PERCENTILES},
        "pause": max(pauses, default=0.0),
        "failed": float(len(failed)),
        "rate": len(took) * each / (ended - began),
    }
