"""Messages in wire format, made of small fields in memory and of ranges of other data.

Lengths come before what they count, so a message is put together when it is closed. Small values are collected in
memory and charged to the budget; large ones stay where they are.
"""

from __future__ import annotations

from pparse.data.base import BytesData
from pparse.data.spliced import SplicedData
from pparse.kernels.varint import encode_varint

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

    from pparse.budget import MemoryBudget
    from pparse.data.base import Data, IoStats
    from pparse.data.reader import Range

# Bytes of a message that are moved when it is closed; what is more stays where it is.
_FLUSH: Final = 64 << 10
# Memory that a range takes, about.
_PART_COST: Final = 400
# Damaged stretches that are told one by one; if there are more, everything is in doubt.
_MOST_MARKS: Final = 1000
# A tag that goes on: what ends with it is cut.
_BROKEN_TAG: Final = b"\x80"
# Messages inside of one in doubt that are told apart from it.
_MOST_INSIDE: Final = 64


class _Frame:
    """A message, or a packed list, that is still open."""

    __slots__ = ("buffer", "inside", "is_list", "marks", "parts", "reason", "size", "tag")

    def __init__(self, tag: bytes, *, is_list: bool = False) -> None:
        self.tag = tag
        self.is_list = is_list
        self.inside: list[tuple[int, int]] = []  # the messages in it, which are not in doubt if it is
        self.buffer = bytearray()  # the bytes behind all parts
        self.parts: list[bytes | Range] = []
        self.size = 0  # of the parts
        self.marks: list[tuple[int, int, str]] = []  # what is in doubt below it, by offsets of its content
        self.reason: str | None = None  # why it is in doubt itself

    def doubts(self, head: int) -> list[tuple[int, int, str]]:
        """Return what is in doubt: of a frame that is itself, all but the messages in it, with its ``head`` bytes."""
        if self.reason is None:
            return self.marks
        if len(self.inside) > _MOST_INSIDE:
            return [(-head, 1, self.reason), *self.marks]
        found = []
        last = -head
        for first, end in self.inside:
            found.append((last, first, self.reason))
            last = end
        found.append((last, self.size + len(self.buffer), self.reason))
        return found + self.marks


class WireMaker:
    """Makes one message. Frames are opened and closed like brackets; the outermost is the message itself."""

    def __init__(self, budget: MemoryBudget) -> None:
        self._budget = budget
        self.charge = budget.charge(0, "the small fields of a message in JSON form")
        """The memory of what was made."""
        self._frames = [_Frame(b"")]
        self._held = 0  # bytes in memory, and the cost of parts
        self._asked = 0

    @property
    def depth(self) -> int:
        """How many frames are open."""
        return len(self._frames)

    # -- making ------------------------------------------------------------------------------------------------------

    def open(self, tag: bytes, *, is_list: bool = False) -> None:
        """Begin a message, or a packed list or another long value."""
        self._frames.append(_Frame(tag, is_list=is_list))

    def add(self, content: bytes) -> None:
        """Add bytes in wire format. Raise `LimitError` if the budget has no room for them."""
        frame = self._frames[-1]
        frame.buffer += content
        self._hold(len(content))
        if len(frame.buffer) > _FLUSH:
            self._flush(frame)

    def add_range(self, part: Range) -> None:
        """Add a range of other data."""
        frame = self._frames[-1]
        self._flush(frame)
        frame.parts.append(part)
        frame.size += part.end - part.start
        self._hold(_PART_COST)

    def mark(self, reason: str) -> None:
        """Take note that the innermost message may not be what was meant, nor a list in it that is open."""
        for frame in reversed(self._frames):
            frame.reason = frame.reason or reason
            if not frame.is_list:
                return

    def so_far(self) -> bytes | None:
        """Return what the innermost message consists of, if all of it is in memory; else None."""
        frame = self._frames[-1]
        return None if frame.parts else bytes(frame.buffer)

    def close(self, missing: int = 0) -> None:
        """End the innermost message or list; it claims ``missing`` bytes that do not follow."""
        frame = self._frames.pop()
        around = self._frames[-1]
        size = frame.size + len(frame.buffer)
        head = frame.tag + encode_varint(size + missing)
        around.buffer += head
        self._hold(len(head))
        start = around.size + len(around.buffer)
        around.marks += ((start + first, start + last, reason) for first, last, reason in frame.doubts(len(head)))
        if not frame.is_list and len(around.inside) <= _MOST_INSIDE:
            around.inside.append((start, start + size))
        if len(around.marks) > _MOST_MARKS:
            first = min(mark[0] for mark in around.marks)
            last = max(mark[1] for mark in around.marks)
            around.marks = [(first, last, around.marks[0][2])]
        if frame.parts:
            self._flush(around)
            around.parts += frame.parts
            around.size += frame.size
        around.buffer += frame.buffer
        if len(around.buffer) > _FLUSH:
            self._flush(around)

    def charge_more(self, count: int) -> None:
        """Charge memory that the ranges take besides. Raise `LimitError` if the budget has no room for it."""
        self._hold(count)

    def _flush(self, frame: _Frame) -> None:
        if frame.buffer:
            frame.parts.append(bytes(frame.buffer))
            frame.size += len(frame.buffer)
            frame.buffer = bytearray()
            self._hold(_PART_COST)

    def _hold(self, count: int) -> None:
        self._held += count
        if self._held - self._asked > _FLUSH:
            self._asked = self._held
            self.charge.resize(2 * self._held)  # twice for a moment, when all is joined

    # -- the end -----------------------------------------------------------------------------------------------------

    def cut(self, missing: int = 1) -> None:
        """End the message inside of the frames that are open: each claims ``missing`` bytes more than there are."""
        if self.depth == 1:
            self.add(_BROKEN_TAG)
        while self.depth > 1:
            self.close(missing)

    def finish(self, name: str, stats: IoStats | None) -> Data:
        """Return the message, with what is in doubt condemned."""
        while self.depth > 1:
            self.close()
        root = self._frames.pop()
        self._flush(root)
        doubts = root.doubts(0)
        memory = b"".join(part for part in root.parts if isinstance(part, bytes))
        held = BytesData(memory, name, stats)
        parts: list[Range] = []
        at = 0
        for part in root.parts:
            if isinstance(part, bytes):
                parts.append(held.range(at, at + len(part)))
                at += len(part)
            else:
                parts.append(part)
        made = SplicedData(parts, name, stats)
        for first, last, reason in doubts:
            made.condemn(first, last, reason)
        self.charge.resize(self._held)
        return made
