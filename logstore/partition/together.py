"""``append_together``: batches of several partitions of this directory, written in one go."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from logstore.api.records import ProduceItem, ProduceResult
from logstore.errors import LogStoreError
from logstore.native import compiled
from logstore.partition.partition import Partition, PendingAppend
from logstore.types import Acks


@compiled("partition.together")
def append_together(
    items: Sequence[ProduceItem],
    partition: Callable[[str, int], Partition],
    acks: Acks,
    failed: dict[tuple[str, int], LogStoreError],
) -> tuple[list[ProduceResult | None], list[tuple[int, PendingAppend]]] | None:
    """Append those batches whose partitions are of this directory, owned and free at the moment, of each partition from
    its first one on, and give results and the appends that are still to be decided, with the numbers of their items;
    the result of a batch that is left to the usual way is None. ``failed`` gets the error of a partition whose write
    failed. None: nothing was done, as by this twin always: without the compiled one a write by itself costs no more.

    ``partition``: one that a batch is for, by topic and number.
    """
    del items, partition, acks, failed
    return None
