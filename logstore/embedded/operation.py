"""``EmbeddedOperation``: an administrator's work in this process, done step by step by the thread that waits."""

from __future__ import annotations

import threading
from typing import Generic, TypeVar

from logstore.api.operations import OperationState
from logstore.errors import LogStoreError, OperationCancelledError
from logstore.types import CleaningProgress, TopicPartition
from logstore.upkeep.compactor import Steps

Result = TypeVar("Result")


class EmbeddedOperation(Generic[Result]):
    """An ``Operation``. ``what``: for its errors, as in "compacting t"."""

    def __init__(self, what: str, steps: Steps[Result]) -> None:
        self._what = what
        self._steps = steps
        self._guard = threading.Lock()  # held while a thread works
        self._progress: dict[TopicPartition, CleaningProgress] = {}
        self._done = False
        self._result: list[Result] = []
        self._error: LogStoreError | None = None

    def state(self) -> OperationState:
        return OperationState(self._done, dict(self._progress))

    def wait(self, timeout_s: float) -> bool:
        if not self._guard.acquire(timeout=max(0.0, timeout_s)):
            return self._done
        try:
            if not self._done:
                self._step()
            return self._done
        finally:
            self._guard.release()

    def _step(self) -> None:
        try:
            place, progress = next(self._steps)
            self._progress[place] = progress
        except StopIteration as end:
            self._result.append(end.value)
            self._done = True
        except LogStoreError as error:
            self._error = error
            self._done = True
        except BaseException:  # goes on as it is; the work has ended with it
            self._error = self._cancelled()
            self._done = True
            raise

    def result(self) -> Result:
        while not self.wait(1.0):
            pass
        if self._error is not None:
            raise self._error
        return self._result[0]

    def cancel(self) -> None:
        with self._guard:
            if not self._done:
                self._error = self._cancelled()
                self._done = True
                self._steps.close()

    def _cancelled(self) -> OperationCancelledError:
        return OperationCancelledError(
            f"{self._what} was cancelled before its end", hint="what was finished stays so; start it again"
        )
