"""The gates of a batch: what those who wait for its outcome sleep on."""

from __future__ import annotations

from collections.abc import Sequence

from logstore.client.producer.pending import Releasable
from logstore.native import compiled


@compiled("client.pending")
def release_all(gates: Sequence[Releasable]) -> None:
    """Let all waiters of a batch go on."""
    for gate in gates:
        gate.release()
