"""Checks messages in one pass over their bytes, without nodes."""

from __future__ import annotations

from pparse.data.utf8 import find_not_utf8
from pparse.errors import EndOfDataError, GapError, MalformedError
from pparse.kernels.wire import (
    END_GROUP,
    FIXED32,
    FIXED64,
    LEN,
    PADDING,
    SLACK,
    START_GROUP,
    VARINT,
    read_length,
    read_tag,
    skip_varint,
)
from pparse.lazy import lazy_pattern
from pparse.parsers.protobuf.index import accepts
from pparse.parsers.protobuf.values import fixed_size
from pparse.protobuf.schema import TYPE_STRING

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Final

    from pparse.data.base import Data
    from pparse.data.reader import Range
    from pparse.protobuf.schema import FieldType, MessageType

_FIRST_BLOCK: Final = 4 << 10
# Blocks grow up to this; a text, or packed numbers, beyond the end of a block are checked in pieces of this size.
_BLOCK: Final = 256 << 10
# Deeper nesting is left to the tree, which has its own limit.
_MAX_DEPTH: Final = 10_000
_TOO_LONG: Final = lazy_pattern(rb"[\x80-\xff]{10}")
# What the payload of a field is checked for.
_SKIP, _TEXT, _MESSAGE, _PACKED, _VARINTS = range(5)


class _Table(dict[int, tuple[int, "FieldType | None", "_Table | None"]]):
    """What to check in fields of one message type, by tag (of wire types 2 and 3); filled on demand."""

    __slots__ = ("_tables", "_type")

    def __init__(self, type: MessageType, tables: dict[str, _Table]) -> None:
        self._type = type
        self._tables = tables

    def __missing__(self, tag: int) -> tuple[int, FieldType | None, _Table | None]:
        field = self._type.fields.get(tag >> 3)
        found: tuple[int, FieldType | None, _Table | None] = (_SKIP, None, None)
        if field is not None and accepts(field, tag & 7):
            if field.message is not None:
                found = (_MESSAGE, field, table_of(field.message, self._tables))
            elif field.type == TYPE_STRING:
                found = (_TEXT, field, None)
            elif field.wire_type == VARINT:
                found = (_VARINTS, field, None)
            elif fixed_size(field) is not None:
                found = (_PACKED, field, None)
        self[tag] = found
        return found


def table_of(type: MessageType, tables: dict[str, _Table]) -> _Table:
    """Return the table of a message type, kept in ``tables``."""
    found = tables.get(type.full_name)
    if found is None:
        found = tables[type.full_name] = _Table(type, tables)
    return found


class Checker:
    """Checks messages of one schema; caches tables of its types."""

    def __init__(self, check_cancelled: Callable[[], None]) -> None:
        self._tables: dict[str, _Table] = {}
        self._check_cancelled = check_cancelled
        self.stopped = 0
        self.last_read: tuple[Data, int, int, bytes] | None = None
        """The block that was read last: its data, their revision then, where it begins, and it."""

    def sound(self, part: Range, type: MessageType) -> bool:
        """Say whether every field of the message, and of nested messages, is complete and of its type.

        If not, ``stopped`` is the offset of the field at fault; everything before it is sound.
        """
        self.stopped = part.start
        try:
            return self._walk(part, type)
        except (MalformedError, EndOfDataError, GapError):
            return False

    def _walk(self, part: Range, type: MessageType) -> bool:  # noqa: C901 -- hot loop: a call a field costs 12 %
        table = table_of(type, self._tables)
        # Open messages: their end (for a group: minus its number), and the table to return to. A group ends by itself,
        # but not beyond the message around it: ``bounds`` are the offsets at which everything must end.
        ends: list[int] = [part.end]
        bounds: list[int] = [part.end]
        tables: list[_Table] = [table]
        pos, base, size = part.start, 0, 0
        block = b""
        data, last = part.data, part.end
        step = _FIRST_BLOCK
        while True:
            end = ends[-1]
            if pos == end:
                ends.pop()
                bounds.pop()
                tables.pop()
                if not ends:
                    return True
                table = tables[-1]
                continue
            if pos >= bounds[-1]:  # beyond the message, or at its end inside a group without an end
                return False
            self.stopped = pos
            at = pos - base
            if not 0 <= at < size or (at > size - SLACK and base + size < last):
                self._check_cancelled()
                step = min(4 * step, _BLOCK) if at <= size else _FIRST_BLOCK
                revision = data.revision
                block = data.pread(pos, min(step, last - pos))
                if not block:
                    return False
                base, size, at = pos, len(block), 0
                self.last_read = data, revision, pos, block
                block += PADDING
            tag = block[at]
            if tag < 0x80:
                at += 1
            else:
                tag, at = read_tag(block, at, base)
            wire = tag & 7
            if tag < 8:
                return False
            if wire == LEN:
                length = block[at]
                if length < 0x80:
                    at += 1
                else:
                    length, at = read_length(block, at, base)
                pos = base + at
                if length > bounds[-1] - pos:
                    return False
                what, field, below = table[tag]
                if below is not None:
                    if len(ends) > _MAX_DEPTH:
                        return False
                    table = below
                    ends.append(pos + length)
                    bounds.append(pos + length)
                    tables.append(table)
                    continue
                if what == _TEXT and at + length <= size:  # true for nearly all leaves
                    text = block[at : at + length]
                    if not text.isascii() and not _sound_text(text):
                        return False
                elif what != _SKIP and length and not self._leaf(part, what, field, pos, length, block, at, size):
                    return False
                pos += length
            elif wire == VARINT:
                pos = base + (at + 1 if block[at] < 0x80 else skip_varint(block, at, base))
            elif wire == FIXED64:
                pos = base + at + 8
            elif wire == FIXED32:
                pos = base + at + 4
            elif wire == START_GROUP:
                if len(ends) > _MAX_DEPTH:
                    return False
                below = table[tag][2]
                if below is not None:
                    table = below
                ends.append(-(tag >> 3))
                bounds.append(bounds[-1])
                tables.append(table)
                pos = base + at
            elif wire == END_GROUP:
                if end != -(tag >> 3):
                    return False
                ends.pop()
                bounds.pop()
                tables.pop()
                table = tables[-1]
                pos = base + at
            else:
                return False

    def _leaf(
        self, part: Range, what: int, field: FieldType | None, pos: int, length: int, block: bytes, at: int, size: int
    ) -> bool:
        """Check a text, or packed numbers."""
        if what == _PACKED:
            return field is None or not length % (fixed_size(field) or 1)
        if at + length <= size:
            return _sound_text(block[at : at + length]) if what == _TEXT else _sound_varints(block[at : at + length])
        if what == _TEXT:
            return find_not_utf8(part.data, pos, pos + length) is None
        tail = b""
        while length:
            piece = part.data.read_exact(pos, min(_BLOCK, length))
            pos += len(piece)
            length -= len(piece)
            if _TOO_LONG.search(tail + piece) is not None or (not length and piece[-1] >= 0x80):
                return False
            tail = piece[-10:]
        return True


def _sound_text(raw: bytes) -> bool:
    if raw.isascii():
        return True
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


def _sound_varints(raw: bytes) -> bool:
    return raw.isascii() or (raw[-1] < 0x80 and _TOO_LONG.search(raw) is None)
