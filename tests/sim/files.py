"""Every kind of file of a store damaged: single bits flipped, lengths cut, after a power loss.

The answer is the data as it was, or a named error: never other data, never a hang. What no checksum covers is counted
apart, and only errors without a name are looked for there: a batch's base offset and leader epoch, as in
``damage.py``, and the whole transaction index, which has none in Kafka's layout: a row that is changed or missing
shows an aborted transaction as if it were committed. Above the recovery point a damaged batch is a torn tail.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Final, TypeAlias

from logstore.errors import LogStoreError
from logstore.format.batch import iter_headers
from logstore.partition.partition_log import PartitionLog
from logstore.seams.memory_crash import KeepAll
from logstore.seams.memory_fs import MemoryFileSystem
from tests.sim import model as rules
from tests.sim.damage import UNCOVERED
from tests.sim.host import ROOT, named_errors
from tests.sim.ledger import Row, aborted_offsets, rows_of
from tests.sim.ledger_machine import LedgerMachine, LedgerModel, contents
from tests.sim.ledger_workload import TOPIC, Clean, End, Import, LedgerSettings, Put, Send
from tests.sim.model import Violation

SETTINGS: Final = LedgerSettings(segment_bytes=8192, index_interval_bytes=256, delete_retention_ms=0)
STORE_BYTES: Final = 64 << 10
SHARE: Final = 32  # of all damage that the default run looks at


@dataclass(frozen=True, slots=True)
class Reference:
    """The disk after the power loss; ``files``: path -> content; ``open_until``: the recovery point."""

    disk: MemoryFileSystem
    model: LedgerModel
    files: dict[str, bytes]
    recovery_point: int


@cache
def reference() -> Reference:
    """About 64 KiB: segments with aborted and committed transactions, snapshots, a cleaning cut off in its swap."""
    machine = LedgerMachine(SETTINGS)
    machine.set_up()
    for number in range(24):
        machine.do(Send(1, "abcd", 1, 500))
        machine.do(End(1, commit=number % 3 > 0))
        machine.do(Send(0, "ab"))
        machine.do(Put("abcd"[number % 4] + "BD", "all", 300))
    machine.do(Import(2))
    machine.topic.checkpoint()
    point = machine.ledger.end
    machine.do(Put("ab", "all", 100))
    taken: list[tuple[MemoryFileSystem, LedgerModel]] = []

    def look(operation: object) -> None:
        if getattr(operation, "name", "") == "rename" and ".log.cleaned" in getattr(operation, "path", ""):
            taken.append((machine.fs.clone(), machine.model.copy()))

    machine.fs.faults.observer = look
    machine.do(Clean())
    machine.fs.faults.observer = None
    machine.abandon()
    cut_off, model = taken[0]
    disk = cut_off.crash(KeepAll())
    files = dict(contents(disk, ROOT))
    return Reference(disk, model, files, point)


def damaged(path: str, content: bytes) -> LedgerMachine:
    """A machine that finds ``content`` in place of a file."""
    made = reference()
    disk = made.disk.clone()
    file = disk.open(path, "rw")
    file.truncate(0)
    if content:
        file.pwritev([content], 0)
    file.sync()
    file.close()
    machine = LedgerMachine(SETTINGS)
    machine.model = made.model.copy()
    machine.lose_power(disk)
    return machine


def check_damaged(path: str, content: bytes) -> str:
    """ "error" or "data": what came out. Violation for other data, and for errors without a name."""
    machine = damaged(path, content)
    known = dict(rows_of(machine.ledger.batches))
    came = [_as_reader(machine, known, path), _as_owner(machine, known, path)]
    machine.abandon()
    return "error" if "error" in came else "data"


def _as_reader(machine: LedgerMachine, known: dict[int, Row], path: str) -> str:
    try:
        with named_errors(), machine.another_process() as reader:
            _check_rows(known, reader.partition(TOPIC, 0), path)
    except LogStoreError:
        return "error"
    return "data"


def _as_owner(machine: LedgerMachine, known: dict[int, Row], path: str) -> str:
    try:
        with named_errors():
            machine.start()
            with machine.topic.using():
                machine.topic.log(0)
            end = machine.log.log_end_offset
            if end < reference().recovery_point:
                raise Violation(
                    rules.ACKED_SURVIVES, f"{path}: ends at {end}, {reference().recovery_point} was durable"
                )
            _check_rows(known, machine.log, path)
    except LogStoreError:
        return "error"
    return "data"


def _check_rows(known: dict[int, Row], log: PartitionLog, path: str) -> None:
    """What is shown is what was written there, of committed transactions only."""
    at = -1
    aborted = aborted_in_reference()
    for record in log.records(log.log_start_offset):
        row = known.get(record.offset)
        found = Row(record.key or b"", record.value, record.timestamp_ms)
        if record.offset <= at or row != found or record.offset in aborted:
            raise Violation(rules.NOTHING_INVENTED, f"{path}: offset {record.offset} was {row}, is {found}")
        at = record.offset


@cache
def aborted_in_reference() -> frozenset[int]:
    return frozenset(aborted_offsets(reference().model.ledger.batches))


def covered(path: str, byte: int) -> bool:
    """Whether some check can see damage there."""
    if path.endswith(".txnindex"):
        return False
    if not path.endswith(".log"):
        return True
    content = reference().files[path]
    start = max(at for at, _ in iter_headers(content) if at <= byte)
    return byte - start not in UNCOVERED


def _held_to_names(path: str, content: bytes) -> str:
    """Nothing but an error without a name counts."""
    try:
        check_damaged(path, content)
    except Violation as violation:
        if violation.rule == rules.NAMED_ERRORS:
            raise
    return "not covered"


def check_flip(path: str, bit: int) -> str:
    content = bytearray(reference().files[path])
    content[bit // 8] ^= 1 << bit % 8
    check = check_damaged if covered(path, bit // 8) else _held_to_names
    return check(path, bytes(content))


def check_length(path: str, length: int) -> str:
    check = _held_to_names if path.endswith(".txnindex") else check_damaged
    return check(path, reference().files[path][:length])


Check: TypeAlias = "partial[str]"


def run_file_flips(share: int = SHARE, seed: int = 0) -> Iterator[Check]:
    """Every ``share``-th bit of all files in a row, from ``seed`` on."""
    at = seed
    for path, content in sorted(reference().files.items()):
        yield from (partial(check_flip, path, bit) for bit in range(-at % share, 8 * len(content), share))
        at += 8 * len(content)


def run_file_lengths(share: int = SHARE, seed: int = 0) -> Iterator[Check]:
    """Every ``share``-th length of all files in a row, from ``seed`` on."""
    at = seed
    for path, content in sorted(reference().files.items()):
        yield from (partial(check_length, path, length) for length in range(-at % share, len(content), share))
        at += len(content)


@dataclass(slots=True)
class FileCounts:
    """What checks came to: ``uncovered`` flips may have given anything but an error without a name."""

    flips: int = 0
    lengths: int = 0
    data: int = 0
    errors: int = 0
    uncovered: int = 0
    violations: list[str] = field(default_factory=list)

    def add(self, other: FileCounts) -> None:
        for name, count in other.as_json().items():
            setattr(self, name, getattr(self, name) + count)
        self.violations += other.violations

    def as_json(self) -> dict[str, int]:
        return {name: getattr(self, name) for name in ("flips", "lengths", "data", "errors", "uncovered")}


def run_file_checks(checks: Iterable[Check]) -> FileCounts:
    """Run them all; what is violated is noted, and the rest run."""
    counts = FileCounts()
    for check in checks:
        if check.func is check_length:
            counts.lengths += 1
        else:
            counts.flips += 1
        try:
            came = check()
        except Violation as violation:
            counts.violations.append(f"{violation}; {check.func.__name__} {check.args}")
            continue
        counts.data += came == "data"
        counts.errors += came == "error"
        counts.uncovered += came == "not covered"
    return counts


def kinds_of_files() -> set[str]:
    names = {path.rpartition("/")[2] for path in reference().files}
    return {name.rpartition(".")[2] if "." in name else name for name in names}
