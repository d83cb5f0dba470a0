"""First writes to many partitions at a time: what they sync, and what a crash anywhere in them leaves."""

from __future__ import annotations

import errno
import random
import subprocess
import sys
from pathlib import Path

import pytest

from logstore.api.records import ProduceItem
from logstore.errors import DamagedStoreError
from logstore.format.batch import encode_batch
from logstore.partition.fan_out import MANY
from logstore.seams.clock import ManualClock
from logstore.seams.faults import FaultKind, SimulatedCrash
from logstore.seams.memory_crash import Chooser, KeepAll, KeepNothing, RandomChooser
from logstore.seams.memory_fs import MemoryFileSystem
from logstore.store import LogStore

ROOT = "/store"


def opened(fs: MemoryFileSystem, boot: int = 0) -> LogStore:
    return LogStore(ROOT, fs=fs, clock=ManualClock(boot_id=f"boot-{boot}"), threads=False)


def produce(store: LogStore, partitions: int) -> list[int]:
    """A record into each; those whose record was acknowledged as durable."""
    batch = encode_batch([(None, b"x")], now_ms=1_000)
    items = [ProduceItem("t", partition, batch) for partition in range(partitions)]
    results = store.backend.produce(items, "all", 10.0)
    assert not [result.error for result in results if result.error is not None]
    return [item.partition for item, result in zip(items, results, strict=True) if result.error is None]


def test_first_writes_sync_the_root_once_and_a_close_syncs_no_empty_index() -> None:
    fs = MemoryFileSystem()
    store = opened(fs)
    store.create_topic("t", partitions=MANY)
    fs.faults.tracing = True
    assert len(produce(store, MANY)) == MANY
    synced = [call.path for call in fs.faults.trace if call.name == "sync_dir"]
    assert synced.count(ROOT) == 1
    # Its metadata, epochs and segment at once, before the first record; a later partition shares the small files.
    assert synced.count(f"{ROOT}/t-0") == synced.count(f"{ROOT}/t-1") == 1
    synced = [call.path for call in fs.faults.trace if call.name == "sync"]
    assert [path for path in synced if "/t-1/" in path] == [f"{ROOT}/t-1/{0:020d}.log"]
    fs.faults.trace.clear()
    store.close()
    synced = [call.path for call in fs.faults.trace if call.name == "sync"]
    assert not [path for path in synced if path.endswith(".index")]  # no row in any of them
    fs = fs.crash(KeepNothing())
    store = opened(fs, boot=1)
    assert store.recovery_report == ()
    assert [next(iter(store.partition("t", n).records(0))).value for n in range(MANY)] == [b"x"] * MANY
    assert store.recovery_report == ()
    store.close()


def test_rows_of_an_index_are_durable_after_a_close() -> None:
    fs = MemoryFileSystem()
    store = opened(fs)
    store.create_topic("t", config={"index.interval.bytes": "1"})
    for _ in range(4):
        store.partition("t", 0).append([(None, b"x" * 100)])
    store.close()
    before = fs.open(f"{ROOT}/t-0/{0:020d}.index", "r").size()
    assert before > 0
    fs = fs.crash(KeepNothing())
    assert fs.open(f"{ROOT}/t-0/{0:020d}.index", "r").size() == before


@pytest.mark.parametrize(
    "choose", [KeepNothing(), KeepAll(), RandomChooser(random.Random(7))], ids=["nothing", "all", "some"]
)
def test_a_crash_anywhere_in_first_writes_leaves_what_was_acknowledged_and_all_writable(
    choose: Chooser,
) -> None:
    def attempt(call: int) -> bool:
        """False: the writes end before that many calls."""
        fs = MemoryFileSystem()
        store = opened(fs)
        store.create_topic("t", partitions=MANY)
        fs.faults.at(fs.faults.calls + call, FaultKind.CRASH)
        acknowledged: list[int] = []
        try:
            acknowledged = produce(store, MANY)
            store.close()
        except SimulatedCrash:
            store.abandon()
        else:
            return False
        store = opened(fs.crash(choose), boot=1)
        assert len(produce(store, MANY)) == MANY
        for partition in range(MANY):
            found = [record.value for record in store.partition("t", partition).records(0)]
            assert found in ([b"x"], [b"x", b"x"])
            assert len(found) == 2 or partition not in acknowledged
        store.close()
        return True

    call = 1
    while attempt(call):
        call += 37  # prime to the calls that a partition takes, so that each of them is met at some partition
    assert call > 100


def values(store: LogStore, partitions: int) -> list[list[bytes | None]]:
    return [[record.value for record in store.partition("t", n).records(0)] for n in range(partitions)]


def test_partitions_whose_file_system_has_no_hard_links_get_files_of_their_own() -> None:
    class Linkless(MemoryFileSystem):
        def link(self, source: str, target: str) -> None:
            raise OSError(errno.EPERM, "no hard links here", target)

    fs = Linkless()
    store = opened(fs)
    store.create_topic("t", partitions=3)
    for partition in range(3):
        store.partition("t", partition).append([(None, b"x")])
    store = opened(fs.crash(KeepNothing()), boot=1)
    assert values(store, 3) == [[b"x"]] * 3
    store.close()


def test_a_shared_file_that_is_replaced_in_one_partition_stays_as_it_was_in_the_others() -> None:
    fs = MemoryFileSystem()
    store = opened(fs)
    store.create_topic("t", partitions=2)
    assert len(produce(store, 2)) == 2
    store.abandon()
    fs = fs.crash(KeepNothing())
    store = opened(fs, boot=1)  # an unclean stop: each partition begins an epoch of its own
    store.partition("t", 0).append([(None, b"y")])
    assert [store.partition("t", n).leader_epoch for n in range(2)] == [1, 1]
    store.close()


def test_an_empty_log_without_metadata_is_of_a_crash_one_with_records_is_damage() -> None:
    fs = MemoryFileSystem()
    store = opened(fs)
    store.create_topic("t", partitions=2)
    for partition, content in ((0, b""), (1, b"records")):
        fs.mkdir(f"{ROOT}/t-{partition}")
        file = fs.open(f"{ROOT}/t-{partition}/{0:020d}.log", "create")
        file.pwritev([content], 0)
        file.close()
    store.partition("t", 0).append([(None, b"x")])
    assert values(store, 1) == [[b"x"]]
    with pytest.raises(DamagedStoreError, match=r"holds records but no partition\.metadata"):
        store.partition("t", 1).append([(None, b"x")])
    store.close()


def test_appends_that_meet_a_crowded_pool_sync_many_logs_at_a_time() -> None:
    fs = MemoryFileSystem()
    store = LogStore(ROOT, fs=fs, clock=ManualClock(), threads=False, max_open_files=16)
    store.create_topic("t", partitions=60)
    synced: list[int] = []
    for partition in range(60):
        fs.faults.tracing = True
        store.partition("t", partition).append([(None, b"x")], acks=1)
        synced.append(sum(call.name == "sync" and call.path.endswith(".log") for call in fs.faults.trace))
        fs.faults.trace.clear()
    assert max(synced) == 8  # half of the places
    assert sum(count > 0 for count in synced) <= 60 // 8
    assert store.metrics()["logstore_open_files"] <= 16
    store.close()


_FEW_DESCRIPTORS = """
import resource, sys
import logstore

resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
with logstore.open(sys.argv[1]) as store:
    for topic, partitions in (("wide", 300), *((f"narrow-{number}", 10) for number in range(8))):
        store.create_topic(topic, partitions=partitions)
    with store.producer(acks=1) as producer:
        for partition in range(150):
            producer.send("wide", b"x", partition=partition)
        for number in range(8):
            for partition in range(10):
                producer.send(f"narrow-{number}", b"x", partition=partition)
    for partition in range(150, 300):
        store.partition("wide", partition).append([(None, b"x")], acks=1)
"""


def test_first_writes_to_more_partitions_than_the_process_may_open_files(tmp_path: Path) -> None:
    root = str(tmp_path / "store")
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", _FEW_DESCRIPTORS, root], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    with LogStore(root, mode="r") as store:
        assert [store.partition("wide", n).log_end_offset for n in range(300)] == [1] * 300
        assert {store.partition(f"narrow-{k}", n).log_end_offset for k in range(8) for n in range(10)} == {1}
