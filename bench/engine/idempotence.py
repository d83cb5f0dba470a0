"""What sequences cost a producer: the same calls with and without idempotence."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import logstore
from bench import ours
from bench.harness import Bench, Row, Run, Side, compared, latencies, rates
from bench.workload import Plain, chunks, unkeyed

QUESTION = "cost of idempotence"
THOUSAND = 1e-3
MICROSECONDS = 1e6
WITH, WITHOUT = "with", "without"


def send(rows: Plain, *, idempotence: bool, call_rows: int) -> Side:
    """acks="all", each batch synced; ``call_rows`` 1 is ``send`` one at a time, more is ``send_many``."""

    @contextmanager
    def side(folder: str) -> Iterator[Run]:
        with logstore.open(folder) as store:
            store.create_topic(ours.TOPIC)
            with store.producer(idempotence=idempotence) as producer:
                producer.send(ours.TOPIC, b"first").result(60)  # takes the topic, and an id
                calls = chunks(rows, call_rows)

                def run() -> int:
                    if call_rows == 1:
                        kept = [producer.send(ours.TOPIC, value, key=key) for key, value in rows]
                        producer.flush()
                        kept[-1].result(60)
                        return len(kept)
                    groups = [producer.send_many(ours.TOPIC, call) for call in calls]
                    producer.flush()
                    return sum(one.end_exclusive - one.start for group in groups for one in group.result(60))

                yield run

    return side


@contextmanager
def durable(folder: str, value: bytes, *, idempotence: bool) -> Iterator[Callable[[], object]]:
    with logstore.open(folder) as store:
        store.create_topic(ours.TOPIC)
        with store.producer(idempotence=idempotence) as producer:
            yield lambda: producer.send(ours.TOPIC, value).result(timeout_s=30)


def run(bench: Bench) -> Iterator[Row]:
    rows = unkeyed(bench.size(300_000, 100_000), 100)
    for call_rows, case in ((500, "send_many, 500 a call"), (1, "send, one at a time")):
        sides = {
            WITH: send(rows, idempotence=True, call_rows=call_rows),
            WITHOUT: send(rows, idempotence=False, call_rows=call_rows),
        }
        yield compared(
            QUESTION,
            f"{case}, 100 B, acks=all",
            rates(bench, sides),
            ours=WITH,
            peer=WITHOUT,
            unit="k/s",
            scale=THOUSAND,
            at_least=0.95,
            note="peer: ourselves without; each batch synced",
        )
    with ExitStack() as stack:
        calls = {
            name: stack.enter_context(
                durable(stack.enter_context(bench.scratch()), b"x" * 100, idempotence=name == WITH)
            )
            for name in (WITH, WITHOUT)
        }
        figures = latencies(calls, rounds=bench.rounds, each=bench.size(1_500, 400))
    yield compared(
        QUESTION,
        "one durable record, 100 B",
        figures,
        ours=WITH,
        peer=WITHOUT,
        unit="us",
        scale=MICROSECONDS,
        at_most=1.05,
        note="peer: ourselves without; send().result(), median",
    )
