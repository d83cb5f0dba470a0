"""``Counters``: what a producer has done so far."""

from __future__ import annotations

from dataclasses import dataclass

from logstore.native import compiled


@compiled("client.pending")
@dataclass(slots=True)
class Counters:
    """Totals since the producer was made; written with the lock held."""

    records: int = 0
    batches: int = 0
    produced_bytes: int = 0  # of encoded batches
    produce_calls: int = 0
    retries: int = 0
    failed_records: int = 0
    waits_for_room: int = 0
