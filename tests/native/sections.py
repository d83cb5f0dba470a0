"""Records sections for tests that hold twins against each other: mostly well made, with any field gone wrong."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st


def varint(value: int, longer: int = 0) -> bytes:
    """Zigzag, ``longer`` bytes longer than needed; of any size."""
    raw = value << 1 if value >= 0 else (-value << 1) - 1
    out = bytearray()
    while raw > 0x7F:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)
    for _ in range(longer):
        out[-1] |= 0x80
        out.append(0)
    return bytes(out)


_EXTRA = st.sampled_from([0] * 12 + [1, 2, 8])
_SMALL = st.sampled_from([0] * 8 + [1, -1, 2, 63, 64, -64, 8192, 1 << 31, -(1 << 31), 1 << 32, (1 << 63) - 1])


@st.composite
def _integers(draw: st.DrawFn, value: int) -> bytes:
    """Those bytes, mostly; now and then longer than needed, or another number."""
    odd = draw(st.sampled_from([False] * 15 + [True]))
    return varint(draw(_SMALL) if odd else value, draw(_EXTRA))


@st.composite
def _payloads(draw: st.DrawFn, nullable: bool = True) -> bytes:
    content = draw(st.sampled_from([b"", b"a", b"key", "é".encode(), b"\xff", b"x" * 70]))
    if nullable and draw(st.booleans()):
        return draw(_integers(-1))
    return draw(_integers(len(content))) + content


@st.composite
def _records(draw: st.DrawFn, number: int) -> bytes:
    headers = draw(st.sampled_from([0, 0, 0, 1, 2]))
    body = bytes([draw(st.sampled_from([0, 0, 0, 255]))])
    body += draw(_integers(draw(_SMALL))) + draw(_integers(number)) + draw(_payloads()) + draw(_payloads())
    body += draw(_integers(headers))
    for _ in range(headers):
        body += draw(_payloads(nullable=False)) + draw(_payloads())
    return draw(_integers(len(body))) + body


@st.composite
def sections(draw: st.DrawFn) -> Any:
    """Up to three records; at times cut short, at times with a byte changed."""
    section = b"".join(draw(_records(number)) for number in range(draw(st.integers(1, 3))))
    kind = draw(st.sampled_from(["whole", "whole", "whole", "cut", "changed"]))
    at = draw(st.integers(0, len(section) - 1))
    if kind == "cut":
        return section[:at]
    if kind == "changed":
        return section[:at] + bytes([draw(st.integers(0, 255))]) + section[at + 1 :]
    return section
