"""What a log tells of itself at one moment, and who waits for it to change."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class Appended(NamedTuple):
    """Offsets given to one append: [base_offset, next_offset)."""

    base_offset: int
    next_offset: int


class LogOffsets(NamedTuple):
    """What readers may see of a log at one moment."""

    log_start_offset: int
    high_watermark: int
    last_stable_offset: int
    log_end_offset: int
    leader_epoch: int


class TermEnd(NamedTuple):
    """A leader epoch (-1: none) and the first offset past its records."""

    term: int
    end_offset: int


class Waiter(Protocol):
    """Told, by ``set``, whenever more may be seen, or never will be."""

    def set(self) -> None: ...
