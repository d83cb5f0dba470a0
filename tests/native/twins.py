"""The Python twin of a module, whatever is built: for tests that hold both twins against each other."""

from __future__ import annotations

import importlib.util
from functools import cache
from types import ModuleType
from unittest.mock import patch


@cache
def python_twin(name: str) -> ModuleType:
    """A second copy of the module ``name`` in which nothing is compiled."""
    spec = importlib.util.find_spec(name)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with patch("logstore.native.compiled", lambda _module: lambda python: python):
        spec.loader.exec_module(module)
    return module
