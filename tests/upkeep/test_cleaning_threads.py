"""Cleanings beside threads that release, write and ask for compaction by hand: nobody waits for ever."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import logstore
from logstore.errors import ClientClosedError, LogStoreError, TopicLockedError
from logstore.log.cleaning.cleaning import CleanProgress, CleanRequest, CleanResult
from tests.engines import result

ROUNDS = 15


class Busy:
    """Takes twenty steps and touches nothing."""

    begun = ended = 0

    def __init__(
        self, log: object, pool: object, clock: object, retirement: object, request: CleanRequest
    ) -> None:
        type(self).begun += 1
        self._request, self._left = request, 20

    def step(self, budget_s: float) -> CleanResult | None:
        self._left -= 1
        if self._left:
            return None
        type(self).ended += 1
        return result(self._request)

    def cancel(self) -> None:
        type(self).ended += 1

    @property
    def progress(self) -> CleanProgress:
        return CleanProgress("write", 0, 0)


def test_release_and_compaction_by_hand_race_with_the_background(tmp_path: Path) -> None:
    Busy.begun = Busy.ended = 0
    failures: list[BaseException] = []

    def guarded(work: Callable[[], object]) -> Callable[[], None]:
        def run() -> None:
            for _ in range(ROUNDS):
                try:
                    work()
                except (TopicLockedError, ClientClosedError):
                    pass  # two by hand at once, or a release in between: both say so
                except LogStoreError as error:
                    failures.append(error)
                    return

        return run

    with logstore.open(tmp_path / "s", cleaner_duty=1.0) as store:
        store._cleaning.kit.make = Busy
        store._cleaning.cleaner._check_s = 0.001
        config = {"cleanup.policy": "compact", "segment.bytes": "1024", "min.cleanable.dirty.ratio": "0"}
        store.create_topic("t", 2, config)

        def write() -> None:
            for partition in (0, 1):
                store.partition("t", partition).append([(b"k", b"x" * 500)] * 3, acks=1)

        write()
        works = [
            write,
            lambda: store.release("t"),
            lambda: store.admin.compact("t"),
            lambda: store.describe_topic("t"),
        ]
        threads = [threading.Thread(target=guarded(work)) for work in works]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert not any(thread.is_alive() for thread in threads)
        write()
        store.admin.compact("t")  # nothing is in its way: one at the least has begun
    assert failures == []
    assert Busy.begun == Busy.ended > 0, "whatever began came to its end, or was cancelled"
