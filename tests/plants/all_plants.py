"""All plants: importing a kind's module enters its plants."""

from __future__ import annotations

from tests.plants import critical_steps
from tests.plants.plant import PLANTS

KINDS = (critical_steps,)

__all__ = ["KINDS", "PLANTS"]
