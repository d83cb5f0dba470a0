"""Tables in a process that only reads, beside one that writes, rolls and compacts: no value of a key goes back."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

import logstore

ROUNDS = 60
DEADLINE_S = 60.0
WRITER = f"""
import sys
import logstore

with logstore.open(sys.argv[1]) as store:
    store.create_topic("t", partitions=2, config={{
        "cleanup.policy": "compact", "segment.bytes": "4096", "delete.retention.ms": "0", "file.delete.delay.ms": "0",
    }})
    for number in range({ROUNDS}):
        for partition in range(2):
            keys = [b"%d-%d" % (partition, key) for key in range(20)]
            rows = [(key, b"%d" % number if (number + at) % 5 else None) for at, key in enumerate(keys)]
            store.partition("t", partition).append(rows)
        if number == 0:
            print("ready", flush=True)
        if number % 4 == 3:
            store.admin.compact("t", roll=number % 8 == 7)
    sys.stdin.readline()
"""


@pytest.mark.parametrize("settings", [{}, {"max_memory_bytes": 1 << 20}])
def test_a_reading_process_follows(tmp_path: Path, settings: dict[str, int]) -> None:
    program = [sys.executable, "-c", WRITER, str(tmp_path / "store")]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as writer:
        assert writer.stdin is not None
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"ready\n"
        newest: dict[bytes, int] = {}
        with (
            logstore.open(tmp_path / "store", mode="r") as store,
            store.topic("t").table(**settings) as table,
        ):
            end_s = time.monotonic() + DEADLINE_S
            last = b"%d" % (ROUNDS - 1)
            while not (table.get(b"0-0") == table.get(b"1-0") == last):
                assert time.monotonic() < end_s
                for key, value in table.items():
                    assert int(value) >= newest.get(key, 0), key
                    newest[key] = int(value)
            expected = {
                b"%d-%d" % (partition, key): last
                for partition in range(2)
                for key in range(20)
                if (ROUNDS - 1 + key) % 5
            }
            assert table == expected
            assert {key: table.place(key)[0] for key in expected} == {key: int(key[:1]) for key in expected}
        writer.stdin.close()
        assert writer.wait(30) == 0
