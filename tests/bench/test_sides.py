"""Every side does the work that it is timed for, and says how much."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

import logstore
from bench import __main__ as entry
from bench import child, ours, peers, workload
from bench.engine import (
    append,
    batches,
    beside_cleaning,
    compaction,
    durable,
    following,
    groups,
    idempotence,
    isolation,
    random_read,
)
from bench.harness import Side

ROWS = workload.unkeyed(230, 100)
KEYED = workload.keyed(230, 100)
HEADERS = workload.with_headers(KEYED, 1)
TWICE = compaction.twice(230)
UNEVEN = compaction.twice(230, uneven=True)
BATCHES = workload.ready_batches(40_000, 100, 4096)

SIDES: dict[str, tuple[Side, int]] = {
    "send_many": (ours.send_many(ROWS, 100), 230),
    "send_many keyed": (ours.send_many(KEYED, 100, partitions=8), 230),
    "send_many durable": (ours.send_many(ROWS, 100, acks="all", defaults=True), 230),
    "send": (ours.send(ROWS), 230),
    "send header": (ours.send(HEADERS), 230),
    "append": (ours.append_rows(ROWS, 100), 230),
    "append_batch": (append.append_batches(BATCHES), sum(map(len, BATCHES))),
    "poll": (ours.poll(HEADERS, partitions=8), 230),
    "iterate": (ours.iterate(KEYED), 230),
    "records": (ours.records(KEYED), 230),
    "read back": (batches.read_back(ROWS, 7), 230),
    "arrow": (ours.arrow(KEYED), 230),
    "compact": (compaction.compact(TWICE), 230),
    "compact zstd": (compaction.compact(UNEVEN, "zstd"), 230),
    # 115 were left, and 115 came on top.
    "compact again": (compaction.compact(TWICE, again=True), 230),
    "erase": (compaction.erase(TWICE, [b"key-%012d" % 7, b"another"]), 230),
    "idempotent": (idempotence.send(ROWS, idempotence=True, call_rows=100), 230),
    "idempotent one": (idempotence.send(ROWS, idempotence=True, call_rows=1), 230),
    "no sequences": (idempotence.send(ROWS, idempotence=False, call_rows=100), 230),
    "load offsets": (groups.load(230), 230),
    "sqlite": (peers.sqlite_append(ROWS, 100), 230),
    "sqlite one": (peers.sqlite_one_at_a_time(ROWS, 100), 230),
    "lmdb": (peers.lmdb_append(ROWS, 100), 230),
    "lmdb put": (peers.lmdb_put(ROWS, 100), 230),
    "rocksdb": (peers.rocksdb_append(ROWS, 100), 230),
    "writev": (peers.bare_writev([(batch,) for batch in BATCHES]), sum(map(len, BATCHES))),
    "sqlite scan": (peers.sqlite_scan(ROWS), 230),
    "lmdb scan": (peers.lmdb_scan(ROWS), 230),
    "rocksdb scan": (peers.rocksdb_scan(ROWS), 230),
}


@pytest.mark.parametrize(("side", "units"), SIDES.values(), ids=SIDES)
def test_units(tmp_path: Path, side: Side, units: int) -> None:
    with side(str(tmp_path)) as run:
        assert run() == units


DURABLE = {
    "producer": durable.through_producer,
    "partition": durable.through_partition,
    "bare": peers.bare_durable,
    "sqlite": peers.sqlite_durable,
    "lmdb": peers.lmdb_durable,
    "rocksdb": peers.rocksdb_durable,
}


@pytest.mark.parametrize("side", DURABLE.values(), ids=DURABLE)
def test_durable_calls(
    tmp_path: Path, side: Callable[[str, bytes], AbstractContextManager[Callable[[], object]]]
) -> None:
    with side(str(tmp_path), b"value") as call:
        call()
        call()
    assert any(path.is_file() for path in tmp_path.rglob("*"))


def test_a_compaction_keeps_the_last_of_each_key(tmp_path: Path) -> None:
    with compaction.compact(UNEVEN)(str(tmp_path)) as run:
        assert run() == 230
        assert run() == 115
    assert len({len(value) for _, value in UNEVEN}) > 30
    assert sum(len(value) for _, value in UNEVEN) == pytest.approx(230 * 100, rel=0.1)


@pytest.mark.parametrize("arrow", [False, True])
@pytest.mark.parametrize(
    ("kind", "aborted"), [("no transactions", 0), ("committed", 0), ("1 in 10 aborted", 2000)]
)
def test_isolation_gives_out_what_it_should(tmp_path: Path, kind: str, aborted: int, arrow: bool) -> None:
    rows = workload.unkeyed(21_000, 4)
    for level in ("read_committed", "read_uncommitted"):
        with isolation.read(rows, kind, level, arrow=arrow)(str(tmp_path / level)) as run:
            assert run() == 21_000 - (aborted if level == "read_committed" else 0)


@pytest.mark.parametrize("measure", [following.across, following.within])
def test_followers_see_every_record(
    tmp_path: Path, measure: Callable[[str, float, int], list[float]]
) -> None:
    delays = measure(str(tmp_path), 500.0, 20)
    assert len(delays) == 20
    assert all(-1 < delay < following.DEADLINE_S for delay in delays)


def test_calls_are_timed_while_the_cleaner_goes_on(tmp_path: Path) -> None:
    left = iter([True, True, False])
    calls: list[int] = []
    assert len(beside_cleaning.timed(lambda: calls.append(1), 30.0, lambda: next(left))) == 200 == len(calls)
    with logstore.open(tmp_path) as store:
        beside_cleaning.fill(store, 100)
        assert not beside_cleaning.is_cleaning(store)
        assert store.partition(beside_cleaning.DIRTY, 0).log_end_offset == 100


def test_random_reads_find_their_offset(tmp_path: Path) -> None:
    with random_read.log_of(str(tmp_path), 200_000) as log:
        assert log.high_watermark > 100
        assert random_read.reader(log)()
        assert random_read.one_record(log)()


@pytest.mark.slow
def test_children(tmp_path: Path) -> None:
    folder = str(tmp_path / "many")
    child.call("fill_partitions", folder=folder, partitions=20)
    opened = child.call("open_clean", folder=folder)
    assert opened["partitions"] == 20
    for pinned in (True, False):
        assert 0 <= child.call("idle", folder=folder, seconds=0.1, pinned=pinned)["share"] < 2
    crashed = str(tmp_path / "crashed")
    child.call("crash_with_unsynced", folder=crashed, total_bytes=1 << 20)
    keys = str(tmp_path / "keys")
    child.call("fill_keys", folder=keys, keys=2000)
    assert 0 <= child.call("compact_within", folder=keys, map_bytes=1 << 16)["grown_mb"] < 100
    assert child.call("open_unclean", folder=crashed)["seconds"] > 0


def test_wrong_question_names_the_right_ones(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        entry.main(["sned"])
    assert ended.value.code == 2
    assert "no question sned; there are append, send_many, send" in capsys.readouterr().err
