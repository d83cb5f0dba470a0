"""For people who test: a pytest plugin with a store and a broker per test, faults to inject, and a crash test."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from logstore.testing.clock import MovedClock
    from logstore.testing.crash import CrashReport, CrashTestError, crash_test
    from logstore.testing.disk import FaultyDisk

# Imported at first use: every pytest of an environment loads the plugin, and with it this package.
_PLACES = {
    "MovedClock": "clock",
    "CrashReport": "crash",
    "CrashTestError": "crash",
    "crash_test": "crash",
    "FaultyDisk": "disk",
}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'logstore.testing' has no attribute {name!r}")
    found = getattr(import_module(f"logstore.testing.{_PLACES[name]}"), name)
    globals()[name] = found
    return found


__all__ = ["crash_test", "CrashReport", "CrashTestError", "FaultyDisk", "MovedClock"]
