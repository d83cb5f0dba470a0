"""Numbers in the compiled sources: a literal of more than 31 bits is an object of Python's to Cython.

Arithmetic with such a literal runs on Python integers without a word of warning, and once made a compaction twice
as slow. A suffix (``0xFFFFFFFFu``) or a cast (``<uint32_t>hashed``) keeps it in C.
"""

from __future__ import annotations

import re

from logstore.native.build import FOLDER
from logstore.seams.fs import SLICE_BYTES

_ARITHMETIC = re.compile(r"(?:[&|^*+-]|<<|>>)\s*(0x[0-9A-Fa-f]+|\d+)\b(?![uUlL])")


def test_no_arithmetic_with_a_literal_that_is_an_object() -> None:
    found = [
        f"{path.name}:{number}: {literal}"
        for path in sorted([*FOLDER.glob("*/*.pyx"), *FOLDER.glob("*/*.pxd")])
        for number, line in enumerate(path.read_text().splitlines(), 1)
        for literal in _ARITHMETIC.findall(line.partition("#")[0])
        if int(literal, 0) >= 1 << 31
    ]
    assert found == []


def test_a_call_writes_as_much_in_both_twins() -> None:
    found = re.findall(
        r"^ *SLICE_BYTES = (\d+) << (\d+)", (FOLDER / "log" / "appending.pxd").read_text(), re.M
    )
    assert [int(number) << int(bits) for number, bits in found] == [SLICE_BYTES]
