"""``PartitionLog.segments()``: what a filter on time goes by."""

from __future__ import annotations

from pathlib import Path

import logstore


def test_segments_and_their_newest_times(tmp_path: Path) -> None:
    with logstore.open(tmp_path) as store:
        store.create_topic("t", config={"segment.bytes": "1024"})
        log = store.partition("t", 0)
        assert log.segments() == [] or log.segments()[0].max_timestamp_ms == -1
        for timestamp_ms in (5, 3, 9, 1):
            log.append([(None, b"v" * 600, None, timestamp_ms)])
        found = log.segments()
        assert [(row.base_offset, row.next_offset, row.max_timestamp_ms) for row in found] == [
            (0, 1, 5), (1, 2, 3), (2, 3, 9), (3, 4, 1)
        ]  # fmt: skip
        assert [row.closed for row in found] == [True, True, True, False]
        with logstore.open(tmp_path, mode="r") as reader:
            assert reader.partition("t", 0).segments() == found
    for row in found:
        assert (tmp_path / "t-0" / f"{row.base_offset:020d}.log").stat().st_size == row.size_bytes
