"""`logstore perf`: it measures real records and leaves nothing behind."""

from __future__ import annotations

import json

import pytest

from logstore.cli.perf import percentiles
from tests.cli.conftest import Shell


@pytest.mark.parametrize(
    ("arguments", "latencies"),
    [
        (["produce", "-n", "2500", "--acks", "1"], {"acknowledged"}),
        (["produce", "-n", "1", "--compression", "zstd"], {"acknowledged"}),
        (["consume", "-n", "2500", "--partitions", "3"], {"poll"}),
        (["end-to-end", "-n", "20"], {"acknowledged", "received"}),
    ],
)
def test_measures_and_cleans_up(filled: Shell, arguments: list[str], latencies: set[str]) -> None:
    result = filled.json("perf", *arguments)
    assert result["test"] == arguments[0]
    assert result["records"] == int(arguments[2])
    assert result["records_per_second"] > 0
    assert set(result["latency_ms"]) == latencies
    for row in result["latency_ms"].values():
        assert 0 <= row["p50"] <= row["p95"] <= row["p99"] <= row["max"]
    assert [topic["name"] for topic in filled.json("topic", "list")] == ["t"]


def test_without_a_store_it_makes_one_for_itself(shell: Shell) -> None:
    result = json.loads(shell.bare("--json", "perf", "produce", "-n", "10").stdout)
    assert result["records"] == 10
    text = shell.bare("perf", "produce", "-n", "1000").output
    assert "produce: 1,000 records of 100 bytes in" in text
    assert "LATENCY (MS)" in text
    assert not shell.store.exists()


def test_percentiles_by_nearest_rank() -> None:
    assert percentiles([0.001 * number for number in range(1, 101)]) == {
        "p50": 50.0,
        "p95": 95.0,
        "p99": 99.0,
        "max": 100.0,
    }
    assert percentiles([0.5]) == {"p50": 500.0, "p95": 500.0, "p99": 500.0, "max": 500.0}
