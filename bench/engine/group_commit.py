"""Durable records from many threads on one producer: syncs are shared."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import logstore
from bench import ours, peers
from bench.harness import Bench, Row, alone, compared, ratios
from bench.workload import values

QUESTION = "group commit"
THREADS = (1, 16, 64)
TARGETS = {16: 4.0, 64: 7.0}


def together(call: Callable[[], object], threads: int, seconds: float) -> float:
    """Calls per second of ``threads`` threads that each call until the time is up."""
    start = threading.Barrier(threads + 1)
    counts = [0] * threads
    failed: list[BaseException] = []
    deadline = [0.0]

    def work(index: int) -> None:
        try:
            start.wait()
            done = 0
            while time.perf_counter() < deadline[0]:
                call()
                done += 1
            counts[index] = done
        except BaseException as error:
            failed.append(error)
            raise

    workers = [threading.Thread(target=work, args=(index,)) for index in range(threads)]
    for worker in workers:
        worker.start()
    began = time.perf_counter()
    deadline[0] = began + seconds
    start.wait()
    for worker in workers:
        worker.join()
    if failed:
        raise failed[0]
    return sum(counts) / (time.perf_counter() - began)


def run(bench: Bench) -> Iterator[Row]:
    (value,) = values(1, 100)
    seconds = 0.5 if bench.quick else 1.0
    figures: dict[str, list[float]] = {name: [] for name in (*map(str, THREADS), "bare")}
    with bench.scratch() as folder, bench.scratch() as other, logstore.open(folder) as store:
        store.create_topic(ours.TOPIC)
        with store.producer() as producer, peers.bare_durable(other, value) as bare:

            def durable() -> object:
                return producer.send(ours.TOPIC, value).result(timeout_s=30)

            for number in range(bench.rounds + 1):
                for threads in THREADS:
                    rate = together(durable, threads, seconds)
                    if number:
                        figures[str(threads)].append(rate)
                rate = together(bare, 1, seconds)
                if number:
                    figures["bare"].append(rate)
    note = "100 B, acks=all, send().result() in each thread, one producer"
    yield alone(QUESTION, "1 thread", figures["1"], unit="/s", note=note)
    for threads, target in TARGETS.items():
        bare_ratio = ratios(figures[str(threads)], figures["bare"]).median
        yield compared(
            QUESTION,
            f"{threads} threads",
            figures,
            ours=str(threads),
            peer="1",
            unit="/s",
            at_least=target,
            note=f"peer: ourselves, 1 thread; {bare_ratio:.1f} x one thread's bare write + fdatasync",
        )
