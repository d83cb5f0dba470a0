"""``Comeback``: when a replica that failed takes part again, and what the log says of it.

A replica that fails again and again, as the disk is full but for a few bytes, would leave its group and come back each
second: its pauses grow, and the log says the first failure, each other reason, and that it is over, once.
"""

from __future__ import annotations

import logging

from logstore.errors import LogStoreError
from replication.backoff import Backoff

logger = logging.getLogger(__name__)


class Comeback:
    """Of one replica, whose lock is held. ``where``: its name in the log."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._again = Backoff()
        self._said = ""  # why it failed, as the log has it; "": that is over
        self._times = 0

    def failed(self, error: LogStoreError, now_s: float) -> None:
        """It took part until now."""
        again = self._again.failed(now_s)
        self._times = self._times + 1 if again else 1
        if not again or self._said != type(error).__name__:
            self._said = type(error).__name__
            logger.error("%s: this node's replica takes no part: %s", self._where, error)

    def fails_still(self, error: LogStoreError | OSError, now_s: float) -> None:
        self._again.put_off(now_s)
        logger.debug("%s: this node's replica still takes no part: %s", self._where, error)

    def is_due(self, now_s: float) -> bool:
        return self._again.is_due(now_s)

    def worked(self, now_s: float) -> None:
        self._again.worked(now_s)
        if self._times == 1:
            self._say()

    def look(self, now_s: float) -> None:
        """While it takes part: what came and went is over once it has held."""
        if self._said and self._again.is_steady(now_s):
            self._say()

    def _say(self) -> None:
        logger.warning("%s: this node's replica takes part again", self._where)
        if self._times > 1:
            logger.warning("%s: it had failed %d times, one soon after the other", self._where, self._times)
            self._said = ""
