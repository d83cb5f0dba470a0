"""A topic whose every record follows from its place, and a witness who holds what a reader saw against that.

The writer appends ``row(seed, partition, offset)``: a few hundred keys again and again, tombstones among them, keys
that come once only, and, up to ``ERASED_BEFORE``, keys that are erased later. So a reader knows what each offset
held and whether it may be missing, without asking the writer.
"""

from __future__ import annotations

from collections.abc import Iterable
from zlib import crc32

ERASED_BEFORE = 1_500  # no offset from here on has one of ERASED
ERASED = tuple(b"gone %d" % number for number in range(5))
_KEYS = 300

Pair = tuple[bytes, bytes | None]


def row(seed: int, partition: int, offset: int) -> Pair:
    """The key and the value at an offset; None is a tombstone."""
    dice = crc32(b"%d %d %d" % (seed, partition, offset))
    value = b"%d %s" % (offset, b"." * (dice >> 8 & 127))
    kind, dice = dice % 16, dice >> 15
    if kind == 0:
        return b"once %d" % offset, value
    if kind == 1 and offset < ERASED_BEFORE:
        return ERASED[dice % len(ERASED)], value
    return b"k%d" % (dice % _KEYS), None if kind == 2 else value


class Witness:
    """What is known of one partition, and what its readers got. ``faults`` is empty while all is well.

    ``legal``: offsets that were not shown and may be missing. ``reported``: ranges that an error named as lost.
    """

    def __init__(self, seed: int, partition: int) -> None:
        self._seed = seed
        self._partition = partition
        self._rows: list[Pair] = []
        self._newest: dict[bytes, int] = {}  # of each key, among the rows so far
        self.faults: list[str] = []
        self.legal = 0
        self.shown = 0
        self.reported: list[tuple[int, int]] = []

    def grow(self, end: int) -> None:
        """The log reaches to ``end``."""
        for offset in range(len(self._rows), end):
            made = row(self._seed, self._partition, offset)
            self._rows.append(made)
            self._newest[made[0]] = offset

    def look(self, start: int, records: Iterable[tuple[int, bytes | None, bytes | None]], end: int) -> int:
        """A reader asked from ``start`` on and got these records (offset, key, value), the last one being all up
        to ``end``, if that is larger. The log must have been grown to what it held after the read.

        Returns where the reader is now.
        """
        at = start
        for offset, key, value in records:
            if offset < at:
                self._fault(f"offset {offset} came where {at} was due")
                return at
            self._missing(at, offset)
            if offset >= len(self._rows):
                self._fault(f"offset {offset} came, and the log reaches to {len(self._rows)}")
            elif (key, value) != self._rows[offset]:
                self._fault(f"offset {offset} holds {key!r}={value!r}, {self._rows[offset]!r} was written")
            self.shown += 1
            at = offset + 1
        self._missing(at, end)
        return max(at, end)

    def lost(self, start: int, end: int) -> int:
        """An error told a reader that offsets [start, end) are gone. Returns where to go on."""
        if not 0 <= start < end <= len(self._rows):
            self._fault(f"offsets {start} to {end - 1} were reported lost, of {len(self._rows)}")
        self.reported.append((start, end))
        return end

    def _missing(self, start: int, end: int) -> None:
        """Offsets [start, end) were passed over without a word."""
        for offset in range(start, end):
            key, value = self._rows[offset]
            if self._newest[key] > offset or value is None:
                self.legal += 1  # a newer record of the key; a tombstone that has come of age
            elif key in ERASED and len(self._rows) >= ERASED_BEFORE:
                self.legal += 1
            else:
                self._fault(f"offset {offset}, the newest of {key!r}, is missing")

    def check_state(self, records: Iterable[tuple[int, bytes | None, bytes | None]], log_start: int) -> int:
        """The records of the whole log at rest, after the erasure: the newest of each key that lies behind the
        log's start and is no tombstone is there, and of an erased key nothing. How many keys there are."""
        state: dict[bytes, bytes] = {}
        for _, key, value in records:
            if key is None or value is None:
                state.pop(key or b"", None)
            else:
                state[key] = value
        wanted = {
            key: self._rows[offset][1]
            for key, offset in self._newest.items()
            if offset >= log_start and key not in ERASED and self._rows[offset][1] is not None
        }
        # Of keys whose newest record retention took, an older one cannot be left.
        for key in state.keys() | wanted.keys():
            if state.get(key) != wanted.get(key):
                self._fault(f"the log ends with {key!r}={state.get(key)!r}, {wanted.get(key)!r} was written")
        return len(wanted)

    def _fault(self, text: str) -> None:
        self.faults.append(f"seed {self._seed}, partition {self._partition}: {text}")
