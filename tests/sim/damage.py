"""Bit flips and truncations of a store's log files, with the power lost: damage is told from a torn tail.

Below the durable recovery point nothing is ever cut: every record is still there, or a named error says
what is damaged. Above it the log may end at the damage, and no earlier.

Kafka's checksum covers neither a batch's base offset nor its leader epoch: for flips in those twelve bytes
only this is asked, that no error without a name comes out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from typing import Final

from logstore.errors import LogStoreError
from logstore.format.batch import iter_headers
from logstore.seams.fs import read_file
from logstore.seams.memory_fs import MemoryFileSystem
from tests.sim import model as rules
from tests.sim.host import ROOT, named_errors
from tests.sim.machine import Machine
from tests.sim.model import Model, Place, Row, Violation
from tests.sim.workload import ROLLING_BYTES, TOPIC, Append, Settings, Tick

SETTINGS: Final = Settings(segment_bytes=2048)
PLACE: Final = Place(TOPIC, 0)
FOLDER: Final = f"{ROOT}/{TOPIC}-0"
UNCOVERED: Final = frozenset((*range(8), *range(12, 16)))


@dataclass(frozen=True, slots=True)
class Template:
    """A store whose power was lost, everything in it durable. ``recovery_point``: as its state file says."""

    disk: MemoryFileSystem
    model: Model
    rows: tuple[Row, ...]
    recovery_point: int
    files: dict[str, bytes]


@cache
def template() -> Template:
    """Two closed segments, a third with records below the recovery point and above it."""
    machine = Machine(SETTINGS)
    machine.set_up()
    for _ in range(2):
        for size in (24, 100, ROLLING_BYTES, 300):
            machine.do(Append("all", 2 if size < 300 else 1, size))
    machine.do(Tick(6_000))
    point = len(machine.model.partitions[PLACE].rows)
    for size in (24, 100, 24):
        machine.do(Append("all", 2, size))
    logs = [name for name in machine.fs.listdir(FOLDER) if name.endswith(".log")]
    files = {name: read_file(machine.fs, f"{FOLDER}/{name}") for name in logs}
    disk = next(machine.fs.crash_states(1))
    machine.abandon()
    return Template(disk, machine.model, tuple(machine.model.partitions[PLACE].rows), point, files)


def intact_before(content: bytes, position: int) -> int:
    """Offset of the first record in a segment that damage at ``position`` may take."""
    for at, header in iter_headers(content):
        if at + header.size > position:
            return header.base_offset
    raise ValueError(f"byte {position} is in no batch")


def check_damaged(name: str, content: bytes, first_touched: int) -> None:
    """Recover with ``content`` in place of a log file; records from ``first_touched`` on may be damaged."""
    made = template()
    disk = made.disk.clone()
    file = disk.open(f"{FOLDER}/{name}", "rw")
    file.truncate(0)
    file.pwritev([content], 0)
    file.sync()
    file.close()
    machine = Machine(SETTINGS)
    machine.model = made.model.copy()
    machine.lose_power(disk)
    try:
        with named_errors():
            machine.start()
            machine._own(PLACE)
            found = machine.read_rows(PLACE, machine.partition(PLACE).log_end_offset)
    except LogStoreError:
        if first_touched >= made.recovery_point:
            raise Violation(
                rules.STARTS, f"{name}: damage above the recovery point is no torn tail"
            ) from None
        return
    if tuple(found) != made.rows[: len(found)]:
        raise Violation(rules.NOTHING_INVENTED, f"{name}: damaged records are shown")
    if len(found) < max(made.recovery_point, min(first_touched, len(made.rows))):
        raise Violation(
            rules.ACKED_SURVIVES,
            f"{name}: damage from offset {first_touched} on, recovery point {made.recovery_point}:"
            f" only {len(found)} of {len(made.rows)} records are left",
        )


def checksummed(content: bytes, position: int) -> bool:
    """Whether a checksum or a check of the header covers the byte."""
    start = max(at for at, _ in iter_headers(content) if at <= position)
    return position - start not in UNCOVERED


def check_flip(name: str, bit: int) -> None:
    intact = template().files[name]
    content = bytearray(intact)
    content[bit // 8] ^= 1 << bit % 8
    first_touched = intact_before(intact, bit // 8)
    if checksummed(intact, bit // 8):
        check_damaged(name, bytes(content), first_touched)
        return
    try:
        check_damaged(name, bytes(content), first_touched)
    except Violation as violation:
        if violation.rule == rules.NAMED_ERRORS:
            raise


def check_truncation(name: str, length: int) -> None:
    content = template().files[name]
    check_damaged(name, content[:length], intact_before(content, length))


def run_flips(step: int = 61) -> Iterator[Callable[[], None]]:
    """A check for every ``step``-th bit of every log file."""
    for name, content in sorted(template().files.items()):
        for bit in range(0, 8 * len(content), step):
            yield partial(check_flip, name, bit)


def run_truncations(step: int = 7) -> Iterator[Callable[[], None]]:
    """A check for every ``step``-th length of every log file."""
    for name, content in sorted(template().files.items()):
        for length in range(0, len(content), step):
            yield partial(check_truncation, name, length)
