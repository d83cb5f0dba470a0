"""``CommitPolicy``: which of a log's records are committed, so that readers may see them.

A log has three positions, ``high_watermark <= log_end_offset`` and ``flushed_offset <= log_end_offset``:

    log_end_offset    the next record's offset: appended here, perhaps in the page cache alone
    flushed_offset    durable here: a power loss of this machine takes nothing below it
    high_watermark    committed: no truncation goes below it, no reader sees beyond it; it never goes back

A sync moves ``flushed_offset`` and nothing else. What follows from it for the high watermark is the policy's to say.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import TypeAlias

from logstore.config import TopicConfig


class CommitPolicy(Enum):
    """FLUSH: what is durable here is committed (``visible.after=flush``, the default of a node that is alone).
    APPEND: what is appended here is (``visible.after=append``). INDEX: what a replicated commit index covers, which
    is told from outside by ``advance_high_watermark``; neither an append nor a sync says anything about it."""

    FLUSH = "flush"
    APPEND = "append"
    INDEX = "index"


ChoosePolicy: TypeAlias = Callable[[TopicConfig], CommitPolicy]
"""The policy under a topic's settings, asked again whenever they change."""


def by_visibility(config: TopicConfig) -> CommitPolicy:
    """The policy of a node that is alone: the topic's ``visible.after``."""
    return CommitPolicy.APPEND if config.visible_after == "append" else CommitPolicy.FLUSH


def by_commit_index(config: TopicConfig) -> CommitPolicy:
    """The policy of a replica, whatever the topic's settings say."""
    del config
    return CommitPolicy.INDEX
