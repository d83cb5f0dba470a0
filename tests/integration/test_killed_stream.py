"""Streaming copies by Spark whose drivers and workers are killed: each record once, in order, whoever was cut where."""

from __future__ import annotations

from pathlib import Path

import pytest

import logstore
from tests.integration.killed_queries import COPIES, run_queries
from tests.integration.killed_stream import compare, fill, run_stream
from tests.integration.spark_driver import WrongStreamError, progress
from tests.integration.stream_job import POINTS, Copy

# Drivers take 10 s to start, several times that on a busy machine.
pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(900)]


@pytest.mark.long  # .ci/run has the small one as a step of its own
@pytest.mark.parametrize(
    ("seed", "records", "kills"),
    [(1, 5_000, 3), pytest.param(8, 100_000, 20, marks=pytest.mark.timeout(7200))],
)
def test_the_output_equals_the_input_after_kills_inside_batches(
    tmp_path: Path, seed: int, records: int, kills: int
) -> None:
    done = run_stream(tmp_path, seed, records, kills)
    print(done)
    assert done.landed >= kills, "the input was long enough, and kills came in time"
    assert {"decided", "unnoted"} <= set(done.at)
    assert kills < 6 or {*POINTS, "workers"} <= set(done.at)


@pytest.mark.long
@pytest.mark.parametrize(
    ("seed", "records", "kills"),
    [(2, 5_000, 3), pytest.param(9, 100_000, 20, marks=pytest.mark.timeout(7200))],
)
def test_a_copy_at_brokers_that_are_killed_as_well(
    tmp_path: Path, seed: int, records: int, kills: int
) -> None:
    done = run_stream(tmp_path, seed, records, kills, at_brokers=True)
    print(done)
    assert done.landed >= kills, "the input was long enough, and kills came in time"
    assert {"unnoted", "broker"} <= set(done.at)
    assert kills < 7 or {"open", "workers"} <= set(done.at)


@pytest.mark.long
def test_queries_into_two_topics_and_into_one_are_cut_and_resumed(tmp_path: Path) -> None:
    done = run_queries(tmp_path, 5, 1_200)
    print(done)
    assert set(done.cut) == {str(copy) for copy in COPIES}
    assert all(done.cut.values()), done


def test_the_comparison_finds_what_is_lost_doubled_moved_staged_or_open(tmp_path: Path) -> None:
    fill(tmp_path, "in", 1, 20)
    left = tmp_path / ".staging" / "query.0.0.0.aa.staged"
    left.parent.mkdir()
    with logstore.open(tmp_path) as store:
        right = [(record.key, record.value) for record in store.partition("in", 0).records(0)]
        planted = {
            "19 records, 20 are due": right[:-1],
            "21 records, 20 are due": [*right, right[-1]],
            "record 7 is": [*right[:7], right[18], *right[8:18], right[7], right[19]],
        }
        for number, rows in enumerate([right, *planted.values()]):
            store.create_topic(f"out{number}", 1)
            store.partition(f"out{number}", 0).append(rows)
    for keep in (False, True):
        assert compare(0, tmp_path, [Copy("in", "out0", keep)]) == 0
        for number, words in enumerate(planted, 1):
            with pytest.raises(WrongStreamError, match=words if keep else "records?, .* due|is due"):
                compare(0, tmp_path, [Copy("in", f"out{number}", keep)])
    left.touch()
    with pytest.raises(WrongStreamError, match="staging files stay"):
        compare(0, tmp_path, [Copy("in", "out0")])
    left.unlink()
    store = logstore.open(tmp_path)
    producer = store.producer(transactional_id="t")  # dropped before its record is sent, it would say so
    producer.begin().send("out0", b"x").result(30)
    store.abandon()
    with pytest.raises(WrongStreamError, match="transactions are not ended"):
        compare(0, tmp_path, [Copy("in", "out0")])


def test_a_batch_that_was_begun_and_not_noted_is_one_that_was_cut(tmp_path: Path) -> None:
    assert not progress(tmp_path).inside
    for name in ("offsets/0", "commits/0", "offsets/1", "offsets/.2.crc"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert progress(tmp_path) == (1, 0)
    assert progress(tmp_path).inside
    (tmp_path / "commits/1").touch()
    assert not progress(tmp_path).inside
