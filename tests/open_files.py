"""Which files of a folder this process has open: other tests' threads open and close theirs at any moment."""

from __future__ import annotations

import os
from pathlib import Path


def open_below(root: Path) -> list[str]:
    """Targets of this process's descriptors below ``root``, those of removed files among them."""
    found = []
    for number in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{number}")
        except FileNotFoundError:  # the listing's own, or closed since
            continue
        if target.startswith(f"{root}{os.sep}"):
            found.append(target)
    return found
