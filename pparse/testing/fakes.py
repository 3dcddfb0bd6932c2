"""Sources that misbehave on purpose, to test how readers and parsers react.

Each is a `Data` over bytes in memory, so that what it serves can be compared with those bytes.
"""

from __future__ import annotations

from pparse.data.base import Access, Data, Gap
from pparse.errors import SourceError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from pparse.data.base import IoStats


class FakeData(Data):
    """Bytes in memory; the base of the other sources."""

    def __init__(self, content: bytes, name: str = "<fake>", stats: IoStats | None = None) -> None:
        super().__init__(name, len(content), stats)
        self.content = content
        """The bytes."""
        self.asked: list[tuple[int, int]] = []
        """``(offset, length)`` of each read."""

    def _pread(self, offset: int, length: int) -> bytes:
        self.asked.append((offset, length))
        return self.content[offset : offset + length]


class UnknownSizeData(FakeData):
    """A stream whose ``size`` is None until a read reaches its end."""

    def __init__(self, content: bytes, name: str = "<stream>", stats: IoStats | None = None) -> None:
        super().__init__(content, name, stats)
        self.size = None

    def _pread(self, offset: int, length: int) -> bytes:
        chunk = super()._pread(offset, length)
        if len(chunk) < length and offset <= len(self.content):
            self.size = len(self.content)
        return chunk


class GappyData(FakeData):
    """Bytes with gaps of known or unknown length; one of unknown length (None) reaches to the end."""

    def __init__(self, content: bytes, gaps: Iterable[tuple[int, int | None]], *, stats: IoStats | None = None) -> None:
        super().__init__(content, "<gappy>", stats)
        self.gaps = tuple(Gap(offset, length) for offset, length in gaps)


class FailingData(FakeData):
    """Bytes whose reads fail with `SourceError`: only number ``fail_at`` (from 1), or ``forever`` from there on."""

    def __init__(self, content: bytes, fail_at: int, *, forever: bool = False, stats: IoStats | None = None) -> None:
        super().__init__(content, "<failing>", stats)
        self.fail_at = fail_at
        """Number of the first read that fails."""
        self.forever = forever
        """Whether all later reads fail, too."""
        self.reads = 0
        """Number of reads so far, failed ones included; below ``fail_at``, none failed."""

    def _pread(self, offset: int, length: int) -> bytes:
        self.reads += 1
        if self.reads == self.fail_at or (self.forever and self.reads > self.fail_at):
            raise SourceError("the fake fails here", errno=5, source=self.name, offset=offset)
        return super()._pread(offset, length)


class ShortData(FakeData):
    """Bytes of which a read returns at most ``most``: read number ``short_at``, or every read (None)."""

    def __init__(self, content: bytes, short_at: int | None, most: int = 1, stats: IoStats | None = None) -> None:
        super().__init__(content, "<short>", stats)
        self.short_at = short_at
        """Number of the short read; None: all are short."""
        self.most = most
        """The most bytes that a short read returns."""
        self.reads = 0
        """Number of reads so far."""

    def _pread(self, offset: int, length: int) -> bytes:
        self.reads += 1
        if self.short_at is None or self.reads == self.short_at:
            length = min(length, self.most)
        return super()._pread(offset, length)


class RestartData(FakeData):
    """Bytes as from a decoder without saved states: a read before the last position starts over."""

    access = Access.RESTART

    def __init__(self, content: bytes, name: str = "<restart>", stats: IoStats | None = None) -> None:
        super().__init__(content, name, stats)
        self.position = 0
        """Where the last read ended."""
        self.restarts = 0
        """How often a read started over."""

    def _pread(self, offset: int, length: int) -> bytes:
        if offset < self.position:
            self.restarts += 1
        chunk = super()._pread(offset, length)
        self.position = offset + len(chunk)
        return chunk
