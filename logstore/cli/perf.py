"""`logstore perf`: how fast this machine and disk are with this store. Real records, real syncs."""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from logstore.cli.streams.output import note, print_json, print_table, progress, size_text
from logstore.cli.target import Target, target_options
from logstore.config import CODECS

if TYPE_CHECKING:
    from logstore.client.producer.delivery import Delivery
    from logstore.client.store_client import StoreClient

_CHUNK = 1000
_MAX_RECORDS = 10_000_000_000  # one latency of each chunk is kept in memory
_MAX_VALUE_BYTES = 1_000_000  # with its batch below max.message.bytes
_MAX_VALUES_BYTES = 64 << 20  # of different values, in memory
_PERCENTILES = (50, 95, 99, 100)


@click.group()
def perf() -> None:
    """Measure: produce, consume, end-to-end. Without --path in a temporary directory that is removed.

    Records go to a topic of their own, which is deleted afterwards.
    """


def _common(command: Any) -> Any:
    for option in (
        click.option("-z", "--compression", type=click.Choice(CODECS), default="none", show_default=True),
        click.option("--partitions", type=click.IntRange(min=1), default=1, show_default=True),
        click.option(
            "-s",
            "--size",
            type=click.IntRange(0, _MAX_VALUE_BYTES),
            default=100,
            show_default=True,
            help="Bytes of a value.",
        ),
    ):
        command = option(command)
    return target_options(command)


_ACKS = click.option("--acks", type=click.Choice(["0", "1", "all"]), default="all", show_default=True)


@perf.command()
@click.option("-n", "--records", type=click.IntRange(1, _MAX_RECORDS), default=500_000, show_default=True)
@click.option("--batch-bytes", type=click.IntRange(min=1), default=256 << 10, show_default=True)
@_ACKS
@_common
@click.pass_obj
def produce(target: Target, /, records: int, size: int, batch_bytes: int, acks: str, **topic: Any) -> None:
    """Send records in chunks of 1,000; latency is from a send to its acknowledgement."""
    with _topic(target, **topic) as (store, name):
        seconds, latencies = _produce(store, name, records, size, batch_bytes, acks)
        _show(target, "produce", records, size, seconds, {"acknowledged": latencies}, acks=acks)


def _produce(
    store: StoreClient, topic: str, records: int, size: int, batch_bytes: int, acks: str
) -> tuple[float, list[float]]:
    """Seconds until all is acknowledged, and the latency of one record in each chunk."""
    values = _values(size, _CHUNK)
    rows = [(None, values[number % len(values)]) for number in range(_CHUNK)]
    latencies: list[float] = []
    start_s = time.perf_counter()
    settings: dict[str, Any] = {"acks": acks if acks == "all" else int(acks), "batch_bytes": batch_bytes}
    with (
        store.producer(**settings) as producer,
        progress("producing", records, unit_bytes=False) as advance,
    ):
        for sent in range(0, records, _CHUNK):
            count = min(_CHUNK, records - sent)
            if count > 1:
                producer.send_many(topic, rows[: count - 1])
            note_latency = partial(_note_latency, latencies, time.perf_counter())
            producer.send(topic, rows[0][1]).add_callback(note_latency)
            advance(count)
        producer.flush()
    return time.perf_counter() - start_s, latencies


def _note_latency(latencies: list[float], sent_s: float, delivery: Delivery) -> None:
    del delivery
    latencies.append(time.perf_counter() - sent_s)


@perf.command()
@click.option("-n", "--records", type=click.IntRange(1, _MAX_RECORDS), default=500_000, show_default=True)
@_common
@click.pass_obj
def consume(target: Target, /, records: int, size: int, **topic: Any) -> None:
    """Write records, then read them back as a consumer does; latency is that of one poll of 1,000."""
    with _topic(target, **topic) as (store, name):
        _produce(store, name, records, size, 256 << 10, "all")
        latencies: list[float] = []
        found = 0
        start_s = time.perf_counter()
        with store.consumer(name, until_end=True) as consumer:
            poll_s = time.perf_counter()
            for batch in consumer.batches(max_records=_CHUNK):
                found += len(batch)
                now_s = time.perf_counter()
                latencies.append(now_s - poll_s)
                poll_s = now_s
        seconds = time.perf_counter() - start_s
        _show(target, "consume", found, size, seconds, {"poll": latencies})


@perf.command("end-to-end")
@click.option("-n", "--records", type=click.IntRange(1, _MAX_RECORDS), default=1000, show_default=True)
@_ACKS
@_common
@click.pass_obj
def end_to_end(target: Target, /, records: int, size: int, acks: str, **topic: Any) -> None:
    """One record at a time: sent, acknowledged, and read by a waiting consumer."""
    acknowledged: list[float] = []
    received: list[float] = []
    setting: Any = acks if acks == "all" else int(acks)
    with (
        _topic(target, **topic) as (store, name),
        store.producer(acks=setting, linger_ms=0) as producer,
        store.consumer(name) as consumer,
    ):
        values = _values(size, min(records, _CHUNK))
        start_s = time.perf_counter()
        for number in range(records):
            sent_s = time.perf_counter()
            producer.send(name, values[number % len(values)]).result()
            acknowledged.append(time.perf_counter() - sent_s)
            while not consumer.poll(max_records=1, timeout_s=10):
                pass
            received.append(time.perf_counter() - sent_s)
        seconds = time.perf_counter() - start_s
        latencies = {"acknowledged": acknowledged, "received": received}
        _show(target, "end-to-end", records, size, seconds, latencies, acks=acks)


@contextmanager
def _topic(target: Target, *, partitions: int, compression: str) -> Iterator[tuple[StoreClient, str]]:
    """A store and a topic of one's own in it; both go away if they were made for this."""
    name = f"perf-{time.time_ns()}"
    with tempfile.TemporaryDirectory(prefix="logstore-perf-") as temporary:
        if target.path is None and target.bootstrap_server is None:
            target.path = f"{temporary}/store"
        with target.client(write=True, create=True) as store:
            store.admin.create_topic(name, partitions=partitions, config={"compression.type": compression})
            try:
                yield store, name
            finally:
                store.admin.delete_topic(name)


def _values(size: int, count: int) -> list[bytes]:
    """Up to ``count`` different values that compress about as well as text does; the same in every run."""
    count = max(1, min(count, _MAX_VALUES_BYTES // max(size, 1)))
    source = random.Random(7)
    letters = bytes(source.choices(b"etaoin shrdlu,.0123456789", k=size + count * 7))
    return [letters[number * 7 : number * 7 + size] for number in range(count)]


def percentiles(latencies: Sequence[float]) -> dict[str, float]:
    """p50, p95, p99 and max in ms; nearest rank."""
    ordered = sorted(latencies)
    named = {}
    for percent in _PERCENTILES:
        rank = max(0, -(-len(ordered) * percent // 100) - 1)
        named["max" if percent == 100 else f"p{percent}"] = round(ordered[rank] * 1000, 3)
    return named


def _show(
    target: Target,
    what: str,
    records: int,
    size: int,
    seconds: float,
    latencies: dict[str, list[float]],
    **settings: Any,
) -> None:
    found = {name: percentiles(values) for name, values in latencies.items() if values}
    per_second = records / seconds if seconds > 0 else 0.0
    if target.as_json:
        print_json(
            {
                "test": what,
                "records": records,
                "value_bytes": size,
                "seconds": round(seconds, 4),
                "records_per_second": round(per_second),
                "bytes_per_second": round(per_second * size),
                "latency_ms": found,
                **settings,
            }
        )
        return
    rate = f"{per_second:,.0f} records/s, {size_text(round(per_second * size))}/s"
    click.echo(f"{what}: {records:,} records of {size} bytes in {seconds:.2f} s: {rate}")
    columns = ["LATENCY (MS)", *(f"P{percent}" if percent < 100 else "MAX" for percent in _PERCENTILES)]
    print_table(columns, [[name, *values.values()] for name, values in found.items()])
    if "acks" in settings:
        note(f"acks={settings['acks']}")
