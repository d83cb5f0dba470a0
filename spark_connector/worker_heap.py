"""``settle_worker``: what a Spark worker has imported is left out of its garbage collections.

Spark collects garbage in a Python worker after every call. What PySpark, Arrow and pandas bring along takes tens of
milliseconds of a processor to walk, ten times what a call of a small trigger takes, and a trigger has several.
"""

from __future__ import annotations

import gc
import os
from functools import lru_cache
from typing import Final

_RUNTIME: Final = "SPARK_PYTHON_RUNTIME"  # set by Spark in the processes that it starts


def is_worker() -> bool:
    """Whether this process is one of Spark's Python workers."""
    return os.environ.get(_RUNTIME) == "PYTHON_WORKER"


@lru_cache(maxsize=1)
def settle_worker() -> None:
    """Once a process, when its modules are imported; nothing outside of a worker. What becomes garbage later is
    collected as ever, unless it was there now."""
    if is_worker():
        gc.collect()
        gc.freeze()
