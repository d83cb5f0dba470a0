"""Groups of ours, continued by a real Kafka broker: its coordinator loads our records of members, assignments and
offsets, takes dead members out, deals the partitions to a member of its own, and reads on at our offsets.

Needs Java 17 and Kafka's jars, as ``test_kafka_tools.py`` says.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import logstore
from logstore.log.checkpoints import decode_metadata
from tests.house import ROOT
from tests.integration.kafka_broker import KafkaBroker, fetched

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

RECORDS, READ, PARTITIONS = 40, 6, 2
SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.session.timeout.ms": "6000",
    "group.consumer.heartbeat.interval.ms": "2000",
    "group.consumer.min.heartbeat.interval.ms": "2000",
}

# Topics with the broker's ids, as offsets belong to an id. Two members share one topic, commit what they have read, and
# are killed. A third came and went before.
MEMBERS = f"""
import os, sys, logstore
from logstore.directory.catalogue import decode_uuid
store = logstore.open(sys.argv[1])
for name, partitions, topic_id in (("t", {PARTITIONS}, sys.argv[2]), ("other", 1, sys.argv[3])):
    store._registry._random_bytes = lambda count: decode_uuid(topic_id)
    store.create_topic(name, partitions=partitions)
with store.producer() as producer:
    for number in range({RECORDS}):
        producer.send("t", b"%d" % number, partition=number % {PARTITIONS})
        producer.send("other", b"x")
first, second = (store.consumer("t", group="g", auto_commit_interval_ms=None) for _ in range(2))
with store.consumer(["t", "other"], group="g", auto_commit_interval_ms=None) as third:
    while not all(len(one.assignment()) for one in (first, second, third)):
        for one in (first, second, third):
            one.poll(1, timeout_s=0.01)
while sorted(len(one.assignment()) for one in (first, second)) != [1, 1]:
    for one in (first, second):
        one.poll(1, timeout_s=0.01)
for one in (first, second):
    (place,) = one.assignment()
    one.commit({{place: {READ}}})
print(*[one.member_id for one in store.admin.describe_group("g").members], flush=True)
os.kill(os.getpid(), 9)
"""


@pytest.fixture(scope="module")
def jars(tmp_path_factory: pytest.TempPathFactory) -> str:
    return fetched(tmp_path_factory.mktemp("jars"))


def test_a_broker_continues_our_groups(jars: str, tmp_path: Path) -> None:
    broker = KafkaBroker(jars, tmp_path, SETTINGS)
    with broker.running():
        broker.topics("--create", "--topic", "t", "--partitions", str(PARTITIONS))
        broker.topics("--create", "--topic", "other", "--partitions", "1")
        broker.groups("--list")
        broker.consume("t", "none", 0)
        assert "__consumer_offsets" in broker.topics("--list")
    topic_ids = [
        decode_metadata((broker.data / name / "partition.metadata").read_bytes(), name)
        for name in ("t-0", "other-0")
    ]
    ours = tmp_path / "ours"
    done = subprocess.run(
        [sys.executable, "-c", MEMBERS, str(ours), *topic_ids],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == -9, done.stderr
    members = done.stdout.split()
    assert len(members) == 2
    for partition in ("t-0", "t-1", "other-0", "__consumer_offsets-0"):
        put(ours / partition, broker.data / partition)
    for name in (".kafka_cleanshutdown", "recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        (broker.data / name).unlink(missing_ok=True)

    with broker.running():
        told = broker.groups("--describe", "--group", "g", "--members", "--verbose")
        for member in members:
            assert member in told, told
        offsets = broker.groups("--describe", "--group", "g", "--offsets")
        rows = [line.split() for line in offsets.splitlines() if line.startswith("g ")]
        assert sorted((row[1], row[2], row[3]) for row in rows if row[1] == "t") == [
            ("t", "0", str(READ)),
            ("t", "1", str(READ)),
        ], offsets
        left = [str(number) for number in range(RECORDS) if number // PARTITIONS >= READ]
        assert sorted(broker.consume("t", "g", len(left)), key=int) == left
        state = broker.groups("--describe", "--group", "g", "--state")
        assert "Empty" in state, state
    with logstore.open(broker.data, mode="r") as store:
        committed = store.committed_offsets("g")
        assert {where.partition: at.offset for where, at in committed.items() if where.topic == "t"} == {
            0: RECORDS // PARTITIONS,
            1: RECORDS // PARTITIONS,
        }


def put(source: Path, target: Path) -> None:
    """Our log in the place of the broker's, which finds the rest anew."""
    for path in target.iterdir():
        if path.name != "partition.metadata":
            path.unlink()
    for path in source.glob("*.log"):
        shutil.copy(path, target)
    assert list(target.glob("*.log"))
