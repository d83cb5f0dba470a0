"""The compiled twins of the hot functions, and the one place where a twin is chosen. See README.md."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from logstore.native.status import NativeStatus, extension_module, native_status

__all__ = ["NativeStatus", "compiled", "native_status"]

_Twin = TypeVar("_Twin", bound=Callable[..., Any])


def compiled(module: str) -> Callable[[_Twin], _Twin]:
    """Decorator of a Python function or class that has a compiled twin of the same name in an extension module.

    The name then stands for the compiled twin where that is in use, and else for what was decorated. Both take the
    same arguments, return the same and raise the same errors with the same messages. A compiled twin may hand a call
    over to its Python twin, which it finds in ``PYTHON_TWINS`` of its module: mostly so that errors have one source.
    """

    def choose(python: _Twin) -> _Twin:
        extension = extension_module(module)
        if extension is None:
            return python
        twins = getattr(extension, "PYTHON_TWINS", None)
        if twins is not None:
            twins[python.__name__] = python
        twin: _Twin = getattr(extension, python.__name__)
        return twin

    return choose
