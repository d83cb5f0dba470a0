"""A topic taken for a piece of maintenance, and given back behind it.

A topic that no process owns is any store's to look after. Whoever takes it for that keeps other processes from
writing to it meanwhile: so only if its lock is free, and no longer than the work takes.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from logstore.errors import LogStoreError
from logstore.partition.cleaned_topic import BorrowedTopic

logger = logging.getLogger(__name__)


@contextmanager
def borrowed(topic: BorrowedTopic) -> Iterator[bool]:
    """True inside if this process owns the topic now: before, or because its lock was free. A topic that was free
    is released at the end, unless it has been used meanwhile. Errors of taking it: TopicLockedError is none of them.
    """
    was_owned = topic.owned
    if not was_owned and not topic.own_if_free():
        yield False
        return
    taken_at_s = topic.last_used_s
    try:
        yield True
    finally:
        if not was_owned:
            give_back(topic, taken_at_s)


def give_back(topic: BorrowedTopic, taken_at_s: float) -> None:
    """Release a topic that was taken at ``taken_at_s`` (its ``last_used_s`` then), unless it has been used since."""
    if topic.last_used_s != taken_at_s:
        return
    try:
        topic.idle_release(0.0)
    except LogStoreError as error:
        logger.error("topic %s was looked after, and could not be given up in order: %s", topic.name, error)
