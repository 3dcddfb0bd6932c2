"""Positions of records, and regions that reading skipped."""

from __future__ import annotations

from functools import total_ordering
from operator import index

from pparse.equality import ByValue
from pparse.riegeli.chunks import MAX_POSITION
from pparse.riegeli.errors import BoundsError, InvalidArgumentError


@total_ordering
class RecordPosition(ByValue, by=("chunk_begin", "record_index")):
    """The position of a record: offset of its chunk, and index in the chunk. Immutable, ordered and hashable.

    Raise `BoundsError` (an OverflowError) if no file can have such a position.
    """

    __slots__ = ("_chunk_begin", "_record_index")

    def __init__(self, chunk_begin: int, record_index: int = 0) -> None:
        chunk_begin, record_index = index(chunk_begin), index(record_index)
        if chunk_begin < 0 or record_index < 0 or chunk_begin + record_index > MAX_POSITION:
            raise BoundsError(f"not a record position: {chunk_begin}/{record_index}")
        self._chunk_begin = chunk_begin
        self._record_index = record_index

    @property
    def chunk_begin(self) -> int:
        """File offset of the chunk."""
        return self._chunk_begin

    @property
    def record_index(self) -> int:
        """Index of the record within its chunk."""
        return self._record_index

    @property
    def numeric(self) -> int:
        """The sum of chunk offset and index: unique, and ascending in a valid file."""
        return self._chunk_begin + self._record_index

    @classmethod
    def from_str(cls, serialized: str) -> RecordPosition:
        """Parse ``"begin/index"``. Blanks around it and a plus sign are allowed, as in the reference."""
        begin, slash, record_index = serialized.partition("/")
        if not slash:
            raise InvalidArgumentError(f"not a record position: {serialized!r}")
        return cls(_decimal(begin, serialized), _decimal(record_index, serialized))

    def to_bytes(self) -> bytes:
        """Return the binary form: two ordered varints, which sort as the positions do."""
        return _ordered_varint(self._chunk_begin) + _ordered_varint(self._record_index)

    @classmethod
    def from_bytes(cls, serialized: bytes) -> RecordPosition:
        """Parse the binary form, or the older form of two big-endian 64-bit numbers."""
        begin, at = _read_ordered(serialized, 0)
        if at is not None:
            record_index, end = _read_ordered(serialized, at)
            if end == len(serialized):
                return cls(begin, record_index)
        if len(serialized) == 16:
            return cls(int.from_bytes(serialized[:8], "big"), int.from_bytes(serialized[8:], "big"))
        raise InvalidArgumentError(f"not a record position: {serialized.hex()}")

    def __str__(self) -> str:
        return f"{self._chunk_begin}/{self._record_index}"

    def __lt__(self, other: object) -> bool:
        if not isinstance(other, RecordPosition):
            return NotImplemented
        return (self._chunk_begin, self._record_index) < (other._chunk_begin, other._record_index)


class SkippedRegion(ByValue, by=("begin", "end", "message")):
    """A region ``[begin, end)`` of the file that reading skipped, and why.

    ``begin`` and ``end`` are file offsets, or numeric positions of records where single records were skipped.
    """

    __slots__ = ("_begin", "_end", "_message")

    def __init__(self, begin: int, end: int, message: str) -> None:
        self._begin = index(begin)
        self._end = index(end)
        self._message = message

    @property
    def begin(self) -> int:
        """Where the region begins."""
        return self._begin

    @property
    def end(self) -> int:
        """Where reading continued."""
        return self._end

    @property
    def message(self) -> str:
        """Why it was skipped."""
        return self._message

    @property
    def length(self) -> int:
        """Bytes in the region."""
        return self._end - self._begin

    def __str__(self) -> str:
        return f"[{self._begin}..{self._end}): {self._message}"


def _decimal(text: str, whole: str) -> int:
    # The reference strips ASCII blanks and takes a leading plus sign (absl::SimpleAtoi).
    digits = text.strip(" \t\n\v\f\r").removeprefix("+")
    if not (digits.isascii() and digits.isdigit()) or len(digits.lstrip("0")) > 20:
        raise InvalidArgumentError(f"not a record position: {whole!r}")
    return int(digits)


def _ordered_varint(value: int) -> bytes:
    length = next((n for n in range(1, 9) if value < 1 << 7 * n), 9)
    if length == 9:
        return b"\xff" + value.to_bytes(8, "big")
    return (value | (0xFF00 >> (length - 1) & 0xFF) << 8 * (length - 1)).to_bytes(length, "big")


def _read_ordered(raw: bytes, at: int) -> tuple[int, int | None]:
    """Return a value and where it ends; None as the end if this is not the shortest form of a value."""
    if at >= len(raw):
        return 0, None
    first = raw[at]
    length = 9 - (first ^ 0xFF).bit_length()  # 1 + the number of leading one bits
    end = at + length
    if end > len(raw):
        return 0, None
    value = int.from_bytes(raw[at:end], "big") & ((1 << 7 * length) - 1 if length < 9 else MAX_POSITION)
    shortest = length == 1 or value >= 1 << 7 * (length - 1)
    return value, end if shortest else None
