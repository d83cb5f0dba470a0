"""A broker under work for a long time: its memory and its descriptors have to stay where they are.

    python -m tests.history.soak --minutes 20

The workers of a campaign work without faults of the broker; clients come and go all the time, connections are cut, and
workers are killed. Memory (resident, MiB), descriptors and threads of the broker are looked at every few seconds. What
is told: medians of the second, the third and the last quarter. It ends with 1 where the last is more than a tenth and
8 MiB above the second, or where descriptors or threads grew by more than a tenth and 20.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from statistics import median
from typing import NamedTuple

import logstore
from rpc.testing.broker import BrokerForTests
from tests.history.campaign import ROLES
from tests.history.crew import Crew
from tests.history.events import Acked, Decided, Polled
from tests.history.faults import drop_connections, kill_worker
from tests.history.workers import IN, OUT, PARTITIONS

_LOOK_S = 5.0
_PACE_S = 0.05
"""Between two calls of a worker, so that hours of events can be kept."""
_CONFIG = {"segment.bytes": "1000000", "retention.bytes": "4000000", "file.delete.delay.ms": "1000"}
"""Retention has as much to do as the producers, soon after the beginning."""


class Sample(NamedTuple):
    """Of the broker's process. ``resident_mib``: memory of its own, without the pages of files that it has mapped."""

    resident_mib: float
    descriptors: int
    threads: int


def sample(pid: int) -> Sample:
    status = Path(f"/proc/{pid}/status").read_text()
    fields = dict(line.split(":", 1) for line in status.splitlines())
    resident_mib = int(fields["RssAnon"].split()[0]) / 1024
    return Sample(resident_mib, len(os.listdir(f"/proc/{pid}/fd")), int(fields["Threads"]))


def quarters(samples: list[Sample]) -> list[Sample]:
    """Medians of each quarter."""
    size = len(samples) // 4
    parts = [samples[number * size : (number + 1) * size] for number in range(4)]
    return [
        Sample(
            median(one.resident_mib for one in part),
            round(median(one.descriptors for one in part)),
            round(median(one.threads for one in part)),
        )
        for part in parts
    ]


def growth(samples: list[Sample]) -> list[str]:
    """What grew from the second quarter to the last, in words."""
    _, second, _, last = quarters(samples)
    found = []
    if last.resident_mib > second.resident_mib * 1.1 + 8:
        found.append(f"memory grew from {second.resident_mib:.0f} to {last.resident_mib:.0f} MiB")
    for name in ("descriptors", "threads"):
        before, after = getattr(second, name), getattr(last, name)
        if after > before * 1.1 + 20:
            found.append(f"{name} grew from {before:.0f} to {after:.0f}")
    return found


def come_and_go(address: str, dice: random.Random) -> None:
    """A client that opens everything that can be open, and leaves, in order or not."""
    client = logstore.connect(address)
    try:
        with client.consumer(IN, group=f"passing-{dice.randrange(5)}") as consumer:
            consumer.poll(10, timeout_s=0.2)
        with client.producer(name=f"passing-{dice.randrange(1000)}") as producer:
            producer.flush()
    finally:
        if dice.random() < 0.5:
            client.close()
        else:
            client.abandon()


def counted(crew: Crew) -> Counter[str]:
    done: Counter[str] = Counter()
    for events in crew.events().values():
        for event in events:
            if isinstance(event, Acked):
                done["records acknowledged"] += len(event.values)
            elif isinstance(event, Polled):
                done["records polled"] += len(event.records)
            elif isinstance(event, Decided):
                done["transactions"] += 1
    return done


def run(minutes: float, seed: int) -> int:
    dice = random.Random(seed)
    with tempfile.TemporaryDirectory() as made, contextlib.ExitStack() as stack:
        folder = Path(made)
        broker = BrokerForTests(folder / "data", lease_timeout_s=6.0)
        stack.callback(BrokerForTests.end_spares)
        stack.callback(broker.close)
        with logstore.connect(broker.address) as client:
            for topic in (IN, OUT):
                client.create_topic(topic, PARTITIONS, _CONFIG)
        crew = Crew(ROLES, broker.address, folder, seed, _PACE_S)
        stack.callback(crew.dispose)
        crew.start()
        samples: list[Sample] = []
        done: Counter[str] = Counter()
        end_s = time.monotonic() + 60 * minutes
        while time.monotonic() < end_s:
            time.sleep(_LOOK_S)
            samples.append(sample(broker.pid))
            come_and_go(broker.address, dice)
            done["clients that came and went"] += 1
            if dice.random() < 0.1:
                kill_worker(broker, crew, dice)
                done["workers killed"] += 1
            if dice.random() < 0.1:
                drop_connections(broker, crew, dice)
                done["times all connections cut"] += 1
        crew.await_progress()
        crew.end("produce", "transact")
        crew.end("copy", "read")
        done += counted(crew)
    for number, part in enumerate(quarters(samples), 1):
        sys.stdout.write(
            f"quarter {number}: {part.resident_mib:.0f} MiB, {part.descriptors:.0f} descriptors, "
            f"{part.threads:.0f} threads\n"
        )
    told = ", ".join(f"{count} {what}" for what, count in sorted(done.items()))
    sys.stdout.write(f"{minutes:g} minutes: {told}\n")
    wrong = growth(samples)
    for line in wrong or ["nothing grew"]:
        sys.stdout.write(f"{line}\n")
    return 1 if wrong else 0


def main() -> int:
    parser = argparse.ArgumentParser(description="Work for a long time, and look at the broker's memory.")
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    return run(options.minutes, options.seed)


if __name__ == "__main__":
    sys.exit(main())
