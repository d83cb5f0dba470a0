"""``Appends.start``: batches are written, and their outcome is told when the last one is decided."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from types import SimpleNamespace
from typing import Any

from logstore.api.records import ProduceItem, ProduceResult
from logstore.embedded.appends import Appends
from logstore.errors import LogStoreError
from logstore.format.batch import encode_batch
from logstore.partition.fan_out import MANY
from logstore.seams.clock import ManualClock

BATCH = encode_batch([(None, b"a")], now_ms=0)
Told = Callable[[LogStoreError | None], None]


class Pending:
    """An append that the test decides."""

    base_offset, next_offset, append_time_ms = 7, 8, -1

    def __init__(self) -> None:
        self.done = False
        self.waited = False
        self.error: LogStoreError | None = None
        self._told: list[Told] = []

    def then(self, tell: Told) -> None:
        self._told.append(tell)

    def wait_with(self, others: Sequence[object]) -> None:
        del others
        self.done = self.waited = True

    def decide(self) -> None:
        self.done = True
        for tell in self._told:
            tell(None)


class Kept:
    """A partition of this directory alone."""

    where = "t-0"

    def __init__(self, made: list[Pending]) -> None:
        self._made = made

    def append(self, batches: Sequence[object], acks: object, **more: object) -> Pending:
        del batches, acks, more
        self._made.append(Pending())
        return self._made[-1]


class SentOn(Kept):
    """One whose appends go on to other nodes."""

    def together(self) -> AbstractContextManager[None]:
        return nullcontext()


def started(kind: type[Kept], count: int) -> tuple[list[Pending], list[list[ProduceResult]]]:
    made: list[Pending] = []
    context: Any = SimpleNamespace(
        check_writable=lambda: None,
        clock=ManualClock(0),
        lock_timeout_s=1.0,
        pool=SimpleNamespace(capacity=400),
    )
    registry: Any = None
    partitions: Any = lambda topic, number: kind(made)  # noqa: E731 - a fake of another type
    told: list[list[ProduceResult]] = []
    items = [ProduceItem("t", number, BATCH) for number in range(count)]
    appends = Appends(context, registry, partitions)
    appends._open_ahead = lambda *given: None  # type: ignore[method-assign]
    appends.start(items, "all", 1.0, told.append)
    return made, told


def test_what_goes_on_to_other_nodes_is_not_waited_for_however_many_batches_there_are() -> None:
    made, told = started(SentOn, 2 * MANY)
    assert len(made) == 2 * MANY
    assert told == []
    for append in made[:-1]:
        append.decide()
    assert told == []
    made[-1].decide()
    assert told == [[ProduceResult(7)] * (2 * MANY)]
    assert not any(append.waited for append in made)


def test_of_this_directory_only_few_are_under_way() -> None:
    made, told = started(Kept, MANY - 1)
    assert told == []
    for append in made:
        append.decide()
    assert told == [[ProduceResult(7)] * (MANY - 1)]
    made, told = started(Kept, MANY)
    assert told == [[ProduceResult(7)] * MANY]
    assert all(append.waited for append in made)
