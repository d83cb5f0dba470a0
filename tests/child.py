"""``child``: a process that is gone, with its pipes, when its block is left, also where an assertion failed there."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any


@contextmanager
def child(command: Sequence[str], **settings: Any) -> Iterator[subprocess.Popen[Any]]:
    """``settings``: of ``subprocess.Popen``."""
    with subprocess.Popen(command, **settings) as process:
        try:
            yield process
        finally:
            process.kill()
