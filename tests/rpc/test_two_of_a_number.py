"""Two brokers' processes with one number, over real sockets: the second is refused, or the first stops."""

from __future__ import annotations

import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rpc.testing.cluster import ClusterForTests, HeldPort
from tests.rpc.broker_process import PATIENCE_S, REPOSITORY, command, environment

NUMBER = 2


def words_of(three: ClusterForTests, data: Path, port: int) -> list[str]:
    """The command of a process that takes itself for broker 2, on ``data``, and listens for peers on ``port``."""
    peers = {node: listens for node, listens in three._listens.items() if node != NUMBER}
    given = ",".join(f"{node}=127.0.0.1:{listens}" for node, listens in {**peers, NUMBER: port}.items())
    return command(
        data,
        "--listen",
        "127.0.0.1:0",
        "--node-id",
        str(NUMBER),
        "--peers",
        given,
        "--set",
        "peer_timeout_s=2",
        "--set",
        "advertise=127.0.0.1:9092",
    )


@contextmanager
def second(three: ClusterForTests, data: Path, port: int) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        words_of(three, data, port),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=REPOSITORY,
        env=environment(),
    )
    late = threading.Timer(PATIENCE_S, process.kill)
    late.start()
    try:
        yield process
    finally:
        late.cancel()
        process.kill()
        process.communicate()


@pytest.mark.parametrize("copied", [False, True])
def test_the_second_process_ends_and_says_what_to_do(tmp_path: Path, copied: bool) -> None:
    with ClusterForTests(tmp_path / "cluster") as three:
        client = three.connect()
        client.create_topic("t", partitions=3)
        client.partition("t", 0).append([(None, b"before")])
        data = tmp_path / "second"
        if copied:
            shutil.copytree(three.folder / f"node-{NUMBER}", data)
        held = HeldPort()
        with second(three, data, held.port) as process:
            said, logged = process.communicate(timeout=PATIENCE_S)
        held.close()
        assert (process.returncode, said) == (1, "")
        assert f"another process is broker {NUMBER}" in logged
        assert "give this process another number (`node_id`) and a directory of its own" in logged
        assert three.brokers[NUMBER].is_running
        assert three.await_healthy().controller > 0
        client.partition("t", 0).append([(None, b"after")])
        assert [record.value for record in client.partition("t", 0).records(0)] == [b"before", b"after"]


def test_the_first_process_ends_once_the_second_is_the_broker(tmp_path: Path) -> None:
    with ClusterForTests(tmp_path / "cluster") as three:
        client = three.connect()
        client.create_topic("t", partitions=3)
        client.partition("t", 0).append([(None, b"before")])
        three.await_healthy()
        first, held = three.brokers[NUMBER], HeldPort()
        first.pause()
        for other in (1, 3):
            three._ways[other, NUMBER].target = held.port
            three._ways[other, NUMBER].drop()
        with second(three, tmp_path / "second", held.port) as process:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("listening on ")
            child = first._child
            assert child is not None
            first.resume()
            assert child.process.wait(PATIENCE_S) == 1
            child._passing.join(PATIENCE_S)
            logged = "".join(child._last_lines)
            assert f"has registered as broker {NUMBER} since" in logged
            client.partition("t", 0).append([(None, b"after")])
            assert [record.value for record in client.partition("t", 0).records(0)] == [b"before", b"after"]
        held.close()
