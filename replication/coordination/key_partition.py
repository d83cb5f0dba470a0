"""Which partition of a coordinators' topic a group or a transactional id belongs to: the one that Kafka takes."""

from __future__ import annotations

from typing import Final

_MASK: Final = 0xFFFF_FFFF
_SIGN: Final = 0x8000_0000


def java_hash(text: str) -> int:
    """``String.hashCode`` of Java: over UTF-16 code units, 32 bits with a sign."""
    found = 0
    encoded = text.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(encoded), 2):
        found = (31 * found + (encoded[at] << 8 | encoded[at + 1])) & _MASK
    return found - (1 << 32) if found & _SIGN else found


def partition_of(key: str, partitions: int) -> int:
    """abs(hash) modulo the number of partitions; of the one number that has no absolute value it is 0."""
    hashed = java_hash(key)
    return 0 if hashed == -_SIGN else abs(hashed) % partitions
