"""The codec's suite once more with the Python twin: its oracles, malformed inputs and golden files; and a flight's."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.house import ROOT

FILES = (
    "test_alike", "test_arrow", "test_batch", "test_headers", "test_malformed", "test_oracles", "test_payloads",
    "test_proof", "test_record", "test_record_spans",
)  # fmt: skip


@pytest.mark.parametrize(
    "name", ["test_golden", *(pytest.param(name, marks=pytest.mark.slow) for name in FILES)]
)
def test_file(name: str) -> None:
    passes(f"tests/format/{name}.py")


def test_flights() -> None:
    passes("tests/client/producer/test_flight_path.py")


def passes(path: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", "0", "-x", path],
        cwd=ROOT,
        env={**os.environ, "LOGSTORE_NATIVE": "0"},
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
