"""Over a broker: producer, consumer and broker are processes apart, and speak over the loopback."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

import logstore
from bench import child, ours
from bench.brokers.broker import BrokerProcess, allow_descriptors, processor_s, resident_mb, running
from bench.brokers.rpc_clients import VALUE_BYTES
from bench.harness import Bench, Row, alone, compared

QUESTION = "over a broker"
SIZES = (100, VALUE_BYTES, 10_240)
CONSUMERS = 1000
WAITS_S = (5.0, 30.0, 60.0)
TARGETS = {("produce", VALUE_BYTES): 150_000, ("consume", VALUE_BYTES): 300_000}

Figures = dict[str, list[float]]


def run(bench: Bench) -> Iterator[Row]:
    allow_descriptors()
    with bench.scratch() as code:
        with bench.scratch() as folder, running(folder, code):
            pass  # compiled from now on
        yield from _throughput(bench, code)
        yield from _latency(bench, code)
        yield from _idle(bench, code)


def _served(broker: BrokerProcess) -> str:
    """The address of a broker with the topic."""
    with logstore.connect(broker.address) as client:
        client.create_topic(ours.TOPIC, config=ours.CACHED)
    return broker.address


def _add(figures: Figures, found: dict[str, float], prefix: str = "") -> None:
    for name, figure in found.items():
        figures.setdefault(prefix + name, []).append(figure)


def _throughput(bench: Bench, code: str) -> Iterator[Row]:
    for size in SIZES:
        count = bench.size(min(1_000_000, 300 * (1 << 20) // size), min(50_000, 20 * (1 << 20) // size))
        figures: Figures = {}
        for number in range(bench.rounds):
            sides = [_over_broker, _embedded]
            for side in sides if number % 2 else reversed(sides):
                side(bench, code, figures, count, size)
        for what in ("produce", "consume"):
            row = compared(
                QUESTION,
                f"{what}{', acks=1' if what == 'produce' else ''}, {size} B",
                {"here": figures[f"broker {what}"], "embedded": figures[f"embedded {what}"]},
                ours="here",
                peer="embedded",
                unit="records/s",
                note=f"{count:,} records, one partition; shown once appended, not synced",
            )
            target = TARGETS.get((what, size))
            if target is not None:
                row = _with_target(row, target)
            yield row


def _with_target(row: Row, at_least: float) -> Row:
    """The target is on the rate, not on the ratio."""
    return replace(row, target=f">= {at_least:g} {row.unit}", met=row.value.median >= at_least)


def _over_broker(bench: Bench, code: str, figures: Figures, count: int, size: int) -> None:
    with bench.scratch() as folder, running(folder, code) as broker:
        found = child.call("rpc_throughput", address=_served(broker), count=count, size=size)
        _add(figures, found, "broker ")


def _embedded(bench: Bench, code: str, figures: Figures, count: int, size: int) -> None:
    del code
    with bench.scratch() as folder:
        _add(figures, child.call("rpc_embedded", folder=folder, count=count, size=size), "embedded ")


def _latency(bench: Bench, code: str) -> Iterator[Row]:
    count = bench.size(2_000, 300)
    figures: Figures = {}
    for _ in range(bench.rounds):
        with bench.scratch() as folder, running(folder, code) as broker:
            _add(figures, {"start": broker.started_s, "resident": resident_mb(broker.pid)})
            address = _served(broker)
            for acks in (1, "all"):
                _add(figures, child.call("rpc_singles", address=address, acks=acks, count=count))
    for acks, limits in (("1", {50: 1.5, 99: 5.0}), ("all", {50: None, 99: None})):
        for percent, limit in limits.items():
            yield alone(
                QUESTION,
                f"one produce, acks={acks}, p{percent}",
                figures[f"{acks} p{percent}"],
                unit="ms",
                scale=1e3,
                at_most=limit,
                note=f"send().result(), 1 KiB, {count:,} a round",
            )
    note = "a new process; its code is compiled before, as of an installed package"
    yield alone(QUESTION, "start to serving", figures["start"], unit="s", at_most=0.5, note=note)
    yield alone(QUESTION, "resident, idle", figures["resident"], unit="MiB", at_most=80)


def _idle(bench: Bench, code: str) -> Iterator[Row]:
    """What clients cost that are connected, and that wait."""
    count, seconds = bench.size(CONSUMERS, 50), bench.size(20, 2)
    with bench.scratch() as folder, running(folder, code) as broker:
        address = _served(broker)
        before = resident_mb(broker.pid)
        connected = child.begin("rpc_idle", address=address, count=count, wait_s=0.0, seconds=1.0)
        connected.await_line()
        grown = [(resident_mb(broker.pid) - before) * 1024 / count]
        connected.figures()
        yield alone(
            QUESTION, "resident, each idle connection", grown, unit="KiB", note=f"{count:,} connections"
        )
        for wait_s in WAITS_S:
            waiting = child.begin(
                "rpc_idle", address=address, count=count, wait_s=wait_s, seconds=seconds + 1.0
            )
            waiting.await_line()
            taken, began = processor_s(broker.pid), time.perf_counter()
            time.sleep(seconds)
            share = 100 * (processor_s(broker.pid) - taken) / (time.perf_counter() - began)
            waiting.figures()
            yield alone(
                QUESTION,
                f"{count:,} consumers that wait, {wait_s:g} s a long poll",
                [share],
                unit="% of a core",
                at_most=5 if wait_s == WAITS_S[-1] else None,
                note="the broker's share, at the end of the topic, each consumer with a connection of its own",
            )
