"""Checks messages in one pass over their bytes, without nodes; tells whether bytes look like a message of a type."""

from __future__ import annotations

from pparse.data.base import BytesData, blocks, find_not_utf8, is_utf8
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
    skip_payload,
    skip_varint,
)
from pparse.lazy import lazy_pattern
from pparse.parsers.protobuf.index import PartScan, accepts
from pparse.parsers.protobuf.values import fixed_size, is_message
from pparse.protobuf.schema import TYPE_STRING

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Final

    from pparse.data.base import Data, Range
    from pparse.limits import MemoryBudget
    from pparse.parsers.protobuf.library import Library
    from pparse.protobuf.schema import MessageType

_FIRST_BLOCK: Final = 4 << 10
# Blocks grow up to this; a text, or packed numbers, beyond the end of a block are checked in pieces of this size.
_BLOCK: Final = 256 << 10
# Deeper nesting is left to the tree, which has its own limit.
_MAX_DEPTH: Final = 10_000
# Messages around one that is given to the library, which goes a hundred levels down by itself.
_MOST_AROUND: Final = _MAX_DEPTH - 100
# Messages up to this size are kept, so many of each type at most, to know them again.
_SMALL: Final = 64
_MOST_SOUND: Final = 1_000
# From this size on, the library is quicker even if it has to be imported first.
_LARGE: Final = 1 << 20
# Messages in it are given to the library from this size on; shorter ones are there with what is around them.
_LONG: Final = 4 << 10
_TOO_LONG: Final = lazy_pattern(rb"[\x80-\xff]{10}")
# What the payload of a field is checked for; packed numbers of fixed size for that, which is above 0.
_SKIP, _TEXT, _VARINTS = 0, -1, -2


class _FieldChecks(dict[int, "Any"]):
    """What to check in fields of one message type: `_TEXT` and so on, the size of a number, or the table of a message.

    By tag of wire type 2 that takes a byte; by minus the tag for longer ones, and for groups. Filled on demand.
    """

    __slots__ = ("_tables", "hits", "sound", "type")

    def __init__(self, type: MessageType, tables: dict[str, _FieldChecks]) -> None:
        self.type = type
        self._tables = tables
        self.sound: set[bytes] | None = set()
        """Small messages of the type that were gone through, or are just now; None: they are too different."""
        self.hits = 0
        """How often one of them came again."""

    def expect(self, raw: bytes) -> None:
        """Add a message that is gone through next. The attributes of nodes, say, are the same again and again."""
        sound = self.sound
        if sound is not None and len(sound) >= _MOST_SOUND:
            sound = self.sound = set() if self.hits > _MOST_SOUND else None
            self.hits = 0
        if sound is not None:
            sound.add(raw)

    def __missing__(self, key: int) -> Any:
        tag = abs(key)
        field = self.type.fields.get(tag >> 3)
        found: Any = _SKIP
        if field is not None and accepts(field, tag & 7):
            if field.message is not None:
                found = table_of(field.message, self._tables)
            elif field.type == TYPE_STRING:
                found = _TEXT
            elif field.wire_type == VARINT:
                found = _VARINTS
            else:
                found = fixed_size(field) or _SKIP
        self[key] = found
        return found


def table_of(type: MessageType, tables: dict[str, _FieldChecks]) -> _FieldChecks:
    """Return the table of a message type, kept in ``tables``."""
    found = tables.get(type.full_name)
    if found is None:
        found = tables[type.full_name] = _FieldChecks(type, tables)
    return found


class Checker:
    """Checks messages of one schema; caches tables of its types.

    With a ``budget``, for the memory that it takes, the library protobuf parses most of a large message.
    """

    def __init__(self, check_cancelled: Callable[[], None], budget: MemoryBudget | None = None) -> None:
        self._tables: dict[str, _FieldChecks] = {}
        self._check_cancelled = check_cancelled
        self._budget = budget
        self._library: Library | None = None
        self.stopped = 0
        self.last_read: tuple[Data, int, int, bytes] | None = None
        """The block that was read last: its data, their revision then, where it begins, and it."""

    def sound(self, part: Range, type: MessageType) -> bool:
        """Say whether every field of the message, and of nested messages, is complete and of its type.

        If not, ``stopped`` is the offset of the field at fault; everything before it is sound.
        """
        if self._library is None and self._budget is not None and part.end - part.start >= _LARGE:
            from pparse.parsers.protobuf.library import Library

            self._library = Library(type, self._budget)
        whole = None
        for small in (_SMALL, -1):
            try:
                whole = self._walk(part, type, small)
            except (MalformedError, EndOfDataError, GapError):
                whole = False
            if whole is not None:
                break
        if not whole:  # nobody went through those that it was in
            for table in self._tables.values():
                table.sound = set()
        return bool(whole)

    def _walk(self, part: Range, type: MessageType, small: int) -> bool | None:  # noqa: C901 -- hot loop
        """Do it; messages of up to ``small`` bytes are known again. None: do it without, to tell where it stopped."""
        table = table_of(type, self._tables)
        # Open messages: their end (for a group: minus its number), the offset at which all must end (a group ends by
        # itself, but not beyond the message around it), and the table of each.
        around: list[tuple[int, int, _FieldChecks]] = [(part.end, part.end, table)]
        block, base, size = b"", part.start, 0
        data, last = part.data, part.end
        step = _FIRST_BLOCK
        library = self._library
        # In the block: where it goes on, behind what it is read on, and where the message and what is around it end.
        at, edge, stop, bound = 0, -1, last - base, last - base
        field_at, again = 0, last
        try:
            while True:
                if at == stop:
                    around.pop()
                    if not around:
                        return True
                    stop, bound, table = around[-1]
                    stop -= base  # below 0 for a group, which is not reached
                    bound -= base
                    continue
                if at >= again and at + _LONG <= min(stop, size) and len(around) < _MOST_AROUND and library is not None:
                    at, again = library.parsed(table.type, block, at, min(stop, size))
                    continue
                if at >= bound:  # beyond the message, or at its end inside a group without an end
                    return None if small >= 0 else False
                field_at = at
                if at > edge:
                    self._check_cancelled()
                    step = min(4 * step, _BLOCK) if at <= size else _FIRST_BLOCK
                    base, at, field_at, edge = base + at, 0, 0, -1
                    revision = data.revision
                    block = data.pread(base, min(step, last - base))
                    if not block:
                        return False
                    size = len(block)
                    edge = size - SLACK if base + size < last else size - 1
                    self.last_read = data, revision, base, block
                    block += PADDING
                    stop, bound, _ = around[-1]
                    stop -= base
                    bound -= base
                    again = 0 if library is not None else last
                found = table.get(block[at])
                length = block[at + 1]
                start = at + 2
                if found is None or length >= 0x80:
                    tag, start = read_tag(block, at, base)
                    wire = tag & 7
                    if tag < 8:
                        return False
                    if wire != LEN:
                        at = start
                        if wire == VARINT:
                            at = at + 1 if block[at] < 0x80 else skip_varint(block, at, base)
                        elif wire == FIXED64:
                            at += 8
                        elif wire == FIXED32:
                            at += 4
                        elif wire == START_GROUP:
                            if len(around) > _MAX_DEPTH:
                                return False
                            inner = table[-tag]
                            table = inner if isinstance(inner, _FieldChecks) else table
                            around.append((-(tag >> 3), base + bound, table))
                            stop = -1
                            library, again = None, last  # which field was the last in a group without an end?
                        elif wire == END_GROUP:
                            if around.pop()[0] != -(tag >> 3):
                                return False
                            stop, bound, table = around[-1]
                            stop -= base
                            bound -= base
                        else:
                            return False
                        continue
                    length, start = read_length(block, start, base)
                    found = table[tag if tag < 0x80 else -tag]
                at = start + length
                if at > bound:
                    return False
                if found is _TEXT:
                    if at > size:
                        if find_not_utf8(data, base + start, base + at) is not None:
                            return False
                    elif not (text := block[start:at]).isascii() and not is_utf8(text):
                        return False
                elif found.__class__ is _FieldChecks:
                    if length <= small and at <= size and found.sound is not None:
                        raw = block[start:at]
                        if raw in found.sound:
                            found.hits += 1
                            continue
                        found.expect(raw)
                    if len(around) > _MAX_DEPTH:
                        return False
                    stop = bound = at
                    table = found
                    around.append((base + at, base + at, table))
                    at = start
                elif found > 0:
                    if length % found:
                        return False
                elif found == _VARINTS and length:
                    if at <= size and not _sound_varints(block[start:at]):
                        return False
                    if at > size and not _are_varints(data, base + start, base + at):
                        return False
        finally:
            self.stopped = base + field_at


def _are_varints(data: Data, pos: int, end: int) -> bool:
    """Say whether packed varints beyond the end of a block are sound, read in pieces."""
    tail = b""
    for piece in blocks(data.read_exact, pos, end, _BLOCK):
        pos += len(piece)
        if _TOO_LONG.search(tail + piece) is not None or (pos == end and piece[-1] >= 0x80):
            return False
        tail = piece[-10:]
    return True


def _sound_varints(raw: bytes) -> bool:
    return raw.isascii() or (raw[-1] < 0x80 and _TOO_LONG.search(raw) is None)


# -- whether bytes look like a message of a type, by its fields and those of nested messages ---------------------------


def fits(head: bytes, type: MessageType, *, complete: bool) -> bool:
    """Say whether the fields of a message (or its beginning) are all of ``type``, two levels down."""
    level = [(head, type, complete)]
    for _ in range(3):
        below = []
        for raw, kind, whole in level:
            found = PartScan(BytesData(raw).range(0, len(raw)), kind)
            try:
                pos = found.scan(raw, 0, final=whole)
            except MalformedError:
                return False
            if (whole and pos > len(raw)) or any(key < 0 or key not in kind.fields for key in found.slots):
                return False
            for key in found.slots:
                field = kind.fields[key]
                if field.wire_type != LEN:
                    continue
                for item, _ in zip(found.fields(key), range(8), strict=False):
                    if item.end > len(raw):
                        continue
                    if field.message is not None and is_message(field):
                        below.append((raw[item.start : item.end], field.message, True))
                    elif field.type == TYPE_STRING and not is_text(raw[item.start : item.end]):
                        return False
        level = below
    return bool(head)


def is_text(raw: bytes) -> bool:
    """Say whether bytes can be the text of a field: UTF-8 without control characters."""
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return False
    return not any(char < " " and char not in "\t\n\r" for char in text)


def fitting_tags(head: bytes, type: MessageType) -> int:
    """Return how many tags, from the first on and down to the leaves, belong to ``type`` before one that does not.

    So a message with damage near its beginning can still be recognised.
    """
    return _fitting_tags(head + PADDING, 0, len(head), type)


def goes_on_fitting(head: bytes, type: MessageType, least: int, *, complete: bool) -> bool:
    """Say whether bytes are the damaged beginning of a message of ``type``: ``least`` tags fit from a later offset on.

    That offset is a field after others, of which the first belongs to the type; or, if these end in something invalid,
    any offset after that; so it is if they fit, and end in a field of the type that has another wire type. (A message
    of another type may have a field of this type.) If bytes that are ``complete`` end within a field, it is any offset
    behind the first fields, those that belong to the type.
    """
    block, pos, size = head + PADDING, 0, len(head)
    strange = -1
    try:
        while pos < size:
            if pos and strange and _fitting_tags(block, pos, size, type) >= least:
                return True
            tag, after = read_tag(block, pos)
            field = type.fields.get(tag >> 3)
            misfit = strange < 0 and field is not None and not accepts(field, tag & 7)
            if (misfit and fits(head[:pos], type, complete=True)) or tag < 8 or tag & 7 in (START_GROUP, END_GROUP):
                break
            if strange < 0 and (field is None or misfit):
                strange = pos
            pos = skip_payload(block, after, tag & 7)
        else:
            if not complete or pos == size or strange < 1:
                return False
            pos = strange
    except MalformedError:
        pass
    heads = {number << 3 | LEN for number, field in type.fields.items() if field.message is not None}
    return any(block[at] in heads and _fitting_tags(block, at, size, type) >= least for at in range(pos, size))


def _fitting_tags(block: bytes, pos: int, size: int, type: MessageType) -> int:
    count = 0
    open_types: list[tuple[int, MessageType]] = [(1 << 62, type)]
    try:
        while pos < size:
            end, kind = open_types[-1]
            if pos >= end:
                open_types.pop()
                continue
            tag, pos = read_tag(block, pos)
            field = kind.fields.get(tag >> 3)
            if field is None or not accepts(field, tag & 7) or tag & 7 in (START_GROUP, END_GROUP):
                return count
            count += 1
            if tag & 7 != LEN:
                pos = skip_payload(block, pos, tag & 7)
                continue
            length, pos = read_length(block, pos)
            if pos + length > end or (field.type == TYPE_STRING and not is_text(block[pos : min(pos + length, size)])):
                return count - 1
            if field.message is not None:
                open_types.append((pos + length, field.message))
            else:
                pos += length
    except MalformedError:
        pass
    return count
