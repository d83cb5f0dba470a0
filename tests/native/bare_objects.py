"""Calls every method of every compiled class on an object that nothing has initialized, with whatever arguments.

    python -m tests.native.bare_objects

Errors are what is wanted; a crash ends the process. The last line of the output names what was called.
"""

from __future__ import annotations

import contextlib
import faulthandler
import importlib
from collections.abc import Callable, Iterator
from typing import Any

import logstore
from logstore.native.modules import MODULES

MOST_ARGUMENTS = 9
ODD: tuple[Any, ...] = (None, 0, -1, 1 << 70, "x", b"x", [])


def made(kind: type) -> Any:
    """An object of the class, its ``__init__`` not called; None if the class takes none of the odd arguments."""
    for count in range(MOST_ARGUMENTS):
        for odd in ODD:
            with contextlib.suppress(Exception):
                return kind.__new__(kind, *[odd] * count)
    return None


def names_of(kind: type) -> list[str]:
    return ["__init__", *sorted(set(dir(kind)) - set(dir(object)))]


def call_all(function: Callable[[], Callable[..., object]]) -> None:
    for count in range(MOST_ARGUMENTS):
        for odd in ODD:
            with contextlib.suppress(Exception):
                function()(*[odd] * count)


def touch(kind: type, name: str) -> None:
    """Call a method of an object that is new each time, or read and write its field."""
    if callable(getattr(kind, name)):
        call_all(lambda: getattr(made(kind), name))
        return
    bare = made(kind)
    with contextlib.suppress(Exception):
        getattr(bare, name)
    for odd in ODD:
        with contextlib.suppress(Exception):
            setattr(bare, name, odd)


def classes() -> Iterator[type]:
    for module in MODULES:
        for found in vars(importlib.import_module(f"logstore.native.{module}")).values():
            # Bit 9: made by a ``class`` statement of Python's.
            if isinstance(found, type) and "logstore" in found.__module__ and not found.__flags__ & 1 << 9:
                yield found


def main() -> None:
    faulthandler.enable()
    print(logstore.native_status(), flush=True)
    if not logstore.native_status().compiled:
        return
    count = 0
    for kind in classes():
        if made(kind) is not None:
            for name in names_of(kind):
                print(f"{kind.__name__}.{name}", flush=True)
                touch(kind, name)
                count += 1
    print(f"{count} methods and fields", flush=True)


if __name__ == "__main__":
    main()
