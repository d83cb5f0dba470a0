"""Rows and batches for the tests of the format: Hypothesis strategies and golden files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st

from logstore.types import Record, Row

GOLDEN = Path(__file__).resolve().parent.parent / "golden"
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
NOW_MS = 1_700_000_000_000

CALM = settings(derandomize=True, deadline=None, max_examples=150, database=None)
FEW = settings(derandomize=True, deadline=None, max_examples=40, database=None)

names = st.text(st.characters(codec="utf-8"), max_size=70)
payloads = st.one_of(
    st.none(),
    st.binary(max_size=80),
    st.integers(0, 9000).map(lambda size: b"a" * size),
    st.sampled_from([0, 63, 64, 8191, 8192]).map(lambda size: b"x" * size),
)
headers = st.one_of(
    st.none(), st.lists(st.tuples(names, st.one_of(st.none(), st.binary(max_size=20))), max_size=4)
)


def lists_of_rows(timestamps: st.SearchStrategy[int | None]) -> st.SearchStrategy[list[Row]]:
    """One to twelve rows of every width."""
    return st.lists(
        st.one_of(
            st.tuples(payloads, payloads),
            st.tuples(payloads, payloads, headers),
            st.tuples(payloads, payloads, headers, timestamps),
        ),
        min_size=1,
        max_size=12,
    )


usual_times = st.one_of(st.none(), st.integers(0, 1 << 61), st.integers(NOW_MS - 9000, NOW_MS + 9000))
odd_times = st.one_of(usual_times, st.just(-1), st.integers(-(1 << 61), 0))
row_lists = lists_of_rows(odd_times)


def records_of(rows: list[Any], base_offset: int = 0, now_ms: int = NOW_MS) -> list[Record]:
    """What a batch of ``rows`` must be read as, said without the format."""
    found = []
    for offset, row in enumerate(rows, base_offset):
        key, value, *rest = row
        pairs = tuple(tuple(pair) for pair in rest[0]) if rest and rest[0] else ()
        stamp = rest[1] if len(rest) > 1 and rest[1] is not None else now_ms
        found.append(Record("t", 3, offset, stamp, key, value, pairs))
    return found


def golden(name: str) -> bytes:
    """The bytes of a golden file: hex, with a comment after each #."""
    lines = (GOLDEN / name).read_text("utf-8").splitlines()
    return bytes.fromhex("".join(line.partition("#")[0].strip() for line in lines))
