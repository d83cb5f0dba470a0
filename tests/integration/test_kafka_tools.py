"""What this library writes, read by Kafka's own dump tool: ``org.apache.kafka.tools.DumpLogSegments`` of 4.3, which is
in the jar kafka-tools, or ``kafka.tools.DumpLogSegments`` of the versions before, in kafka_2.13.

Needs Java 17, and Kafka's jars in the directory that KAFKA_JARS names, or in its folder ``libs`` as in a release;
without it Maven fetches them (tests/golden/broker/pom.xml) into a temporary directory:

    mvn -q -f tests/golden/broker/pom.xml dependency:copy-dependencies -DoutputDirectory=/tmp/kafka-jars
    KAFKA_JARS=/tmp/kafka-jars python -m pytest tests/integration/test_kafka_tools.py -m long -n 0
"""

from __future__ import annotations

import re
import subprocess
import zipfile
from functools import cache
from pathlib import Path

import pytest

import logstore
from logstore.log.producers.producer_snapshot import decode_snapshot
from tests.integration.dumped_store import CODECS, SQUEEZED, TXN, make
from tests.integration.kafka_broker import fetched

pytestmark = pytest.mark.long

_BATCH = re.compile(
    r"^baseOffset: (\d+) lastOffset: (\d+) count: (\d+) .* isvalid: (true|false)$", re.MULTILINE
)
_RECORD = re.compile(r"^\| offset: (\d+) CreateTime: (-?\d+) .*$", re.MULTILINE)
_MARKER = re.compile(
    r"^\| offset: (\d+) .* endTxnMarker: (COMMIT|ABORT) coordinatorEpoch: (\d)$", re.MULTILINE
)
_OWNER = re.compile(
    r"baseOffset: (\d+) .* producerId: (-?\d+) .* isTransactional: true isControl: (true|false) "
)
_ABORTED = re.compile(r"^version: 0 producerId: (\d+) firstOffset: (\d+) lastOffset: (\d+) ", re.MULTILINE)
_PRODUCER = re.compile(
    r"^producerId: (\d+) producerEpoch: (\d+) coordinatorEpoch: (-?\d+) currentTxnFirstOffset: "
    r"OptionalLong(\.empty|\[\d+\]) .* lastSequence: (-?\d+) lastOffset: (-?\d+) offsetDelta: (\d+) "
    r"timestamp: (-?\d+)$",
    re.MULTILINE,
)
_HOLES = re.compile(r"^Non-consecutive offsets in .*\n(?:  -?\d+ is followed by \d+\n?)+", re.MULTILINE)
# 4.3 counts from -1 in every file, and so calls the start of each segment but the first a gap.
_START = re.compile(
    r"^(Non-consecutive offsets in .*/0*([1-9]\d*)\.log\n)  -1 is followed by \2$\n?", re.MULTILINE
)
_EMPTY = re.compile(r"^Non-consecutive offsets in .*\n(?!  )", re.MULTILINE)
_WRONG = re.compile(r"mismatch|out of order|non-consecutive|corrupt|exception|isvalid: false", re.IGNORECASE)


@pytest.fixture(scope="module")
def jars(tmp_path_factory: pytest.TempPathFactory) -> str:
    return fetched(tmp_path_factory.mktemp("jars"))


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("kafka-tools") / "store"
    make(root)
    return root


@cache
def _tool(jars: str) -> tuple[str, str]:
    """(folder of the jars, the tool's class), whichever of its names the jars have."""
    folders = [folder for folder in (Path(jars), Path(jars) / "libs") if any(folder.glob("kafka*.jar"))]
    assert folders, f"no jar of Kafka's is in {jars} or in its folder libs"
    held: set[str] = set()
    for jar in folders[0].glob("kafka*.jar"):
        with zipfile.ZipFile(jar) as archive:
            held.update(archive.namelist())
    for name in ("org.apache.kafka.tools.DumpLogSegments", "kafka.tools.DumpLogSegments"):
        if f"{name.replace('.', '/')}.class" in held:
            return str(folders[0]), name
    raise AssertionError(f"the jars in {folders[0]} lack the dump tool: kafka-tools or kafka_2.13 is missing")


def _dump(jars: str, files: list[Path], *options: str) -> str:
    """What the tool prints; it must not fail."""
    names = ",".join(map(str, files))
    folder, tool = _tool(jars)
    command = ["java", "-cp", f"{folder}/*", tool, *options, "--files", names]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return _EMPTY.sub("", _START.sub(r"\1", done.stdout + done.stderr))


def _files(root: Path, suffix: str) -> list[Path]:
    return sorted(root.glob(f"*-*/*{suffix}"))


def _of(root: Path, topic: str, suffix: str) -> list[Path]:
    return [path for path in _files(root, suffix) if path.parent.name == f"{topic}-0"]


@pytest.mark.parametrize("codec", CODECS)
def test_every_batch_and_record_is_read_and_valid(jars: str, root: Path, codec: str) -> None:
    mine = _of(root, codec, ".log")
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


def test_transactions_their_markers_and_the_index_of_the_aborted_ones(jars: str, root: Path) -> None:
    told = _dump(jars, _of(root, TXN, ".log"), "--deep-iteration")
    assert _WRONG.search(told) is None, told
    markers = {int(offset): (kind, int(epoch)) for offset, kind, epoch in _MARKER.findall(told)}
    assert sorted(set(markers.values())) == [("ABORT", 0), ("ABORT", 2), ("COMMIT", 0), ("COMMIT", 2)]
    opened: dict[int, int] = {}
    aborted: list[tuple[int, int, int]] = []
    for offset, producer_id, control in _OWNER.findall(told):
        if control == "false":
            opened.setdefault(int(producer_id), int(offset))
        elif markers[int(offset)][0] == "ABORT":
            aborted.append((int(producer_id), opened.pop(int(producer_id)), int(offset)))
        else:
            del opened[int(producer_id)]
    rows = _ABORTED.findall(_dump(jars, _of(root, TXN, ".txnindex")))
    assert [tuple(map(int, row)) for row in rows] == aborted
    assert len(aborted) == 40
    with logstore.open(root, mode="r") as store:
        log = store.partition(TXN, 0)
        every = [record.offset for record in log.records(0, isolation="read_uncommitted")]
        committed = {record.offset for record in log.records(0)}
    assert [int(offset) for offset, _ in _RECORD.findall(told) if int(offset) not in markers] == every
    assert 0 < len(committed) < len(every)
    gone = {
        offset
        for base, producer_id, control in _OWNER.findall(told)
        for offset in range(int(base), int(base) + 3)
        if control == "false" and any(_covers(row, int(producer_id), int(base)) for row in aborted)
    }
    assert committed == set(every) - gone


def _covers(row: tuple[int, int, int], producer_id: int, offset: int) -> bool:
    return row[0] == producer_id and row[1] <= offset <= row[2]


def test_snapshots_are_read_with_a_right_checksum(jars: str, root: Path, tmp_path: Path) -> None:
    files = _files(root, ".snapshot")
    parts = re.split(r"^Dumping (.*)$", _dump(jars, files), flags=re.MULTILINE)[1:]
    told = {Path(name): _PRODUCER.findall(text) for name, text in zip(parts[::2], parts[1::2], strict=True)}
    assert told.keys() == set(files)
    for path, rows in told.items():
        ours = [
            (
                entry.producer_id,
                entry.epoch,
                entry.coordinator_epoch,
                ".empty" if entry.transaction_start < 0 else f"[{entry.transaction_start}]",
                entry.last_sequence,
                entry.last_offset,
                entry.batches[-1].last_offset - entry.batches[-1].base_offset,
                entry.batches[-1].timestamp_ms,
            )
            for entry in decode_snapshot(path.read_bytes(), str(path))
        ]
        assert sorted(rows) == sorted(tuple(map(str, row)) for row in ours), path
    assert {len(rows) for path, rows in told.items() if path.parent.name == f"{TXN}-0"} == {3}
    assert sum(row[3] != ".empty" for rows in told.values() for row in rows) > 5
    broken = tmp_path / files[0].name
    content = bytearray(files[0].read_bytes())
    content[20] ^= 1
    broken.write_bytes(content)
    assert "corrupt" in _dump(jars, [broken]).lower()


def test_a_cleaned_topic_with_tombstones_and_aborted_data(jars: str, root: Path) -> None:
    told = _dump(jars, _of(root, SQUEEZED, ".log"), "--deep-iteration", "--print-data-log")
    # The tool calls what a cleaning took a hole in the offsets, in Kafka's own topics, too.
    assert _WRONG.search(_HOLES.sub("", told)) is None, told
    assert _HOLES.search(told) is not None
    markers = {int(offset) for offset, _, _ in _MARKER.findall(told)}
    records = [(int(at), int(time_ms)) for at, time_ms in _RECORD.findall(told) if int(at) not in markers]
    with logstore.open(root, mode="r") as store:
        log = store.partition(SQUEEZED, 0)
        ours = list(log.records(0, isolation="read_uncommitted"))
        end = log.log_end_offset
    assert records == [(record.offset, record.timestamp_ms) for record in ours]
    batches = [(int(base), int(last), int(count)) for base, last, count, _ in _BATCH.findall(told)]
    assert [base for base, _, _ in batches] == [0] + [last + 1 for _, last, _ in batches[:-1]]
    assert batches[-1][1] == end - 1
    assert sum(count == 0 for _, _, count in batches) > 5, "batches that were emptied cover their offsets"
    tombstones = [record for record in ours if record.value is None]
    assert len({record.key for record in tombstones}) == len(tombstones) == 6
    stamped = re.findall(r"^baseOffset: (\d+) .* deleteHorizonMs: OptionalLong\[\d+\] ", told, re.MULTILINE)
    assert len(stamped) >= 6


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


def test_prepared_transactions_are_read_by_their_decoder(jars: str, tmp_path: Path) -> None:
    """Who decides, and whom, lies in tagged fields of ours, which Kafka passes over; the rest is as it has it."""
    with logstore.open(tmp_path / "store") as store:
        store.create_topic("t", 2)
        prepared = []
        for number in range(2):
            settings = {"transactional_id": f"task-{number}", "transaction_coordinator": "driver"}
            with store.producer(**settings) as producer:  # type: ignore[arg-type]
                task = producer.begin()
                task.send("t", b"row", partition=number)
                prepared.append(task.prepare())
        with store.producer(transactional_id="driver", keep_prepared=True) as producer:
            decision = producer.begin()
            decision.send("t", b"row", partition=0)
            decision.commit(prepared=prepared)
    (segment,) = (tmp_path / "store").glob("__transaction_state-*/*.log")
    dumped = _dump(jars, [segment], "--transaction-log-decoder")
    found = re.findall(r'"transactionalId":"([^"]+)".*"version":"(\d)".*"transactionStatus":(\d)', dumped)
    statuses = {name: [status for one, _, status in found if one == name] for name, _, _ in found}
    assert statuses == {
        "task-0": ["0", "1", "1", "2", "4"],
        "task-1": ["0", "1", "1", "2", "4"],
        "driver": ["0", "1", "2", "4"],
    }
    assert {version for name, version, _ in found if name != "driver"} == {"1"}
