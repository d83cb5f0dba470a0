"""Keys, values and header fields of many records as Arrow columns, from where they lie in the bytes of batches.

Each becomes a view (Arrow's binary_view: length, prefix, buffer, offset), and one cast gathers them all.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

Int64s: TypeAlias = "NDArray[np.int64]"

_INLINE_BYTES = 12
"""A view holds a value of so few bytes itself."""


class Spans(NamedTuple):
    """Where the payloads of one field lie: first bytes, and lengths (-1: null)."""

    starts: Int64s
    lengths: Int64s

    def where(self, keep: NDArray[np.bool_]) -> Spans:
        return Spans(self.starts[keep], self.lengths[keep])


@cache
def _inline_masks() -> Any:
    """For each length of a short value, which bits of a view's 12 inline bytes count: three int32 each."""
    import numpy as np

    ones = [b"\xff" * length + b"\0" * (_INLINE_BYTES - length) for length in range(_INLINE_BYTES + 1)]
    return np.frombuffer(b"".join(ones), "<i4").reshape(-1, 3)


class Memory:
    """Bytes that payloads lie in, and how to take many of them at once."""

    def __init__(self, data: bytes) -> None:
        import pyarrow as pa

        self.data = data
        self.buffer = pa.py_buffer(data)
        self._words = _words(data)

    def binary(self, spans: Spans) -> pa.Array:
        """A binary array of the payloads."""
        import numpy as np
        import pyarrow as pa

        starts, lengths = spans
        count = len(starts)
        if not count or lengths.max() < 0:
            return pa.nulls(count, pa.binary())
        views = np.empty((count, 4), "<i4")
        views[:, 0] = np.maximum(lengths, 0)
        views[:, 2] = 0  # the only buffer
        views[:, 3] = starts
        shortest = lengths.min()
        if shortest > _INLINE_BYTES:
            views[:, 1] = self._words[starts]
        else:
            self._fill_mixed(views, starts, lengths)
        validity = None
        if shortest < 0:
            validity = pa.py_buffer(np.packbits(lengths >= 0, bitorder="little"))
        buffers = [validity, pa.py_buffer(views), self.buffer]
        return pa.Array.from_buffers(pa.binary_view(), count, buffers).cast(pa.binary())

    def _fill_mixed(self, views: Any, starts: Int64s, lengths: Int64s) -> None:
        """Prefixes, and payloads that are so short that the view holds them."""
        import numpy as np

        inline = lengths <= _INLINE_BYTES
        (long,) = np.nonzero(~inline)
        views[long, 1] = self._words[starts[long]]
        last = max(len(self.data) - _INLINE_BYTES, 0)  # a view's bytes from here on would reach past the data
        tail = self.data[last:] + bytes(_INLINE_BYTES)
        early = starts <= last
        for words, base, rows in (
            (self._words, 0, np.nonzero(inline & early)[0]),
            (_words(tail), last, np.nonzero(inline & ~early)[0]),
        ):
            if len(rows):
                masks = _inline_masks()[np.maximum(lengths[rows], 0)]
                at = starts[rows] - base
                for word in range(3):
                    views[rows, 1 + word] = words[at + 4 * word] & masks[:, word]


def _words(data: bytes) -> Any:
    """Every four bytes as an integer, overlapping: a view's prefix or inline part is a gather."""
    import numpy as np

    return np.ndarray((max(len(data) - 3, 0),), "<i4", buffer=data, strides=(1,))
