"""A member of a shared group in a process of its own:

    python -m tests.integration.group_jobs ROOT TOPIC GROUP SESSION_MS [INSTANCE]

It reads, says what it read, commits, and says what it has whenever that changes. On standard input: "hold" (stand
still between the next records and their commit, until "go"), and the end (close).
"""

from __future__ import annotations

import queue
import sys
import threading

from logstore.errors import LogStoreError
from logstore.store import LogStore
from logstore.types import Record, TopicPartition
from tests.workers import say


def _orders() -> queue.Queue[str]:
    orders: queue.Queue[str] = queue.Queue()

    def read() -> None:
        for line in sys.stdin:
            orders.put(line.strip())
        orders.put("end")

    threading.Thread(target=read, daemon=True).start()
    return orders


def _tell(records: list[Record]) -> None:
    spans: dict[int, list[int]] = {}
    for record in records:
        spans.setdefault(record.partition, [record.offset, record.offset])[1] = record.offset
    for partition, (first, last) in spans.items():
        say("read", partition, first, last)


def share(root: str, topic: str, group: str, session_ms: str, instance: str | None = None) -> None:
    orders = _orders()
    held = False

    def lost(places: list[TopicPartition]) -> None:
        say("lost", *sorted(where.partition for where in places))

    with (
        LogStore(root) as store,
        store.consumer(
            topic,
            group=group,
            instance_id=instance,
            session_timeout_ms=int(session_ms),
            heartbeat_interval_ms=int(session_ms) // 10,
            on_lost=lost,
        ) as consumer,
    ):
        shown: list[int] | None = None
        while True:
            order = "" if orders.empty() else orders.get()
            if order == "end":
                break
            held = held or order == "hold"
            records = consumer.poll(timeout_s=0.1)
            has = sorted(where.partition for where in consumer.assignment())
            if has != shown:
                say("has", *has)
                shown = has
            _tell(records)
            if records and held:
                say("holding")
                held = orders.get() != "go"
            try:
                consumer.commit()
            except LogStoreError as error:
                say("refused", type(error).__name__)
    say("closed")


if __name__ == "__main__":
    share(*sys.argv[1:])
