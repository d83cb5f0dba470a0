"""Each sync of each action fails once, and lets go of what it should have kept: what was promised holds all the same.

A run: prepare; one action in which a sync of one file (or directory) fails; the store goes on with others, which may
fail with named errors; a power loss; the process is killed and another one works on what it left; a power loss.
Internal topics, indexes, snapshots, state files and directories have their syncs among those.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from logstore.errors import LogStoreError
from logstore.seams.faults import FaultKind
from logstore.store import LogStore
from tests.interleave.actions import ACTIONS, FIRSTS, Action, acceptable, append, commit_offsets, prepare
from tests.interleave.actions import commit_transaction as transact
from tests.interleave.world import BrokenError, World, require


def leave(world: World, store: LogStore, tag: str) -> None:
    """An aborted transaction, and the store is closed in order: checkpoints of all topics, with all their files."""
    ACTIONS["abort_transaction"](world, store, tag)
    world.one.close()
    world.one = world.process()


SWEPT: Final[dict[str, Action]] = {name: ACTIONS[name] for name in FIRSTS} | {"leave": leave}
GOES_ON: Final[tuple[Action, ...]] = (append, commit_offsets, transact)


class Failure(NamedTuple):
    """The sync of ``path`` that fails is the one after ``skipped`` others of it."""

    action: str
    call: str  # sync or sync_dir
    path: str
    skipped: int

    def __str__(self) -> str:
        return f"{self.action}: {self.call} {self.path} after {self.skipped}"

    @property
    def kind(self) -> str:
        """Of the file, without offsets and ids: "sync __consumer_offsets N.log"."""
        return f"{self.call} " + re.sub(r"\d{20}", "N", self.path.removeprefix("/store/"))


def failures(*names: str) -> Iterator[Failure]:
    """Every sync of these actions, or of all; not of paths that have a random id in them."""
    for name in names or SWEPT:
        counts: dict[tuple[str, str], int] = {}
        for point in _points(name):
            call, _, path = point.partition(" ")
            if not call.startswith("sync") or re.search(r"[\w-]{22}", path.rpartition("/")[2]):
                continue
            skipped = counts[call, path] = counts.get((call, path), -1) + 1
            yield Failure(name, call, path, skipped)


def _points(name: str) -> list[str]:
    world = World()
    try:
        prepare(world)
        world.gate.arm(None)
        SWEPT[name](world, world.one, "first")
        world.gate.disarm()
        return world.gate.names
    finally:
        world.close()


def run(failure: Failure) -> bool:
    """Whether the sync was asked for, and so failed. BrokenError: a promise is not kept."""
    world = World()
    try:
        prepare(world)
        faults = world.disk.faults
        faults.on(failure.call, FaultKind.FAILED_SYNC, path_ends=failure.path, skip=failure.skipped)
        _act(world, SWEPT[failure.action], "first", failure)
        fired = bool(faults.fired)
        faults.clear()
        world.check_images()
        for action in GOES_ON:
            _act(world, action, "later", failure)
        world.check_images()
        world.one.abandon()
        world.one = world.process()
        for action in GOES_ON:
            _act(world, action, "reopened", failure, must=True)
        world.check_images()
        return fired
    finally:
        world.close()


def _act(world: World, action: Action, tag: str, failure: Failure, *, must: bool = False) -> None:
    try:
        action(world, world.one, tag)
    except BrokenError:
        raise
    except Exception as error:  # noqa: BLE001 - told as a broken promise
        require(acceptable(error), f"{failure}: {tag} {action.__name__}: {error!r}")
        require(
            not must or not isinstance(error, LogStoreError), f"{failure}: {tag} {action.__name__}: {error!r}"
        )
