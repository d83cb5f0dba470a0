"""Many partitions at a time: each waits for a few syncs, and the file system commits those of all together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from logstore.errors import LogStoreError

MANY: Final = 24  # from so many on threads are worth making
Thing = TypeVar("Thing")


def fan_out(work: Callable[[Thing], object], things: Sequence[Thing], threads: int) -> None:
    """``work`` for each, by so many threads: every one gets its chance, then the first failure is raised."""

    def guarded(thing: Thing) -> LogStoreError | None:
        try:
            work(thing)
        except LogStoreError as error:
            return error
        return None

    if threads <= 1 or len(things) < 2:
        failures = [guarded(thing) for thing in things]
    else:
        with ThreadPoolExecutor(min(threads, len(things)), "logstore-fan-out") as workers:
            failures = list(workers.map(guarded, things))
    first = next((error for error in failures if error is not None), None)
    if first is not None:
        raise first
