"""The question of the broker: its clients do the work that they are timed for."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import ours, rpc
from bench.harness import Bench, Row
from logstore.types import Acks
from tests.rpc.served import Served


@pytest.mark.parametrize("acks", [1, "all"])
def test_clients_do_what_they_are_timed_for(acks: Acks) -> None:
    with Served(":memory:") as served:
        served.store.create_topic(ours.TOPIC, config=ours.CACHED)
        assert len(rpc.one_by_one(served.address, acks, 20)) == 20
        assert rpc.produce(served.address, 200) > 0
        assert rpc.consume(served.address) > 0
        assert served.store.partition(ours.TOPIC, 0).high_watermark == 22 + 201


def test_every_figure_has_its_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a broker that is a process of its own, asked by processes of their own."""
    monkeypatch.setattr(Bench, "rounds", 1)
    monkeypatch.setattr(Bench, "size", lambda self, full, quick: 50)
    rows: list[Row] = list(rpc.run(Bench(folder=str(tmp_path), quick=True)))
    assert len(rows) == 8
    assert all(row.value.median > 0 for row in rows)
