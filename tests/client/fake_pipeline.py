"""A ``FakeBackend`` with pipelines: a broker that comes to its requests when a test lets it, over breaking streams."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from logstore.api.pipelines import FetchAhead
from logstore.api.records import ProduceItem, ProduceResult
from logstore.errors import LogStoreError, OutcomeUnknownError, RetriableError
from logstore.format.batch import read_header
from logstore.types import Acks
from tests.client.fake_backend import FakeBackend


class BrokenStreamError(RetriableError):
    """The connection broke before the answer came."""


class FakePending:
    """``outcome``: once the broker has answered, or the stream is broken."""

    def __init__(
        self, pipeline: FakePipeline, number: int, items: Sequence[ProduceItem], acks: Acks, seen: int
    ) -> None:
        self._pipeline = pipeline
        self.number = number
        self.items = items
        self.acks = acks
        self.seen = seen
        self.outcome: list[ProduceResult] | LogStoreError | None = None

    def results(self) -> list[ProduceResult]:
        return self._pipeline.answer(self)

    def lose(self) -> None:
        known = all(read_header(item.batch).producer_id >= 0 for item in self.items)
        self.outcome = BrokenStreamError("cut") if known else OutcomeUnknownError("cut")


class FakePipeline:
    """``waiting``: what was begun and not asked for, in order."""

    window = 3

    def __init__(self, backend: PipelinedBackend) -> None:
        self._backend = backend
        self._numbers = 0
        self._seen = 0
        self._broken = False
        self._failed: dict[tuple[str, int], tuple[int, LogStoreError]] = {}
        self.waiting: deque[FakePending] = deque()
        self.rests = 0
        self.most_waiting = 0

    def begin(self, items: Sequence[ProduceItem], acks: Acks, timeout_s: float) -> FakePending:
        del timeout_s
        self._numbers += 1
        pending = FakePending(self, self._numbers, items, acks, self._seen)
        if self._broken and self.waiting:
            pending.outcome = BrokenStreamError("not sent")
        self._broken = self._broken and bool(self.waiting)
        self.waiting.append(pending)
        self.most_waiting = max(self.most_waiting, len(self.waiting))
        return pending

    def answer(self, pending: FakePending) -> list[ProduceResult]:
        assert self.waiting[0] is pending, "asked in another order than begun"
        self.come_to(1)
        self.waiting.popleft()
        outcome = pending.outcome
        assert outcome is not None
        if isinstance(outcome, LogStoreError):
            raise outcome
        self._seen = pending.number
        return outcome

    def come_to(self, count: int) -> None:
        """The broker works through the first ``count`` requests, whether their answers are asked for or not."""
        for pending in list(self.waiting)[:count]:
            if pending.outcome is None:
                pending.outcome = self._tried(pending)

    def _tried(self, pending: FakePending) -> list[ProduceResult]:
        self._failed = {place: row for place, row in self._failed.items() if row[0] > pending.seen}
        held = [self._failed.get(item[:2]) for item in pending.items]
        tried = [item for item, row in zip(pending.items, held, strict=True) if row is None]
        answers = iter(self._backend.produce(tried, pending.acks, 1.0))
        results = [ProduceResult(-1, error=row[1]) if row else next(answers) for row in held]
        for item, result in zip(pending.items, results, strict=True):
            if result.error is not None:
                self._failed[item[:2]] = pending.number, result.error
        return results

    def cut(self, tried: int) -> None:
        """The stream breaks: the broker had come to so many requests, and no answer that was not asked for arrives."""
        self.come_to(tried)
        for pending in self.waiting:
            pending.lose()
        self._broken = bool(self.waiting)
        self._failed = {}

    def rest(self) -> None:
        assert not self.waiting
        self.rests += 1


class PipelinedBackend(FakeBackend):
    """``limit``: see ``Pipelining.produce_limit``."""

    limit = 1200

    def __init__(self) -> None:
        super().__init__()
        self.pipelines: list[FakePipeline] = []

    def produce_limit(self) -> int:
        return self.limit

    def produce_pipeline(self) -> FakePipeline:
        self.pipelines.append(FakePipeline(self))
        return self.pipelines[-1]

    def fetch_ahead(self) -> FetchAhead:
        raise NotImplementedError("these tests read by fetches of their own")
