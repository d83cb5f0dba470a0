"""``DiskWatch``: whether a node's disk takes writes, from the first that it refuses until one gets through again.

A leader whose disk is full, or fails, is of no use to producers, while its followers have room. So a node whose disk
refused a write gives what it leads to in-sync followers whose own disks write, and stands for election only where no
other node does: it would be elected for its long log, be refused again, and keep the others from working. Its beats
tell the other nodes, so that none of them gives their place to it, and the controller does not give it back what it
preferably leads. It goes on to follow what it leads no more.

Whether the disk writes again is tried with a file of its own, after a second, and after twice as long each time that
the disk refused another write soon after: room that comes and goes does not have leadership come and go.
"""

from __future__ import annotations

import logging
import threading
from random import Random
from typing import Final

from logstore.directory.layout import PROBE_FILE
from logstore.errors import (
    DiskFullError,
    LogStoreError,
    OutcomeUnknownError,
    PartitionPoisonedError,
    StorageError,
)
from logstore.seams.clock import Clock
from logstore.seams.fs import FileSystem, remove_if_there, write_all
from replication.backoff import Backoff

logger = logging.getLogger(__name__)

_PROBE_BYTES: Final = 64 << 10


def is_refusal(error: LogStoreError) -> bool:
    """Whether the disk did not do what it was asked to: no damage of what it holds, and nothing that a caller did."""
    return isinstance(error, DiskFullError | StorageError | OutcomeUnknownError | PartitionPoisonedError)


class DiskWatch:
    """Thread-safe. ``directory``: where the probe is written. ``refuses``: the disk's last word."""

    def __init__(self, fs: FileSystem, directory: str, clock: Clock) -> None:
        self._fs = fs
        self._path = f"{directory}/{PROBE_FILE}"
        self._clock = clock
        self._lock = threading.Lock()
        self.refuses = False
        self._probes = Backoff()

    def note_refused(self, error: LogStoreError) -> None:
        """A write failed. Does no I/O."""
        now_s = self._clock.monotonic_s()
        with self._lock:
            if self.refuses:
                return
            self._probes.failed(now_s)
            self.refuses = True
        logger.error("the disk refuses writes; other nodes are to lead what this one leads: %s", error)

    def look(self) -> bool:
        """Probe where that is due; whether the disk refuses writes."""
        now_s = self._clock.monotonic_s()
        with self._lock:
            if not self.refuses or not self._probes.is_due(now_s):
                return self.refuses
            self._probes.put_off(now_s)
        try:
            self._probe()
        except OSError as error:
            logger.debug("the disk still refuses writes: %s", error)
            return True
        with self._lock:
            self.refuses = False
            self._probes.worked(now_s)
        logger.warning("the disk takes writes again")
        return False

    def _probe(self) -> None:
        remove_if_there(self._fs, self._path)
        file = self._fs.open(self._path, "create")
        try:
            # Bytes that no file system stores in less room than they have.
            write_all(file, [Random(0).randbytes(_PROBE_BYTES)], 0)
            file.sync()
        finally:
            file.close()
            self._fs.remove(self._path)
