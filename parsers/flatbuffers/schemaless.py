"""FlatBuffers of any schema: by a compiled one of the user's, or without: fields by slot, what they are guessed.

A table tells where its fields are, and nothing of their types. So the width of a field is the room up to the next one,
and a field of four bytes that leads to what can be a text, a table, or a vector of either, is taken for that. Each
kind that is guessed ends with a question mark; of other vectors not even the width of an element is known, so they are
shown as so many bytes as they have elements.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from functools import cached_property
from itertools import pairwise
from struct import unpack

from pparse.data.base import blocks
from pparse.document.opening import open as open_document
from pparse.errors import DataError, EndOfDataError, GapError, LimitError, MalformedError, OptionError, spoken
from pparse.findings import COMPLETE, Severity
from pparse.limits import count_words
from pparse.parsers.flatbuffers.parser import FlatBuffersParser, look_ahead, plausible_root, size_before
from pparse.parsers.flatbuffers.reflection import schema_of
from pparse.parsers.flatbuffers.schema import Schema
from pparse.parsers.flatbuffers.survey import Survey
from pparse.tree.entry import Entry
from pparse.tree.parser import Confidence, Signature

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import ClassVar, Final

    from pparse.data.base import Range
    from pparse.parsers.flatbuffers.reader import Reader
    from pparse.parsers.flatbuffers.schema import Type
    from pparse.tree.entry import Key
    from pparse.tree.parser import Excerpt

_UNKNOWN: Final = "root table?\ntable table? -:bool"
_GUESSED: Final = {"text": "text?", "bytes": "bytes?", "[text]": "[text?]"}
# Whole numbers from here on may be floats, if those are of a usual size; how many elements of a vector are looked at.
_LARGE: Final = 1 << 22
_LOOKED_AT: Final = 64
_LONGEST: Final = 4096
# The most bytes that align the end of a file. How far behind that what was cut begins, at most; smaller numbers lead
# there from any field near the end, and are just numbers.
_ZEROS: Final = 8
_BEHIND: Final = 64
# The fewest numbers that show a cut by where they all lead, and how far from each other: a text takes that.
_FEW, _APART = 8, 8
# The most parts that are compared, what one takes, and bytes that are read at once.
_PARTS, _EACH, _BLOCK = 1 << 15, 200, 1 << 16
# To tell a FlatBuffer without an identifier: how much evidence is enough, from how many tables; bytes of a short text.
_SURE, _TABLES, _SHORT = 4, 32, 4


class SchemalessParser(FlatBuffersParser):
    """FlatBuffers of any schema, by the option ``schema``, or without one."""

    name = "flatbuffers"
    description = "FlatBuffer, with a compiled schema or without one"
    extensions = (".fb", ".flatbuf", ".bfbs")
    signatures = (Signature(b"BFBS", 4),)
    is_generic = True
    limitations = (
        "without a schema kinds are guessed",
        "without a schema a cut may go unseen, and a number be taken for what leads to one",
    )
    references = ("https://flatbuffers.dev/internals", "google/flatbuffers reflection/reflection.fbs")
    options: ClassVar[dict[str, str]] = {
        "schema": "a compiled schema (flatc --schema -b) that has the types: FILE.bfbs"
    }

    _looking = False  # whether a survey is under way

    @cached_property
    def buffer_start(self) -> int:
        """Where the FlatBuffer begins: behind its size, if the first number is that."""
        extraction = self.result.extraction
        return extraction.start + size_before(extraction.data.known(extraction.start, 8), extraction.size)

    @cached_property
    def schema(self) -> Schema:
        """The types: those of the option ``schema``, of a compiled schema, or none. Raises `OptionError`."""
        extraction = self.result.extraction
        source = extraction.session.options.get("schema")
        if source is not None:
            with open_document(source if isinstance(source, bytes) else str(source), format=self.name) as document:
                try:
                    return schema_of(document.parse().parser)  # type: ignore[arg-type]
                except DataError as error:
                    raise OptionError(
                        f"{source} is no compiled schema: {error.reason}; make one with flatc --schema -b FILE.fbs"
                    ) from error
        is_compiled = extraction.data.known(self.buffer_start + 4, 4) == b"BFBS"
        return Schema.named("reflection") if is_compiled else Schema(_UNKNOWN)

    @property
    def guesses(self) -> bool:
        """Whether there is no schema."""
        return self.schema.root == "table?"

    @classmethod
    def probe(cls, excerpt: Excerpt, reader: Range) -> Confidence:
        """POSSIBLE if the first bytes can be the offset of a root."""
        return Confidence.POSSIBLE if plausible_root(excerpt) else Confidence.NO

    @classmethod
    def match_further(cls, reader: Range, *, thorough: bool) -> Confidence:
        """LIKELY if the first tables are as libraries write them, and lead to tables and texts."""
        known = look_ahead(reader)
        return Confidence.LIKELY if _evidence(known, known.target(known.start)) >= _SURE else Confidence.NO

    def fields(self, at: int, type: Type) -> Iterator[Entry]:
        """Yield an entry for each field that the table at ``at`` has; without a schema, by the number of its slot."""
        if not self.guesses:
            yield from super().fields(at, type)
            return
        size, slots, _ = self.reader.table(at)
        ends = sorted({*slots, size})
        for number, slot in enumerate(slots):
            room = ends[bisect_right(ends, slot)] - slot
            if slot and self.reader.there(at + slot, at + slot + room) == room:
                yield self._guessed(str(number), at + slot, room)

    def _guessed(self, key: str, place: int, room: int) -> Entry:
        kind = _leads_to(self.reader, place) if room >= 4 else ""
        if kind in ("", "[uint8]") and room >= 4 and self._may_lead_to_damage(place):
            reason = "it is a number, or leads to what is damaged"
            return self._broken(key, "int32?", place, MalformedError(reason, offset=place))
        if kind:
            return self.describe(key, self.schema.type(kind), place)
        width = next(size for size in (8, 4, 2, 1) if size <= room and not (place - self.buffer_start) % size)
        raw = self.reader.take(place, min(room, 16))
        if room >= 16 or any(raw[width:]):  # not just zeros that align what follows: a struct
            return Entry(key, "bytes?", place, place + room)
        value = int.from_bytes(raw[:width], "little", signed=width > 2)
        number = unpack("<" + "fd"[width // 8], raw[:width])[0] if width > 2 else 0.0
        if abs(value) >= _LARGE and 1e-6 < abs(number) < 1e9:
            return Entry(key, f"float{8 * width}?", place, place + width, number)
        found = Entry(key, f"{'u' * (width < 4)}int{8 * width}?", place, place + width, value)
        if width == 4 and value % 4 == 0 and self._may_be_cut(place + value):
            error = EndOfDataError("it is a number, or leads to what was cut", offset=place)
            return self._broken(key, found.kind, place, error)
        return found

    def _may_lead_to_damage(self, place: int) -> bool:
        """Say whether what a place may lead to, or elements of a vector there may, is lost or in doubt: then nothing
        tells what kind it is."""
        data, reader = self.result.extraction.data, self.reader
        if not data.flawed or (place - self.buffer_start) % 4:
            return False
        try:
            target = reader.target(place)
        except GapError:
            return True
        except DataError:
            return False
        if (target - self.buffer_start) % 4:
            return False
        heads = (target, *_targets(reader, target))
        return any(
            data.range_status(at, at + 4).status is not COMPLETE for at in heads if reader.there(at, at + 4) == 4
        )

    def _may_be_cut(self, target: int) -> bool:
        """Say whether something may have begun at ``target`` in a file that seems to be cut."""
        if self._looking:
            return False
        try:
            return self.survey.status is not COMPLETE and target >= self.survey.end
        except LimitError:
            return False

    def describe(self, key: Key, type: Type, at: int) -> Entry:
        """Return the entry of a value; a kind that is guessed says so."""
        found = super().describe(key, type, at)
        if self.guesses:
            found.kind = _GUESSED.get(found.kind, found.kind)
        return found

    def _look(self) -> Survey:
        if not self.guesses:
            return super()._look()
        self._looking = True
        told = f"there is no schema ({spoken('-O schema=FILE.bfbs')}): kinds are guessed, and a cut may go unseen"
        self.note("guessed", told, None, severity=Severity.NOTE)
        try:
            return _Guesses(self)
        finally:
            self._looking = False


def _leads_to(reader: Reader, place: int) -> str:
    """Return what the offset in a place can lead to, as a schema writes it; empty: to nothing."""
    try:
        target = reader.target(place)
        listed = _targets(reader, target)
        # One reference looks like a short text, too; the vtable of what it leads to says that it is none.
        if listed and all(_is_written(reader, one) for one in listed):
            return "[table?]"
        if _is_text(reader, target):
            return "string"
        if _is_table(reader, target):
            return "table?"
        for kind, fits in (("[string]", _is_text), ("[table?]", _is_table)):
            if listed and all(fits(reader, one) for one in listed):
                return kind
    except DataError:
        pass
    try:
        start, count = reader.vector(reader.target(place), 1)
        return "[uint8]" if reader.there(start, start + count) == count else ""
    except DataError:
        return ""


def _targets(reader: Reader, at: int) -> list[int]:
    """Return where the first elements of a vector lead to, if they are references; else nothing."""
    try:
        start, count = reader.vector(at, 4)
        there = reader.there(start, start + 4 * count) == 4 * count
        return [reader.target(start + 4 * number) for number in range(min(count, _LOOKED_AT))] if there else []
    except DataError:
        return []


def _is_text(reader: Reader, at: int) -> bool:
    try:
        start, count = reader.vector(at, 1)
        there = reader.there(start, start + count + 1)
        if there < count or (there > count and reader.take(start + count, 1) != b"\0"):
            return False
        text = reader.take(start, min(count, _LONGEST)).decode("utf-8", "strict" if count <= _LONGEST else "ignore")
    except (DataError, UnicodeDecodeError):
        return False
    return all(char.isprintable() or char.isspace() for char in text)


def _is_table(reader: Reader, at: int) -> bool:
    try:
        size, _, _ = reader.table(at)
    except DataError:
        return False
    return reader.there(at, at + size) == size


def _is_written(reader: Reader, at: int) -> bool:
    """Say whether a table is as libraries write it: fields apart, none that lacks at the end, its vtable beside it."""
    if not _is_table(reader, at):
        return False
    size, slots, vtable = reader.table(at)
    fields = [slot for slot in slots if slot]
    is_apart = vtable + 4 + 2 * len(slots) <= at or vtable >= at + size
    return bool(fields) and slots[-1] > 0 and len(set(fields)) == len(fields) and is_apart


def _evidence(reader: Reader, root: int) -> int:
    """Return how much speaks for a FlatBuffer whose root is at ``root``, of the first tables; 0: not one text does.

    Long texts count 2, short ones and tables 1: their lengths, zeros and vtables all agree.
    """
    todo, seen = [root], {root}
    found = texts = 0
    while todo and (found < _SURE or not texts) and len(seen) < _TABLES:
        at = todo.pop()
        if not _is_written(reader, at):
            if at == root:
                return 0
            continue
        found += at != root
        for slot in filter(None, reader.table(at)[1]):
            place = at + slot
            kind = _leads_to(reader, place) if not (place - reader.start) % 4 else ""
            targets = [reader.target(place)] if kind in ("string", "table?") else []
            if kind in ("[string]", "[table?]"):
                targets = _targets(reader, reader.target(place))[: _TABLES // 4]
            if "table" in kind:
                todo += [target for target in targets if target not in seen]
                seen.update(targets)
            elif targets and (shortest := min(reader.vector(target, 1)[1] for target in targets)) >= _SHORT:
                texts += 1
                found += 1 + (shortest >= 2 * _SHORT)
    return found if texts else 0


class _Guesses(Survey):
    """One pass over what is guessed.

    Bytes at the end that nothing can reach mean that the file was cut, and so do numbers that lead there, or just
    behind it: something began there that is no more. So do numbers that lead farther, if in another table with the same
    vtable the slot has what leads to a part of the file; or if nothing leads anywhere, and all numbers lead behind the
    end, far from each other, as references do. Other bytes that nothing reaches are told: a reference to them may be
    damaged, or of a kind that nobody can guess.
    """

    def _run(self, charge: object) -> None:
        self._left = self._there
        self._most = 0  # where vectors end whose elements have eight bytes
        self._numbers = array("q")  # where they lead, as offsets
        self._leading: set[tuple[int, object]] = set()  # vtables and slots of what leads to parts …
        self._far: set[tuple[int, object]] = set()  # … and of numbers that lead behind the end
        self._ahead = array("q")  # where all numbers lead that lead there, and how many others there are
        self._others = 0
        self._parts: list[tuple[int, int]] = []
        self._open: set[int] = set()  # where vectors end whose elements may be longer
        with self._reader.budget.charge(0, "the parts of a FlatBuffer") as self._kept:
            super()._run(charge)
            if self.status is COMPLETE and len(self._parts) < _PARTS:
                self._tell_unreached()
        self._parts, self._open = [], set()
        end = max(self.end, self._most)
        left = self._reader.data.known(end, max(0, min(self._there - end, _ZEROS + 1)))
        is_torn = any(self.end <= target for target in self._numbers) or not self._leading.isdisjoint(self._far)
        if len(left) > _ZEROS or any(left) or is_torn or self._leads_beyond():
            reason = "bytes at the end belong to no field, or fields lead behind it: what is there may be cut"
            self._note(EndOfDataError(reason, offset=min(self.end, self._there)))

    def _leads_beyond(self) -> bool:
        """Say whether all numbers lead behind the end as references do, the first of them to what stood right there."""
        targets = sorted(set(self._ahead))
        return (
            not self._leading
            and not self._others
            and len(targets) >= _FEW
            and targets[0] - self.end < _APART
            and all(second - first >= _APART for first, second in pairwise(targets))
        )

    def _tell_unreached(self) -> None:
        """Warn of bytes, other than zeros, that nothing reaches, from the first part to the end of the last."""
        read, last, first, total = self._reader.data.known, 1 << 62, None, 0
        for start, end in sorted(self._parts):
            if start > last not in self._open and any(
                block.strip(b"\0") for block in blocks(read, last, start, _BLOCK)
            ):
                first, total = last if first is None else first, total + start - last
            last = max(last, end) if last < 1 << 62 else end
        if first is not None:
            reason = f"nothing that is guessed leads to {count_words(total, 'byte')}: what did may be damaged"
            self._parser.note("unreached", reason, first, severity=Severity.WARNING)

    def _reach(self, start: int, end: int) -> None:
        super()._reach(start, end)
        parts = self._parts
        if len(parts) < _PARTS:
            parts.append((start, end))
            if not len(parts) & 0x3FF:
                self._kept.resize(_EACH * len(parts))

    def _table(self, type: Type, at: int) -> None:
        reader = self._reader
        self.tables += 1
        size, slots, vtable = reader.table(at)
        self._reach(at, at + size)
        self._reach(vtable, vtable + 4 + 2 * len(slots))
        for entry in self._parser.fields(at, type):
            start, end, kind = entry.start, entry.end or entry.start, entry.kind
            is_inside = at <= start < at + size
            self._reach(start - 4 * (not is_inside and kind != "table?"), end + (kind == "text?"))
            if kind in ("text?", "table?") or kind[:1] == "[":
                self._leading.add((vtable, entry.key))
            if kind == "bytes?":
                self._most = max(self._most, end + 7 * (end - start))
                if not is_inside and len(self._open) < _PARTS:
                    self._open.add(end)
            if kind == "table?":
                self._todo.append((type, start, start))
            elif kind == "int32?" and isinstance(entry.value, int):
                self._number((vtable, entry.key), start, entry.value)
            elif kind[:1] == "[" and (start, kind) not in self._seen:
                self._seen.add((start, kind))
                self._left -= end - start
                self._references(type, range(start, end if self._left >= 0 else start, 4), kind)

    def _number(self, slot: tuple[int, object], place: int, value: int) -> None:
        """Note a number that may be what is left of a reference."""
        target = place + value
        if value % 4 or value < 4 or target < self._there or len(self._ahead) == _PARTS:
            self._others += 1
        else:
            self._ahead.append(target)
        if value % 4 or value < _BEHIND:
            return
        if target < self._there + _BEHIND:
            self._numbers.append(target)
        else:
            self._far.add(slot)

    def _references(self, type: Type, places: range, kind: str) -> None:
        reader = self._reader
        for place in places:
            try:
                target = reader.target(place)
                if kind == "[table?]":
                    self._todo.append((type, target, place))
                else:
                    first, count = reader.vector(target, 1)
                    self._reach(first - 4, first + count + 1)
            except DataError as error:
                self._break(place, place, error)
