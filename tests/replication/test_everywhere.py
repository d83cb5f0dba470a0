"""What a node asks of all others: a broker that does not answer in time holds nothing up, and fails nothing."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from replication import everywhere
from replication.errors import PeerUnavailableError
from replication.everywhere import Everywhere


class SlowNetwork:
    """Node 2 answers, node 3 cannot be reached, node 4's call ends only when ``released`` is set."""

    def __init__(self) -> None:
        self.released = threading.Event()
        self.told: list[int] = []

    def serve(self, operation: str, answer: Any) -> None:
        del operation, answer

    def call(self, node: int, operation: str, request: bytes, timeout_s: float) -> bytes:
        del operation, request, timeout_s
        if node == 3:
            raise PeerUnavailableError("node 3 does not answer")
        if node == 4:
            self.released.wait(30)
        self.told.append(node)
        return b"{}"


def test_a_change_is_told_although_a_brokers_call_takes_longer_than_it_may(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(everywhere, "_SETTLE_S", 0.02)
    network = SlowNetwork()
    try:
        asks = Everywhere(network, lambda: [2, 3, 4], lambda _: None)  # type: ignore[arg-type]
        asks.tell(7)
        assert network.told == [2]
        assert asks.hear("upkeep.clean", b"{}") == {2: b"{}"}
    finally:
        network.released.set()
