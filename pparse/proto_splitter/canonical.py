"""Converts any serialized form of a message to the bytes that C++ protobuf writes in its deterministic mode.

TensorFlow's fingerprints are hashes of these bytes. Python's protobuf also has a deterministic mode, but with another
order of map keys ("Tidx" before "T"). So files written by Python, and all messages in memory, are converted to the form
of C++, field by field with the schema, without building the message. The rules:

- Fields come in the order of their numbers; unknown fields (a number not in the schema, or another wire type) come
  last, in the order found.
- Of a singular scalar the last value is kept, of a oneof the last member. The parts of a singular message are merged.
  Scalars without presence are left out if they are zero (by their bits: minus zero is kept).
- Lists of scalars are written as declared, packed or not, whichever way they came; varints in their shortest form, cut
  to the 32 bits or the one bit that the type has.
- Entries of a map are sorted by key: strings by their bytes, numbers by value. The last of equal keys is kept. Key and
  value are written even if they are zero; unknown fields in an entry are dropped.

What is not written is not checked: a value that a later one replaces need not be well-formed, and strings need not be
UTF-8 (TensorFlow refuses to read such files).

A message is a list of *items*; it is their concatenation (protobuf merges when it parses a concatenation). An item is a
`Span` of bytes in memory, a `Range` for more than `SMALL` bytes, or an `Addressed` part: bytes that belong to a nested
message, such as the chunks of a ``.cpb`` file. Large bytes fields are not read here; the output, a `Rope`, refers to
them. Each message is handled by a generator that yields the messages in it and is sent their bytes.
`Canonicalizer.run` drives the generators with a stack, so nothing recurses.
"""

from __future__ import annotations

import re
from collections import namedtuple

from pparse.data.base import Range, blocks
from pparse.errors import EndOfDataError, MalformedError, UnsupportedError
from pparse.kernels.farmhash import Fingerprint64
from pparse.kernels.varint import MAX_BYTES_32, MAX_BYTES_64, encode_varint, read_varint
from pparse.kernels.wire import END_GROUP, FIXED32, FIXED64, LEN, START_GROUP, VARINT
from pparse.limits import Limits
from pparse.parsers.protobuf.index import WireWindow
from pparse.protobuf import schema
from pparse.protobuf.schema import WIRE_TYPES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from typing import Any, Final, TypeAlias

    from pparse.data.scratch import Scratch, Spool
    from pparse.limits import MemoryBudget
    from pparse.protobuf.schema import FieldType, MessageType

    Key = int | bytes

    # Bytes, begin and end in them, and the offset of the first byte in the source (for errors).
    Span: TypeAlias = tuple[bytes, int, int, int]
    Content: TypeAlias = Span | Range
    Item: TypeAlias = "Content | Addressed"
    Run: TypeAlias = "Generator[tuple[MessageType, list[Item]], Any, Rope]"
    Field: TypeAlias = tuple[int, int, Any]


ADDRESSED: Final = 8  # the wire type of an addressed part in `fields`

# Content up to this size is read at once, with everything inside.
SMALL: Final = 1 << 20
# Keys, and names that something is done with, are shorter.
_LONGEST_TEXT: Final = 1 << 20
# Pieces of output below this size are copied into one.
_COPIED: Final = 64 << 10
_BLOCK: Final = 256 << 10


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
    yield from blocks(content.data.read_exact, content.start, content.end, _BLOCK)


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
    window, pos, end = WireWindow(item.data, item.end), item.start, item.end
    while pos < end:
        try:
            field = window.field(pos)
        except EndOfDataError as error:
            if not item.data.available(pos, end - pos):
                raise
            raise _beyond(pos, end - pos + 1, end - pos) from error
        number, wire = field.tag >> 3, field.tag & 7
        if wire == START_GROUP:
            raise _bad_key(number, wire, pos)
        if field.next > end:
            raise _beyond(pos, field.next - pos, end - pos)
        if wire == LEN:
            yield number, LEN, content_of(item.data.range(field.start, field.end))
        else:
            raw = window.read(field.start, field.end)
            yield number, wire, read_varint(raw, 0, len(raw))[0] if wire == VARINT else raw
        pos = field.next


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
                yield from blocks(spool.pread, at, at + size, _BLOCK)
            else:
                yield piece
        yield self.tail

    def tobytes(self) -> bytes:
        """Return all bytes at once."""
        return b"".join(self.blocks())


_MASK32: Final = (1 << 32) - 1
_MASK64: Final = (1 << 64) - 1
# Bytes of memory per field that waits for the end of its message, beside its own bytes.
_WAITING: Final = 150
_SPILLED: Final = 256 << 10
# Messages of so few bytes are converted once, whatever the number of their occurrences: attributes of nodes are mostly
# the same few types and numbers. Remembering 4,096 of them halves the time of a large graph, for at most 2 MiB.
_FEW: Final = 64
_REMEMBERED: Final = 4_096
# Step by which the charge grows.
_STEP: Final = 1 << 20

# Runs of varints that are canonical already, by the kind of type.
_SHORT: Final = rb"[\x00-\x7f]|[\x80-\xff]{1,3}[\x01-\x7f]|"
_CANONICAL: Final = {
    "bool": re.compile(rb"[\x00\x01]*+"),
    "int32": re.compile(rb"(?>" + _SHORT + rb"[\x80-\xff]{4}(?:[\x01-\x07]|[\xf8-\xff]\xff{4}\x01))*+"),
    "uint32": re.compile(rb"(?>" + _SHORT + rb"[\x80-\xff]{4}[\x01-\x0f])*+"),
    "64": re.compile(rb"(?>[\x00-\x7f]|[\x80-\xff]{1,8}[\x01-\x7f]|[\x80-\xff]{9}\x01)*+"),
}
_KIND: Final = {
    schema.TYPE_BOOL: "bool",
    schema.TYPE_INT32: "int32",
    schema.TYPE_ENUM: "int32",
    schema.TYPE_UINT32: "uint32",
    schema.TYPE_SINT32: "uint32",
}


def _varint_of(kind: str, value: int) -> bytes:
    """Return the canonical varint of a value, cut to the bits of the type."""
    if kind == "bool":
        return b"\x01" if value else b"\x00"
    if kind == "uint32":
        return encode_varint(value & _MASK32)
    if kind == "int32":
        value &= _MASK32
        return encode_varint(value if value < 1 << 31 else value | _MASK64 ^ _MASK32)
    return encode_varint(value)


class _CanonicalField:
    """A field of the schema, with its keys in wire form."""

    def __init__(self, field: FieldType) -> None:
        if field.type == schema.TYPE_GROUP:
            raise UnsupportedError(f"field {field.name} is a group, and TensorFlow's messages have none")
        self.number = field.number
        self.type = field.type
        self.wire = WIRE_TYPES[field.type]
        self.key = encode_varint(field.number << 3 | self.wire)
        self.packed_key = encode_varint(field.number << 3 | LEN) if field.packed else b""
        self.repeated = field.repeated
        self.is_map = field.is_map
        self.message = field.message if field.type == schema.TYPE_MESSAGE else None
        self.kind = _KIND.get(field.type, "64")
        self.oneof = field.oneof
        self.drops_zero = not field.repeated and not field.has_presence
        self.entry: tuple[_CanonicalField, _CanonicalField]
        if self.is_map and field.map_key is not None and field.map_value is not None:
            self.entry = _CanonicalField(field.map_key), _CanonicalField(field.map_value)

    def takes(self, wire: int) -> bool:
        """Say whether this field accepts values of that wire type."""
        if wire == self.wire:
            return True
        if wire == ADDRESSED:
            if self.message is None:
                raise MalformedError(f"a chunk belongs inside field {self.number}, which is not a message")
            return True
        return wire == LEN and self.repeated and self.wire in (VARINT, FIXED32, FIXED64)


class Changes(namedtuple("Changes", "cleared number rewrite", defaults=((), 0, list))):
    """Changes to a message: singular messages that become empty, and one repeated message with rewritten elements.

    ``cleared`` are the numbers of the former, ``number`` is that of the latter; ``rewrite`` takes the items of an
    element and returns the new ones.
    """

    __slots__ = ()


_UNCHANGED: Final = Changes()


class Canonicalizer:
    """Converts messages to canonical form and hashes them, within a budget. Use it with ``with``, or close it.

    The messages are held without their large bytes fields. What does not fit in the budget goes to scratch files;
    without a folder for these, `LimitError` is raised.
    """

    def __init__(self, budget: MemoryBudget, limits: Limits | None = None, scratch: Scratch | None = None) -> None:
        self._limits = limits or Limits()
        self._scratch = scratch
        self._spool: Spool | None = None
        self._charge = budget.charge(0, "the canonical form of a message")
        self._budget = budget
        self._held = 0
        self._tables: dict[str, dict[int, _CanonicalField]] = {}

    def __enter__(self) -> Canonicalizer:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the memory and scratch files; may be called again."""
        self._charge.release()
        if self._spool is not None:
            self._spool.close()
            self._spool = None

    def fingerprint(self, kind: MessageType, items: list[Item], changes: Changes | None = None) -> int:
        """Return the Fingerprint64 of the canonical form of a message, with ``changes`` applied.

        Raise `MalformedError`, `UnsupportedError` or `LimitError`; errors of the source propagate.
        """
        hashing = Fingerprint64()
        for block in self.run(kind, items, changes).blocks():
            hashing.update(block)
        self.close()
        self._held = 0
        return hashing.digest()

    def run(self, kind: MessageType, items: list[Item], changes: Changes | None = None) -> Rope:
        """Return the canonical form, valid until `close` or the next `fingerprint`. Raise as `fingerprint`."""
        stack = [self._message(kind, items, changes or _UNCHANGED)]
        keys: list[tuple[str, bytes] | None] = [None]
        done_before: dict[tuple[str, bytes], Rope] = {}
        answer: Rope | None = None
        while True:
            try:
                inner = stack[-1].send(answer)
            except StopIteration as done:
                stack.pop()
                answer = done.value
                if not stack:
                    return done.value  # type: ignore[no-any-return]
                key = keys.pop()
                if key is not None and len(done_before) < _REMEMBERED:
                    done_before[key] = done.value
                continue
            key = _small(*inner)
            answer = done_before.get(key) if key is not None else None
            if answer is None:
                self._limits.check("depth", len(stack), "the nesting of messages")
                stack.append(self._message(*inner, _UNCHANGED))
                keys.append(key)

    # -- one message -------------------------------------------------------------------------------------------------

    def _table(self, kind: MessageType) -> dict[int, _CanonicalField]:
        found = self._tables.get(kind.full_name)
        if found is None:
            found = {number: _CanonicalField(field) for number, field in kind.fields.items()}
            self._tables[kind.full_name] = found
        return found

    def _message(self, kind: MessageType, items: list[Item], changes: Changes) -> Run:
        table = self._table(kind)
        large = any(isinstance(item, Range) for item in items)
        parts = _CanonicalParts()
        out = parts.out
        extra = _extra(items)
        for item in items:
            for number, wire, value in fields(item):
                field = table.get(number)
                if field is None or not field.takes(wire):
                    _add_unknown(parts.unknown, number, wire, value)
                    continue
                if number in changes.cleared:
                    continue
                rope = out.get(number) if large else None
                before = len(rope.tail) if rope is not None else 0
                if field.message is None:
                    _add_scalar(parts, field, wire, value)
                elif field.is_map:
                    _add_entry(parts, field, value)
                elif not field.repeated:
                    parts.choose(field)
                    parts.singles.setdefault(number, []).append(inner_item(value))
                else:
                    inner = _element(parts, field, value, extra)
                    if inner is None:
                        continue
                    if number == changes.number:
                        inner = changes.rewrite(inner)
                    body = yield field.message, inner
                    _add_message(out.get(number) or out.setdefault(number, Rope()), field.key, body)
                if large:
                    self._count(parts, field, value, before)
        for number in changes.cleared:
            parts.singles[number] = []
        return (yield from self._assemble(table, parts))

    def _assemble(self, table: dict[int, _CanonicalField], parts: _CanonicalParts) -> Run:
        """Return all parts in their order."""
        result = Rope()
        out = parts.out
        for number in sorted({*out, *parts.singles, *parts.maps}):
            field = table[number]
            if number in parts.singles and field.message is not None:
                body = yield field.message, parts.singles[number]
                _add_message(result, field.key, body)
            elif number in parts.maps:
                yield from self._assemble_map(result, field, parts.maps[number])
            else:
                rope = out[number]
                if field.packed_key:
                    if not rope.size:
                        continue
                    result.add(field.packed_key + encode_varint(rope.size))
                result.add_rope(rope)
        result.add_rope(parts.unknown)
        return result

    def _assemble_map(
        self, result: Rope, field: _CanonicalField, entries: dict[Key, tuple[bytes, Rope | list[Item]]]
    ) -> Run:
        value_type = field.entry[1]
        for _, (key, value) in sorted(entries.items()):
            if isinstance(value, Rope):
                entry = value
            else:
                entry = Rope()
                body = yield value_type.message, value  # type: ignore[misc]
                _add_message(entry, value_type.key, body)
            result.add(field.key + encode_varint(len(key) + entry.size) + key)
            result.add_rope(entry)
            if len(result.tail) > _SPILLED:
                self._conclude(result)
        return result

    # -- memory ------------------------------------------------------------------------------------------------------

    def _count(self, parts: _CanonicalParts, field: _CanonicalField, value: Any, before: int) -> None:
        """Charge the memory that a large message has grown by since a field was added."""
        rope = parts.out.get(field.number)
        if rope is not None:
            self._hold(max(0, len(rope.tail) - before))
            if field.repeated and len(rope.tail) > _SPILLED:
                self._conclude(rope)
        elif isinstance(value, tuple):
            self._hold(size_of(value) + _WAITING)  # held until the message ends

    def _hold(self, count: int) -> None:
        self._held += count
        more = self._held - self._charge.amount
        if more > 0 and (self._scratch is None or self._budget.fits(more + _STEP)):
            self._charge.resize(self._held + _STEP)

    def _conclude(self, rope: Rope) -> None:
        """Charge the bytes added last to a rope, or move them to a scratch file."""
        if self._held <= self._charge.amount or self._scratch is None:
            rope.cut()
            return
        if self._spool is None:
            self._spool = self._scratch.spool()
        self._held -= len(rope.tail)
        rope.spill(self._spool)


def _small(kind: MessageType, items: list[Item]) -> tuple[str, bytes] | None:
    """Return type and bytes of a message of a few bytes; None for any other."""
    if len(items) != 1:
        return None
    item = items[0]
    if not isinstance(item, tuple) or item[2] - item[1] > _FEW:
        return None
    return kind.full_name, item[0][item[1] : item[2]]


# -- the parts of a message --------------------------------------------------------------------------------------------


class _CanonicalParts:
    """The parts found in a message, by field number."""

    __slots__ = ("cases", "counts", "maps", "out", "singles", "unknown")

    def __init__(self) -> None:
        self.out: dict[int, Rope] = {}  # finished: scalars and lists (packed ones without their key and size)
        self.singles: dict[int, list[Item]] = {}  # singular messages, to be merged
        self.maps: dict[int, dict[Key, tuple[bytes, Rope | list[Item]]]] = {}
        self.cases: dict[str, int] = {}  # the member of each oneof
        self.counts: dict[int, int] = {}  # number of elements, for fields with addressed parts
        self.unknown = Rope()

    def choose(self, field: _CanonicalField) -> None:
        """Record that a field is set, and so no other member of its oneof."""
        if field.oneof is not None:
            before = self.cases.get(field.oneof)
            if before != field.number:
                self.cases[field.oneof] = field.number
                if before is not None:
                    self.out.pop(before, None)
                    self.singles.pop(before, None)


def _add_message(rope: Rope, key: bytes, body: Rope) -> None:
    rope.add(key + encode_varint(body.size))
    rope.add_rope(body)


def _extra(items: list[Item]) -> dict[tuple[int, int | None], list[Item]]:
    """Return the addressed parts by field number and index."""
    found: dict[tuple[int, int | None], list[Item]] = {}
    for item in items:
        if isinstance(item, Addressed):
            found.setdefault(item.steps[0], []).append(item.rest())
    return found


def _element(
    parts: _CanonicalParts,
    field: _CanonicalField,
    value: Content | Addressed,
    extra: dict[tuple[int, int | None], list[Item]],
) -> list[Item] | None:
    """Return the items of the element that a value begins; None if the value adds to an element begun before."""
    if not extra:
        return [value]
    count = parts.counts.get(field.number, 0)
    if isinstance(value, Addressed):
        index = check_index(value, repeated=True, count=count)
        if index < count:
            return None
        own: list[Item] = []
    else:
        index, own = count, [value]
    parts.counts[field.number] = count + 1
    return own + extra.get((field.number, index), [])


def _add_unknown(unknown: Rope, number: int, wire: int, value: int | bytes | Content | Addressed) -> None:
    if isinstance(value, Addressed):
        raise MalformedError(f"a chunk belongs to field {number}, which its message does not have")
    unknown.add(encode_varint(number << 3 | wire))
    _add_value(unknown, "64", value)


def _add_scalar(parts: _CanonicalParts, field: _CanonicalField, wire: int, value: Any) -> None:
    number, out = field.number, parts.out
    if not field.repeated:
        parts.choose(field)
        if field.drops_zero and _is_zero(field, value):
            out.pop(number, None)
            return
        rope = out[number] = Rope()
        rope.add(field.key)
        _add_value(rope, field.kind, value)
        return
    rope = out.get(number) or out.setdefault(number, Rope())
    if wire != field.wire:
        _add_packed(rope, field, value)
        return
    if not field.packed_key:
        rope.add(field.key)
    _add_value(rope, field.kind, value)


def _is_zero(field: _CanonicalField, value: int | bytes | Content) -> bool:
    if isinstance(value, int):
        return not (value if field.kind in ("64", "bool") else value & _MASK32)
    return not any(value) if isinstance(value, bytes) else not size_of(value)


def _add_value(rope: Rope, kind: str, value: int | bytes | Content) -> None:
    """Add a value without its key; ``kind`` is that of a varint."""
    if isinstance(value, int):
        rope.add(_varint_of(kind, value))
    elif isinstance(value, bytes):
        rope.add(value)
    else:
        rope.add(encode_varint(size_of(value)))
        rope.add_content(value)


def _add_entry(parts: _CanonicalParts, field: _CanonicalField, value: Content | Addressed) -> None:
    """Add an entry of a map; it replaces an earlier entry with an equal key."""
    if isinstance(value, Addressed):
        raise no_key(value)
    key_type, value_type = field.entry
    key, found = _zero(key_type), _zero(value_type)
    messages: list[Item] = []
    for number, wire, inner in fields(value):
        if number == 1 and wire == key_type.wire:
            key = inner
        elif number == 2 and wire == value_type.wire:
            found = inner
            messages.append(inner)
    packed = Rope()
    packed.add(key_type.key)
    _add_value(packed, key_type.kind, key)
    rest: Rope | list[Item] = messages
    if value_type.message is None:
        rest = Rope()
        rest.add(value_type.key)
        _add_value(rest, value_type.kind, found)
    entries = parts.maps.setdefault(field.number, {})
    entries[_sort_key(key_type, key)] = (packed.tobytes(), rest)


def _zero(field: _CanonicalField) -> int | bytes | Content:
    return 0 if field.wire == VARINT else bytes(8 if field.wire == FIXED64 else 4) if field.wire != LEN else span(b"")


def _sort_key(field: _CanonicalField, key: int | bytes | Content) -> Key:
    """Return the sort key that C++ uses: the bytes of a string, the number of anything else."""
    if isinstance(key, bytes):
        return int.from_bytes(key, "little", signed=field.type in (schema.TYPE_SFIXED32, schema.TYPE_SFIXED64))
    if not isinstance(key, int):
        return load(key, "a key of a map")
    key, _ = read_varint(_varint_of(field.kind, key), 0, 10)
    if field.type in (schema.TYPE_SINT32, schema.TYPE_SINT64):
        return key >> 1 ^ -(key & 1)
    return key - (1 << 64) if field.type in (schema.TYPE_INT32, schema.TYPE_INT64) and key >> 63 else key


def _add_packed(rope: Rope, field: _CanonicalField, value: Content) -> None:
    """Add a packed list."""
    size = {FIXED32: 4, FIXED64: 8}.get(field.wire, 1)
    if size_of(value) % size:
        raise MalformedError(f"the list in field {field.number} ends within a value", wanted=size, got=size_of(value))
    if not field.packed_key:
        raise UnsupportedError(f"field {field.number} is packed, but declared as not packed")
    # Large lists are scanned twice, but not held if they are canonical already.
    if field.wire != VARINT or not any(changed for _, changed in _varints(field, value)):
        rope.add_content(value)
        return
    for piece, _ in _varints(field, value):
        rope.add(piece)


def _varints(field: _CanonicalField, value: Content) -> Iterator[tuple[bytes, bool]]:
    """Yield a packed list of varints in canonical form, run by run, and whether each run was changed."""
    pattern, left, rest = _CANONICAL[field.kind], size_of(value), b""
    for block in blocks_of(value):
        left -= len(block)
        data, pos = rest + block, 0
        while True:
            match = pattern.match(data, pos)
            end = match.end() if match else pos
            if end > pos:
                yield data[pos:end], False
            if left and len(data) - end < MAX_BYTES_64:  # it may continue in the next block
                break
            if end == len(data):
                return
            number, pos = read_varint(data, end, len(data), what="a value of a list")
            yield _varint_of(field.kind, number), True
        rest = data[end:]
