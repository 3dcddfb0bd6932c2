"""Messages in parts: where the bytes of a message are, its fields one by one, and output that refers to the source.

A message is a list of *items*; it is their concatenation (protobuf merges when it parses a concatenation). An item is a
`Span` of bytes in memory, a `Range` for more than `SMALL` bytes, or an `Addressed` part: bytes that belong to a nested
message, such as the chunks of a ``.cpb`` file.
"""

from __future__ import annotations

from pparse.data.reader import Range
from pparse.errors import EndOfDataError, MalformedError, UnsupportedError
from pparse.kernels.varint import MAX_BYTES_32, read_varint
from pparse.kernels.wire import END_GROUP, FIXED32, FIXED64, LEN, START_GROUP, VARINT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, Final, TypeAlias

    from pparse.data.scratch import Spool

    # Bytes, begin and end in them, and the offset of the first byte in the source (for errors).
    Span: TypeAlias = tuple[bytes, int, int, int]
    Content: TypeAlias = Span | Range
    Item: TypeAlias = "Content | Addressed"
    Field: TypeAlias = tuple[int, int, Any]

ADDRESSED: Final = 8  # the wire type of an addressed part in `fields`

# Content up to this size is read at once, with everything inside.
SMALL: Final = 1 << 20
# Keys, and names that something is done with, are shorter.
_LONGEST_TEXT: Final = 1 << 20
# Pieces of output below this size are copied into one.
_COPIED: Final = 64 << 10
_BLOCK: Final = 256 << 10
_HEAD: Final = 20  # two varints


class Addressed:
    """``content`` that belongs to the message at ``steps``: a field number each, and an index if it is repeated."""

    __slots__ = ("content", "steps")

    def __init__(self, steps: tuple[tuple[int, int | None], ...], content: Content) -> None:
        self.steps = steps
        """The path: field numbers, each with an index if the field is repeated."""
        self.content = content
        """The bytes."""

    def rest(self) -> Item:
        """Return this part relative to the message that its first step leads to."""
        return Addressed(self.steps[1:], self.content) if len(self.steps) > 1 else self.content


def span(data: bytes) -> Span:
    """Return the whole of ``data`` as an item."""
    return data, 0, len(data), 0


def content_of(found: Range) -> Content:
    """Return a range as an item: its bytes, if they are few. Raise `EndOfDataError` if they are missing."""
    size = len(found)
    if size > SMALL:
        return found
    return found.range(0, size).read_exact(size), 0, size, found.start


def size_of(content: Content) -> int:
    """Return the number of bytes."""
    return len(content) if isinstance(content, Range) else content[2] - content[1]


def load(content: Content, what: str) -> bytes:
    """Return the bytes. Raise `MalformedError` if they are more than a text has; ``what`` names them in the error."""
    size = size_of(content)
    if size > _LONGEST_TEXT:
        raise MalformedError(f"{what} is too long", wanted=_LONGEST_TEXT, got=size)
    return b"".join(blocks_of(content))


def blocks_of(content: Content) -> Iterator[bytes]:
    """Yield the bytes in blocks. Raise `EndOfDataError` if the source ends too early."""
    if not isinstance(content, Range):
        yield content[0][content[1] : content[2]]
        return
    reader = content.range(0, len(content))
    while left := reader.remaining:
        yield reader.read_exact(min(left, _BLOCK))


# -- fields ------------------------------------------------------------------------------------------------------------


def fields(item: Item) -> Iterator[Field]:
    """Yield number, wire type and value of each field of one item, in order.

    Values: the number of a varint; 4 or 8 bytes; the content of a length-delimited field; for an addressed part, the
    part itself with the wire type `ADDRESSED`. Raise `MalformedError` for invalid fields, and `UnsupportedError` for
    groups, which TensorFlow's messages do not have.
    """
    if isinstance(item, tuple):
        return _fields_in_memory(item)
    return iter([(item.steps[0][0], ADDRESSED, item)]) if isinstance(item, Addressed) else _fields_of_range(item)


def _fields_in_memory(item: Span) -> Iterator[Field]:
    data, pos, end, base = item
    try:
        while pos < end:
            begin = pos
            key = data[pos]
            pos += 1
            if key > 0x7F:
                key, pos = read_varint(data, begin, end, MAX_BYTES_32, "a field's key")
            number, wire = key >> 3, key & 7
            if wire == LEN:
                size, pos = read_varint(data, pos, end, what="a field's length")
                if size > end - pos:
                    raise _beyond(begin, size, end - pos)
                if not number:
                    raise _bad_key(number, wire, begin)
                yield number, LEN, (data, pos, pos + size, base)
                pos += size
            elif wire == VARINT and number:
                value, pos = read_varint(data, pos, end)
                yield number, VARINT, value
            else:
                size = _fixed_size(number, wire, begin)
                if size > end - pos:
                    raise _beyond(begin, size, end - pos)
                yield number, wire, data[pos : pos + size]
                pos += size
    except MalformedError as error:
        error.offset = base + (error.offset or 0)
        raise


def _fields_of_range(item: Range) -> Iterator[Field]:
    reader = item.range(0, len(item))
    while left := reader.remaining:
        begin = reader.offset
        head = reader.peek(_HEAD)
        try:
            key, pos = read_varint(head, 0, len(head), MAX_BYTES_32, "a field's key")
            number, wire = key >> 3, key & 7
            size = 0
            if wire == LEN:
                size, pos = read_varint(head, pos, len(head), what="a field's length")
            elif wire == VARINT:
                value, pos = read_varint(head, pos, len(head))
            else:
                size = _fixed_size(number, wire, 0)
            if not number:
                raise _bad_key(number, wire, 0)
            if size > left - pos:
                raise _beyond(0, size, left - pos)
        except MalformedError as error:
            if len(head) < min(left, _HEAD):
                raise EndOfDataError("the data ends here", offset=begin + len(head), source=item.data.name) from error
            error.offset = begin + (error.offset or 0)
            error.source = item.data.name
            raise
        reader.skip(pos)
        if wire == VARINT:
            yield number, wire, value
        elif wire != LEN:
            yield number, wire, reader.read_exact(size)
        elif size <= SMALL:
            at = reader.offset
            yield number, wire, (reader.read_exact(size), 0, size, at)
        else:
            at = reader.tell()
            reader.skip(size)
            yield number, wire, item.range(at, at + size)


def _fixed_size(number: int, wire: int, offset: int) -> int:
    if not number or wire not in (FIXED32, FIXED64):
        raise _bad_key(number, wire, offset)
    return 4 if wire == FIXED32 else 8


def _beyond(offset: int, wanted: int, got: int) -> MalformedError:
    return MalformedError("a field extends beyond its message", offset=offset, wanted=wanted, got=got)


def _bad_key(number: int, wire: int, offset: int) -> MalformedError:
    if number and wire in (START_GROUP, END_GROUP):
        raise UnsupportedError(f"field {number} is a group, and TensorFlow's messages have none", offset=offset)
    return MalformedError(f"no field has number {number} and wire type {wire}", offset=offset)


# -- looking for one field ---------------------------------------------------------------------------------------------


def _values(items: list[Item], number: int) -> Iterator[tuple[int, Any]]:
    """Yield wire type and value of each field of that number."""
    for item in items:
        for name, wire, value in fields(item):
            if name == number:
                yield wire, value


def last_number(items: list[Item], number: int) -> int:
    """Return the value of a varint field, 0 if it is absent."""
    found: list[int] = [value for wire, value in _values(items, number) if wire == VARINT]
    return found[-1] if found else 0


def last_text(items: list[Item], number: int) -> bytes:
    """Return the value of a string field, empty if it is absent."""
    found: list[Content] = [value for wire, value in _values(items, number) if wire == LEN]
    return load(found[-1], f"field {number}") if found else b""


def submessage(items: list[Item], number: int) -> list[Item] | None:
    """Return the items of a singular message; None if it is absent."""
    values = _values(items, number)
    return [inner_item(value) for wire, value in values if wire == LEN or isinstance(value, Addressed)] or None


def inner_item(value: Content | Addressed) -> Item:
    """Return a value of a singular message as an item of that message."""
    if isinstance(value, Addressed):
        check_index(value, repeated=False)
        return value.rest()
    return value


def element(items: list[Item], number: int, index: int) -> list[Item] | None:
    """Return the items of element ``index`` of a repeated message; None if the list is shorter."""
    found: list[Item] = []
    count = 0
    for wire, value in _values(items, number):
        if isinstance(value, Addressed):
            at = check_index(value, repeated=True, count=count)
            if at == index:
                found.append(value.rest())
            count = max(count, at + 1)
        elif wire == LEN:
            if count == index:
                found.append(value)
            count += 1
    return found or None


def text_map(items: list[Item], number: int) -> dict[bytes, list[Item]]:
    """Return the entries of a map from strings to messages."""
    found: dict[bytes, list[Item]] = {}
    for wire, value in _values(items, number):
        if isinstance(value, Addressed):
            raise no_key(value)
        if wire == LEN:
            found[last_text([value], 1)] = submessage([value], 2) or []
    return found


def check_index(part: Addressed, *, repeated: bool, count: int = 0) -> int:
    """Return the index of the element that a part belongs to: of ``count`` elements, or the next; 0 if not repeated.

    Raise `MalformedError` for an index that TensorFlow's Merger cannot handle either.
    """
    number, index = part.steps[0]
    if not repeated:
        if index is not None:
            raise MalformedError(f"a chunk belongs to element {index} of field {number}, which is not repeated")
        return 0
    if index is None:
        raise MalformedError(f"a chunk belongs to field {number}, which is repeated, but names no element of it")
    if index > count:
        raise MalformedError(f"a chunk belongs to element {index} of field {number}, which has {count}")
    return index


def no_key(part: Addressed) -> MalformedError:
    """Return the error for a part that names a map without a key."""
    return MalformedError(f"a chunk belongs to field {part.steps[0][0]}, which is a map, but names no key of it")


# -- output ------------------------------------------------------------------------------------------------------------


class Rope:
    """Output in pieces: bytes in memory, ranges of a source, ranges of a scratch file. ``size`` is their sum."""

    __slots__ = ("_pieces", "size", "tail")

    def __init__(self) -> None:
        self.size = 0
        self.tail = bytearray()
        self._pieces: list[bytes | bytearray | Range | tuple[Spool, int, int]] | None = None

    def add(self, data: bytes) -> None:
        """Append a copy of some bytes."""
        self.tail += data
        self.size += len(data)

    def add_content(self, content: Content) -> None:
        """Append content; a range is not read."""
        if isinstance(content, Range):
            self.cut().append(content)
            self.size += len(content)
        else:
            self.add(content[0][content[1] : content[2]])

    def add_rope(self, other: Rope) -> None:
        """Append another rope, which must not be used afterwards."""
        if other._pieces is None and len(other.tail) <= _COPIED:
            self.tail += other.tail
        else:
            self.cut().extend(other.cut())
        self.size += other.size

    def cut(self) -> list[bytes | bytearray | Range | tuple[Spool, int, int]]:
        """Return all pieces, including the bytes added last."""
        if self._pieces is None:
            self._pieces = []
        if self.tail:
            self._pieces.append(self.tail)
            self.tail = bytearray()
        return self._pieces

    def spill(self, spool: Spool) -> None:
        """Move the bytes added last into a scratch file."""
        at, size = spool.size, len(self.tail)
        spool.append(self.tail)
        self.tail = bytearray()
        self.cut().append((spool, at, size))

    def blocks(self) -> Iterator[bytes | bytearray]:
        """Yield all bytes. Raise `EndOfDataError` if a source ends too early."""
        for piece in self._pieces or ():
            if isinstance(piece, Range):
                yield from blocks_of(piece)
            elif isinstance(piece, tuple):
                spool, at, size = piece
                for begin in range(at, at + size, _BLOCK):
                    yield spool.pread(begin, min(_BLOCK, at + size - begin))
            else:
                yield piece
        yield self.tail

    def tobytes(self) -> bytes:
        """Return all bytes at once."""
        return b"".join(self.blocks())
