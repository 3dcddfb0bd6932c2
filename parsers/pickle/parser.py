"""Pickles, protocols 0 to 5.

A pickle is a program for a stack machine: what a value is, and where it ends, is known only when later opcodes have
used it. So there are no states that read children in turn; instead

- `pparse.parsers.pickle.program` reads each pickle once, from its first opcode to STOP;
- `fill` reads a node's opcodes once more and keeps where its children begin; large children are jumped over;
- `entries` reads the opcodes of a group of children again, and `pparse.parsers.pickle.decoder` makes values.

The root is the value of the pickle; of several pickles in a row, a list of theirs. What the opcodes say becomes nodes:

- plain data: none, bool, int, float, str, bytes, bytearray, list, tuple, dict, set, frozenset;
- ``global``: the name of a class or function, which is never imported;
- ``call``: an object, as ``callable``, ``args``, ``kwargs``, ``state``, ``items`` and ``pairs``; nothing is called. The
  calls by which old protocols write bytes, complex numbers and OrderedDicts are these;
- ``persistent``: a value outside of the pickle, by its ``id``;
- ``alias``: a list, dict, object … that the pickle has elsewhere, too; its value is that of the other.

A cut pickle has every value before the cut. What was not yet put into a list or dict then is shown as if it were.
"""

from __future__ import annotations

from bisect import bisect_right
from contextlib import suppress

from pparse.data.range_status import cut_status
from pparse.data.trailing_bytes import trailing_severity
from pparse.errors import PASSING, LimitError, MalformedError, PparseError, UnsupportedError
from pparse.findings import Finding, Severity, Status
from pparse.kernels.pickle_scan import GETS, LONG_LINE, MARK, MORE, NAMED, SLACK, STOPPED, Scan, ends_of, scan
from pparse.limits import are, count_words
from pparse.parsers.pickle import summary
from pparse.parsers.pickle.check import TEXTS, fault_in
from pparse.parsers.pickle.contents import Contents, group
from pparse.parsers.pickle.decoder import Decoder
from pparse.parsers.pickle.joblib import WATCHED
from pparse.parsers.pickle.kinds import KIND_OF, PLAIN_KINDS, SEQUENCES, SHAPES
from pparse.parsers.pickle.program import Program
from pparse.parsers.pickle.reading import Stop
from pparse.parsers.pickle.unfinished import FILLED, NAMES, contents, open_from
from pparse.parsers.pickle.values import check_key
from pparse.tree.entry import UNLOADED_VALUE, Entry
from pparse.tree.listing import Listing
from pparse.tree.parser import Confidence, Parser, signatures

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, ClassVar, Final

    from pparse.parsers.pickle.between import RawArray
    from pparse.tree.entry import Key
    from pparse.tree.index import ChildIndex
    from pparse.tree.listing import GlobalUse
    from pparse.tree.node import Node
    from pparse.tree.parser import Excerpt
    from pparse.tree.result import Result
    from pparse.tree.visit import Visit

    Part = tuple[int, int]

# Programs that are kept of many pickles in one file.
_PROGRAMS_KEPT: Final = 8
# Values up to this many bytes are decoded with their entry.
_SMALL: Final = 256
# And of others that it names so many.
_MOST_NAMED: Final = 64 << 10
_ZEROS: Final = 64 << 10
_SMALL_TUPLES: Final = frozenset(b"\x85\x86\x87")
_MOST_STATES: Final = 100
_BROKEN: Final = (Status.TRUNCATED, Status.DAMAGED)
_CALLED: Final = frozenset(b"R\x81\x92oiQ")
_PARTS_OF_CALL: Final = ("callable", "args", "kwargs")


class PickleParser(Parser, Listing):
    """A pickle, or several in a row."""

    name = "pickle"
    description = "Python pickle, protocols 0 to 5"
    extensions: ClassVar[tuple[str, ...]] = (".pkl", ".pickle", ".pck", ".p", ".joblib")
    empty_is_nothing = True
    signatures = signatures(
        *(b"\x80" + bytes([protocol]) for protocol in range(6)),
        *(bytes([opcode]) for opcode in b"(]}lcINKJVXUTSFG"),
        strength=Confidence.POSSIBLE,
    )
    viewer = "pparse.viewers.pickle.viewer:PickleViewer"
    is_generic = True
    references: ClassVar[tuple[str, ...]] = ("PEP 307", "PEP 3154", "PEP 574", "CPython Lib/pickletools.py")
    limitations: ClassVar[tuple[str, ...]] = (
        "nothing is imported or called: objects are shown as the calls that would make them",
        "buffers outside of the pickle (protocol 5) are named, not read",
    )
    shapes = SHAPES

    def __init__(self, result: Result) -> None:
        super().__init__(result)
        self._starts: list[int] = []
        self._programs: dict[int, Program] = {}
        self._decoders: dict[int, Decoder] = {}

    @classmethod
    def match(cls, excerpt: Excerpt) -> Confidence:
        """LIKELY for bytes that are opcodes of a pickle with a protocol; POSSIBLE for those of an old one."""
        head = excerpt.head(4096)
        state = Scan()
        state.watched = WATCHED
        # Protocol 0 is text: it must end in this block, or be long and full of marks.
        i, why = scan(head + bytes(SLACK), 0, max(0, len(head)), 0, state)
        if not head:
            return Confidence.NO
        if why == NAMED:
            return Confidence.LIKELY
        if why not in (MORE, STOPPED, LONG_LINE):  # damaged, if it begins with a protocol and some opcodes
            return Confidence.POSSIBLE if head[0] == 0x80 and head[1:2] <= b"\5" and i > 4 else Confidence.NO
        if head[0] == 0x80:
            return Confidence.LIKELY if len(head) > 2 else Confidence.POSSIBLE
        if why == STOPPED:
            whole = len(state.slots) == 1 and not state.marks
            return Confidence.POSSIBLE if whole and i > 2 else Confidence.NO
        return Confidence.POSSIBLE if state.count >= (2 if why == LONG_LINE else 8) else Confidence.NO

    # -- programs ----------------------------------------------------------------------------------------------------

    _is_longer = False  # than its pickles, by other bytes than zeros

    def program(self, pos: int) -> Program:
        """Return the pickle that begins at ``pos``, or around it; that of an array of objects if it is in one."""
        start = self._starts[max(0, bisect_right(self._starts, pos) - 1)] if self._starts else pos
        found = self._programs.pop(start, None)  # the last one used is the last one
        if found is None:
            extraction = self.result.extraction
            found = Program(extraction.session, extraction.data, start, extraction.known_end(), extraction.start)
            while len(self._programs) >= _PROGRAMS_KEPT:
                del self._programs[next(iter(self._programs))]
        self._programs[start] = found
        if self._is_longer and start == self._starts[-1]:
            found.doubt_last_array()
        return found.program_at(pos)

    def decoder(self, program: Program) -> Decoder:
        """Return what makes the values of ``program``."""
        found = self._decoders.pop(program.start, None)
        if found is None or found.program is not program:
            while len(self._decoders) >= _PROGRAMS_KEPT:
                del self._decoders[next(iter(self._decoders))]
            found = Decoder(program)
        self._decoders[program.start] = found
        return found

    def root_entry(self) -> Entry:
        """Read the pickles, each to its STOP."""
        extraction = self.result.extraction
        end = extraction.known_end()
        if end <= extraction.start:
            finding = self._note("truncated", "the pickle is empty", end)
            return Entry(None, "unknown", end, end, status=Status.TRUNCATED, finding=finding)
        last = self.read_pickles()
        pos = last.end
        if not last.trouble and pos < end:
            self._note_trailing(pos, end)
        if len(self._starts) > 1:
            if last.trouble:
                finding = self._trouble(last)
                self.result.findings.add(finding)
                return Entry(None, "pickles", extraction.start, pos, status=last.status, finding=finding)
            return Entry(None, "pickles", extraction.start, pos, status=None)
        return self.value_entry(last, None)

    def global_names(self) -> Iterator[tuple[int, str]]:
        """Yield offset and name of each global that the pickles name; one that cannot be read as ``?``."""
        if not self._starts:
            self.read_pickles()
        for start in self._starts:
            program = self.program(start)
            yield from self._globals_of(program)
            for begin in program.arrays.pickles() if program.arrays is not None else ():
                yield from self._globals_of(program.inner(begin))

    def _globals_of(self, program: Program) -> Iterator[tuple[int, str]]:
        decoder = self.decoder(program)
        for slot, end in program.globals:
            at = slot >> 8
            try:
                if slot & 0xFF == 0x69:  # INST
                    module, name, _ = decoder.read(at + 1, end).split(b"\n", 2)
                    yield at, f"{module.decode('utf-8', 'replace')}.{name.decode('utf-8', 'replace')}"
                else:
                    yield at, str(decoder.decode(at, end))
            except PASSING:
                raise
            except PparseError:
                yield at, "?"

    def details(self) -> Iterator[tuple[str, str]]:
        """Yield the protocol, how many globals are named and calls are described, and the globals."""
        yield from summary.details(self)

    def globals(self) -> Iterator[GlobalUse]:
        """Yield the globals that the pickles name, each once."""
        yield from summary.uses(self)

    def read_pickles(self) -> Program:
        """Find where each pickle begins, and return the last one."""
        extraction = self.result.extraction
        pos, end = extraction.start, extraction.known_end()
        last = None
        starts = []
        while last is None or (pos < end and self.goes_on(len(starts), pos)):
            starts.append(pos)
            extraction.session.limits.check("entries", len(starts), "the number of pickles")
            last = self.program(pos)
            if last.trouble:
                break
            pos = last.end
        self._starts = starts
        return last

    @property
    def starts(self) -> list[int]:
        """Where the pickles begin."""
        return self._starts

    def goes_on(self, count: int, pos: int) -> bool:
        """Tell whether another pickle begins at ``pos``, behind ``count`` of them, by its PROTO."""
        head = self.result.extraction.data.pread(pos, 2)
        return head[:1] == b"\x80" and head[1:] <= b"\5"  # also if it is cut there

    def _note_trailing(self, pos: int, end: int) -> None:
        data = self.result.extraction.data
        zeros = end - pos <= _ZEROS and not data.pread(pos, end - pos).strip(b"\0")
        if not zeros and self._starts:
            self._is_longer = True
        reason = "zeros follow the pickle" if zeros else "other bytes follow the pickle"
        where: Any = {"source": self.result.extraction.name, "offset": pos, "length": end - pos}
        self.result.findings.add(Finding("trailing", reason, severity=trailing_severity("stream"), **where))

    def value_entry(self, program: Program, key: Key) -> Entry:
        """Describe the value of a pickle, as a child ``key``."""
        slots = program.state.slots
        finding = self._trouble(program) if program.trouble else None
        if finding is not None:
            self.result.findings.add(finding)
        if not slots:
            return Entry(key, "unknown", program.start, program.end, status=program.status, finding=finding)
        if finding is not None:
            at = slots[0] >> 8
            kind = "unfinished"
            if len(slots) == 1 or slots[0] & 0xFF in FILLED:
                with suppress(PparseError):
                    kind = self._kind(program, slots[0])[0]
            return Entry(key, kind, at, program.end, status=program.status, finding=finding)
        if len(slots) > 1:
            below = sum(slot & 0xFF != MARK for slot in slots) - 1
            reason = f"{count_words(below, 'value')} below the one that STOP takes {are(below)} never used"
            self._note("unused", reason, program.end - 1, Severity.WARNING)
        return self._entry(program, key, slots[-1], program.end - 1)

    def _trouble(self, program: Program) -> Finding:
        return Finding(
            "truncated" if program.stop is Stop.CUT else "malformed",
            program.trouble,
            source=self.result.extraction.name,
            offset=program.end,
        )

    def _note(self, code: str, reason: str, offset: int, severity: Severity = Severity.ERROR) -> Finding:
        finding = Finding(code, reason, severity=severity, source=self.result.extraction.name, offset=offset)
        self.result.findings.add(finding)
        return finding

    # -- children ----------------------------------------------------------------------------------------------------

    def fill(self, node: Node, index: ChildIndex) -> bool:
        """Index the children of ``node``."""
        if node.kind == "pickles":
            index.entries = []
            for number, start in enumerate(self._starts):
                index.add_entry(self.value_entry(self.program(start), number))
            self.result.close_node(node, node.known_status or Status.COMPLETE, None)
            return True
        program = self.program(node.start)
        end = program.end if node.end is None else min(node.end, program.end)
        if node.kind in ("items", "pairs"):
            self._fill_part(program, node, index, end)
        else:
            self._fill_value(program, node, index, end)
        if node.known_status is None:
            self.result.close_node(node, Status.COMPLETE, None)
        return True

    def _fill_value(self, program: Program, node: Node, index: ChildIndex, end: int) -> None:
        in_order = node.kind in SEQUENCES and node.note != "small"
        found = Contents(program, node.start, end, index if in_order else None, node.kind)
        index.end = end
        state = found.state
        made = not found.left or found.left[0] & 0xFF in _CALLED  # not only what would be called
        if node.kind == "call" or node.kind == "persistent":
            for entry in self._parts_of_call(program, node, found) if made else ():
                index.add_entry(entry)
        elif node.note == "small":
            for slot, stop in state.parts:
                index.add_entry(self._entry(program, None, slot, stop))
        elif node.kind == "dict" and state.states and node.note == "ordered":
            slot, last = state.states[-1]
            index.add_last(self._entry(program, "__dict__", slot, last))
        if found.wrong is not None:
            at, reason = found.wrong
            finding = Finding("malformed", reason, path=node.path, source=self.result.extraction.name, offset=at)
            self.result.close_node(node, Status.DAMAGED, finding)
        elif node.known_status in _BROKEN or (program.trouble and node.known_status is Status.UNSUPPORTED):
            for entry in self._unfinished(program, node, found.left):
                if index.entries is not None or not in_order:
                    index.add_entry(entry)
                else:
                    index.add_last(entry)
        if not in_order and index.entries is None:
            index.entries = []

    def _fill_part(self, program: Program, node: Node, index: ChildIndex, end: int) -> None:
        """Index the items or pairs that are put into an object."""
        call = node.parent
        assert call is not None  # noqa: S101 -- only calls have such children
        Contents(program, call.start, end, index, node.kind)
        index.end = end

    def _parts_of_call(self, program: Program, node: Node, found: Contents) -> Iterator[Entry]:
        """Yield the children of an object: what makes it, and what is put into it."""
        names: tuple[str, ...] = ("id",) if node.kind == "persistent" else _PARTS_OF_CALL
        parts = found.state.parts
        names += ("more",) * (len(parts) - len(names))
        for name, (slot, end) in zip(names, parts, strict=False):
            yield self._entry(program, name, slot, end)
        if len(found.state.states) > _MOST_STATES:
            raise LimitError(
                "an object is given a state again and again",
                option="",
                wanted=len(found.state.states),
                got=_MOST_STATES,
            )
        for slot, end in found.state.states:
            yield self._entry(program, "state", slot, end)
        number = None if program.arrays is None else program.arrays.number_of(node.start, node.end or program.end)
        if number is not None and program.arrays is not None:
            yield self._array_entry(program, program.arrays.array(number))
        for name, span in (("items", found.items), ("pairs", found.pairs)):
            if span is not None:
                yield Entry(name, name, span[0], span[1])

    def _array_entry(self, program: Program, place: RawArray) -> Entry:
        """Describe the array of joblib that stands behind its description."""
        if place.is_pickle:
            return self.value_entry(program.inner(place.begin), "array")
        last, source = program.known_end, self.result.extraction.name
        status, finding = Status.COMPLETE, None
        if place.end > max(last, place.begin):
            status = cut_status(place.begin < last)
            finding = Finding("truncated", "the bytes of an array end early", source=source, offset=last)
        elif place.doubt:
            status = Status.DAMAGED
            finding = Finding(*place.doubt, source=source, offset=place.begin)
        return Entry("array", "raw", min(place.begin, last), min(place.end, last), status=status, finding=finding)

    def entries(self, node: Node, index: ChildIndex, first: int, count: int) -> list[Entry]:
        """Return entries, reading their opcodes again where only offsets are kept."""
        if index.entries is not None:
            return index.entries[first : first + count]
        program = self.program(node.start)
        ordinal, start = index.checkpoint(first)
        last = -(-(first + count) // index.stride)
        end = index.offsets[last] if last < len(index.offsets) else self._end_of_indexed(index)
        paired = node.shape == "map"
        parts = group(program, start, end, paired=paired)
        entries = []
        skip = first - ordinal
        decoder = self.decoder(program)
        if paired:
            for key, value in list(zip(parts[::2], parts[1::2], strict=False))[skip : skip + count]:
                entry = self._entry(program, self._key(decoder, key), *value, at=key[0] >> 8)
                entries.append(self._judged(decoder, entry, key, "a key") if entry.key is None else entry)
        else:
            in_set = node.kind in ("set", "frozenset")
            for slot, stop in parts[skip : skip + count]:
                entry = self._entry(program, None, slot, stop)
                entries.append(self._judged(decoder, entry, (slot, stop), "in a set") if in_set else entry)
        return entries

    def _judged(self, decoder: Decoder, entry: Entry, part: Part, place: str) -> Entry:
        """Return an entry, DAMAGED if its key, or what is in a set, cannot be there."""
        slot, end = part
        most = self.result.extraction.session.limits.name_bytes
        if end - (slot >> 8) > most or entry.status is not Status.COMPLETE:
            return entry
        try:
            check_key(decoder.decode(slot >> 8, end, most))
        except MalformedError as error:
            entry.status = Status.DAMAGED
            entry.finding = Finding(
                "malformed",
                f"{place} of the pickle is wrong: {error.reason}" if place == "a key" else error.reason,
                source=self.result.extraction.name,
                offset=slot >> 8,
            )
        except (LimitError, UnsupportedError):
            pass  # too large to tell
        return entry

    @staticmethod
    def _end_of_indexed(index: ChildIndex) -> int:
        return index.tail[0].at if index.tail else index.end

    def _key(self, decoder: Decoder, part: Part) -> Key:
        """Return a key as the tree has keys: None for what is no text, bytes or number."""
        slot, end = part
        if end - (slot >> 8) > self.result.extraction.session.limits.name_bytes:
            return None
        try:
            key = decoder.decode(slot >> 8, end, self.result.extraction.session.limits.name_bytes)
        except (MalformedError, LimitError, UnsupportedError):
            return None
        return key if isinstance(key, str | bytes | int) else None

    def _entry(self, program: Program, key: Key, slot: int, end: int, at: int | None = None) -> Entry:
        """Describe one value."""
        start = slot >> 8
        try:
            kind, note = self._kind(program, slot)
        except MalformedError as error:
            finding = self._malformed(error, start)
            return Entry(key, "invalid", start, end, status=Status.DAMAGED, finding=finding, at=at)
        value: Any = UNLOADED_VALUE
        if kind not in SHAPES and kind != "alias" and end - start <= _SMALL:
            try:
                value = self.decoder(program).decode(start, end, _MOST_NAMED)
            except (LimitError, UnsupportedError):
                value = UNLOADED_VALUE
            except MalformedError as error:
                finding = self._malformed(error, start)
                return Entry(key, kind, start, end, status=Status.DAMAGED, finding=finding, at=at)
        meant = program.definition(slot) if kind == "alias" and program.late else None
        if (slot & 0xFF in FILLED and program.is_late(slot)) or (meant is not None and program.is_late(meant[0])):
            finding = Finding(
                "late",
                f"opcodes behind it, at offset {program.late[0]} for one, may change it: what they put in is not shown",
                severity=Severity.WARNING,
                source=self.result.extraction.name,
                offset=start,
            )
            return Entry(key, kind, start, end, status=Status.UNSUPPORTED, finding=finding, at=at, note=note)
        return Entry(key, kind, start, end, value, at=at, note=note)

    def _malformed(self, error: MalformedError, start: int) -> Finding:
        at = start if error.offset is None else error.offset
        return Finding("malformed", error.reason, source=self.result.extraction.name, offset=at)

    def _kind(self, program: Program, slot: int) -> tuple[str, Any]:
        """Return the kind of a value, and what must be kept with it."""
        opcode = slot & 0xFF
        kind = KIND_OF.get(opcode, "invalid")
        if kind == "alias" and opcode != 0x32:
            found = program.definition(slot)
            if found is not None and found[0] & 0xFF not in GETS:
                inner = self._kind(program, found[0])[0]
                return ("alias" if inner in SHAPES else inner), None
        if kind == "call":
            name = self.callable_name(program, slot)
            plain = PLAIN_KINDS.get(name or "")
            if plain == "dict" and not self._is_called_with_nothing(program, slot):
                plain = None  # Python 2 gives it lists of keys and values
            if plain is not None:
                return plain, "ordered" if plain == "dict" else None
        return kind, "small" if opcode in _SMALL_TUPLES else None

    def callable_name(self, program: Program, slot: int) -> str | None:
        """Return the name of what an object is made with; None if it is not simply a global."""
        start = slot >> 8
        try:
            found = self.decoder(program).global_at(start, program.known_end)
        except PASSING:
            raise
        except PparseError:
            return None
        return None if found is None else str(found)

    def _is_called_with_nothing(self, program: Program, slot: int) -> bool:
        """Tell whether an object is made by a global without arguments."""
        start = slot >> 8
        head = self.decoder(program).peek(start, min(start + 1024, program.end))
        state, i, buf = Scan(), 0, head + bytes(SLACK)
        while i < len(head):
            if head[i : i + 1] == b")" or head[i : i + 2] == b"(t":
                return len(state.slots) == 1
            i, why = scan(buf, i, i + 1, start, state)
            if why != MORE or (len(state.slots) > 1 and state.slots[-1] & 0xFF not in NAMES):
                return False
        return False

    def _unfinished(self, program: Program, node: Node, left: list[int]) -> Iterator[Entry]:
        """Yield entries for what was on the stack, above the value itself, when the pickle ended."""
        slots = left if node.kind == "unfinished" else contents(left)
        if slots is left and left and left[0] & 0xFF == MARK:
            slots = left[1:]
        elif slots is left and len(left) < 2 and node.kind != "unfinished":
            return  # a value by itself, which is whole
        paired = node.shape == "map" and node.kind != "call"
        names = iter(_PARTS_OF_CALL if node.kind == "call" and slots is left else ())  # nothing called it yet
        closed = program.closed(slots)
        first_open = 1 + open_from(closed[1:], paired=False) if slots is left else open_from(closed, paired=paired)
        done = ends_of(slots[: first_open + 1], program.end)
        decoder = self.decoder(program)
        if paired:
            for key, value in zip(done[:first_open:2], done[1:first_open:2], strict=False):
                yield self._last_entry(program, self._key(decoder, key), *value, at=key[0] >> 8)
        else:
            for slot, end in done[:first_open]:
                yield self._last_entry(program, next(names, None), slot, end)
        if first_open < len(slots):
            key_part = done[first_open - 1] if paired and first_open % 2 else None
            key_ = self._key(decoder, key_part) if key_part is not None else next(names, None)
            filled = closed[first_open] & 0xFF not in FILLED  # then it is the first part of something else
            yield self._open_entry(program, key_, slots[first_open:], key_part, filled=filled)

    def _last_entry(self, program: Program, key: Key, slot: int, end: int, at: int | None = None) -> Entry:
        """Describe a value that is whole unless the pickle ends inside of it."""
        if end >= program.end and program.cuts(slot):
            return self._open_entry(program, key, [slot], None, at)
        return self._entry(program, key, slot, end, at)

    def _open_entry(
        self,
        program: Program,
        key: Key,
        slots: list[int],
        key_part: Part | None,
        at: int | None = None,
        *,
        filled: bool = False,
    ) -> Entry:
        start, opcode = slots[0] >> 8, slots[0] & 0xFF
        kind = "unfinished"
        if opcode in FILLED and not filled:
            with suppress(PparseError):
                kind = self._kind(program, slots[0])[0]
            kind = kind if kind in SHAPES else "unfinished"  # nothing is put into bytes
        elif program.cuts(slots[0]):
            kind = KIND_OF.get(opcode, "invalid")
        elif opcode in b"c\x93" and len(slots) > 1:
            kind = "call"
        status = program.status
        finding = Finding(
            "truncated" if status is Status.TRUNCATED else "malformed",
            f"the value is not finished where the pickle ends: {program.trouble}",
            source=self.result.extraction.name,
            offset=program.end,
        )
        at = key_part[0] >> 8 if key_part is not None else at
        return Entry(key, kind, start, program.end, status=status, finding=finding, at=at)

    def check(self, *, strict: bool = False) -> Iterator[Visit]:
        """Walk through all; the root is DAMAGED if a value is."""
        root = self.result.root
        damaged = None
        for visit in self.walk(root, detail=False):
            if visit.kind in TEXTS and visit.status is Status.COMPLETE and visit.value is UNLOADED_VALUE:
                fault = fault_in(self.decoder(self.program(visit.start)), visit.start, visit.end or visit.start)
                if fault is not None:
                    visit.status, visit.finding = Status.DAMAGED, self._malformed(fault, visit.start)
            if visit.status is Status.DAMAGED and damaged is None:
                damaged = visit.finding
            yield visit
        if damaged is not None and root.known_status is Status.COMPLETE:
            self.result.close_node(root, Status.DAMAGED, damaged)

    # -- values ------------------------------------------------------------------------------------------------------

    def load_scalar(self, node: Node) -> Any:
        """Return the value of a scalar; of an alias, that of the value it names."""
        size = (node.end or node.start) - node.start
        self.result.extraction.session.limits.check("scalar_bytes", size, "the value", offset=node.start)
        if node.kind == "raw":
            return self.result.extraction.data.read_exact(node.start, size)
        return Decoder(self.program(node.start)).decode(node.start, node.end or node.start)

    def value_inside(self, place: RawArray) -> Any:
        """Return the array of objects that joblib keeps in a pickle of its own. Raises what `Decoder.decode` does."""
        program = self.program(place.begin)
        return self.decoder(program).decode(program.start, program.end - 1)

    def to_python(self, node: Node) -> Any:
        """Return the value of ``node``, with objects as `pparse.parsers.pickle.values.Call`."""
        node._refuse_if_not_whole()
        if node.kind in ("pickles", "items", "pairs"):
            return super().to_python(node)
        if node.kind == "raw":
            return self.load_scalar(node)
        return Decoder(self.program(node.start)).decode(node.start, node.end or node.start)
