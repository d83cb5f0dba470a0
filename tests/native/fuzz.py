"""Both twins on odd input without end: the same answer, or the same error in the same words.

    python -m tests.native.fuzz --seconds 300 --seed 0
    python -m tests.native.fuzz --count 2000
    python -m tests.native.fuzz --atheris -max_total_time=300

By default Hypothesis draws records sections that are mostly well made and rows of every kind. With ``--atheris`` (where
that package is installed) raw bytes are searched by the coverage of the Python twin; the options behind it are
libFuzzer's. It ends with 1 at the first difference, and prints the input.
"""

from __future__ import annotations

import argparse
import sys
import time
from array import array
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from logstore.errors import LogStoreError
from logstore.format import arrow, record, record_spans, row_buffer
from logstore.format.batch import encode_batch, pack_batch, read_header
from logstore.native import native_status
from tests.format.batches import row_lists
from tests.native.sections import sections
from tests.native.twins import python_twin

_RECORD = python_twin("logstore.format.record")
_BUFFER = python_twin("logstore.format.row_buffer")
_ARROW = python_twin("logstore.format.arrow")
_SPANS = python_twin("logstore.format.record_spans")
_HEADER = read_header(encode_batch([(None, None)], now_ms=9))
_ROUND = 500
_COUNTS = (1, 2, 3, 0, 7, 1 << 31, (1 << 31) - 1, 1 << 62)
_BASES = (0, (1 << 63) - 2, -(1 << 63))


def _outcome(call: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return call(*arguments)
    except LogStoreError as error:
        return type(error), str(error)


def _same(name: str, compiled: Any, python: Any, section: bytes) -> None:
    if compiled != python:
        raise AssertionError(f"{name} of {section.hex()}:\n  in use  {compiled!r}\n  Python's {python!r}")


def compare_section(section: bytes, count: int, base_ms: int) -> None:
    """Every reader of a records section. AssertionError at a difference."""
    exact = array("B", section)  # memory without a byte behind the last, which a sanitizer watches
    for name, rest in (
        ("decode_rows", (5, base_ms, "t", 3, None)),
        ("decode_rows", (5, base_ms, "t", 3, 77)),
        ("newest_record", (base_ms,)),
        ("check_records", (True,)),
    ):
        if count < 1 and name == "newest_record":
            continue  # no last record
        found = _outcome(getattr(record, name), exact, count, *rest)
        _same(name, found, _outcome(getattr(_RECORD, name), section, count, *rest), section)
    if isinstance(_outcome(record.decode_rows, section, count, 0, 0, "t", 3, None), list) and count:
        columns = [_plain(one.key_column(section, count)) for one in (record_spans, _SPANS)]
        _same("key_column", columns[0], columns[1], section)  # which takes proven sections alone
        live = bytes(number % 3 for number in range(count))
        kept = [one.kept_section(section, live) for one in (record_spans, _SPANS)]
        _same("kept_section", kept[0], kept[1], section)
    elif count < len(section):
        with suppress(IndexError, LogStoreError):  # no byte outside is read, whatever the answer
            record_spans.kept_section(exact, b"\1" * count)
    if find_spec("pyarrow") is not None and 1 <= count < 1 << 31:
        header = _HEADER._replace(
            records_count=count, last_offset_delta=(1 << 31) - 2, base_timestamp=base_ms
        )
        buffer = array("B", pack_batch(header, section))
        tables = [_outcome(one.to_table, buffer, "t", 3) for one in (arrow, _ARROW)]
        if any(isinstance(table, tuple) for table in tables):
            tables = [table if isinstance(table, tuple) else "a table" for table in tables]
            _same("to_table", tables[0], tables[1], section)
        else:
            _same("to_table", tables[0].equals(tables[1]), True, section)


def _plain(column: Any) -> tuple[Any, ...]:
    return (*map(list, column[:4]), column.shifted)


def compare_rows(rows: Sequence[Any], now_ms: int) -> None:
    """The writer. AssertionError at a difference."""
    found = _outcome(record.encode_rows, rows, now_ms)
    _same("encode_rows", found, _outcome(_RECORD.encode_rows, rows, now_ms), repr(rows).encode())
    buffered = _outcome(_buffered, row_buffer.RowBuffer(), rows, now_ms)
    _same("RowBuffer", buffered, _outcome(_buffered, _BUFFER.RowBuffer(), rows, now_ms), repr(rows).encode())


def _buffered(buffer: Any, rows: Sequence[Any], now_ms: int) -> Any:
    for row in rows:
        buffer.append(row)
    return list(buffer) == list(rows), buffer.encode(now_ms)


def compare_bytes(data: bytes) -> None:
    """The first two bytes choose the count and the base timestamp; the rest is a records section."""
    if len(data) > 2:
        compare_section(data[2:], _COUNTS[data[0] % len(_COUNTS)], _BASES[data[1] % len(_BASES)])


def _draw(examples: int, number: int) -> None:
    """One round of Hypothesis."""
    calm = settings(
        max_examples=examples,
        deadline=None,
        database=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )

    @seed(number)
    @calm
    @given(section=sections(), count=st.sampled_from(_COUNTS), base_ms=st.sampled_from(_BASES))
    def read(section: bytes, count: int, base_ms: int) -> None:
        compare_section(section, count, base_ms)

    @seed(number)
    @calm
    @given(rows=row_lists, now_ms=st.integers(-(1 << 63), (1 << 63) - 1))
    def write(rows: list[Any], now_ms: int) -> None:
        compare_rows(rows, now_ms)

    read()
    write()
    if find_spec("pyarrow") is not None:
        _draw_arrow(calm, number)


def _draw_arrow(calm: settings, number: int) -> None:
    """Rows in Arrow's columns, sound and damaged, encoded and digested."""
    arrow_batches = import_module("tests.native.arrow_batches")
    rows = arrow_batches.batches().map(import_module("logstore.format.arrow_rows").ArrowRows)

    @seed(number)
    @calm
    @given(
        rows=rows | arrow_batches.damaged_rows(),
        spread=arrow_batches.spreads,
        bounds=arrow_batches.limits,
        now_ms=st.integers(-(1 << 40), 1 << 40),
        start=st.integers(0, (1 << 32) - 1),
    )
    def encode(rows: Any, spread: Any, bounds: Any, now_ms: int, start: int) -> None:
        arrow_batches.both(rows, spread, bounds, now_ms)
        arrow_batches.both_digests(rows, start)

    encode()


def main(arguments: Sequence[str] | None = None) -> int:
    """0 if no difference was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.native.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, help="draw until then (default: 60, without --count)")
    parser.add_argument("--count", type=int, help="so many inputs of each kind")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--atheris", nargs=argparse.REMAINDER, help="search by coverage; libFuzzer's options")
    chosen = parser.parse_args(arguments)
    print(native_status(), flush=True)
    if chosen.atheris is not None:
        atheris = import_module("atheris")
        atheris.instrument_func(_RECORD.decode_rows)
        atheris.Setup([sys.argv[0], *chosen.atheris], compare_bytes)
        atheris.Fuzz()  # ends the process
    end_s = time.monotonic() + (chosen.seconds or 60)
    number, done = chosen.seed, 0
    try:
        while done < chosen.count if chosen.count else time.monotonic() < end_s:
            examples = min(_ROUND, chosen.count - done) if chosen.count else _ROUND
            _draw(examples, number)
            number, done = number + 1, done + examples
    except AssertionError as error:
        print(f"seed {number}: {error}")
        return 1
    kinds = (
        "sections, lists of rows and Arrow batches" if find_spec("pyarrow") else "sections and lists of rows"
    )
    print(f"{done} each of {kinds}: no difference")
    return 0


if __name__ == "__main__":
    sys.exit(main())
