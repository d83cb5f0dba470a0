"""The gate stops one thread at the call that was named, and no other."""

from __future__ import annotations

import pytest

from logstore.seams.fs import File
from logstore.seams.memory_fs import MemoryFileSystem
from tests.interleave.gate import LONGEST_WAIT_S, Gate, GatedFileSystem
from tests.interleave.world import Actor


def written(fs: GatedFileSystem) -> File:
    file = fs.open("/a", "create")
    file.pwritev([b"one"], 0)
    file.sync()
    return file


@pytest.mark.parametrize(("when", "there"), [("before", b""), ("after", b"one")])
def test_a_thread_waits_at_its_point_while_another_works(when: str, there: bytes) -> None:
    gate = Gate()
    fs = GatedFileSystem(MemoryFileSystem(), gate)
    gate.arm((2, when))
    first = Actor(lambda: written(fs).close())
    assert gate.reached.wait(LONGEST_WAIT_S)
    with gate.ignoring():
        other = fs.open("/b", "create")
        other.pwritev([b"two"], 0)
        other.sync()
        assert fs.open("/a", "r").pread(9, 0) == there
    assert not first.done(0)
    gate.disarm()
    assert first.done(LONGEST_WAIT_S)
    assert first.error is None
    assert gate.names == ["create /a", "pwritev /a"]  # it counts no more once it is open


def test_a_call_that_fails_is_a_point_too() -> None:
    gate = Gate()
    fs = GatedFileSystem(MemoryFileSystem(), gate)
    gate.arm((1, "after"))
    first = Actor(lambda: fs.remove("/nothing"))
    assert gate.reached.wait(LONGEST_WAIT_S)
    gate.disarm()
    assert first.done(LONGEST_WAIT_S)
    assert isinstance(first.error, FileNotFoundError)
