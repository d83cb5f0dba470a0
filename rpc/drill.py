"""``Drill``: numbered records written at a steady rate while something happens to the cluster, and what became of them.

Every record is acknowledged by all in-sync replicas or its error is counted; at the end all of them are read back: none
that was acknowledged is lost, none appears twice, and those of a partition stand in the order in which they were sent.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final, NamedTuple

from logstore.errors import BufferFullError, LogStoreError, TopicExistsError
from rpc.polling import Polling

_STEP_S: Final = 0.005


@dataclass(frozen=True, kw_only=True, slots=True)
class DrillSettings:
    """``rate``: records a second; ``size``: bytes of a value; ``act_at``: when the fault comes, as a part of the time;
    times are seconds."""

    topic: str = "drill"
    partitions: int = 3
    rate: float = 1000.0
    seconds: float = 15.0
    size: int = 200
    act_at: float = 0.3


class Sent(NamedTuple):
    """A record as it was sent, and what became of it."""

    number: int
    partition: int
    took_s: float
    error: str


@dataclass(kw_only=True, slots=True)
class DrillReport:
    """``lost``: acknowledged and not there; ``doubled``: there more than once; ``disordered``: behind a later one of
    their partition; ``in_doubt``: failed, ``found_anyway`` of them are there. Latencies are ms from a send to its
    acknowledgement; ``longest_pause_ms``: between two acknowledgements of a partition."""

    sent: int = 0
    acknowledged: int = 0
    in_doubt: int = 0
    found_anyway: int = 0
    lost: int = 0
    doubled: int = 0
    disordered: int = 0
    p50_ms: float = 0.0
    p99_ms: float = 0.0
    longest_ms: float = 0.0
    longest_pause_ms: float = 0.0
    happened: str = ""
    errors: dict[str, int] = field(default_factory=dict)

    @property
    def is_good(self) -> bool:
        return self.lost == self.doubled == self.disordered == 0 and self.acknowledged > 0


class Drill:
    """``store``: at the brokers; ``act``: what happens meanwhile, and says what it did."""

    def __init__(self, store: Any, settings: DrillSettings, act: Callable[[], str] | None = None) -> None:
        self._store = store
        self._settings = settings
        self._act = act
        self._run = os.urandom(6).hex().encode()
        self._lock = threading.Lock()
        self._done: list[Sent] = []
        self._told_s: dict[int, float] = {}
        self._report = DrillReport()

    def run(self) -> DrillReport:
        """Errors: those of the store where nothing could be written or read at all."""
        self._make_topic()
        starts = self._ends()
        self._write()
        self._read(starts)
        self._measure()
        return self._report

    def _make_topic(self) -> None:
        try:
            self._store.create_topic(self._settings.topic, self._settings.partitions)
        except TopicExistsError:
            pass  # of an earlier drill: what is in it counts for nothing

    def _partitions(self) -> range:
        return range(self._store.backend.topics()[self._settings.topic].partitions)

    def _ends(self) -> dict[int, int]:
        topic = self._settings.topic
        return {number: self._store.partition(topic, number).high_watermark for number in self._partitions()}

    # --- writing ---

    def _write(self) -> None:
        settings, report = self._settings, self._report
        partitions = len(self._partitions())
        filler = b"." * max(settings.size - 30, 0)
        began_s, pace = time.monotonic(), Polling(_STEP_S, settings.seconds)
        acting: threading.Thread | None = None
        with self._store.producer(acks="all", linger_ms=1) as producer:
            while pace.again():
                passed_s = time.monotonic() - began_s
                if self._act is not None and acting is None and passed_s > settings.seconds * settings.act_at:
                    acting = threading.Thread(target=self._happen)
                    acting.start()
                due = int(passed_s * settings.rate)
                while report.sent < due:
                    value = b"%s %d %s" % (self._run, report.sent, filler)
                    try:
                        self._send(producer, value, report.sent % partitions)
                    except BufferFullError:
                        break  # the brokers are behind: no more until they are not
            producer.flush()
        if acting is not None:
            acting.join()

    def _happen(self) -> None:
        act = self._act
        if act is not None:
            try:
                self._report.happened = act()
            except (LogStoreError, OSError) as error:
                self._report.happened = f"nothing: {error}"

    def _send(self, producer: Any, value: bytes, partition: int) -> None:
        number, sent_s = self._report.sent, time.monotonic()
        delivery = producer.send(self._settings.topic, value, partition=partition)
        self._report.sent += 1

        def done(delivery: Any) -> None:
            now_s = time.monotonic()
            error = delivery.exception()
            with self._lock:
                name = "" if error is None else type(error).__name__
                self._done.append(Sent(number, partition, now_s - sent_s, name))
                if error is None:
                    last_s = self._told_s.get(partition, now_s)
                    pause_ms = (now_s - last_s) * 1000
                    self._report.longest_pause_ms = max(self._report.longest_pause_ms, pause_ms)
                    self._told_s[partition] = now_s

        delivery.add_callback(done)

    # --- reading ---

    def _read(self, starts: dict[int, int]) -> None:
        found: dict[int, list[int]] = {}
        for partition, start in starts.items():
            numbers = found[partition] = []
            for record in self._store.partition(self._settings.topic, partition).records(start):
                run, _, rest = (record.value or b"").partition(b" ")
                if run == self._run:
                    numbers.append(int(rest.partition(b" ")[0]))
        compare(self._report, self._done, found)

    def _measure(self) -> None:
        took = sorted(one.took_s * 1000 for one in self._done if not one.error)
        if took:
            report = self._report
            report.p50_ms = took[len(took) // 2]
            report.p99_ms = took[int(len(took) * 0.99)]
            report.longest_ms = took[-1]


def compare(report: DrillReport, sent: Iterable[Sent], found: Mapping[int, Sequence[int]]) -> None:
    """Count into the report what became of records. ``found``: their numbers as they stand in each partition."""
    times = Counter(number for numbers in found.values() for number in numbers)
    for one in sent:
        if one.error:
            report.in_doubt += 1
            report.found_anyway += one.number in times
            report.errors[one.error] = report.errors.get(one.error, 0) + 1
        else:
            report.acknowledged += 1
            report.lost += one.number not in times
    report.doubled = sum(1 for count in times.values() if count > 1)
    for numbers in found.values():
        report.disordered += sum(1 for before, after in pairwise(numbers) if after < before)
