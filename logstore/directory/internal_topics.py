"""Internal topics are the store's own: read by whoever likes, written by coordinators alone.

They have no owner, only a lock for the moment of each write. Records of others would be taken for decisions, and
whoever owned such a topic would keep every process from its groups and transactions.
"""

from __future__ import annotations

from logstore.errors import InvalidTopicError


def refuse_internal(name: str, internal: bool) -> None:
    """InvalidTopicError for an internal topic."""
    if internal:
        raise InvalidTopicError(
            f"{name!r} is internal: the store alone writes and changes it",
            hint="use a topic of your own; groups and transactions have calls of their own",
        )
