"""The broker as a process: its start and its end, readers beside it, kills, and who else may write."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

import logstore
from logstore.directory import topic_state
from logstore.errors import TopicLockedError
from logstore.seams.fs import OsFileSystem
from tests.beside import Beside
from tests.rpc.broker_process import PATIENCE_S, REPOSITORY, BrokerUnderTest, command, environment


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerUnderTest]:
    with logstore.open(tmp_path / "store") as store:
        store.create_topic("t")
    made = BrokerUnderTest(tmp_path / "store")
    yield made
    made.dispose()


def is_clean(data: Path, topic: str) -> bool:
    """Whether the topic has the marks of a stop in order."""
    state = topic_state.load(OsFileSystem(), str(data), topic)
    assert state is not None
    return all(map(state.is_clean, (-1, *state.partitions)))


def run(*words: str, code: int = 0, **more: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "logstore.cli", *words],
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
        env=environment(**more),
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == code, (done.stdout, done.stderr)
    return done


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_signal_ends_it_in_order(broker: BrokerUnderTest, number: signal.Signals, code: int) -> None:
    with broker.connect() as client, client.producer(acks=1) as producer:
        producer.send("t", b"in the page cache alone").result(timeout_s=30)
        assert not is_clean(broker.data, "t")
        ended, logged = broker.end(number)
    assert (ended, "Traceback" in logged) == (code, False), logged
    assert is_clean(broker.data, "t")
    with logstore.open(broker.data) as store:
        store.pin("t")
        assert store.recovery_report == ()
        assert [record.value for record in store.partition("t", 0).records(0)] == [b"in the page cache alone"]


def test_health_says_that_it_stops_and_a_second_signal_does_not_wait(tmp_path: Path) -> None:
    broker = BrokerUnderTest(tmp_path / "store", "--set", "drain_s=600")
    with grpc.insecure_channel(broker.address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        states = stub.Watch(health_pb2.HealthCheckRequest(), timeout=PATIENCE_S)
        assert next(states).status == health_pb2.HealthCheckResponse.SERVING
        broker.process.send_signal(signal.SIGTERM)
        assert next(states).status == health_pb2.HealthCheckResponse.NOT_SERVING
        assert broker.process.poll() is None  # the watch is a call under way
        broker.process.send_signal(signal.SIGTERM)
        broker.process.communicate(timeout=PATIENCE_S)
    assert broker.process.returncode == -signal.SIGTERM
    with logstore.open(broker.data) as store:
        assert store.list_topics() == []


def test_commands_read_the_directory_beside_it(broker: BrokerUnderTest) -> None:
    with broker.connect() as client, client.producer() as producer:
        producer.send("t", b"beside").result(timeout_s=30)
        path = ("--path", str(broker.data))
        assert run(*path, "consume", "t", "-e").stdout == "beside\n"
        owner = json.loads(run(*path, "--json", "topic", "describe", "t").stdout)[0]["owner"]
        assert f"pid {broker.process.pid} " in owner
        refused = run(*path, "--lock-timeout", "0.1", "topic", "trim", "t", "--before-offset", "1", code=1)
        assert f"is locked by pid {broker.process.pid}" in refused.stderr


def test_topics_made_later_are_its_own_too(broker: BrokerUnderTest) -> None:
    with logstore.open(broker.data, lock_timeout_s=0.1) as beside, broker.connect() as client:
        client.create_topic("by-client")
        owner = beside.describe_topic("by-client").owner
        assert owner is not None
        assert f"pid {broker.process.pid} " in owner
        beside.create_topic("by-process")
        until_s = time.monotonic() + PATIENCE_S
        while beside.describe_topic("by-process").owner is None:
            assert time.monotonic() < until_s
            time.sleep(0.02)
        with pytest.raises(TopicLockedError, match=f"pid {broker.process.pid}"):
            beside.partition("by-process", 0).append([(None, b"x")])


def test_writers_of_the_directory_are_named_and_nothing_is_kept(tmp_path: Path) -> None:
    data = tmp_path / "store"
    with logstore.open(data) as store:
        for name in ("a", "b", "free"):
            store.create_topic(name)
        store.pin("a")
        store.pin("b")
        words = command(data, "--listen", "127.0.0.1:0", "--json")
        done = subprocess.run(
            words,
            capture_output=True,
            text=True,
            cwd=REPOSITORY,
            env=environment(),
            timeout=PATIENCE_S,
            check=False,
        )
        assert (done.returncode, done.stdout) == (1, "")
        error = json.loads(done.stderr.splitlines()[-1])["error"]
        assert error["name"] == "TopicLockedError"
        assert "'a' by pid" in error["message"]
        assert "'b' by pid" in error["message"]
        assert store.describe_topic("free").owner is None
        assert is_clean(data, "free")
        store.partition("a", 0).append([(None, b"x")])


def test_a_port_in_use_and_bad_settings_are_named(tmp_path: Path) -> None:
    data = str(tmp_path / "store")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        told = run("--json", "broker", "start", "--data", data, "--listen", f"127.0.0.1:{port}", code=1)
    error = json.loads(told.stderr.splitlines()[-1])["error"]
    assert (error["name"], str(port) in error["message"]) == ("BrokerConfigError", True)
    assert "Traceback" not in told.stderr
    with logstore.open(data) as store:
        assert store.list_topics() == []
    refused = run("broker", "start", "--data", data, "--listen", "0.0.0.0:0", code=1)
    assert "can be reached from other machines" in refused.stderr


@pytest.mark.slow
def test_killed_amid_produces_nothing_acknowledged_is_lost_or_there_twice(broker: BrokerUnderTest) -> None:
    acknowledged: list[int] = []
    enough = threading.Event()

    def send() -> None:
        number = 0
        with (
            broker.connect() as client,
            client.producer(linger_ms=1, delivery_timeout_ms=120_000) as producer,
        ):
            while not enough.is_set():
                deliveries = [(n, producer.send("t", b"%d" % n)) for n in range(number, number + 50)]
                number += 50
                for n, delivery in deliveries:
                    delivery.result(timeout_s=120)
                    acknowledged.append(n)

    with Beside(send, stop=enough.set) as sender:
        for _ in range(3):
            before, until_s = len(acknowledged), time.monotonic() + PATIENCE_S
            while len(acknowledged) < before + 200 and not sender.has_failed:
                assert time.monotonic() < until_s
                time.sleep(0.001)
            broker.kill()
            broker.restart()
    assert broker.end()[0] == 0
    with logstore.open(broker.data, mode="r") as store:
        found = [int(record.value or b"") for record in store.partition("t", 0).records(0)]
    assert found == list(range(len(found)))  # each once, in order
    assert acknowledged == found


def test_the_service_manager_is_told(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.settimeout(PATIENCE_S)
        place = str(tmp_path / "notify")
        manager.bind(place)
        broker = BrokerUnderTest(tmp_path / "store", NOTIFY_SOCKET=place)
        assert manager.recv(100) == b"READY=1"
        broker.end()
        assert manager.recv(100) == b"STOPPING=1"


def test_help_does_not_wait_for_grpc_and_its_lack_is_told(tmp_path: Path) -> None:
    program = "import sys\nsys.modules['grpc'] = None\nfrom logstore.cli.main import main\nmain()\n"
    for words in (
        ["--help"],
        ["broker", "start", "--help"],
        ["broker", "start", "--data", "x", "--print-config"],
    ):
        done = subprocess.run(
            [sys.executable, "-c", program, *words],
            capture_output=True,
            text=True,
            cwd=REPOSITORY,
            check=False,
        )
        assert (done.returncode, "not available" in done.stdout) == (0, False), done.stderr
    done = subprocess.run(
        [sys.executable, "-c", program, "--json", "broker", "start", "--data", str(tmp_path / "store")],
        capture_output=True, text=True, cwd=REPOSITORY, check=False,
    )  # fmt: skip
    error = json.loads(done.stderr)["error"]
    assert (done.returncode, error["name"]) == (1, "BackendNotInstalledError")
    assert "logstore-engine[grpc]" in error["message"]
    assert not (tmp_path / "store").exists()
    done = subprocess.run(
        [sys.executable, "-c", program, "--bootstrap-server", "h:1", "topic", "list"],
        capture_output=True, text=True, cwd=REPOSITORY, check=False,
    )  # fmt: skip
    assert (done.returncode, "logstore-engine[grpc]" in done.stderr, "grpc" in done.stderr) == (1, True, True)
