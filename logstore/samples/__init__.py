"""Real data that ships with the package; see README.md for where it comes from."""

from __future__ import annotations

import os

FLIGHTS = "flights-2013-01-01.csv"


def sample_path(name: str = FLIGHTS) -> str:
    """Where a sample's file lies on this machine."""
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), name)
