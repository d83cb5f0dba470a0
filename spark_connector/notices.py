"""What a user ought to know, said once a process: a stream makes its writer anew for every batch."""

from __future__ import annotations

import logging
from functools import lru_cache

logger = logging.getLogger("logstore.spark")


@lru_cache(maxsize=256)
def notice(text: str) -> None:
    """Log the sentence as a warning, the first time only."""
    logger.warning("%s", text)
