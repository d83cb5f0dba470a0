"""What a backend may offer beside ``DataPlane`` where an answer takes its time: several requests under way at once.

A backend in this process offers none of it: its clients wait for each call, and nothing would be gained.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from logstore.api.cancellation import CancelHandle
from logstore.api.records import FetchRequest, FetchResult, ProduceItem, ProduceResult
from logstore.types import Acks, Isolation


class PendingProduce(Protocol):
    """A request that was begun."""

    def results(self) -> list[ProduceResult]:
        """Wait for the answer, as ``DataPlane.produce`` gives it; asked once, in the order in which the requests were
        begun. Raises what concerns the whole request; those behind it have then failed, too, and were perhaps not
        tried."""
        ...


class ProducePipeline(Protocol):
    """Requests are appended in the order in which they were begun. Of one thread.

    What is behind a failed batch of a partition is not tried, in the same request or in one begun before the failure
    was asked for (``PendingProduce.results``): it gets the same error, so that a retry of all of them keeps the order.
    """

    @property
    def window(self) -> int:
        """Requests that may be under way at once."""
        ...

    def begin(self, items: Sequence[ProduceItem], acks: Acks, timeout_s: float) -> PendingProduce:
        """Send; waits for no answer, and raises nothing. A request begun behind one that has failed as a whole fails
        as well, until the failures have been asked for."""
        ...

    def rest(self) -> None:
        """Nothing is under way, nor will be soon: let go of what an idle pipeline holds. Safe to call again."""
        ...


class FetchAhead(Protocol):
    """Fetches of one consumer: what it will ask for next is on its way while it works through what it has. Of one
    thread.

    An answer that was fetched ahead is given only for the very request that it answers, offset and epoch among it: what
    a seek or a rebalance has passed by is dropped. There is at most ``max_bytes`` of it, beside what the consumer has.
    """

    def fetch(
        self,
        requests: Sequence[FetchRequest],
        *,
        isolation: Isolation,
        min_bytes: int,
        max_bytes: int,
        max_wait_s: float,
        cancel: CancelHandle | None = None,
    ) -> list[FetchResult | None]:
        """As ``DataPlane.fetch``. None: the partition was not asked, as others have an answer at hand."""
        ...

    def close(self) -> None:
        """Drop what is on its way. Safe to call again."""
        ...


@runtime_checkable
class Pipelining(Protocol):
    """A backend that has this."""

    def produce_limit(self) -> int:
        """Bytes of batches that one produce request should have at most, but for a single batch."""
        ...

    def produce_pipeline(self) -> ProducePipeline | None:
        """One of the producer's own. None: requests have to go one by one."""
        ...

    def fetch_ahead(self) -> FetchAhead:
        """One of the consumer's own."""
        ...
