"""Files with all parameters of a PaddlePaddle program (``.pdiparams``, ``__params__``): one record after the other.

A record does not say what it is called (`pparse.parsers.paddle.record`). Records come in the order of the names of the
program's persistable variables, without feed, fetch, readers and raw ones (python/paddle/static/io.py). So names are
those of the program beside the file: ``NAME.pdmodel`` or ``NAME.json``, ``__model__`` for ``__params__``. They count
only if type and shape of each record are what the program says; else parameters are called by their number. Beside a
``__model__``, each parameter may also be alone in a file that is called as it is.

There are no states: the heads of all records are read at once (`_Walk`), and then judged. Each leads to the next one.
If none stands where one should,

- but the program says what should, and the next one stands behind that: just this head is damaged;
- else the next place is looked for at which a record stands, and behind it another one, or the end. Records before the
  break are counted from the first one on, those behind the last break from the last one back. The elements right
  before a break are in doubt: bytes may have come in there, or gone.
"""

from __future__ import annotations

from pparse.data.window import windows
from pparse.document.extraction import extraction_of
from pparse.errors import DataError, EndOfDataError, FormatError, LimitError, MalformedError, PathError, SourceError
from pparse.findings import COMPLETE, Finding, Severity, Status
from pparse.lazy import lazy_pattern
from pparse.limits import count_words
from pparse.parsers.paddle.record import PLAIN, read_head
from pparse.tensors.status import status_by_place
from pparse.tree.entry import MAP, Entry
from pparse.tree.parser import Confidence, Listing, Parser, signatures

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any, ClassVar, Final

    from pparse.data.base import Data, Range
    from pparse.parsers.paddle.record import Parameter, ParameterLayout
    from pparse.tree.index import ChildIndex
    from pparse.tree.node import Node
    from pparse.tree.parser import Excerpt
    from pparse.tree.result import Result

SUFFIX: Final = ".pdiparams"
OLD: Final = "__params__"
_PROGRAMS: Final = (".json", ".pdmodel")
_OLD_PROGRAM: Final = "__model__"
PROGRAMS: Final = ("paddle", "paddle-json")
"""Formats of programs."""
# What a record may begin with, up to the tag of its type.
_MARK: Final = lazy_pattern(rb"\0{16}[\2-\xff][\0-\3]\0\0\x08")
_MARK_SIZE: Final = 21
_BLOCK: Final = 256 << 10
# So many places that look like a record are tried behind damage.
_MOST_TRIES: Final = 10_000
_COST: Final = 400  # memory of a record

_DOUBT: Final = "no record follows where it ends: bytes may have come in here, or gone"


class ParameterRecord:
    """A parameter in the file: where its record and its elements begin, what it says, why it is not to be believed."""

    __slots__ = ("at", "end", "layout", "name", "reason", "start")

    def __init__(self, at: int, start: int, layout: ParameterLayout | None, reason: str = "", name: str = "") -> None:
        self.at = at
        """Where it begins."""
        self.start = start
        """Where its elements begin."""
        self.end = start + (0 if layout is None else layout.nbytes)
        """Where they end."""
        self.layout = layout
        """Type and shape; None if they are lost."""
        self.reason = reason
        """What is wrong with it; empty: nothing."""
        self.name = name
        """What it is called."""


def program_names(name: str) -> list[str]:
    """Return how the program may be called whose parameters are in the file ``name``."""
    if name == OLD:
        return [_OLD_PROGRAM]
    stem = name.removesuffix(SUFFIX)
    return [_OLD_PROGRAM] if stem == name else [stem + ending for ending in _PROGRAMS]


def params_name(name: str) -> str:
    """Return how the file is called that has the parameters of the program ``name``."""
    if name == _OLD_PROGRAM:
        return OLD
    return next((name.removesuffix(ending) for ending in _PROGRAMS if name.endswith(ending)), name) + SUFFIX


class PaddleParamsParser(Parser, Listing):
    """The parameters of a PaddlePaddle program."""

    name = "paddle-params"
    description = "PaddlePaddle parameters"
    extensions: ClassVar[tuple[str, ...]] = (SUFFIX, OLD)
    empty_is_nothing = True
    signatures = signatures(PLAIN)
    viewer = "pparse.viewers.paddle.viewer:PaddleParamsViewer"
    root_shape = MAP
    member_word = "parameter"
    references: ClassVar[tuple[str, ...]] = (
        "PaddlePaddle/Paddle paddle/phi/core/framework/dense_tensor_serialize.cc, python/paddle/static/io.py",
    )
    limitations: ClassVar[tuple[str, ...]] = (
        "names are those of the program beside it (.pdmodel, .json); without one, parameters are numbered",
        "there are no checksums: a changed byte may look like another value",
        "without the program, a file that is cut between two records looks whole",
    )

    def __init__(self, result: Result) -> None:
        super().__init__(result)
        self.records: list[ParameterRecord] = []
        """What was found, once the children of the root were asked for."""
        self.program = ""
        """The file that the names are from; empty: there are none."""
        self.why_unnamed = ""
        """Why there are none."""
        self.charge = result.extraction.session.budget.charge(0, "the records of parameters")
        """Memory of the records."""

    @classmethod
    def match(cls, excerpt: Excerpt) -> Confidence:
        """NO; a record must be read."""
        return Confidence.NO

    @classmethod
    def probe(cls, excerpt: Excerpt, reader: Range) -> Confidence:
        """LIKELY for a record behind which another one stands, or the end of the file; with the name, for a record."""
        named = excerpt.ends_with(cls.extensions)
        end = reader.start + (1 << 61 if excerpt.size is None else excerpt.size)
        try:
            start, layout = read_head(reader.data, reader.start, end)
            behind = start + layout.nbytes
            if not named and behind != end:
                read_head(reader.data, behind, end)
        except DataError:
            return Confidence.NO
        return Confidence.LIKELY

    # -- nodes ---------------------------------------------------------------------------------------------------------

    def fill(self, node: Node, index: ChildIndex) -> bool:
        """Index the records."""
        extraction = self.result.extraction
        there = extraction.find_end()
        walk = self._walked(there)
        self.records, finding, damaged = walk.records, walk.finding, bool(walk.breaks)
        for record in self.records:
            entry = self._entry(record, there)
            index.add_entry(entry)
            finding = finding or entry.finding
            damaged = damaged or entry.status is Status.DAMAGED
        status = Status.DAMAGED if damaged else COMPLETE if finding is None else Status.TRUNCATED
        self.result.close_node(node, status, finding, end=there)
        if not self.program:
            severity = Severity.WARNING if walk.contradicts else Severity.NOTE
            self.note("unnamed", f"parameters are numbered: {self.why_unnamed}", None, severity=severity)
        return True

    def _entry(self, record: ParameterRecord, there: int) -> Entry:
        start, end = record.start, record.end
        status, told = status_by_place(start, end, there), (record.name, start)
        reason, code = "", "truncated"
        if record.reason:
            status, reason, code = Status.DAMAGED, record.reason, "bad-entry"
        elif status is not COMPLETE:
            reason = f"{max(0, there - start):,} of its {count_words(end - start, 'byte')} are there"
        elif (doubt := self.result.extraction.data.why_suspect(record.at, start)) is not None:
            status, reason, code = Status.DAMAGED, doubt, "doubt"
        finding = self.finding_at(code, reason, *told) if reason else None
        return Entry(record.name, "tensor", start, end, status=status, finding=finding, at=record.at, note=record)

    def load_scalar(self, node: Node) -> Any:
        """Return what the record says."""
        self.result.check_open()
        layout = node.note.layout
        if layout is None:
            return None
        told = {"shape": list(layout.shape), "type": str(layout.dtype), "offset": node.note.start}
        return {**told, "size": layout.nbytes}

    def resolve(self, node: Node) -> None:
        """Find out the status of the root: by its children."""
        node.index_to(None)

    # -- names ---------------------------------------------------------------------------------------------------------

    def _walked(self, there: int) -> _Walk:
        """Return what was found, with names by the first program beside the file that it agrees with."""
        extraction = extraction_of(self.result)
        first: _Walk | None = None
        self.program, self.why_unnamed = "", "no program lies beside the file"
        own = extraction.name.rpartition("/")[2]
        for name in program_names(own):
            try:
                beside = extraction.sibling(name)
                if beside.format not in PROGRAMS:
                    continue
                parameters, status = beside.parse().parser.parameters()  # type: ignore[attr-defined]
                if not own.endswith(self.extensions):  # alone in a file that is called as it is
                    parameters, status = [one for one in parameters if one.name == own], COMPLETE
            except (DataError, FormatError, LimitError, SourceError, PathError):
                continue
            walk = _Walk(self, there, parameters)
            why = walk.name_by(parameters, status)
            if not why:
                self.program = name
                return walk
            if first is None:
                first = walk
                self.why_unnamed = f"{name} {why}"
        walk = _Walk(self, there, ())
        walk.contradicts = first is not None
        walk.number()
        return walk

    def details(self) -> Iterator[tuple[str, str]]:
        """Yield where the names are from."""
        self.result.root.index_to(None)
        yield "names", f"those of {self.program}" if self.program else f"none: {self.why_unnamed}"


class _Walk:
    """The records of a file, by their own heads and by what the program says."""

    def __init__(self, parser: PaddleParamsParser, end: int, known: Sequence[Parameter]) -> None:
        extraction = parser.result.extraction
        self._parser, self._known = parser, known
        self._data: Data = extraction.data
        self._start, self._end = extraction.start, end
        self._check_cancelled = extraction.session.check_cancelled
        self._limits = extraction.session.limits
        self._tries = _MOST_TRIES
        self.records: list[ParameterRecord] = []
        """What was found, in the order of the file."""
        self.breaks: list[int] = []
        """Numbers of records before which the chain is broken."""
        self.finding: Finding | None = None
        """What is wrong with the file."""
        self.contradicts = False
        """Whether there is a program, and what it says is not so."""
        self._read()
        origin = extraction_of(parser.result).origin
        if origin is not None and origin[1].is_truncated:
            self._note("truncated", "the archive around it ends here", end)

    # -- reading -------------------------------------------------------------------------------------------------------

    def _read(self) -> None:
        pos, records = self._start, self.records
        if pos >= self._end:
            self._note("truncated", "the file is empty", pos)
        while pos < self._end:
            if not len(records) & 0xFF:
                self._check_cancelled()
                self._limits.check("entries", len(records) + 1, "the number of records")
                self._parser.charge.resize(_COST * (len(records) + 0x100))
            number = len(records)
            wanted = self._known[number].layout if number < len(self._known) and not self.breaks else None
            found, fault = self._head(pos)
            if found is not None and wanted in (None, found[1]):
                records.append(ParameterRecord(pos, *found))
            elif wanted is not None and self._follows(number + 1, pos + wanted.head_size + wanted.nbytes):
                reason = f"its head is damaged; by the program, it is {wanted}"
                records.append(ParameterRecord(pos, pos + wanted.head_size, wanted, reason))
            elif found is not None:  # another model's: `name_by` says so
                records.append(ParameterRecord(pos, *found))
            elif isinstance(fault, EndOfDataError) and fault.offset == self._end and self._may_begin(number, pos):
                self._note("truncated", "the file ends in the head of a record", pos, wanted=fault.wanted)
                return
            else:
                pos = self._behind_break(pos, fault)
                continue
            pos = records[-1].end

    def _head(self, pos: int) -> tuple[tuple[int, ParameterLayout] | None, DataError | None]:
        try:
            return read_head(self._data, pos, self._end), None
        except (EndOfDataError, MalformedError) as error:
            return None, error

    def _may_begin(self, number: int, pos: int) -> bool:
        """Return whether what ends the file may be the beginning of record ``number``."""
        rest = self._data.known(pos, min(12, self._end - pos))  # a version, and a small number of levels
        return not any(rest[:4] + rest[5:]) and (not self._known or number < len(self._known))

    def _follows(self, number: int, pos: int) -> bool:
        """Return whether record ``number`` of the program stands at a place, or behind the last one, the end."""
        if number == len(self._known):
            return pos == self._end
        found, _ = self._head(pos) if pos < self._end else (None, None)
        return found is not None and found[1] == self._known[number].layout

    def _behind_break(self, pos: int, fault: DataError | None) -> int:
        """Note that no record stands at ``pos``; return where the next one does, or the end."""
        why = "" if fault is None else f": {fault.reason}"
        self._note("malformed", f"no record stands here{why}", pos)
        last = self.records[-1] if self.records else None
        found = self._search(pos + 1 if last is None else last.start)
        if last is not None and not last.reason:
            last.reason = _DOUBT
        if self._end - pos > _MARK_SIZE and found - pos > _MARK_SIZE:
            self.records.append(ParameterRecord(pos, pos, None, f"no record stands here{why}"))
        self.breaks.append(len(self.records))
        return found

    def _note(self, code: str, reason: str, offset: int, **told: Any) -> None:
        self.finding = self.finding or self._parser.finding_at(code, reason, "", offset, **told)

    def _search(self, start: int) -> int:
        """Return the next place with a record behind which another one follows, or the end; else the end."""
        for base, block in windows(self._data, start, self._end, _BLOCK, _MARK_SIZE - 1):
            self._check_cancelled()
            found = _MARK.search(block)
            while found is not None:
                self._tries -= 1
                place = base + found.start()
                head, _ = self._head(place)
                if head is not None:
                    behind = head[0] + head[1].nbytes
                    if behind == self._end or (behind < self._end and self._head(behind)[0] is not None):
                        return place
                if self._tries <= 0:
                    return self._end
                found = _MARK.search(block, found.start() + 1)
        return self._end

    # -- naming --------------------------------------------------------------------------------------------------------

    def number(self) -> None:
        """Call the records by their numbers, those behind a break by their places: how many are lost is not known."""
        known = self.breaks[0] if self.breaks else len(self.records)
        for number, record in enumerate(self.records):
            record.name = f"param_{number}" if number < known else f"param_at_{record.at}"

    def name_by(self, parameters: Sequence[Parameter], status: Status) -> str:
        """Call the records as a program of this status does; return why that cannot be, in words."""
        records, count, whole = self.records, len(parameters), status is COMPLETE
        if status is Status.DAMAGED:
            return "contradicts itself: operators use a name that no variable has"
        if not count:
            return "names no parameters" if whole else "is damaged or cut"
        front = records if not self.breaks else [one for one in records[: self.breaks[0]] if one.layout is not None]
        back = records[self.breaks[-1] :] if self.breaks else []
        if back and back[-1].end != self._end:
            back = []
        ends = not self.finding and bool(records) and records[-1].end == self._end
        if len(front) + len(back) > count or (not whole and (not ends or len(records) < count)):
            return f"names {count_words(count, 'parameter')}, and {count_words(len(records), 'record')} are here"
        pairs = [*zip(front, parameters, strict=False), *zip(back, parameters[count - len(back) :], strict=True)]
        for record, parameter in pairs:
            if record.layout != parameter.layout and not record.reason:
                return f"has {parameter.name} as {parameter.layout}, where the file has {record.layout}"
            record.name = parameter.name
        pos = front[-1].end if front else self._start
        lost = parameters[len(front) : count - len(back)]
        if lost and not self.breaks:
            here = f"{count_words(len(front), 'parameter')} of the {count:,} that the program names"
            self._note("truncated", f"the file ends behind {here}", self._end)
        made = []
        for parameter in lost:
            if self.breaks:
                made.append(ParameterRecord(pos, pos, parameter.layout, "its record is lost", parameter.name))
                made[-1].end = pos
            else:
                made.append(
                    ParameterRecord(pos, pos + parameter.layout.head_size, parameter.layout, "", parameter.name)
                )
                pos = made[-1].end
        self.records = [*front, *made, *back]
        return ""
