"""The question of the broker: its clients do the work that they are timed for."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import ours
from bench.brokers import rpc, rpc_clients
from bench.harness import Bench, Row
from logstore.types import Acks
from tests.rpc.served import Served


@pytest.mark.parametrize("acks", [1, "all"])
def test_clients_do_what_they_are_timed_for(acks: Acks) -> None:
    with Served(":memory:") as served:
        served.store.create_topic(ours.TOPIC, config=ours.CACHED)
        assert len(rpc_clients.one_by_one(served.address, acks, 20)) == 20
        assert rpc_clients.produce(served.address, 200) > 0
        assert rpc_clients.consume(served.address) > 0
        assert served.store.partition(ours.TOPIC, 0).high_watermark == 22 + 201


@pytest.mark.slow
def test_every_figure_has_its_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a broker that is a process of its own, asked by processes of their own."""
    monkeypatch.setattr(Bench, "rounds", 1)
    monkeypatch.setattr(Bench, "size", lambda self, full, quick: min(quick, 50))
    monkeypatch.setattr(rpc, "WAITS_S", (0.2, 0.3))
    rows: list[Row] = list(rpc.run(Bench(folder=str(tmp_path), quick=True)))
    assert len(rows) == 6 + 4 + 2 + 1 + 2
    assert all(row.value.median >= 0 for row in rows)
    assert all(row.value.median > 0 for row in rows[:12])
