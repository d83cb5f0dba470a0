"""A replica's log with the state that its owner keeps for it: what survives a restart, in the in-memory file system."""

from __future__ import annotations

import json
from typing import Any

from logstore.log.replica_log import ReplicaLog
from logstore.seams.fs import exists, read_file, replace_file
from logstore.seams.memory_fs import MemoryFileSystem
from tests.log.logs import Desk

STATE = "/replica.state"


class ReplicaDesk(Desk):
    """``start`` opens the log as after any stop; its state is written when the log asks for it, and by ``save``."""

    def __init__(self, fs: MemoryFileSystem | None = None, boot: str = "boot-0", **settings: Any) -> None:
        super().__init__(fs, **settings)
        self.boot = boot
        self.log: ReplicaLog | None = None
        self.saved: dict[str, Any] = self._read()

    def _read(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            "recovery_point": 0,
            "log_start_offset": 0,
            "high_watermark": 0,
            "no_producers_at": 0,
            "clean": False,
            "boot": self.boot,
        }
        if exists(self.fs, STATE):
            found.update(json.loads(read_file(self.fs, STATE)))
        return found

    def start(self) -> ReplicaLog:
        known = dict(self.saved)
        boot = known.pop("boot")
        self.log = self.replica(same_boot=boot == self.boot, **known)
        self.save()  # in use from now on, however it was stopped
        return self.log

    def stop(self) -> None:
        """In order."""
        assert self.log is not None
        self.log.checkpoint()
        self.save(clean=True)
        self.log.close()
        self.log = None

    def save(self, *, clean: bool = False) -> None:
        log = self.log
        assert log is not None
        state = {
            "recovery_point": log.recovery_point,
            "log_start_offset": log.log_start_offset,
            "high_watermark": min(log.high_watermark, log.flushed_offset),
            "no_producers_at": log.producers.no_producers_at,
            "clean": clean,
            "boot": self.boot,
        }
        replace_file(self.fs, STATE, json.dumps(state).encode())
        self.saved = state

    def _before_roll(self, log: Any) -> None:
        super()._before_roll(log)
        self.save()
