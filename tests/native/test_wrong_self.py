"""A compiled method that its class calls with another object refuses it, as any method of Python's own classes does."""

from __future__ import annotations

import importlib
import inspect
import types
from collections.abc import Iterator

import pytest

import logstore
from logstore.native.modules import MODULES

CHECKED = (types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType)


def methods() -> Iterator[tuple[str, object]]:
    """Each method that a compiled class defines itself, by its name; none where Python's twins serve."""
    for module in MODULES if logstore.native_status().compiled else ():
        for name, found in vars(importlib.import_module(f"logstore.native.{module}")).items():
            if isinstance(found, type) and found.__module__.startswith("logstore.") and not is_python(found):
                for attribute, method in vars(found).items():
                    if callable(method) and not isinstance(
                        method, type | staticmethod | types.BuiltinFunctionType
                    ):
                        yield f"{name}.{attribute}", method


def is_python(found: type) -> bool:
    """Whether it is made by a ``class`` statement of Python's."""
    return bool(found.__flags__ & 1 << 9)


def test_every_method_looks_at_self() -> None:
    found = dict(methods())
    assert len(found) > 100 or not logstore.native_status().compiled
    assert [name for name, method in found.items() if not isinstance(method, CHECKED)] == []
    for method in found.values():
        with pytest.raises(TypeError, match=r"doesn't apply|requires|needs a type"):
            method(object())  # type: ignore[operator]  # that is the test


def test_a_public_method_with_another_self() -> None:
    with pytest.raises((TypeError, AttributeError)):
        logstore.Producer.send(1, "t", b"")  # type: ignore[arg-type]
    assert list(inspect.signature(logstore.Producer.send).parameters)[:3] == ["self", "topic", "value"]
