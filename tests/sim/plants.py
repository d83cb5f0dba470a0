"""Bugs planted into the engine, each of which the simulator has to catch, with the seeds that it took.

A plant replaces one function of the engine by a wrong one while it is planted; nothing of it is in the
product. Where a bug only shows when a disk fails, it is hunted with disk faults instead of schedules.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, Literal

import pytest

import logstore.directory.catalogue as catalogue_module
import logstore.directory.topic_state as topic_state_module
import logstore.log.recovery.recovery as recovery_module
import logstore.log.recovery.scan as scan_module
import logstore.partition.log_opening as log_opening
from logstore.errors import OutcomeUnknownError
from logstore.log.owned_log import OwnedLog
from logstore.log.recovery.recovery import Loaded, LoadRules, _Recovery
from logstore.log.segments.segment import Segment
from logstore.partition.topic import Topic
from logstore.seams import fs as fs_module
from logstore.seams.faults import FaultKind
from logstore.seams.fs import File, FileSystem
from logstore.seams.memory_fs import MemoryFileSystem
from tests.sim.damage import run_flips
from tests.sim.exhaustive import Workload
from tests.sim.faults import WorkloadFault, cases
from tests.sim.host import ROOT
from tests.sim.mixed import CRITICAL, MixedSchedule, mixed_explorer, torn_tail
from tests.sim.model import Violation
from tests.sim.schedules import Schedule, run_schedule
from tests.sim.sweep import SweepCase, SweepRun, sweep_cases

Patch = pytest.MonkeyPatch
Hunter = Literal["schedules", "faults", "damage", "mixed schedules", "sweep", "boundaries", "torn tails"]
MOST_SEEDS: Final = 2_000
RUNS_AFTER: Final = 200  # run in any case, to tell how often it is caught


@dataclass(frozen=True, slots=True)
class Plant:
    name: str
    what: str
    sow: Callable[[Patch], None]
    hunted_by: Hunter = "schedules"


@dataclass(slots=True)
class Caught:
    """``runs_taken``: seeds (or cases) up to and with the first that caught it, which is number ``first``."""

    name: str
    what: str
    by: str = ""
    runs_taken: int = 0
    first: int = -1
    runs: int = 0
    caught_in: int = 0
    rule: str = ""
    detail: str = ""


PLANTS: Final[dict[str, Plant]] = {}


def plant(name: str, what: str, hunted_by: Hunter = "schedules") -> Callable[[Callable[[Patch], None]], None]:
    def note(sow: Callable[[Patch], None]) -> None:
        PLANTS[name] = Plant(name, what, sow, hunted_by)

    return note


# --- acknowledging -----------------------------------------------------------------------------------


@plant("ack before sync", 'acks="all" returns, and readers see, before anything was synced')
def _(patch: Patch) -> None:
    def sync(self: OwnedLog) -> None:
        with self._lock:
            self._check_usable()
            if self.dirty:
                self._synced_up_to(self.log_end_offset)

    patch.setattr(OwnedLog, "sync", sync)


@plant("watermark past the sync", "readers see records as soon as they are written")
def _(patch: Patch) -> None:
    note = OwnedLog._note

    def planted(self: OwnedLog, *arguments: Any) -> None:
        note(self, *arguments)
        self._advance_high_watermark(self.log_end_offset)

    patch.setattr(OwnedLog, "_note", planted)


@plant("commit before sync", "committed offsets are acknowledged before they were synced")
def _(patch: Patch) -> None:
    sync = OwnedLog.sync

    def planted(self: OwnedLog) -> None:
        if not self.where.startswith("__"):
            sync(self)
            return
        with self._lock:
            if self.dirty:
                self._synced_up_to(self.log_end_offset)

    patch.setattr(OwnedLog, "sync", planted)


# --- names -------------------------------------------------------------------------------------------


def _deaf(patch: Patch, deaf: Callable[[str], bool]) -> None:
    """``sync_dir`` does nothing for the directories that ``deaf`` picks."""
    sync_dir = MemoryFileSystem.sync_dir

    def planted(self: MemoryFileSystem, path: str) -> None:
        if deaf(path):
            self.stat(path)
        else:
            sync_dir(self, path)

    patch.setattr(MemoryFileSystem, "sync_dir", planted)


@plant("no directory sync", "no directory is ever synced")
def _(patch: Patch) -> None:
    _deaf(patch, lambda path: True)


@plant("segment name not synced", "a new segment's directory is not synced")
def _(patch: Patch) -> None:
    _deaf(patch, lambda path: path.startswith(f"{ROOT}/t-"))


@plant("folder name not synced", "the store's own directory is not synced when a partition is made")
def _(patch: Patch) -> None:
    _deaf(patch, lambda path: path == ROOT)


def _replace_everywhere(patch: Patch, wrong: Callable[[FileSystem, str, bytes], None]) -> None:
    for module in (catalogue_module, recovery_module, topic_state_module, fs_module):
        patch.setattr(module, "replace_file", wrong)


@plant("rename without sync", "checkpoints are renamed into place before their content was synced")
def _(patch: Patch) -> None:
    def wrong(fs: FileSystem, path: str, content: bytes) -> None:
        temporary = path + ".tmp"
        if fs_module.exists(fs, temporary):
            fs.remove(temporary)
        file = fs.open(temporary, "create")
        fs_module.write_all(file, [content], 0)
        file.close()
        fs.rename(temporary, path)
        fs.sync_dir(path.rpartition("/")[0])

    _replace_everywhere(patch, wrong)


def _write_in_place(fs: FileSystem, path: str, content: bytes) -> None:
    file: File = fs.open(path, "rw" if fs_module.exists(fs, path) else "create")
    file.truncate(0)
    fs_module.write_all(file, [content], 0)
    file.sync()
    file.close()
    fs.sync_dir(path.rpartition("/")[0])


@plant("catalogue in place", "topics.json is overwritten in place")
def _(patch: Patch) -> None:
    patch.setattr(catalogue_module, "replace_file", _write_in_place)


@plant("state in place", "a topic's state file is overwritten in place")
def _(patch: Patch) -> None:
    patch.setattr(topic_state_module, "replace_file", _write_in_place)


# --- order -------------------------------------------------------------------------------------------


@plant("roll without sync", "the old segment is not synced when the log rolls")
def _(patch: Patch) -> None:
    patch.setattr(OwnedLog, "_sync_segment", lambda self, segment: None)


@plant("recovery point before sync", "a roll makes the recovery point durable before it syncs")
def _(patch: Patch) -> None:
    roll = OwnedLog._roll

    def planted(self: OwnedLog, old: Segment | None) -> Segment:
        if old is not None:
            self.recovery_point = self.log_end_offset
            self._before_roll(self)
        return roll(self, old)

    patch.setattr(OwnedLog, "_roll", planted)


@plant("clean before sync", "a topic is marked clean before its data is synced")
def _(patch: Patch) -> None:
    close_in_order = Topic._close_in_order

    def planted(self: Topic) -> None:
        honest = {log: log.flushed_offset for log in self._logs.values()}
        for log in honest:
            log.flushed_offset = log.recovery_point = log.log_end_offset
        self.save_state(clean=True)
        for log, synced in honest.items():
            log.flushed_offset = log.recovery_point = synced
        close_in_order(self)

    patch.setattr(Topic, "_close_in_order", planted)


@plant("not marked in use", "a clean topic is appended to without its state saying so")
def _(patch: Patch) -> None:
    take_over, save_state = Topic._take_over, Topic.save_state

    def planted(self: Topic) -> None:
        patch.setattr(Topic, "save_state", lambda self, clean=False: None)
        try:
            take_over(self)
        finally:
            patch.setattr(Topic, "save_state", save_state)

    patch.setattr(Topic, "_take_over", planted)


# --- recovery ----------------------------------------------------------------------------------------


@plant("no checksum", "recovery does not verify checksums")
def _(patch: Patch) -> None:
    patch.setattr(scan_module, "check_crc", lambda buffer, position, header: None)


@plant("torn tail kept", "recovery finds the last good batch and leaves what follows in the file")
def _(patch: Patch) -> None:
    patch.setattr(_Recovery, "_cut", lambda self, *arguments: None)


@plant("index trusted", "recovery takes the index rows of the file as they are")
def _(patch: Patch) -> None:
    rows_below = _Recovery._rows_below
    patch.setattr(_Recovery, "_rows_below", lambda self, segment, point: rows_below(self, segment, 1 << 40))
    patch.setattr(_Recovery, "_confirms", lambda self, *arguments: True)


@plant("epoch not bumped", "the leader epoch stays at an unclean start")
def _(patch: Patch) -> None:
    recover = recovery_module.recover_epochs

    def planted(*arguments: Any, **rules: Any) -> Any:
        return recover(*arguments, **(rules | {"step": False}))

    patch.setattr(recovery_module, "recover_epochs", planted)


@plant("offsets reused", "after recovery new records get offsets from the recovery point on")
def _(patch: Patch) -> None:
    recover_from = _Recovery._recover_from

    def planted(self: _Recovery, segments: list[Segment], point: int) -> tuple[list[Segment], int]:
        kept, next_offset = recover_from(self, segments, point)
        return kept, next_offset if self.rules.clean else min(next_offset, max(point, 1))

    patch.setattr(_Recovery, "_recover_from", planted)


@plant("recovered but not synced", "recovery shows what it found without making it durable")
def _(patch: Patch) -> None:
    keep = _Recovery._keep

    def planted(self: _Recovery, *arguments: Any) -> None:
        honest, self.rules = self.rules, replace(self.rules, clean=True)
        try:
            keep(self, *arguments)
        finally:
            self.rules = honest

    patch.setattr(_Recovery, "_keep", planted)


def _with_rules(patch: Patch, change: Callable[[LoadRules], LoadRules]) -> None:
    load = recovery_module.load

    def planted(pool: Any, directory: str, topic: str, partition: int, known: LoadRules) -> Loaded:
        return load(pool, directory, topic, partition, change(known))

    patch.setattr(log_opening, "load", planted)


@plant("boot not checked", "every start takes the page cache for alive")
def _(patch: Patch) -> None:
    _with_rules(patch, lambda known: replace(known, same_boot=True))


@plant("cut below the recovery point", "damage to durable records is cut away like a torn tail", "damage")
def _(patch: Patch) -> None:
    _with_rules(patch, lambda known: replace(known, recovery_point=0, clean=False, same_boot=False))


# --- failing disks -----------------------------------------------------------------------------------


@plant("failed sync retried", "a sync that failed is tried again, and believed", "faults")
def _(patch: Patch) -> None:
    sync = OwnedLog.sync

    def planted(self: OwnedLog) -> None:
        try:
            sync(self)
        except OutcomeUnknownError:
            self._failure = None
            sync(self)

    patch.setattr(OwnedLog, "sync", planted)


@plant("lost pages believed", "after a failed sync and a kill, recovery syncs without writing anew", "faults")
def _(patch: Patch) -> None:
    patch.setattr(_Recovery, "_dirty_again", lambda self, segment, at, length: segment.bytes_at(at, length))


@plant("half write kept", "what a failed write left behind is not cut off", "faults")
def _(patch: Patch) -> None:
    take_back = OwnedLog._take_back_written

    def planted(self: OwnedLog, segment: Segment, file: File, error: BaseException) -> None:
        try:
            take_back(self, segment, file, error)
        except Exception:
            segment.size += 70
            raise

    patch.setattr(OwnedLog, "_take_back_written", planted)


# --- hunting -----------------------------------------------------------------------------------------


@contextmanager
def planted(chosen: Plant) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        chosen.sow(patch)
        yield


Run = Callable[[], "Violation | None"]


HUNTERS: Final[dict[str, Callable[[], Iterable[Run]]]] = {
    "schedules": lambda: (partial(_scheduled, seed, Schedule) for seed in range(MOST_SEEDS)),
    "faults": lambda: (partial(_raised, WorkloadFault(case).run) for case in cases()),
    "damage": lambda: (partial(_raised, check) for check in run_flips()),
    "mixed schedules": lambda: (partial(_scheduled, seed, MixedSchedule) for seed in range(MOST_SEEDS)),
    "sweep": lambda: (partial(_raised, SweepRun(case).run) for case in _shuffled(sweep_cases())),
    "torn tails": lambda: (partial(_raised, partial(torn_tail, seed)) for seed in range(MOST_SEEDS)),
    "boundaries": lambda: (partial(_raised, partial(_explored, workload)) for workload in CRITICAL),
}
"""The runs of a hunt in their order; each tells what it found."""


def _shuffled(found: Iterable[SweepCase]) -> list[SweepCase]:
    """A hunt need not go through one workload before it meets the next; the hardest faults come first."""
    listed = list(found)
    random.Random("sweep").shuffle(listed)
    return sorted(listed, key=lambda case: not (case.forever and case.kind is FaultKind.EIO))


def _explored(workload: Workload) -> None:
    mixed_explorer(limit=40, recrash_every=1 << 30).explore([workload])


def _scheduled(seed: int, kind: type[Schedule]) -> Violation | None:
    return run_schedule(seed, kind=kind).violation


def _raised(run: Callable[[], object]) -> Violation | None:
    try:
        run()
    except Violation as violation:
        return violation
    return None


def hunt(chosen: Plant, *, runs_after: int = RUNS_AFTER) -> Caught:
    """Run until the plant is caught, and then some more to tell how often it is.

    A run counts as caught only if it finds nothing in the engine without the plant.
    """
    caught = Caught(chosen.name, chosen.what)
    logger = logging.getLogger("logstore")
    level = logger.level
    logger.setLevel(logging.CRITICAL)  # its complaints are wanted here
    for number, (run, honest) in enumerate(
        zip(HUNTERS[chosen.hunted_by](), HUNTERS[chosen.hunted_by](), strict=True)
    ):
        with planted(chosen):
            violation = run()
        caught.runs += 1
        if violation is not None and honest() is None:
            caught.caught_in += 1
            if not caught.by:
                caught.by, caught.runs_taken, caught.first = chosen.hunted_by, caught.runs, number
                caught.rule, caught.detail = violation.rule, violation.detail[:300]
        if caught.by and caught.runs >= max(caught.runs_taken, runs_after):
            break
    logger.setLevel(level)
    return caught
