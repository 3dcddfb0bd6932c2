"""One pass over all tables of a FlatBuffer, without nodes: how far it reaches, and which offsets lead nowhere.

What runtimes do before they use a file (``flatbuffers::Verifier``), but it goes on behind what is wrong. Each table is
looked at once for each type under which something leads to it, and each vector of references, all of them together no
longer than the file: so the time is linear whatever the offsets say.

Where bytes were taken out or came in, all offsets that lead over that place are wrong, and no others: `Survey.torn` is
what lies between the ends of all those that are.
"""

from __future__ import annotations

from struct import Struct, unpack_from

from pparse.errors import DataError, EndOfDataError, MalformedError
from pparse.findings import COMPLETE, Finding, Status, worst_status
from pparse.parsers.flatbuffers.schema import ARRAY, SCALAR, STRUCT, TABLE, TEXT, UNION, VECTOR, no_member
from pparse.parsers.flatbuffers.table import Tally
from pparse.tree.context import SHORT_TEXT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

    from pparse.parsers.flatbuffers.parser import FlatBuffersParser
    from pparse.parsers.flatbuffers.schema import Type

# References that are read at once, and what a table takes that was seen.
_BLOCK: Final = 4096
_EACH: Final = 120
# The most bytes of a text that is looked at.
_LONGEST: Final = 64 << 10
# The least offset: what it leads to is not inside of it.
_LEAST: Final = 4
_UINT32: Final = Struct("<I").unpack_from
_UINT64: Final = Struct("<Q").unpack_from


class Survey:
    """What the tables of a file, and all that they lead to, say together."""

    def __init__(self, parser: FlatBuffersParser) -> None:
        self.end = parser.buffer_start
        """Where the last of all parts ends, or should."""
        self.tables = 0
        """How many tables there are."""
        self.torn: tuple[int, int] | None = None
        """Where bytes may have come in or gone, if some did: only what touches this can be wrong and look whole."""
        self.status = COMPLETE
        """COMPLETE if everything is there; UNSUPPORTED: some is of newer types; TRUNCATED: the end is not; DAMAGED."""
        self.finding: Finding | None = None
        """What is wrong first."""
        self._parser = parser
        self._reader = parser.reader
        extraction = parser.result.extraction
        self._there = extraction.find_end()
        self._spare = self._there - extraction.start  # of long texts, which may overlap, no more is read
        self._seen: set[tuple[int, str]] = set()
        self._tally = Tally(parser)
        self._vtables: set[int] = set()
        self._todo: list[tuple[Type, int, int]] = []  # type, place, and where the reference to it stands
        self._plans: dict[tuple[str, tuple[int, ...]], list[tuple[int, Type, int]]] = {}
        with extraction.session.budget.charge(0, "the tables that were looked at") as charge:
            self._run(charge)
        self._seen, self._vtables, self._plans = set(), set(), {}

    def _run(self, charge: Any) -> None:
        parser, reader = self._parser, self._reader
        start = parser.buffer_start
        poll = parser.result.extraction.session.check_cancelled
        at, mark = parser.mark
        found = reader.data.known(at, len(mark))
        if len(found) == len(mark) and found != mark:
            reason = f"it is marked {bytes(found)!r}, not {mark!r}: runtimes refuse it"
            self._note(MalformedError(reason, offset=at))
        try:
            self._todo.append((parser.schema.root_type, reader.target(start), start))
        except DataError as error:
            self._break(start, start, error)
        counted = 0
        while self._todo:
            type, at, ref = self._todo.pop()
            if (at, type.name) in self._seen:
                continue
            self._seen.add((at, type.name))
            if len(self._seen) > counted + 0x3FF:
                counted = len(self._seen)
                charge.resize(_EACH * counted)
                poll()
            try:
                self._table(type, at)
            except DataError as error:
                self._break(ref, at, error, reader.vtable_of(at))
        if self.status is COMPLETE:
            try:
                for begin, end in parser.parts_beyond():
                    self._reach(begin, end)
            except DataError as error:  # it has what no table has, such as a name above 64 KiB
                self._note(error)

    def _table(self, type: Type, at: int) -> None:
        reader = self._reader
        size, slots, vtable = reader.table(at)
        end = at + size
        if end > self.end or end > self._there:
            self._reach(at, end)
        if vtable not in self._vtables:
            self._vtables.add(vtable)
            self._reach(vtable, vtable + 4 + 2 * len(slots))
        raw = reader.take(at, size)
        self.tables += 1
        plan = self._plans.get((type.name, slots))
        if plan is None:
            plan = self._plans[type.name, slots] = self._plan(type, size, slots)
        for place, of, number in plan:
            what = of.what
            if what == UNION or (what == VECTOR and of.item is not None and of.item.what == UNION):
                self._union(of, at, place, number, raw)
            elif what == SCALAR:  # bytes behind the FlatBuffer, from the offset here on
                self._look_beyond(raw, place, number)
            elif what == TABLE and not of.wide:
                (offset,) = _UINT32(raw, place)
                if offset < _LEAST:
                    self._break(at + place, at + place, reader.leads_nowhere(at + place, offset))
                else:
                    self._todo.append((of, at + place + offset, at + place))
            else:
                self._follow(of, at + place)

    def _look_beyond(self, raw: bytes, place: int, number: int) -> None:
        begin, length = (_UINT64(raw, at)[0] if at else 0 for at in (place, number))
        if begin >= self._parser.beyond_from and length:
            begin += self._parser.beyond_start
            self._reach(begin, begin + length)

    def _plan(self, type: Type, size: int, slots: tuple[int, ...]) -> list[tuple[int, Type, int]]:
        """Return place and type of the fields that lead elsewhere; of unions, where in the table their number is."""
        found, before = [], 0
        beyond = self._parser.beyond.get(type.name, ("", ""))
        places = {}
        for field, slot in zip(type.fields, slots, strict=False):
            of = field.type
            if slot and slot + of.size > size:
                raise MalformedError(f"the field {field.name} leaves its table", offset=None)
            if slot and of.what in (TABLE, TEXT, VECTOR, UNION):
                found.append((slot, of, before))
            before = places[field.name] = slot
        if places.get(beyond[1]):
            found.append((places[beyond[0]], type.field(beyond[0]).type, places[beyond[1]]))
        return found

    def _union(self, of: Type, at: int, place: int, number: int, raw: bytes) -> None:
        union: Any = of if of.what == UNION else of.item
        if of is union:
            self._member(union, raw[number] if number else 0, at + place)
            return
        reader = self._reader
        numbers, types = reader.vector(reader.target(at + number), 1) if number else (0, 0)
        start, count = reader.vector(reader.target(at + place), 4)
        if types < count:
            error = MalformedError(f"{types:,} types for {count:,} values of {union.name}", offset=at + place)
            self._break(at + place, at + place, error)
            return
        for each in range(min(count, reader.there(start, start + 4 * count) // 4)):
            self._member(union, reader.take(numbers + each, 1)[0], start + 4 * each)
        self._reach(start, start + 4 * count)

    def _member(self, union: Type, number: int, ref: int) -> None:
        """Look at a value of a union, of type ``number``."""
        member = self._parser.schema.member(union, number)
        if member is not None:
            self._follow(member, ref)
        elif number:
            self._note(no_member(union, number, ref))
        else:
            self._break(ref, ref, no_member(union, number, ref))

    def _follow(self, of: Type, ref: int) -> None:
        """Look at what the reference at ``ref`` leads to; tables come later."""
        reader, target = self._reader, ref
        try:
            if of.what in (SCALAR, STRUCT, ARRAY):
                return
            target = reader.target(ref, of.wide)
            if of.what == TABLE:
                self._todo.append((of, target, ref))
                return
            item = of.item
            size = 1 if of.what == TEXT or item is None else item.size
            start, count = reader.vector(target, size, of.wide)
            end = start + count * size
            if of.what == TEXT:
                self._text(start, end)
                return
            if item is not None and item.what in (TABLE, TEXT, VECTOR):
                self._elements(item, start, count)
            if end > self.end or end > self._there:
                self._reach(start, end)
        except DataError as error:
            self._break(ref, target, error)

    def _text(self, start: int, end: int) -> None:
        if end + 1 > self.end or end >= self._there:
            self._reach(start, end + 1)
        if self._there <= end:
            return
        looked_at = (size := end - start) <= SHORT_TEXT or (size <= _LONGEST and size <= self._spare)
        if size > SHORT_TEXT and looked_at:
            self._spare -= size
        raw = self._reader.take(start, size + 1) if looked_at else self._reader.take(end, 1)
        if raw[-1]:
            raise MalformedError("no zero ends the text", offset=end)
        if looked_at and not raw.isascii():
            try:
                raw.decode()
            except UnicodeDecodeError as error:
                raise MalformedError("the text is not UTF-8", offset=start + error.start) from error

    def _elements(self, item: Type, start: int, count: int) -> None:
        if (start, vector := f"[{item.name}]") in self._seen:
            return
        self._seen.add((start, vector))
        there = self._reader.there(start, start + 4 * count) // 4
        self._tally.of(range(start, start + 4 * there, 4))
        for first in range(0, there, _BLOCK):
            some = min(_BLOCK, there - first)
            at = start + 4 * first
            if item.what != TABLE:
                for ref in range(at, at + 4 * some, 4):
                    self._follow(item, ref)
                continue
            raw = self._reader.take(at, 4 * some)
            for ref, offset in zip(range(at, at + 4 * some, 4), unpack_from(f"<{some}I", raw), strict=True):
                if offset < _LEAST:
                    self._break(ref, ref, self._reader.leads_nowhere(ref, offset))
                else:
                    self._todo.append((item, ref + offset, ref))

    def _reach(self, start: int, end: int) -> None:
        """Note a part of the file."""
        self.end = max(self.end, end)
        if end > self._there and end > start:
            got = max(0, self._there - start)
            self._note(EndOfDataError("the file ends early", offset=start, wanted=end - start, got=got))

    def _break(self, ref: int, target: int, error: DataError, vtable: int | None = None) -> None:
        """Note that the reference at ``ref`` leads to nothing that can stand at ``target``.

        Or to a table there that is right, and whose own reference, to its ``vtable``, is wrong.
        """
        over = (ref, target) if vtable is None else (ref, target, vtable)
        if isinstance(error, EndOfDataError) and self._there <= max(over) + 4:
            self.end = max(self.end, max(over) + 4)
            self._note(error)
            return
        low, high = self.torn or (min(over), 1 << 62)
        self.torn = max(low, min(over)), min(high, max(over))
        self._note(error)

    def _note(self, error: DataError) -> None:
        status = Status.after(error)
        if worst_status(self.status, status) is self.status:
            return
        self.status = status
        self.finding = Finding.after(error, source=self._parser.result.extraction.name)
