"""Reads single fields of a message again, at the offsets that a scan found."""

from __future__ import annotations

from pparse.data.reader import up_to_page
from pparse.errors import EndOfDataError, MalformedError
from pparse.kernels.wire import (
    FIXED32,
    FIXED64,
    LEN,
    PADDING,
    SLACK,
    START_GROUP,
    VARINT,
    leave_groups,
    no_field,
    read_length,
    read_tag,
    skip_varint,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Final

    from pparse.data.base import Data

_FIRST_WINDOW: Final = 4 << 10
_LAST_WINDOW: Final = 64 << 10


class WireField:
    """One field of a part: its ``tag``, its offset ``begin``, its payload ``[start, end)``, and the ``next`` offset.

    ``end`` may lie beyond the part: the field is truncated, or its length is wrong.
    """

    __slots__ = ("begin", "end", "next", "start", "tag")

    def __init__(self, tag: int, begin: int, start: int, end: int, next: int) -> None:
        self.tag = tag
        self.begin = begin
        self.start = start
        self.end = end
        self.next = next


class Window:
    """The latest bytes of a part, for mostly sequential reading; ``first`` bytes after a jump, then more."""

    __slots__ = ("base", "block", "data", "end", "first", "heads", "last", "size", "step")

    def __init__(
        self, data: Data, end: int, first: int = _FIRST_WINDOW, heads: Mapping[int, bytes] | None = None
    ) -> None:
        self.data = data
        self.end = end
        self.base = 0
        self.block = b""
        self.size = 0  # size of the block without padding
        self.last = False  # whether no bytes follow
        self.first = self.step = first
        self.heads = heads or {}  # bytes that are known, by offset

    def at(self, offset: int) -> int:
        """Return the index in ``block`` of the byte at ``offset``; at least 20 bytes follow (zeros at the end)."""
        index = offset - self.base
        if 0 <= index <= self.size - SLACK or (0 <= index < self.size and self.base + self.size >= self.end):
            return index
        if 0 < index <= self.size + 64:
            self.step = min(4 * self.step, _LAST_WINDOW)
            self._fill(offset, self.step)
            return 0
        self.step = self.first
        head = self.heads.get(offset)
        if head is None:
            self._fill(offset, up_to_page(offset, self.first))
        else:
            self.base, self.block, self.size, self.last = offset, head + PADDING, len(head), False
        return 0

    def take(self, base: int, block: bytes) -> None:
        """Use bytes that were already read: everything from ``base`` on."""
        self.base, self.block, self.size, self.last = base, block + PADDING, len(block), True

    def _fill(self, offset: int, length: int) -> None:
        length = min(length, self.end - offset)
        block = self.data.known(offset, length) if length > 0 else b""
        if not block:
            raise EndOfDataError("the message ends here", offset=offset, source=self.data.name)
        self.base = offset
        self.size = len(block)
        self.last = len(block) < length or offset + length >= self.end
        self.block = block + PADDING

    def field(self, offset: int) -> WireField:
        """Return the field at ``offset``. Raise `MalformedError`, `EndOfDataError`."""
        base = self.base
        at = offset - base
        if not 0 <= at <= self.size - SLACK:
            at = self.at(offset)
            base = self.base
        block = self.block
        tag, length = block[at], block[at + 1]
        if tag & 7 == LEN and 8 <= tag < 0x80 and length < 0x80 and at + 1 < self.size:  # nearly all of a large message
            end = offset + 2 + length
            return WireField(tag, offset, offset + 2, end, end)
        tag, pos = read_tag(block, at, base)
        wire = tag & 7
        if tag < 8:
            raise no_field(tag, offset)
        if wire == LEN:
            length, pos = read_length(block, pos, base)
            start = base + pos
            self._check_head(offset, pos)
            return WireField(tag, offset, start, start + length, start + length)
        start = base + pos
        self._check_head(offset, pos)
        if wire == VARINT:
            end = base + skip_varint(block, pos, base)
        elif wire == FIXED64:
            end = start + 8
        elif wire == FIXED32:
            end = start + 4
        elif wire == START_GROUP:
            return self._group(tag, offset, start)
        else:
            raise MalformedError("not a valid field", offset=offset, source=self.data.name)
        return WireField(tag, offset, start, end, end)

    def _check_head(self, offset: int, pos: int) -> None:
        """Raise `EndOfDataError` for a tag or length that ends in the padding: the bytes end inside it."""
        if pos > self.size:
            raise EndOfDataError("the head of a field is truncated", offset=offset, source=self.data.name)

    def _group(self, tag: int, offset: int, start: int) -> WireField:
        groups = [tag >> 3]
        pos = last = start
        while groups and pos < self.end:
            try:
                at = self.at(pos)
            except EndOfDataError:
                break
            stop = self.size if self.last else self.size - SLACK + 1
            if at >= stop:  # fewer bytes were read than expected
                break
            try:
                after, begin = leave_groups(self.block, at, stop, groups, self.base)
            except MalformedError as error:
                head = self.block[(error.offset or 0) - self.base : stop] if self.last else b""
                if not head or min(head) < 0x80:
                    raise
                break  # a tag that continues in the padding: the bytes end inside it
            pos, last = self.base + after, self.base + begin
        end = last if not groups else max(pos, self.end + 1)  # a group without an end is truncated
        return WireField(tag, offset, start, end, pos if not groups else end)

    def read(self, start: int, end: int) -> bytes:
        """Return the bytes ``[start, end)``. Raise `EndOfDataError`, `GapError`."""
        index = start - self.base
        if index >= 0 and end - self.base <= self.size:
            return self.block[index : end - self.base]
        return self.data.read_exact(start, end - start)
