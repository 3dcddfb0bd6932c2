"""FlatBuffers with a schema: the fields of tables and structs, elements of vectors, as children.

Nothing here stands one behind the other, so there are no states: where a table is, and where its fields are, tells what
there is (`FlatBuffersParser.fill`). An entry is made from a reference and from the head of what it leads to
(`pparse.parsers.flatbuffers.reader`):

    what               kind of its node        its bytes              children
    table, struct      name of its type        of the table itself    fields that it has, by name
    vector of numbers  array                   elements               numbers, by arithmetic
    vector of bytes    bytes                   elements               none; of a nested FlatBuffer, as of its root
    FlexBuffer         map or [value]          all of it              `pparse.parsers.flatbuffers.flex`
    other vector       [kind]                  offsets, or structs    elements, described when they are asked for
    text               text                    without the zero
    number             uint32, enum<Name> …    where it stands

A field that a table does not have means its default, and is no child. What lies behind the end of the data is MISSING
or TRUNCATED: where a FlatBuffer ends is written nowhere. Whether all of it is there, and leads where it should, is
known once `pparse.parsers.flatbuffers.survey` went through it: the status of the root waits for that.
"""

from __future__ import annotations

from functools import cached_property
from struct import unpack

from pparse.data.base import Access
from pparse.data.range_status import cut_status
from pparse.errors import DataError, EndOfDataError, LimitError, MalformedError
from pparse.findings import COMPLETE, Finding, Status
from pparse.limits import KIB, MIB, MemoryBudget, count_words
from pparse.parsers.flatbuffers.flex import FlexVector, held
from pparse.parsers.flatbuffers.reader import Reader
from pparse.parsers.flatbuffers.schema import ARRAY, SCALAR, STRUCT, TABLE, TEXT, UNION, VECTOR, Schema, Type, no_member
from pparse.tree.context import SHORT_TEXT, NumberArray, decode_text
from pparse.tree.entry import LIST, MAP, Entry
from pparse.tree.entry import SCALAR as LEAF
from pparse.tree.parser import Confidence, Listing, Parser, Signature

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, ClassVar

    from pparse.data.base import Range
    from pparse.parsers.flatbuffers.survey import Survey
    from pparse.tree.entry import Key
    from pparse.tree.index import ChildIndex
    from pparse.tree.node import Node
    from pparse.tree.parser import Excerpt
    from pparse.tree.result import Result
    from pparse.tree.visit import Visit

# Elements are counted before any is read; of so many references, one block is read at a time.
_BLOCK = 1024
# So many values that lead nowhere are told: lists over damage, as long as noise says, have some for each four bytes.
_MOST_BROKEN = 4096
_ALIGNED = 4
# Where an identifier stands behind a size.
_PREFIXED = 8
# To tell what a FlatBuffer is: the fewest bytes of a file, and how much of a stream is decoded.
_FEWEST, _HEAD = 32, 64 * KIB


class Members:
    """The note of a vector of unions: their type, and where the numbers of the elements' types are."""

    __slots__ = ("numbers", "type")

    def __init__(self, type: Type, numbers: int) -> None:
        self.type = type
        """The union."""
        self.numbers = numbers
        """Offset of the first number, a byte each."""


class FlatBuffersParser(Parser, Listing):
    """Base of the formats that are FlatBuffers; each names its schema."""

    schema_name: ClassVar[str] = ""
    """The file in ``schemas`` that has its schema."""
    beyond: ClassVar[dict[str, tuple[str, str]]] = {}
    """Names of tables that say where bytes behind the FlatBuffer are, and of the fields with their offset and their
    number (``uint64``)."""
    beyond_from: ClassVar[int] = 0
    """The least such offset that counts."""
    padded: ClassVar[int] = 16
    """Up to so many zeros end a file, at a multiple of 4 bytes."""
    empty_is_nothing = True
    root_shape = MAP
    root_at = "back"  # vtables that tables share may lie anywhere: a cut can take that of the root
    notes_findings = False

    def __init__(self, result: Result) -> None:
        super().__init__(result)
        extraction = result.extraction
        self.reader = Reader(extraction.data, self.buffer_start, extraction.end, extraction.session.budget)
        """Reads tables."""
        self._left = 0  # values that `to_python` may still take
        self._surveyed: tuple[object, Survey | LimitError] | None = None

    # -- what formats say ----------------------------------------------------------------------------------------------

    @cached_property
    def schema(self) -> Schema:
        """The types of the format."""
        return Schema.named(self.schema_name)

    @cached_property
    def buffer_start(self) -> int:
        """Where the FlatBuffer begins: behind its size, if the identifier stands where it then does."""
        extraction = self.result.extraction
        marks = {mark.magic for mark in self.signatures if mark.at == _PREFIXED - 4}
        head = extraction.data.known(extraction.start, _PREFIXED + 4) if marks else b""
        return extraction.start + 4 * (head[_PREFIXED:] in marks and head[4:_PREFIXED] not in marks)

    @property
    def mark(self) -> tuple[int, bytes]:
        """Where the bytes stand that tell the format, and these; none of a format without an identifier."""
        return self.buffer_start + 4, self.schema.identifier.encode()

    def parts_beyond(self) -> Iterator[tuple[int, int]]:
        """Yield begin and end of parts behind the FlatBuffer that no field tells (`beyond`). Raises `DataError`."""
        yield from ()

    @property
    def beyond_start(self) -> int:
        """Where such offsets count from."""
        return self.result.extraction.start

    def own_end(self, survey: Survey) -> int:
        """Return where the file should end, by what its tables say: behind the last part, and zeros that pad it."""
        extraction = self.result.extraction
        there = extraction.find_end()
        tail = there - survey.end
        if 0 < tail < self.padded and not (there - extraction.start) % _ALIGNED:
            padding = extraction.data.known(survey.end, tail)
            return survey.end if any(padding) or len(padding) < tail else there
        return survey.end

    @classmethod
    def match(cls, excerpt: Excerpt) -> Confidence:
        """CERTAIN by the identifier at byte 4, or 8 behind a size, and a root that lies in the file."""
        for mark in cls.signatures:
            begin = mark.at - 4
            if excerpt.head(mark.at + 4)[mark.at :] == mark.magic and plausible_root(excerpt, begin):
                return Confidence.CERTAIN
        return Confidence.NO

    @classmethod
    def search(cls, reader: Range, poll: Callable[[], object]) -> int | None:
        """Return None: a FlatBuffer further in has nothing to be found by."""

    # -- nodes ---------------------------------------------------------------------------------------------------------

    def root_entry(self) -> Entry:
        """Describe the root: the fields of the root table."""
        extraction = self.result.extraction
        return Entry(None, self.name, extraction.start, extraction.end, status=None, note=self.schema.root_type)

    def shape(self, kind: str) -> str:
        """Return the shape of nodes of ``kind``."""
        if kind in (self.name, "map") or self.schema.is_map(kind):
            return MAP
        return LIST if kind[:1] == "[" or kind == "array" else LEAF

    def fill(self, node: Node, index: ChildIndex) -> bool:
        """Index the children of a table, a struct or a vector."""
        note = node.note
        if type(note) is NumberArray:
            super().fill(node, index)
        elif type(note) is FlexVector:
            note.index(index)
        elif type(note) is Type and note.what in (TABLE, VECTOR) and (note.what == TABLE or note.holds):
            self._fill_table(node, index, note)
        elif type(note) is Type and note.what == STRUCT:
            for field in note.fields:
                index.add_entry(self.describe(field.name, field.type, node.start + field.place))
        else:
            width = _width(note)
            end = node.start if node.end is None else node.end
            index.keep(note, self.reader.there(node.start, end) // width)
        return True

    def _fill_table(self, node: Node, index: ChildIndex, type: Type) -> None:
        """Add the fields of a table: of the root, of one that bytes hold, or of any other."""
        at = node.start
        try:
            if node.parent is None:
                at = self.reader.target(self.buffer_start)
            elif type.holds:
                at, type = self.reader.target(node.start), self.schema.type(type.holds)
            for entry in self.fields(at, type):
                index.add_entry(entry)
        except DataError as error:
            if node.known_status in (None, COMPLETE):
                self.result.close_node(
                    node, Status.after(error), Finding.after(error, path=node.path, source=self.result.extraction.name)
                )

    def fields(self, at: int, type: Type) -> Iterator[Entry]:
        """Yield an entry for each field that the table at ``at`` has, by slot, as far as it is there."""
        _, slots, _ = self.reader.table(at)
        number = types = 0  # of a union before it; or where those of a vector begin, and how many there are
        for field, slot in zip(type.fields, slots, strict=False):
            if not slot:
                number = types = 0
                continue
            place = at + slot
            if self.reader.there(place, place + field.type.size) < field.type.size:
                continue  # the table is cut before it
            of = field.type
            if of.what == UNION:
                yield self._of_union(field.name, of, number, place)
                continue
            found = self.describe(field.name, of, place)
            if of.what == SCALAR and of.size == 1 and of.names:
                number = self.reader.take(place, 1)[0]
            elif found.note is of and of.what == VECTOR and of.item is not None and of.item.what == UNION:
                found.note = Members(of.item, number)
                if types < (count := ((found.end or 0) - found.start) // 4):
                    error = MalformedError(f"{types:,} types for {count:,} values of {of.item.name}", offset=place)
                    found = self._broken(field.name, of.name, place, error)
            else:
                number, types = found.start, (found.end or found.start) - found.start
            yield found

    def entries(self, node: Node, index: ChildIndex, first: int, count: int) -> list[Entry]:
        """Return the entries of elements, described by what their references lead to."""
        note = index.note
        if type(note) is FlexVector:
            return note.entries(first, count)
        if type(note) is NumberArray or index.entries is not None:
            return super().entries(node, index, first, count)
        count = min(count, index.count - first, _BLOCK)
        width = _width(note)
        places = range(node.start + first * width, node.start + (first + count) * width, width)
        if type(note) is not Members:
            return [self.describe(None, note.item, at) for at in places]
        numbers = self.reader.take(note.numbers + first, count)
        return [self._of_union(None, note.type, number, at) for number, at in zip(numbers, places, strict=True)]

    def _of_union(self, key: Key, union: Type, number: int, at: int) -> Entry:
        """Return the entry of a union's value of type ``number``: the offset at ``at`` leads to a struct, too."""
        type = self.schema.member(union, number)
        if type is None:
            return self._broken(key, union.name, at, no_member(union, number, at))
        if type.what == STRUCT:
            try:
                at = self.reader.target(at)
            except DataError as error:
                return self._broken(key, type.name, at, error)
        return self.describe(key, type, at)

    def describe(self, key: Key, type: Type, at: int) -> Entry:
        """Return the entry of a value of a type, of which the inline part is at ``at``."""
        what = type.what
        try:
            if what == SCALAR:
                (value,) = unpack("<" + type.code, self.reader.take(at, type.size))
                return Entry(key, type.name, at, at + type.size, type.names.get(value, value) if type.names else value)
            if what == STRUCT:
                return self._entry(key, type.name, at, at + type.size, type)
            if what == ARRAY and type.item is not None:
                note = NumberArray("<" + type.item.code, type.length) if type.item.what == SCALAR else type
                return self._entry(key, "array" if note is not type else type.name, at, at + type.size, note)
            target = self.reader.target(at, type.wide)
            if what == TABLE:
                size, _, _ = self.reader.table(target)
                return self._entry(key, type.name, target, target + size, type)
            if what == TEXT:
                return self._text(key, *self.reader.vector(target, 1, type.wide))
            return self._vector(key, type, target)
        except DataError as error:
            return self._broken(key, _kind(type), at, error)

    def _text(self, key: Key, start: int, count: int) -> Entry:
        entry = self._entry(key, "text", start, start + count, None)
        if count <= SHORT_TEXT and entry.status is COMPLETE:
            try:
                entry.value = decode_text(self.reader.take(start, count), start)
            except MalformedError as error:
                entry.status, entry.finding = Status.DAMAGED, Finding("malformed", error.reason, offset=error.offset)
        return entry

    def _vector(self, key: Key, type: Type, target: int) -> Entry:
        item = type.item
        if item is None:
            raise MalformedError(f"{type.name} is no vector", offset=target)
        start, count = self.reader.vector(target, item.size, type.wide)
        end = start + count * item.size
        if type.holds == "flexbuffer" and count and self.reader.there(start, end) == count:
            found = held(self.reader, start, end, self.result.extraction.name)
            if found is not None:
                return self._entry(key, found.kind, start, end, found.note)
        elif type.holds and count:
            return self._entry(key, type.holds, start, end, type)
        if item.name == "uint8":
            return self._entry(key, "bytes", start, end, None)
        if item.what == SCALAR and not item.names:
            return self._entry(key, "array", start, end, NumberArray("<" + item.code, count))
        return self._entry(key, type.name, start, end, type)

    def _entry(self, key: Key, kind: str, start: int, end: int, note: object) -> Entry:
        """Return an entry whose status is that of its bytes, as far as they are there."""
        there = self.reader.there(start, end)
        if there == end - start:
            return Entry(key, kind, start, end, note=note)
        reason = f"{there:,} of its {count_words(end - start, 'byte')} are there"
        finding = Finding("truncated", reason, offset=start, wanted=end - start, got=there)
        return Entry(key, kind, start, end, status=cut_status(there), finding=finding, note=note)

    def _broken(self, key: Key, kind: str, at: int, error: DataError) -> Entry:
        status = Status.MISSING if isinstance(error, EndOfDataError) else Status.after(error)
        note = None if self.shape(kind) == LEAF else _EMPTY
        return Entry(
            key,
            kind,
            at,
            at,
            status=status,
            finding=Finding.after(error, source=self.result.extraction.name),
            note=note,
        )

    def load_scalar(self, node: Node) -> Any:
        """Return the value of a text, or the bytes of a vector; that of a number was read with its table."""
        found = super().load_scalar(node)
        if node.kind.rstrip("?") != "text" or type(found) is not bytes:
            return found
        try:
            return decode_text(found, node.start)
        except MalformedError as error:  # of a long one, only loading tells
            self.note_damage(node, error)
            raise

    # -- all of it -----------------------------------------------------------------------------------------------------

    @property
    def survey(self) -> Survey:
        """What one pass over all tables found; made again once more is known of the data. Raises `LimitError`."""
        data = self.result.extraction.data
        stamp = (data.revision, data.reach)
        if self._surveyed is None or self._surveyed[0] != stamp:
            made: Survey | LimitError
            try:
                made = self._look()
            except LimitError as error:
                made = error
            self._surveyed = stamp, made
        found = self._surveyed[1]
        if isinstance(found, LimitError):
            raise found
        return found

    def _look(self) -> Survey:
        from pparse.parsers.flatbuffers.survey import Survey

        return Survey(self)

    def resolve(self, node: Node) -> None:
        """Find out the status of the root, by going through all tables; that of others is known from the first on."""
        try:
            survey = self.survey
        except LimitError as error:
            self.result.note_limit(node, error)
            return
        self.result.close_node(node, survey.status, survey.finding)

    def is_sound_inside(self, node: Node) -> bool | None:
        """Say that all is right below the root, if the survey found nothing."""
        if node.parent is None and not self.result.extraction.data.flawed:
            return node.status is COMPLETE
        return super().is_sound_inside(node)

    def _most(self) -> int:
        """Return how many values a file can have of which no two tables share a part."""
        extraction = self.result.extraction
        return max(10_000, extraction.find_end() - extraction.start)

    def walk(self, node: Node, *, detail: bool = True) -> Iterator[Visit]:
        """Yield the nodes: few that lead nowhere, and no more than a file has of which no two tables share a part."""
        most, broken = self._most(), 0
        for number, visit in enumerate(super().walk(node, detail=detail)):
            broken += visit.finding is not None
            if number > most or broken > _MOST_BROKEN:
                lead = f"more than {_MOST_BROKEN:,} values lead nowhere: those behind them are not looked at"
                self.note("limit", _shared(most) if number > most else lead, self.result.extraction.start)
                return
            yield visit

    def to_python(self, node: Node) -> Any:
        """Return a node and everything below it as plain Python. Raises `LimitError` for more values than bytes."""
        self._left = self._most()
        return super().to_python(node)

    def plain_value(self, node: Node) -> Any:
        """Return a scalar's value, of as many as a file can have in which no two tables share a part."""
        self._left -= 1
        if self._left < 0:
            raise LimitError(_shared(self._most()), option="", path=node.path, offset=node.start)
        return super().plain_value(node)

    def details(self) -> Iterator[tuple[str, str]]:
        """Yield the lines of `pparse info`."""
        yield "identifier", self.schema.identifier or "none"
        yield "tables", f"{self.survey.tables:,}"

    def missing(self) -> int | None:
        """Return how many bytes a cut file lacks at least; None if offsets are wrong, which say nothing of its end."""
        survey, there = self.survey, self.result.extraction.find_end()
        return survey.end - there if survey.end > there and survey.torn is None else None


_EMPTY = Type(STRUCT, "")


def _shared(most: int) -> str:
    """Return why no more values than so many are gone through."""
    return f"more than {count_words(most, 'value')} in {count_words(most, 'byte')}: tables share their parts"


def _width(note: object) -> int:
    """Return the bytes of an element in its vector."""
    if type(note) is Members:
        return 4
    return note.item.size if type(note) is Type and note.item is not None else 4


def _kind(type: Type) -> str:
    """Return the kind of the node of a type before anything of it was read."""
    item = type.item
    if type.what != VECTOR or item is None:
        return type.name
    if item.name == "uint8":
        return "bytes"
    return "array" if item.what == SCALAR and not item.names else type.name


def plausible_root(excerpt: Excerpt, at: int = 0) -> bool:
    """Say whether the number at the beginning can be the offset of a root table."""
    head = excerpt.head(at + 8)[at:]
    if len(head) < 4:
        return False
    offset = int.from_bytes(head[:4], "little")
    return offset >= 4 and not offset & 3 and (excerpt.size is None or offset < max(excerpt.size, 1 << 10))


def size_before(head: bytes, size: int | None) -> int:
    """Return how many bytes are before a FlatBuffer that begins with ``head``: those of its size, if a root follows."""
    first, root = unpack("<II", head) if len(head) == 8 else (0, 0)
    return 4 if size is not None and first == size - 4 and 4 <= root < first and not root % 4 else 0


def look_ahead(reader: Range) -> Reader:
    """Return what reads a FlatBuffer of which it is to be told what it is; of a stream, that decodes its beginning."""
    data, start = reader.data, reader.start
    size = data.size if data.access is Access.FREE else None
    end = min(reader.end, start + _HEAD if size is None else size)
    if end - start < _FEWEST:
        raise EndOfDataError("too few bytes to tell a FlatBuffer", offset=start)
    start += size_before(data.known(start, 8), None if size is None else end - start)
    return Reader(data, start, end, MemoryBudget(MIB))


def identified(identifier: bytes) -> tuple[Signature, ...]:
    """Return the signatures of a format by its identifier, with and without a size before the FlatBuffer."""
    return Signature(identifier, 4), Signature(identifier, _PREFIXED)
