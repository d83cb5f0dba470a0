"""The facade's quick appends do, and refuse, what its usual way does."""

from __future__ import annotations

from typing import Any

import pytest

from logstore.errors import LogStoreError
from logstore.format.batch import encode_batch
from logstore.partition import partition_log
from logstore.seams.clock import ManualClock, SystemClock
from logstore.seams.memory_fs import MemoryFileSystem
from logstore.store import LogStore
from tests.log.logs import NOW_MS

ROW = (b"key", b"value")
BATCH = encode_batch([ROW, (None, b"more")], now_ms=NOW_MS - 5)
ACKS: list[Any] = ["all", 1, 0, True, 2, "1", 1.0, None]
ROWS: list[Any] = [
    [ROW], [(None, None)], [(b"", b"v" * 2000)], [(None, b"v" * 5000)], [ROW, ROW], [], (ROW,), [[b"k", b"v"]],
    [(b"k",)], [(bytearray(b"k"), b"v")], [("k", b"v")], [(b"k", b"v", [("a", b"b")])], [(b"k", b"v", None, 7)],
    [None], b"rows", None, iter([ROW]),
]  # fmt: skip
BUFFERS: list[Any] = [
    BATCH, bytearray(BATCH), memoryview(BATCH), BATCH + BATCH, b"", BATCH[:-1], BATCH[:30], BATCH[:-1] + b"\0",
    encode_batch([(None, b"v" * 5000)], now_ms=NOW_MS), encode_batch([ROW], now_ms=NOW_MS + 10**11), "batch", None,
    memoryview(BATCH)[::2], encode_batch([ROW], now_ms=NOW_MS, codec="gzip"),
]  # fmt: skip
TOPICS = {
    "plain": {"max.message.bytes": "4000"},
    "compacted": {"cleanup.policy": "compact"},
    "stamped": {"message.timestamp.type": "LogAppendTime"},
    "gzip": {"compression.type": "gzip"},
    "none": {"compression.type": "none", "visible.after": "append", "flush.messages": "3"},
}


def told(topic: str, *, quick: bool, end: str = "") -> list[object]:
    """What each call gives, or its error, and the log's offsets after it."""
    said: list[object] = []
    with pytest.MonkeyPatch.context() as patch:
        if not quick:
            for name in ("append_row", "append_proved"):
                patch.setattr(partition_log, name, lambda *_: None)
        store = LogStore("/store", fs=MemoryFileSystem(), clock=ManualClock(NOW_MS))
        store.create_topic("t", 2, config=TOPICS[topic])
        log = store.partition("t", 1)
        if end == "deleted":
            store.delete_topic("t")
        if end == "closed":
            store.close()
        calls: list[Any] = [(log.append, rows) for rows in ROWS if not hasattr(rows, "__next__")]
        calls += [(log.append_batch, buffer) for buffer in BUFFERS]
        for call, given in calls:
            for acks in ACKS:
                try:
                    said.append(call(given, acks=acks))
                except LogStoreError as error:
                    said.append((type(error), error.message, error.advice))
                if not end:
                    said.append(log.bounds())
        if not end:
            said += log.records(0)
            store.close()
    return said


@pytest.mark.parametrize("topic", TOPICS)
def test_quick_or_not_the_same_is_done(topic: str) -> None:
    assert told(topic, quick=True) == told(topic, quick=False)


@pytest.mark.parametrize("end", ["closed", "deleted"])
def test_quick_or_not_the_same_is_refused(end: str) -> None:
    assert told("plain", quick=True, end=end) == told("plain", quick=False, end=end)


def test_the_time_is_the_clocks(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """Of the system, or what a tool puts in its place."""
    with LogStore(str(tmp_path / "s")) as store:
        store.create_topic("t")
        log, before_ms = store.partition("t", 0), SystemClock().wall_ms()
        stamped_ms = log.append([ROW]).timestamp_ms
        assert before_ms <= stamped_ms <= SystemClock().wall_ms()
        monkeypatch.setattr(SystemClock, "wall_ms", lambda _: before_ms - 77)
        assert log.append([ROW]).timestamp_ms == before_ms - 77
