"""What a producer writes to a staging file through the backend it takes for a store's."""

from __future__ import annotations

import threading
from typing import cast

from logstore.api.backend import Backend
from logstore.api.records import ProduceItem
from logstore.format.batch import encode_batch
from spark_connector.staging import StagedBatch, StagingFile
from spark_connector.staging_backend import StagingBackend

BATCH = encode_batch([(None, b"v")] * 3, now_ms=1)


class WatchedFile:
    """Counts who is in ``append``; the first one gives a second the time to come in as well."""

    def __init__(self) -> None:
        self.inside = self.most_inside = 0
        self.second = threading.Event()
        self.staged: list[StagedBatch] = []

    def append(self, staged: StagedBatch) -> None:
        self.inside += 1
        self.most_inside = max(self.most_inside, self.inside)
        if self.inside > 1:
            self.second.set()
        elif not self.staged:
            self.second.wait(0.2)
        self.staged.append(staged)
        self.inside -= 1


def test_two_threads_of_a_producer_write_one_after_the_other() -> None:
    file = WatchedFile()
    backend = StagingBackend(cast(Backend, None), cast(StagingFile, file))
    items = [ProduceItem("t", number, BATCH) for number in range(2)]
    threads = [threading.Thread(target=backend.produce, args=([item], 1, 1.0)) for item in items]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert file.most_inside == 1
    assert sorted(staged.partition for staged in file.staged) == [0, 1]
    assert backend.records == 6


def test_offsets_count_the_records_of_each_partition() -> None:
    backend = StagingBackend(cast(Backend, None), cast(StagingFile, WatchedFile()))
    items = [ProduceItem("t", number, BATCH) for number in (0, 1, 0)]
    assert [result.base_offset for result in backend.produce(items, 1, 1.0)] == [0, 0, 3]
