"""The drill: at a broker nothing happens to, at one that is killed, and what its comparison finds."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from logstore.errors import StorageError
from rpc import cluster_command
from rpc.drill import Drill, DrillReport, DrillSettings, Sent, compare
from rpc.local_process import listener_of
from rpc.testing.broker import BrokerForTests
from tests.rpc.served import Served
from tests.rpc.test_commands import BrokerShell


def sent(number: int, error: str = "") -> Sent:
    return Sent(number, 0, 0.001, error)


@pytest.mark.parametrize(
    ("became", "found", "lost", "doubled", "disordered", "good"),
    [
        ([sent(0), sent(1)], [0, 1], 0, 0, 0, True),
        ([sent(0), sent(1)], [1], 1, 0, 0, False),
        ([sent(0), sent(1)], [0, 1, 1], 0, 1, 0, False),
        ([sent(0), sent(1)], [1, 0], 0, 0, 1, False),
        ([sent(0), sent(1, "OutcomeUnknownError")], [0], 0, 0, 0, True),
        ([sent(0), sent(1, "OutcomeUnknownError")], [0, 1], 0, 0, 0, True),
        ([sent(0, "StorageError")], [], 0, 0, 0, False),
    ],
)
def test_what_is_compared(
    became: list[Sent], found: list[int], lost: int, doubled: int, disordered: int, good: bool
) -> None:
    report = DrillReport()
    compare(report, became, {0: found})
    assert (report.lost, report.doubled, report.disordered, report.is_good) == (
        lost,
        doubled,
        disordered,
        good,
    )
    assert report.in_doubt == sum(bool(one.error) for one in became)


def test_all_is_there_and_earlier_drills_count_for_nothing(tmp_path: Path) -> None:
    with Served(tmp_path / "store") as served:
        shell = BrokerShell(served.address)
        for _ in range(2):
            words = ("cluster", "drill", "--seconds", "1", "--rate", "300", "--partitions", "2")
            told = json.loads(shell.run("--json", *words).stdout)
            assert told["good"]
            assert told["sent"] == told["acknowledged"] > 100
        assert "lost             0" in shell.run("cluster", "drill", "--seconds", "1").stdout


def test_a_broker_that_is_killed_and_started_again_loses_nothing(tmp_path: Path) -> None:
    broker = BrokerForTests(tmp_path / "store")
    try:

        def kill() -> str:
            broker.kill()
            broker.restart()
            return "killed"

        with broker.connect() as store:
            report = Drill(store, DrillSettings(seconds=4, rate=200, partitions=2), kill).run()
        assert report.happened == "killed"
        assert report.is_good
        assert report.acknowledged + report.in_doubt == report.sent
    finally:
        broker.close()
        BrokerForTests.end_spares()


def test_the_process_that_listens_is_found() -> None:
    with Served(":memory:") as served:
        assert listener_of("127.0.0.1", served.port) == os.getpid()
        port = served.port
    with pytest.raises(StorageError, match="on another machine"):
        listener_of("192.0.2.1", port)
    with pytest.raises(StorageError, match="no process of this user listens on port 1"):
        listener_of("localhost", 1)


def test_an_act_that_fails_is_told_and_fails_no_drill(tmp_path: Path) -> None:
    acted = threading.Event()

    def act() -> str:
        acted.set()
        raise StorageError("no such process")

    with Served(tmp_path / "store") as served, served.connect() as store:
        report = Drill(store, DrillSettings(seconds=1, rate=100), act).run()
    assert acted.is_set()
    assert report.happened == "nothing: no such process"
    assert report.is_good


def test_brokers_that_were_just_started_are_waited_for() -> None:
    """One is known to the others some moments after its own start."""

    class Starting:
        looks = 0

        def describe_cluster(self) -> Any:
            self.looks += 1
            return SimpleNamespace(brokers=[SimpleNamespace(alive=True)] * min(self.looks, 3))

    store: Any = Starting()
    cluster_command._check_spare(store)
    assert store.looks == 3


@pytest.mark.slow
def test_no_leader_is_killed_where_no_majority_would_be_left(tmp_path: Path) -> None:
    with Served(tmp_path / "store") as served:
        told = BrokerShell(served.address).run("cluster", "drill", "--kill-leader", "--seconds", "1", code=1)
        assert "1 of 1 brokers are there, and a majority has to be left" in told.stderr
