"""Which twin of the hot functions serves in this process, and why: the compiled one, or Python's.

Decided once, when the first of them is asked for. All extension modules are used or none is, so that there are two
programs to test and not two to the power of the number of modules.
"""

from __future__ import annotations

import os
from functools import cache
from importlib import import_module
from importlib.machinery import EXTENSION_SUFFIXES
from types import ModuleType
from typing import NamedTuple

from logstore.native.modules import MODULES, file_of, fingerprint

SWITCH = "LOGSTORE_NATIVE"
"""``0`` in this environment variable selects the Python twin, whatever is built."""

_REBUILD = "build it anew with `python -m logstore.native.build`"


class NativeStatus(NamedTuple):
    """``compiled``: whether the compiled twin serves; ``reason``: why, in a sentence's words."""

    compiled: bool
    reason: str

    def __str__(self) -> str:
        return f"compiled core {'in use' if self.compiled else 'not in use'}: {self.reason}"


def native_status() -> NativeStatus:
    """Whether this process runs the compiled hot functions or their Python twins, and why."""
    return _chosen()[0]


def extension_module(name: str) -> ModuleType | None:
    """The extension module of that name; None if the Python twin serves."""
    return _chosen()[1].get(name)


@cache
def _chosen() -> tuple[NativeStatus, dict[str, ModuleType]]:
    if os.environ.get(SWITCH) == "0":
        return NativeStatus(False, f"{SWITCH}=0 is set"), {}
    suffix = EXTENSION_SUFFIXES[0]
    lacking = [name for name in MODULES if not file_of(name, suffix).exists()]
    if len(lacking) == len(MODULES):
        reason = f"it was not built for this Python ({suffix}), as without a C compiler; {_REBUILD}"
        return NativeStatus(False, reason), {}
    if lacking:
        return NativeStatus(False, f"{', '.join(lacking)} was not built for this Python; {_REBUILD}"), {}
    loaded: dict[str, ModuleType] = {}
    for name in MODULES:
        fault = _load(name, loaded)
        if fault is not None:
            return NativeStatus(False, f"{fault}; {_REBUILD}"), {}
    return NativeStatus(True, f"built for {suffix[1:].rpartition('.')[0]}"), loaded


def _load(name: str, loaded: dict[str, ModuleType]) -> str | None:
    """Import one extension module into ``loaded``; what is wrong with it, if anything is."""
    try:
        module = import_module(f"logstore.native.{name}")
    except Exception as error:  # noqa: BLE001  # whatever a broken build raises, the Python twin serves
        return f"{name} cannot be loaded ({type(error).__name__}: {error})"
    built_from = getattr(module, "FINGERPRINT", None)
    wanted = fingerprint(name)
    if wanted is not None and built_from != wanted:
        return f"{name} was built from another source than the one beside it"
    loaded[name] = module
    return None
