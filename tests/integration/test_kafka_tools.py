"""What this library writes, read by Kafka's own dump tool (``kafka.tools.DumpLogSegments``).

Needs Java 17, and Kafka's jars in the directory that KAFKA_JARS names; without it Maven fetches them
(tests/golden/broker/pom.xml) into a temporary directory:

    mvn -q -f tests/golden/broker/pom.xml dependency:copy-dependencies -DoutputDirectory=/tmp/kafka-jars
    KAFKA_JARS=/tmp/kafka-jars python -m pytest tests/integration/test_kafka_tools.py -m long -n 0
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

import logstore

pytestmark = pytest.mark.long

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_POM = Path(__file__).parent.parent / "golden" / "broker" / "pom.xml"
_CONFIG = {"segment.bytes": "4096", "index.interval.bytes": "256"}
_BATCH = re.compile(
    r"^baseOffset: (\d+) lastOffset: (\d+) count: (\d+) .* isvalid: (true|false)$", re.MULTILINE
)
_RECORD = re.compile(r"^\| offset: (\d+) CreateTime: (-?\d+) .*$", re.MULTILINE)
_WRONG = re.compile(r"mismatch|out of order|non-consecutive|corrupt|exception|isvalid: false", re.IGNORECASE)


@pytest.fixture(scope="module")
def jars(tmp_path_factory: pytest.TempPathFactory) -> str:
    given = os.environ.get("KAFKA_JARS")
    if given is not None:
        return given
    folder = tmp_path_factory.mktemp("jars")
    command = [
        "mvn",
        "-q",
        "-B",
        "-f",
        str(_POM),
        "dependency:copy-dependencies",
        f"-DoutputDirectory={folder}",
    ]
    subprocess.run(command, check=True, timeout=600)
    return str(folder)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with every codec, several segments each, an epoch change, and times out of order."""
    root = tmp_path_factory.mktemp("kafka-tools") / "store"
    for epoch in range(2):
        store = logstore.open(root)
        for codec in CODECS:
            if epoch == 0:
                store.create_topic(codec, config=_CONFIG)
            with store.producer(compression=codec, linger_ms=0) as producer:
                for number in range(40):
                    time_ms = 1_700_000_000_000 + epoch * 1_000_000 + number * 10 - (number % 3) * 25
                    rows = [
                        (b"key %d" % n, b"value " * 5, [("leg", b"x"), ("none", None)], time_ms - n)
                        for n in range(5)
                    ]
                    producer.send_many(codec, rows).result(30)
        store.close()
    return root


def _dump(jars: str, files: list[Path], *options: str) -> str:
    """What the tool prints; it must not fail."""
    names = ",".join(map(str, files))
    command = ["java", "-cp", f"{jars}/*", "kafka.tools.DumpLogSegments", *options, "--files", names]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def _files(root: Path, suffix: str) -> list[Path]:
    return sorted(root.glob(f"*-*/*{suffix}"))


@pytest.mark.parametrize("codec", CODECS)
def test_every_batch_and_record_is_read_and_valid(jars: str, root: Path, codec: str) -> None:
    files = _files(root, ".log")
    mine = [path for path in files if path.parent.name == f"{codec}-0"]
    assert len(mine) > 1
    told = _dump(jars, mine, "--deep-iteration", "--print-data-log")
    assert _WRONG.search(told) is None, told
    batches = _BATCH.findall(told)
    assert {valid for *_, valid in batches} == {"true"}
    assert told.count(f"compresscodec: {codec} ") == len(batches)
    with logstore.open(root, mode="r") as store:
        ours = [(record.offset, record.timestamp_ms) for record in store.partition(codec, 0).records(0)]
    assert [(int(offset), int(time_ms)) for offset, time_ms in _RECORD.findall(told)] == ours
    assert len(ours) == 400


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_indexes_pass_the_sanity_check_and_agree_with_the_log(jars: str, root: Path, suffix: str) -> None:
    files = _files(root, suffix)
    assert any(path.stat().st_size for path in files)
    sane = _dump(jars, files, "--index-sanity-check")
    assert sane.count("passed sanity check") == len(files), sane
    told = _dump(jars, files, "--verify-index-only")
    assert _WRONG.search(told) is None, told


def test_the_dump_tool_says_so_when_something_is_wrong(jars: str, root: Path, tmp_path: Path) -> None:
    """The checks above can fail: a byte flipped, an index entry moved."""
    source = _files(root, ".log")[0]
    folder = tmp_path / source.parent.name
    folder.mkdir()
    for path in source.parent.glob(f"{source.stem}.*"):
        content = bytearray(path.read_bytes())
        if path.suffix == ".log":
            content[80] ^= 1
        elif path.suffix == ".index":
            content[3] ^= 1  # the offset, not the position
        (folder / path.name).write_bytes(content)
    assert _WRONG.search(_dump(jars, [folder / source.name]))
    assert _WRONG.search(_dump(jars, [folder / f"{source.stem}.index"], "--verify-index-only"))
