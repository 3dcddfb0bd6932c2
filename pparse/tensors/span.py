"""Where bytes of a tensor are."""

from __future__ import annotations

from pparse.lazy import ByValue

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import ClassVar

    from pparse.data.base import Data


class Span(ByValue, by=("path", "offset", "length")):
    """A stretch of bytes in some data."""

    __slots__ = ("data", "end", "length", "offset", "path")

    is_placed: ClassVar[bool] = True
    """Whether its offset is known without reading."""
    is_open: ClassVar[bool] = True
    """Whether its data is open; nothing is known against data that was not opened yet."""

    def __init__(self, data: Data | None, offset: int, length: int, path: str, end: int | None = None) -> None:
        self.data = data
        """Where the bytes are; None: their file is missing."""
        self.offset = offset
        """Where they begin, as an offset of ``data``."""
        self.length = length
        """Their number."""
        self.path = path
        """What messages call the data."""
        self.end = end
        """Where the document ends in ``data``, if other bytes follow there, as in an archive; else None."""

    @property
    def there(self) -> int:
        """How many of the bytes exist."""
        if self.data is None:
            return 0
        length = self.length if self.end is None else max(0, min(self.length, self.end - self.offset))
        if self.data.flawed:
            return self.data.range_status(self.offset, self.offset + length).there
        size = self.data.size
        return length if size is None else max(0, min(length, size - self.offset))

    def stretches(self) -> Iterator[tuple[int, Span]]:
        """Yield where each stretch of the bytes begins among them, in order: those that may be there."""
        yield 0, self

    def part(self, start: int, length: int) -> Span:
        """Return so many of the bytes, from ``start`` on."""
        return Span(self.data, self.offset + start, length, self.path, self.end)

    @property
    def found_in(self) -> Data | None:
        """Data in which the bytes are found: ``data``; of content that is opened when it is read, what it lies in."""
        return self.data

    @property
    def found_at(self) -> int:
        """Where in `found_in` what must be read for the bytes begins."""
        return self.offset

    @property
    def place(self) -> tuple[object, ...]:
        """What only spans of the same bytes have in common, as long as their document is open."""
        return id(self.data), self.offset, self.length

    @property
    def is_proved(self) -> bool:
        """Whether a checksum confirmed the bytes; never reads."""
        if not self.is_open or self.data is None or not (self.is_placed or self.data.has_proofs):
            return False
        return self.data.is_proved(self.offset, self.offset + self.length)

    def verify(self) -> None:
        """Compare the checksum of these bytes alone, if there is one: called if something is known against the data."""

    def resolve(self) -> None:
        """Do what `verify` does, if that costs little and was not done: called before the bytes are returned."""

    def to_dict(self) -> dict[str, object]:
        """Return the span as plain data, for JSON."""
        return {"file": self.path, "offset": self.offset, "length": self.length}
