"""All plants: importing a kind's module enters its plants."""

from __future__ import annotations

from tests.plants import (
    administration,
    cleaning_rounds,
    critical_steps,
    failed_syncs,
    formats,
    left_out,
    repeats,
    sibling_paths,
)
from tests.plants.plant import PLANTS

KINDS = (
    administration,
    cleaning_rounds,
    critical_steps,
    failed_syncs,
    formats,
    left_out,
    repeats,
    sibling_paths,
)

__all__ = ["KINDS", "PLANTS"]
