"""A table by the names of its fields, for viewers: numbers, texts and vectors at once, without nodes."""

from __future__ import annotations

from collections import namedtuple
from struct import Struct, unpack_from

from pparse.errors import EndOfDataError, MalformedError
from pparse.parsers.flatbuffers.schema import SCALAR, SCALARS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, Final

    from pparse.parsers.flatbuffers.parser import FlatBuffersParser
    from pparse.parsers.flatbuffers.reader import Reader
    from pparse.parsers.flatbuffers.schema import Field, Schema, Type

_UNPACK: Final = {code: Struct("<" + code).unpack_from for code in SCALARS.values()}
# The most bytes of a text, and numbers of a vector, that are read: names and shapes are far shorter.
_LONGEST: Final = 64 << 10


class SharedError(MalformedError):
    """Vectors share their elements, which nobody writes: what they say may be far more than the file."""


class Tally:
    """Counts references of vectors that lie in tables of another vector, which hostile files make share them."""

    def __init__(self, parser: FlatBuffersParser) -> None:
        extraction = parser.result.extraction
        self._most = self._left = (extraction.find_end() - extraction.start) // 4

    def of(self, references: range) -> range:
        """Return ``references``. Raises `SharedError` once there are more than the file has room for."""
        self._left -= len(references)
        if self._left < 0:
            raise SharedError(f"more than {self._most:,} references: vectors share them", offset=references.start)
        return references


class Source(namedtuple("Source", "reader schema")):
    """What tables are read from, of a file that is no document yet."""

    __slots__ = ()
    reader: Reader
    schema: Schema


class Table:
    """The table of a type at an offset. Raises `DataError` where it, or what it leads to, cannot be read."""

    __slots__ = ("_parser", "_raw", "_slots", "at", "end", "type")

    def __init__(self, parser: FlatBuffersParser | Source, type: Type, at: int) -> None:
        self._parser = parser
        self.type = type
        """Its type."""
        self.at = at
        """Where it is."""
        reader = parser.reader
        size, self._slots, _ = reader.table(at)
        self._raw = reader.take(at, reader.there(at, at + size))
        self.end = at + size
        """Where it ends, apart from what it leads to."""

    @staticmethod
    def root(parser: FlatBuffersParser | Source) -> Table:
        """Return the root of a file."""
        return Table(parser, parser.schema.root_type, parser.reader.target(parser.reader.start))

    def _place(self, name: str) -> tuple[Field, int]:
        """Return a field, and where it stands; 0: the table does not have it."""
        field = self.type.field(name)
        slot = self._slots[field.place] if field.place < len(self._slots) else 0
        return field, self.at + slot if slot else 0

    def has(self, name: str) -> bool:
        """Say whether the table has a field, and not its default."""
        return self._place(name)[1] > 0

    def number(self, name: str) -> Any:
        """Return a number: that of an enum, not its name."""
        field, at = self._place(name)
        if not at:
            return field.default
        place, unpack = at - self.at, _UNPACK[field.type.code]
        if place + field.type.size > len(self._raw):
            raise EndOfDataError("the table is cut before it", offset=at, wanted=field.type.size, got=0)
        return unpack(self._raw, place)[0]

    def word(self, name: str) -> str:
        """Return the name of the value of an enum, or its number."""
        field, _ = self._place(name)
        value = self.number(name)
        return field.type.names.get(value, str(value))

    def text(self, name: str) -> str:
        """Return a text, empty if there is none; what is not UTF-8 in it is escaped."""
        field, at = self._place(name)
        return self.text_at(at, field.type.wide) if at else ""

    def text_at(self, at: int, wide: int = 0) -> str:
        """Return the text to which the offset at a place leads."""
        reader = self._parser.reader
        start, count = reader.vector(reader.target(at, wide), 1, wide)
        if count > _LONGEST:
            raise MalformedError(f"a name of {count:,} bytes", offset=start)
        return reader.take(start, count).decode("utf-8", "backslashreplace")

    def place(self, name: str) -> tuple[int, int]:
        """Return where the elements of a vector begin, and their number; ``(0, 0)`` if there is none."""
        field, at = self._place(name)
        if not at or field.type.item is None:
            return 0, 0
        reader, wide = self._parser.reader, field.type.wide
        return reader.vector(reader.target(at, wide), field.type.item.size, wide)

    def numbers(self, name: str) -> tuple[Any, ...]:
        """Return the numbers of a vector."""
        field, _ = self._place(name)
        start, count = self.place(name)
        item = field.type.item
        if not count or item is None or item.what != SCALAR:
            return ()
        if count > _LONGEST:
            raise MalformedError(f"a list of {count:,} numbers", offset=start)
        return unpack_from(f"<{count}{item.code}", self._parser.reader.take(start, count * item.size))

    def texts(self, name: str) -> Iterator[str]:
        """Yield the texts of a vector."""
        start, count = self.place(name)
        return (self.text_at(start + 4 * number) for number in range(self._there(start, count)))

    def _there(self, start: int, count: int) -> int:
        return self._parser.reader.there(start, start + 4 * count) // 4

    def table(self, name: str, *further: str) -> Table | None:
        """Return the table that a field leads to, or fields one after the other; of a union, one of the type that its
        number says. None: there is none."""
        field, at = self._place(name)
        if not at:
            return None
        of: Type | None = field.type
        if of is not None and of.names:  # a union
            of = self._parser.schema.member(of, self.number(f"{name}_type"))
        found = None if of is None else Table(self._parser, of, self._parser.reader.target(at))
        return found if found is None or not further else found.table(*further)

    def references(self, name: str) -> range:
        """Return where the references to the tables of a vector stand, as far as they are there."""
        start, count = self.place(name)
        return range(start, start + 4 * self._there(start, count), 4)

    def element(self, name: str, reference: int) -> Table:
        """Return the table of a vector to which a reference leads."""
        item = self._place(name)[0].type.item
        if item is None:
            raise KeyError(f"{self.type.name}.{name} is no vector")
        return Table(self._parser, item, self._parser.reader.target(reference))

    def tables(self, name: str) -> Iterator[Table]:
        """Yield the tables of a vector, as far as the references to them are there."""
        return (self.element(name, reference) for reference in self.references(name))
