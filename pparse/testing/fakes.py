"""Sources that misbehave on purpose, to see what readers and parsers make of it.

Each is a `Data` over bytes in memory, so what it serves can be compared with those bytes.
"""

from __future__ import annotations

from pparse.data.base import Access, Data, Gap
from pparse.errors import SourceError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from pparse.data.base import IoStats


class FakeData(Data):
    """Bytes in memory of ``size`` bytes; the base of the others. ``asked`` holds ``(offset, length)`` of each read."""

    def __init__(self, content: bytes, name: str = "<fake>", stats: IoStats | None = None) -> None:
        super().__init__(name, len(content), stats)
        self.content = content
        self.asked: list[tuple[int, int]] = []

    def _pread(self, offset: int, length: int) -> bytes:
        self.asked.append((offset, length))
        return self.content[offset : offset + length]


class UnknownSizeData(FakeData):
    """A stream: its ``size`` is None until a read came to its end."""

    def __init__(self, content: bytes, name: str = "<stream>", stats: IoStats | None = None) -> None:
        super().__init__(content, name, stats)
        self.size = None

    def _pread(self, offset: int, length: int) -> bytes:
        chunk = super()._pread(offset, length)
        if len(chunk) < length and offset <= len(self.content):
            self.size = len(self.content)
        return chunk


class GappyData(FakeData):
    """Bytes with gaps, of known or unknown length (None, which then reaches to the end)."""

    def __init__(self, content: bytes, gaps: Iterable[tuple[int, int | None]], *, stats: IoStats | None = None) -> None:
        super().__init__(content, "<gappy>", stats)
        self.gaps = tuple(Gap(offset, length) for offset, length in gaps)


class FailingData(FakeData):
    """Bytes whose reads fail with `SourceError`: the one numbered ``fail_at`` (from 1), and with ``forever`` all later.

    ``reads`` counts them, the failing ones included: a run with ``reads < fail_at`` never met the fault.
    """

    def __init__(self, content: bytes, fail_at: int, *, forever: bool = False, stats: IoStats | None = None) -> None:
        super().__init__(content, "<failing>", stats)
        self.fail_at = fail_at
        self.forever = forever
        self.reads = 0

    def _pread(self, offset: int, length: int) -> bytes:
        self.reads += 1
        if self.reads == self.fail_at or (self.forever and self.reads > self.fail_at):
            raise SourceError("the fake fails here", errno=5, source=self.name, offset=offset)
        return super()._pread(offset, length)


class ShortData(FakeData):
    """Bytes whose reads come back with at most ``most`` bytes: the one numbered ``short_at``, or all of them (None)."""

    def __init__(self, content: bytes, short_at: int | None, most: int = 1, stats: IoStats | None = None) -> None:
        super().__init__(content, "<short>", stats)
        self.short_at = short_at
        self.most = most
        self.reads = 0

    def _pread(self, offset: int, length: int) -> bytes:
        self.reads += 1
        if self.short_at is None or self.reads == self.short_at:
            length = min(length, self.most)
        return super()._pread(offset, length)


class RestartData(FakeData):
    """Bytes that come as from a decoder without saved states: a read before the last one starts over.

    ``restarts`` counts how often that happened.
    """

    access = Access.RESTART

    def __init__(self, content: bytes, name: str = "<restart>", stats: IoStats | None = None) -> None:
        super().__init__(content, name, stats)
        self.position = 0
        self.restarts = 0

    def _pread(self, offset: int, length: int) -> bytes:
        if offset < self.position:
            self.restarts += 1
        chunk = super()._pread(offset, length)
        self.position = offset + len(chunk)
        return chunk
