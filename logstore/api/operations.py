"""``Operation``: the handle of an administrator's work that takes long. Its progress is polled."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol, TypeVar

from logstore.types import CleaningProgress, TopicPartition

Result = TypeVar("Result", covariant=True)


class OperationState(NamedTuple):
    """``progress``: the newest of each partition that was begun. ``done``: it ended, well or not."""

    done: bool
    progress: Mapping[TopicPartition, CleaningProgress]


class Operation(Protocol[Result]):
    """Thread-safe. In the embedded store the thread that waits does the work; brokers work by themselves."""

    def state(self) -> OperationState:
        """As far as it is known here. Cheap."""
        ...

    def wait(self, timeout_s: float) -> bool:
        """Until it is done, there is progress to tell, or the time is over. Whether it is done."""
        ...

    def result(self) -> Result:
        """What came of it, or its error; waits for the end."""
        ...

    def cancel(self) -> None:
        """End it early: what is finished stays, what is under way is as before. Safe to call again; ``result``
        raises OperationCancelledError unless it was done."""
        ...
