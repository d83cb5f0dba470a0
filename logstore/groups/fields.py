"""Fields of Kafka's group messages, one after the other: a reader that refuses to run past the end, and pieces
that a writer joins.

Big-endian. A string is ``length i16, UTF-8``; in flexible messages a compact string is ``length + 1`` as an
unsigned varint (0: null), a compact array ``count + 1``, and each structure ends in tagged fields: their count,
then ``tag, size, bytes`` with rising tags, all unsigned varints. From Kafka's protocol guide and KIP-482.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Final

from logstore.errors import CorruptBatchError, InvalidRecordError
from logstore.format.varint import VARINT_MAX_BYTES, encode_raw, read_raw

_I8: Final = struct.Struct(">b")
_I16: Final = struct.Struct(">h")
_I32: Final = struct.Struct(">i")
_I64: Final = struct.Struct(">q")
NO_TAGS: Final = b"\0"
NULL: Final = b"\0"  # a compact string or array that is null


class FieldReader:
    """``what`` is read here, for messages: "key of a committed offset"; ``topic``: where it stands."""

    __slots__ = ("_at", "_data", "_topic", "_what")

    def __init__(self, data: bytes, what: str, topic: str = "__consumer_offsets") -> None:
        self._data = bytes(data)
        self._at = 0
        self._what = what
        self._topic = topic

    def malformed(self, why: str) -> InvalidRecordError:
        return InvalidRecordError(
            f"malformed {self._what}, {len(self._data)} bytes: {why}",
            hint=f"run `logstore log verify` on {self._topic}",
        )

    def _number(self, form: struct.Struct) -> int:
        try:
            number: int = form.unpack_from(self._data, self._at)[0]
        except struct.error:
            raise self.malformed(f"it ends inside the field at byte {self._at}") from None
        self._at += form.size
        return number

    def i8(self) -> int:
        return self._number(_I8)

    def i16(self) -> int:
        return self._number(_I16)

    def i32(self) -> int:
        return self._number(_I32)

    def i64(self) -> int:
        return self._number(_I64)

    def raw(self, size: int) -> bytes:
        start = self._at
        if size < 0 or start + size > len(self._data):
            raise self.malformed(f"{size} bytes at byte {start}")
        self._at = start + size
        return self._data[start : self._at]

    def unsigned_varint(self) -> int:
        try:
            value, self._at = read_raw(self._data, self._at, VARINT_MAX_BYTES)
        except (IndexError, CorruptBatchError):
            raise self.malformed(f"the number at byte {self._at} does not end") from None
        return value

    def tags(self) -> dict[int, bytes]:
        """Tagged fields, by tag."""
        found = {}
        for _ in range(self.unsigned_varint()):
            tag, size = self.unsigned_varint(), self.unsigned_varint()
            if self._at + size > len(self._data):
                raise self.malformed(f"tagged field {tag} of {size} bytes")
            found[tag] = self.raw(size)
        return found

    def count(self) -> int:
        """Of a compact array; each element is a byte at the least, so that a wild count is found at once."""
        count = self.unsigned_varint() - 1
        if count < 0 or count > len(self._data) - self._at:
            raise self.malformed(f"an array of {count} elements before byte {self._at}")
        return count

    def i32s(self) -> tuple[int, ...]:
        """A compact array of numbers."""
        count = self.count()
        return struct.unpack(f">{count}i", self.raw(4 * count))

    def string(self) -> str:
        return self._text(self._number(_I16), 2)

    def compact_string(self) -> str:
        field = self._at
        length = self.unsigned_varint() - 1
        return self._text(length, self._at - field)

    def nullable_string(self) -> str | None:
        """Compact, and may be null."""
        field = self._at
        length = self.unsigned_varint() - 1
        return None if length < 0 else self._text(length, self._at - field)

    def _text(self, length: int, head: int) -> str:
        """``length`` bytes of text, behind a length field of ``head`` bytes."""
        start = self._at
        if length < 0 or start + length > len(self._data):
            raise self.malformed(f"string length {length} at byte {start - head}")
        self._at = start + length
        try:
            return self._data[start : self._at].decode()
        except UnicodeDecodeError as error:
            raise self.malformed(f"string at byte {start} is not UTF-8: {error.reason}") from None

    def finish(self) -> None:
        if self._at != len(self._data):
            raise self.malformed(f"{len(self._data) - self._at} bytes too many")


# --- pieces of a message ----------------------------------------------------------------------------


def string(text: str) -> bytes:
    data = text.encode()
    return _I16.pack(len(data)) + data


def compact_string(text: str) -> bytes:
    data = text.encode()
    return encode_raw(len(data) + 1) + data


def nullable_string(text: str | None) -> bytes:
    return NULL if text is None else compact_string(text)


def i32s(numbers: list[int] | tuple[int, ...]) -> bytes:
    """A compact array of numbers."""
    return encode_raw(len(numbers) + 1) + struct.pack(f">{len(numbers)}i", *numbers)


def tags(fields: Mapping[int, bytes]) -> bytes:
    """Tagged fields, in the order of their tags as Kafka demands."""
    pieces = [encode_raw(len(fields))]
    for tag in sorted(fields):
        pieces += (encode_raw(tag), encode_raw(len(fields[tag])), fields[tag])
    return b"".join(pieces)
