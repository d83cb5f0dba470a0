"""What becomes of producers that are never closed: collected, left at the interpreter's end, or forked.

Nothing is lost in silence: records that such a producer still holds are reported (a log line and a
``ResourceWarning``) and sent all the same.
"""

from __future__ import annotations

import atexit
import logging
import os
import warnings
import weakref
from collections.abc import Mapping
from typing import Protocol

from logstore.client.producer.accumulator import Accumulator
from logstore.client.producer.sender import Sender
from logstore.errors import LogStoreError

logger = logging.getLogger(__name__)


class Closable(Protocol):
    """What is watched: a ``Producer``."""

    def metrics(self) -> Mapping[str, float]: ...
    def close(self) -> None: ...
    def refuse_in_child(self) -> None: ...


_live: weakref.WeakSet[Closable] = weakref.WeakSet()


def watch(
    producer: Closable, sender: Sender, accumulator: Accumulator
) -> weakref.finalize[[Sender, Accumulator], Closable]:
    """From now on the producer's end is noticed. Gives what ``unwatch`` takes."""
    _live.add(producer)
    dropped = weakref.finalize(producer, _report_dropped, sender, accumulator)
    dropped.atexit = False  # _flush_at_exit does more
    return dropped


def unwatch(producer: Closable, dropped: weakref.finalize[[Sender, Accumulator], Closable]) -> None:
    """The producer was closed."""
    dropped.detach()
    _live.discard(producer)


def _report_dropped(sender: Sender, accumulator: Accumulator) -> None:
    """A producer was collected without ``close``. Takes no lock: a collection may run anywhere."""
    held = accumulator.buffer.held_bytes
    sender.stop()
    if held:
        _report(f"a producer was dropped without close(): about {held} bytes of records are sent late")


@atexit.register
def _flush_at_exit() -> None:
    """The interpreter ends: send what open producers hold, within their delivery timeout."""
    for producer in list(_live):
        held = producer.metrics()["buffered_bytes"]
        if held:
            _report(
                f"a producer was not closed before the interpreter's end: about {held} bytes are sent late"
            )
        try:
            producer.close()
        except LogStoreError:
            logger.exception("records were lost at the interpreter's end")


def _report(text: str) -> None:
    logger.warning(text)
    warnings.warn(text, ResourceWarning, stacklevel=3)


def _refuse_in_child() -> None:
    for producer in list(_live):
        producer.refuse_in_child()
    _live.clear()


os.register_at_fork(after_in_child=_refuse_in_child)
