"""A store that stays open between commits: nobody is kept out, and what ends its process leaves nothing half-done."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import logstore
from logstore.errors import InvalidArgumentError, LogStoreError, StoreClosedError
from spark_connector import held_store
from spark_connector.held_store import HeldStores
from tests.house import ROOT
from tests.spark.writing.sink_worlds import OUT, QUERY, DirectoryWorld, rows, values

_COMMIT = """
import signal
import sys
from pathlib import Path
from spark_connector.held_store import held_store
from tests.spark.writing.sink_worlds import DirectoryWorld, rows

signal.signal(signal.SIGHUP, signal.SIG_DFL)  # as Spark's workers have it, whatever this process was given
world = DirectoryWorld(Path(sys.argv[1]), held_store)
assert world.once(0, [world.write(rows("a"))])
if sys.argv[2] == "within":
    with held_store(sys.argv[1], 5.0):
        print("held", flush=True)
        sys.stdin.read()
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def held() -> Iterator[HeldStores]:
    found = HeldStores(ends_with_signal=False)
    yield found
    found.close()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    with logstore.open(tmp_path / "store") as store:
        store.create_topic(OUT, partitions=2)
    return tmp_path / "store"


def until(there: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + 60
    while not there():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def is_clean(root: Path) -> bool:
    """Whether the topic was closed in order by its last owner."""
    with logstore.open(root) as store:
        store.pin(OUT)
        return not store.recovery_report


def test_it_is_the_same_store_until_something_fails_in_it(root: Path, held: HeldStores) -> None:
    with held.lent(str(root), 5.0) as first:
        first.pin(OUT)
        first.unpin(OUT)
    with held.lent(str(root / "." / ""), 5.0) as second:
        assert second is first
        assert second.metrics()["logstore_owned_topics"] >= 1
    with pytest.raises(InvalidArgumentError), held.lent(str(root), 5.0):
        raise InvalidArgumentError("a commit that fails")
    with pytest.raises(StoreClosedError):
        first.list_topics()
    with held.lent(str(root), 5.0) as third:
        assert third is not first
    assert is_clean(root)


def test_a_directory_that_was_made_anew_is_opened_anew(root: Path, held: HeldStores) -> None:
    world = DirectoryWorld(root, held.lent)
    assert world.once(0, [world.write(rows("a"))])
    shutil.rmtree(root)
    with logstore.open(root) as store:
        store.create_topic(OUT)
    assert world.once(0, [world.write(rows("b"))])
    assert values(world) == ["b"]


def test_a_directory_that_is_removed_is_let_go_of_with_one_line(
    root: Path, held: HeldStores, caplog: pytest.LogCaptureFixture
) -> None:
    """As tests and examples do, while the worker that held it lives on."""
    world = DirectoryWorld(root, held.lent)
    assert world.once(0, [world.write(rows("a"))])
    with held.lent(str(root), 30.0) as store:
        pass
    with caplog.at_level(logging.INFO, "logstore"):
        shutil.rmtree(root)

        def is_closed() -> bool:
            try:
                store.list_topics()
            except LogStoreError as error:
                return isinstance(error, StoreClosedError)
            return False

        until(is_closed)
    said = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(said) <= 1, said  # of the housekeeper, where it looked first
    assert [line for line in said if not line.startswith("housekeeping ends: there is no log store at")] == []


def test_a_topic_is_passed_on_to_a_process_that_waits_for_it(root: Path, held: HeldStores) -> None:
    world = DirectoryWorld(root, held.lent)
    with logstore.open(root, lock_timeout_s=240.0) as other:
        for batch_id in range(4):
            assert world.once(batch_id, [world.write(rows(f"ours {batch_id}"), batch_id=batch_id)])
            begin_s = time.monotonic()
            other.partition(OUT, 0).append([(None, b"theirs %d" % batch_id)])
            assert time.monotonic() - begin_s < 60  # it is not waited for until the lock's time is over
    assert values(world) == sorted(f"{whose} {n}" for whose in ("ours", "theirs") for n in range(4))


def test_an_idle_topic_is_given_up(root: Path, monkeypatch: pytest.MonkeyPatch, held: HeldStores) -> None:
    monkeypatch.setattr(held_store, "IDLE_RELEASE_S", 0.05)
    world = DirectoryWorld(root, held.lent)
    assert world.once(0, [world.write(rows("a"))])
    with held.lent(str(root), 5.0) as store:
        until(lambda: store.metrics()["logstore_owned_topics"] == 0)
    assert world.once(1, [world.write(rows("b"), batch_id=1)])
    assert values(world) == ["a", "b"]


@pytest.mark.parametrize(
    ("where", "number", "clean"),
    [
        ("between", signal.SIGHUP, True),
        ("between", signal.SIGKILL, False),
        ("within", signal.SIGHUP, False),
    ],
)
def test_the_end_of_a_worker(root: Path, where: str, number: int, clean: bool) -> None:
    """Spark ends one by SIGHUP. Whatever happens, the batch is in, and the next one comes."""
    with subprocess.Popen(
        [sys.executable, "-c", _COMMIT, str(root), where],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as worker:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "held\n"
        worker.send_signal(number)
        assert worker.wait(timeout=60) == -number
    if clean:
        assert is_clean(root)
    world = DirectoryWorld(root)
    assert not world.once(0, [world.write(rows("a"), attempt=1)], query=QUERY)
    assert world.once(1, [world.write(rows("b"), batch_id=1)], query=QUERY)
    assert values(world) == ["a", "b"]
