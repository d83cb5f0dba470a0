"""``settle_worker``: what a Spark worker has imported is left out of its garbage collections.

Spark collects garbage in a Python worker after every call. What PySpark, Arrow and pandas bring along takes tens of
milliseconds of a processor to walk, ten times what a call of a small trigger takes, and a trigger has several.
"""

from __future__ import annotations

import gc
import os
import sys
from dataclasses import dataclass
from typing import Final

_RUNTIME: Final = "SPARK_PYTHON_RUNTIME"  # set by Spark in the processes that it starts
_MOST_TIMES: Final = 8


@dataclass(slots=True)
class Settled:
    """How often a process was settled, how many modules it had then, and whether it had a call before."""

    modules: int = 0
    times: int = 0
    called: bool = False


_settled = Settled()


def is_worker() -> bool:
    """Whether this process is one of Spark's Python workers."""
    return os.environ.get(_RUNTIME) == "PYTHON_WORKER"


def settle_worker() -> None:
    """At the start of a call, if modules were imported since the worker was settled; nothing outside of a worker, nor
    in the first call.

    The first call imports much that is not there when it begins: Arrow's compute functions and what they need are a
    third of all objects. At the start of a later one Spark has just collected what the one before left. What becomes
    garbage later is collected as ever, unless it was there now; so a worker that goes on importing is settled
    ``_MOST_TIMES`` at most.
    """
    modules = len(sys.modules)
    if modules == _settled.modules or _settled.times == _MOST_TIMES or not is_worker():
        return
    if not _settled.called:
        _settled.called = True
        return
    gc.freeze()
    _settled.modules = modules
    _settled.times += 1
