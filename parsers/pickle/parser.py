"""Pickles, protocols 0 to 5.

A pickle is a program for a stack machine: what a value is, and where it ends, is known only when later opcodes have
used it. So there are no states that read children in turn; instead

- `pparse.parsers.pickle.program` reads each pickle once, from its first opcode to STOP;
- `fill` reads a node's opcodes once more (those of the pickle's own value were just read) and keeps where its children
  begin and what they are; large children are jumped over;
- `entries` reads the opcodes of a group of children again if there were too many to keep, and
  `pparse.parsers.pickle.values` makes values: small ones that follow each other all at once, for `check` and viewers.

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
from pparse.errors import DataError, LimitError, MalformedError, PparseError, UnsupportedError
from pparse.findings import BROKEN, Finding, Severity, Status
from pparse.kernels.pickle_scan import DUP, GETS, LONG_LINE, MARK, MORE, NAMED, SLACK, STOPPED, Scan, ends_of, scan
from pparse.limits import are, count_words
from pparse.parsers.pickle.joblib import WATCHED
from pparse.parsers.pickle.program import (
    FILLED,
    MOST_STATES,
    NAMES,
    Contents,
    Program,
    contents,
    fault_in,
    group,
    latest,
    open_from,
)
from pparse.parsers.pickle.reading import Parts
from pparse.parsers.pickle.values import KIND_OF, KINDS, Call, Decoder, Extension, Global, check_key, key_of
from pparse.tree.engine import GROUP
from pparse.tree.entry import LIST, MAP, UNLOADED_VALUE, Entry
from pparse.tree.index import STRIDE
from pparse.tree.node import Node
from pparse.tree.parser import Confidence, Listing, Parser, signatures

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any, ClassVar, Final

    from pparse.parsers.pickle.grades import PickleVerdict
    from pparse.parsers.pickle.joblib import RawArray
    from pparse.tree.code_use import CodeUse
    from pparse.tree.entry import Key
    from pparse.tree.index import ChildIndex
    from pparse.tree.parser import Excerpt
    from pparse.tree.result import Result
    from pparse.tree.visit import Visit

    Part = tuple[int, int]
    Known = Mapping[int, Any]

# -- Which kinds of nodes have children --------------------------------------------------------------------------------

SHAPES: Final = {
    **dict.fromkeys(("pickles", "tuple", "list", "set", "frozenset", "items", "unfinished"), LIST),
    **dict.fromkeys(("dict", "call", "pairs", "persistent"), MAP),
}
# Kinds whose children follow each other, so that offsets are kept instead of entries.
SEQUENCES: Final = frozenset(("tuple", "list", "dict", "set", "frozenset", "items", "pairs"))
# Kinds of calls whose result is plain data.
PLAIN_KINDS: Final = {
    "_codecs.encode": "bytes",
    "collections.OrderedDict": "dict",
    **{
        f"{module}.{name}": name for module in ("builtins", "__builtin__") for name in ("bytes", "bytearray", "complex")
    },
}


# Programs that are kept of many pickles in one file.
_PROGRAMS_KEPT: Final = 8
# Values up to this many bytes are decoded with their entry.
_SMALL: Final = 256
# Containers up to this many bytes are checked without nodes, if they name no more of others.
_AT_ONCE: Final = 1 << 10
# Values up to this many bytes are decoded together.
_TOGETHER: Final = 16 << 10
# Memory of a byte of opcodes as objects.
_AS_OBJECTS: Final = 30
# And of others that it names so many.
_MOST_NAMED: Final = 64 << 10
_NOTHING: Final[Known] = {}
_NO_PART: Final = 0xFF
# What makes a value without parts, of its own bytes or by a number.
_PLAIN_OPCODES: Final = frozenset(
    b"".join(KINDS[kind] for kind in ("none", "bool", "int", "float", "str", "bytes")) + b"hjg"
)
_ZEROS: Final = 64 << 10
_SMALL_TUPLES: Final = frozenset(b"\x85\x86\x87")
_CALLED: Final = frozenset(b"R\x81\x92oiQ")
_PARTS_OF_CALL: Final = ("callable", "args", "kwargs")


class PickleParser(Parser, Listing):
    """A pickle, or several in a row."""

    name = "pickle"
    description = "Python pickle, protocols 0 to 5"
    extensions: ClassVar[tuple[str, ...]] = (".pkl", ".pickle", ".pck", ".p", ".joblib", ".dill")
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
        self.starts: list[int] = []
        """Where the pickles begin."""
        self._programs: dict[int, Program] = {}

    @classmethod
    def match(cls, excerpt: Excerpt) -> Confidence:
        """LIKELY for bytes that are opcodes of a pickle with a protocol; POSSIBLE for those of an old one."""
        head = excerpt.head(4096)
        state = Scan()
        state.watched = WATCHED
        # Protocol 0 is text: it must end in this block, or be long and full of marks.
        i, why = scan(head + bytes(SLACK), 0, len(head), 0, state)
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
        start = self.starts[max(0, bisect_right(self.starts, pos) - 1)] if self.starts else pos
        if len(self._programs) == 1 and (only := self._programs.get(start)) is not None and not only.arrays:
            return only
        extraction = self.result.extraction
        place = extraction.session, extraction.data, start, extraction.find_end(), extraction.start
        found = latest(self._programs, start, _PROGRAMS_KEPT, lambda: Program(*place))
        if self._is_longer and start == self.starts[-1]:
            found.arrays.doubt_last()
        return found.program_at(pos)

    def root_entry(self) -> Entry:
        """Read the pickles, each to its STOP."""
        extraction = self.result.extraction
        end = extraction.find_end()
        if end <= extraction.start:
            finding = self.note("truncated", "the pickle is empty", end)
            return Entry(None, "unknown", end, end, status=Status.TRUNCATED, finding=finding)
        last = self.read_pickles()
        pos = last.end
        if not last.trouble and pos < end:
            self.note_trailing(pos, end)
        if len(self.starts) == 1:
            return self.value_entry(last, None)
        root = Entry(None, "pickles", extraction.start, pos, status=None)
        if last.trouble:
            root.status, root.finding = last.status, self._note_trouble(last)
        return root

    def global_names(self) -> Iterator[str]:
        """Yield the name of each global that the pickles name."""
        if not self.starts:
            self.read_pickles()
        for start in self.starts:
            program = self.program(start)
            for inner in (program, *map(program.inner, program.arrays.pickles())):
                yield from (str(found) for _, found in self._globals_of(inner))

    def _globals_of(self, program: Program) -> Iterator[tuple[int, Global | Extension]]:
        """Yield offset and name of each global; ``?`` for one that cannot be read."""
        decoder = program.decoder
        for slot, end in program.globals:
            at, found = slot >> 8, None
            with suppress(DataError):
                if slot & 0xFF == 0x69:  # INST
                    module, name, _ = decoder.read(at + 1, end).decode("utf-8", "replace").split("\n", 2)
                    found = Global(module, name)
                else:
                    found = decoder.decode(at, end)
            yield at, found if isinstance(found, Global | Extension) else Global("?", "?")

    def facts(self) -> Iterator[tuple[str, str]]:
        """Yield the number of pickles, and the protocol of the first."""
        if len(self.starts) > 1:
            yield "pickles", f"{len(self.starts):,}"
        head = self.result.extraction.data.pread(self.starts[0], 2) if self.starts else b""
        yield "protocol", str(head[1]) if len(head) == 2 and head[0] == 0x80 else "0 or 1"

    def details(self) -> Iterator[tuple[str, str]]:
        """Yield the number of pickles, the protocol of the first, and the globals that they name."""
        from pparse.tree.code_use import code_lines

        yield from self.facts()
        found = list(self.globals())
        yield from code_lines(found)
        if not found:
            yield "globals", "none"

    def globals(self) -> Iterator[CodeUse]:
        """Yield what loading the pickles would look up and call, each name once.

        The opcodes are followed one by one, unless all readers look up the same names, and none of these does harm.
        """
        # Not imported by who lists tensors.
        from pparse.parsers.pickle.grades import PickleVerdict

        verdict = PickleVerdict()
        try:
            if not self.starts:
                self.read_pickles()
        except LimitError as error:  # what a tree of it needs is too much; its opcodes can be followed nevertheless
            with suppress(LimitError):
                self._judge_unread(verdict)
            verdict.note_limit(error, self.result.extraction.start)
        for start in self.starts:
            program = self.program(start)
            self._judge_code(program, verdict)
            for begin in program.arrays.pickles():
                self._judge_code(program.inner(begin), verdict)
            if program.trouble:  # what it would call behind that is not known
                self._note_trouble(program)
        yield from verdict.uses.values()

    def _judge_unread(self, verdict: PickleVerdict) -> None:
        """Follow the pickles, one behind the other, without what is known of them."""
        from pparse.parsers.pickle.calls import CallReading

        extraction = self.result.extraction
        pos, end, count = extraction.start, extraction.find_end(), 0
        while not count or (pos < end and self.goes_on(count, pos)):
            extraction.session.limits.check("entries", count, "the number of pickles")
            reading = CallReading(extraction.data, pos, end, extraction.session)
            verdict.read(reading)
            if reading.trouble:
                break
            pos, count = reading.stopped_at, count + 1

    def _judge_code(self, program: Program, verdict: PickleVerdict) -> None:
        from pparse.parsers.pickle.calls import CallReading

        if program.is_regular and verdict.take_quiet(list(self._globals_of(program))):
            return
        first = CallReading(program.data, program.start, program.find_end, program.session)
        if program.arrays:  # read by joblib, which derives from Python's unpickler
            first.behind, first.frames = program.arrays.behind, False
        verdict.read(first)

    def read_pickles(self) -> Program:
        """Find where each pickle begins, and return the last one."""
        extraction = self.result.extraction
        pos, end = extraction.start, extraction.find_end()
        last = None
        starts = []
        while last is None or (pos < end and self.goes_on(len(starts), pos)):
            starts.append(pos)
            extraction.session.limits.check("entries", len(starts), "the number of pickles")
            last = self.program(pos)
            if last.trouble:
                break
            pos = last.end
        self.starts = starts
        return last

    def goes_on(self, count: int, pos: int) -> bool:
        """Tell whether another pickle begins at ``pos``, behind ``count`` of them, by its PROTO."""
        head = self.result.extraction.data.pread(pos, 2)
        return head[:1] == b"\x80" and head[1:] <= b"\5"  # also if it is cut there

    def note_trailing(self, pos: int, end: int) -> None:
        """Note that bytes ``[pos, end)`` follow the last pickle, or what belongs to it."""
        data = self.result.extraction.data
        zeros = end - pos <= _ZEROS and not data.pread(pos, end - pos).strip(b"\0")
        if not zeros and self.starts:
            self._is_longer = True
        reason = "zeros follow the pickle" if zeros else "other bytes follow the pickle"
        self.note("trailing", reason, pos, end - pos, severity=trailing_severity("stream"))

    def value_entry(self, program: Program, key: Key) -> Entry:
        """Describe the value of a pickle, as a child ``key``."""
        slots = program.state.slots
        finding = self._note_trouble(program) if program.trouble else None
        if not slots:
            return Entry(key, "unknown", program.start, program.end, status=program.status, finding=finding)
        if finding is not None:
            at = slots[0] >> 8
            kind = "unfinished"
            if len(slots) == 1 or slots[0] & 0xFF in FILLED:
                with suppress(PparseError):
                    kind = self._kind(program, slots[0])[0]
            return Entry(key, kind, at, program.end, status=program.status, finding=finding)
        for code, reason in program.refusals():
            self.note(code, f"{reason}; Python refuses the pickle", program.start)
        if program.state.extension is not None:
            reason = "a class or function is named by a code: only a program that registered it reads the pickle"
            self.note("extension", reason, program.state.extension, severity=Severity.WARNING)
        if len(slots) > 1:
            below = sum(slot & 0xFF != MARK for slot in slots) - 1
            reason = f"{count_words(below, 'value')} below the one that STOP takes {are(below)} never used"
            self.note("unused", reason, program.end - 1, severity=Severity.WARNING)
        return self._entry(program, key, (slots[-1], program.end - 1))

    def _note_trouble(self, program: Program) -> Finding:
        return self.note(code_of(program.status), program.trouble, program.end)

    def _malformed(self, error: MalformedError, start: int) -> Finding:
        return self.finding_at("malformed", error.reason, "", start if error.offset is None else error.offset)

    # -- children ----------------------------------------------------------------------------------------------------

    def fill(self, node: Node, index: ChildIndex) -> bool:
        """Index the children of ``node``."""
        if node.kind == "pickles":
            index.entries = []
            for number, start in enumerate(self.starts):
                index.add_entry(self.value_entry(self.program(start), number))
            self.result.close_node(node, node.known_status or Status.COMPLETE, None)
            return True
        program = self.program(node.start)
        end = program.end if node.end is None else min(node.end, program.end)
        if node.kind in ("items", "pairs"):
            assert node.parent is not None  # noqa: S101 -- only calls have such children
            Contents(program, node.parent.start, end, index, node.kind)
            index.end = end
        else:
            self._fill_value(program, node, index, end)
        return True

    def _fill_value(self, program: Program, node: Node, index: ChildIndex, end: int) -> None:
        in_order = node.kind in SEQUENCES and node.note != "small"
        found = Contents(program, node.start, end, index if in_order else None, node.kind)
        index.end = end
        state = found.state
        made = not found.state.slots or found.state.slots[0] & 0xFF in _CALLED  # not only what would be called
        if node.kind == "call" or node.kind == "persistent":
            for entry in self._parts_of_call(program, node, found) if made else ():
                index.add_entry(entry)
        elif node.note == "small":
            for part in state.parts:
                index.add_entry(self._entry(program, None, part))
        elif node.kind == "dict" and state.states and node.note == "ordered":
            index.add_last(self._entry(program, "__dict__", state.states[-1]))
        if found.wrong is not None:
            at, reason = found.wrong
            finding = self.finding_at("malformed", reason, node.path, at)
            self.result.close_node(node, Status.DAMAGED, finding)
        elif node.known_status in BROKEN or (program.trouble and node.known_status is Status.UNSUPPORTED):
            add = index.add_last if in_order and index.entries is None else index.add_entry
            for entry in self._unfinished(program, node, found.state.slots):
                add(entry)
        if not in_order and index.entries is None:
            index.entries = []
        if in_order and 0 < index.count <= GROUP and found.wrong is None and not index.tail:  # they are known
            entries = self._entries_of(program, node, index.note.between(node.start, end), slice(GROUP))
            index.group = kept = (0, entries)
            self.result.extraction.session.indexes.keep_group(index, kept)

    def _parts_of_call(self, program: Program, node: Node, found: Contents) -> Iterator[Entry]:
        """Yield the children of an object: what makes it, and what is put into it."""
        names: tuple[str, ...] = ("id",) if node.kind == "persistent" else _PARTS_OF_CALL
        parts = found.state.parts
        names += ("more",) * (len(parts) - len(names))
        for name, part in zip(names, parts, strict=False):
            yield self._entry(program, name, part)
        states = found.state.states
        if len(states) > MOST_STATES:
            reason = "an object is given a state again and again"
            raise LimitError(reason, option="", wanted=len(states), got=MOST_STATES)
        for part in states:
            yield self._entry(program, "state", part)
        number = program.arrays.number_of(node.start, node.end or program.end)
        if number is not None:
            yield self._array_entry(program, program.arrays.array(number))
        for name, span in (("items", found.items), ("pairs", found.pairs)):
            if span is not None:
                yield Entry(name, name, span[0], span[1])

    def _array_entry(self, program: Program, place: RawArray) -> Entry:
        """Describe the array of joblib that stands behind its description."""
        if place.is_pickle:
            return self.value_entry(program.inner(place.begin), "array")
        last = program.find_end
        status, finding = Status.COMPLETE, None
        if place.end > max(last, place.begin):
            status = cut_status(place.begin < last)
            finding = self.finding_at("truncated", "the bytes of an array end early", "", last)
        elif place.doubt:
            status, finding = Status.DAMAGED, self.finding_at(*place.doubt, "", place.begin)
        return Entry("array", "raw", min(place.begin, last), min(place.end, last), status=status, finding=finding)

    def entries(self, node: Node, index: ChildIndex, first: int, count: int) -> list[Entry]:
        """Return entries, reading their opcodes again where only offsets are kept."""
        if index.entries is not None:
            return index.entries[first : first + count]
        program = self.program(node.start)
        parts = self._parts_again(program, node, index, first, count)
        skipped = first - index.checkpoint(first)[0]
        return self._entries_of(program, node, parts, slice(skipped, skipped + count))

    def _parts_again(self, program: Program, node: Node, index: ChildIndex, first: int, count: int) -> list[Part]:
        """Return the parts of children of a sequence of which offsets are kept, from the checkpoint before on."""
        start = index.checkpoint(first)[1]
        last = -(-(first + count) // index.stride)
        end = index.offsets[last] if last < len(index.offsets) else index.tail[0].at if index.tail else index.end
        parts = index.note.between(start, end) if isinstance(index.note, Parts) else []
        return parts or group(program, start, end, paired=node.shape == "map")

    def _entries_of(self, program: Program, node: Node, parts: list[Part], wanted: slice) -> list[Entry]:
        """Return entries of the ``wanted`` children of a sequence, from the parts that it has."""
        if node.shape != "map":
            known = self._plain_values(program, parts[wanted])
            entries = [self._entry(program, None, part, known=known) for part in parts[wanted]]
            for part, entry in zip(parts[wanted], entries, strict=True) if node.kind in ("set", "frozenset") else ():
                self._judge(program, entry, part)
            return entries
        pairs = list(zip(parts[::2], parts[1::2], strict=False))[wanted]
        known = self._plain_values(program, [part for pair in pairs for part in pair])
        entries = []
        for key, value in pairs:
            entry = self._entry(program, self._key(program, key, known), value, key[0] >> 8, known)
            if entry.key is None:
                self._judge(program, entry, key, "a key of the pickle is wrong: ")
            entries.append(entry)
        return entries

    def _plain_values(self, program: Program, parts: list[Part]) -> dict[int, Any]:
        """Return the values of small parts by their offsets: of those next to each other that have no parts, and of
        which nothing is wrong. They are decoded together."""
        found: dict[int, Any] = {}
        run: list[int] = []
        until = 0
        for slot, end in (*parts, (_NO_PART, 0)) if program.is_plain else ():
            start = slot >> 8
            fits = slot & 0xFF in _PLAIN_OPCODES and end - start <= _SMALL
            if run and (not fits or start != until):
                with suppress(DataError):
                    values = program.decoder.decode_several(run[0], until, _SMALL) if len(run) > 1 else []
                    if len(values) == len(run):
                        found.update(zip(run, values, strict=True))
                run.clear()
            if fits:
                run.append(start)
                until = end
        return found

    def _judge(self, program: Program, entry: Entry, part: Part, what: str = "") -> None:
        """Mark an entry DAMAGED if its key, or what is in a set, cannot be there; not if that is too large to tell."""
        start, end = part[0] >> 8, part[1]
        most = self.result.extraction.session.limits.name_bytes
        with suppress(LimitError, UnsupportedError):
            try:
                if end - start <= most and entry.status is Status.COMPLETE:
                    check_key(program.decoder.decode(start, end, most))
            except MalformedError as error:
                entry.status = Status.DAMAGED
                entry.finding = self.finding_at("malformed", what + error.reason, "", start)

    def _key(self, program: Program, part: Part, known: Known = _NOTHING) -> Key:
        """Return a key as the tree has keys: None for what is no text, bytes or number."""
        slot, end = part
        most = self.result.extraction.session.limits.name_bytes
        if end - (slot >> 8) > most:
            return None
        key = known.get(slot >> 8)
        if key is None:
            try:
                key = program.decoder.decode(slot >> 8, end, most)
            except (MalformedError, LimitError, UnsupportedError):
                return None
        return key_of(key)

    def _entry(self, program: Program, key: Key, part: Part, at: int | None = None, known: Known = _NOTHING) -> Entry:
        """Describe one value; of what is ``known``, by its offset, the value need not be decoded."""
        (slot, end), kind, value = part, "", UNLOADED_VALUE
        start = slot >> 8
        try:
            kind, note = self._kind(program, slot)
            if kind not in SHAPES and kind != "alias" and end - start <= _SMALL:
                value = known[start] if start in known else program.decoder.decode(start, end, _MOST_NAMED)
        except MalformedError as error:
            finding = self._malformed(error, start)
            return Entry(key, kind or "invalid", start, end, status=Status.DAMAGED, finding=finding, at=at)
        except (LimitError, UnsupportedError):
            if not kind:
                raise
        meant = program.definition(slot) if kind == "alias" and program.late else None
        if (slot & 0xFF in FILLED and program.is_late(slot)) or (meant is not None and program.is_late(meant)):
            where = f"opcodes behind it, at offset {program.late[0]} for one"
            reason = f"{where}, may change it: what they put in is not shown"
            finding = self.finding_at("late", reason, "", start, severity=Severity.WARNING)
            return Entry(key, kind, start, end, status=Status.UNSUPPORTED, finding=finding, at=at, note=note)
        return Entry(key, kind, start, end, value, at=at, note=note)

    def _kind(self, program: Program, slot: int) -> tuple[str, Any]:
        """Return the kind of a value, and what must be kept with it."""
        opcode = slot & 0xFF
        kind = KIND_OF.get(opcode, "invalid")
        if kind == "alias" and opcode != 0x32:
            found = program.definition(slot)
            if found is not None and found & 0xFF not in GETS:
                inner = self._kind(program, found)[0]
                return ("alias" if inner in SHAPES else inner), None
        if kind == "call":
            name = None
            with suppress(DataError):
                name = program.decoder.global_at(slot >> 8, program.find_end)
            plain = PLAIN_KINDS.get(str(name))
            if plain == "dict" and not self._is_called_with_nothing(program, slot):
                plain = None  # Python 2 gives it lists of keys and values
            if plain is not None:
                return plain, "ordered" if plain == "dict" else None
        return kind, "small" if opcode in _SMALL_TUPLES else None

    def _is_called_with_nothing(self, program: Program, slot: int) -> bool:
        """Tell whether an object is made by a global without arguments."""
        start = slot >> 8
        head = program.decoder.peek(start, min(start + 1024, program.end))
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
        if paired:
            for key, value in zip(done[:first_open:2], done[1:first_open:2], strict=False):
                yield self._last_entry(program, self._key(program, key), value, key[0] >> 8)
        else:
            for part in done[:first_open]:
                yield self._last_entry(program, next(names, None), part)
        if first_open < len(slots):
            key_part = done[first_open - 1] if paired and first_open % 2 else None
            key_ = self._key(program, key_part) if key_part is not None else next(names, None)
            filled = closed[first_open] & 0xFF not in FILLED  # then it is the first part of something else
            at = key_part[0] >> 8 if key_part is not None else None
            yield self._open_entry(program, key_, slots[first_open:], at, filled=filled)

    def _last_entry(self, program: Program, key: Key, part: Part, at: int | None = None) -> Entry:
        """Describe a value that is whole unless the pickle ends inside of it."""
        if part[1] >= program.end and program.cuts(part[0]):
            return self._open_entry(program, key, [part[0]], at)
        return self._entry(program, key, part, at)

    def _open_entry(
        self, program: Program, key: Key, slots: list[int], at: int | None = None, *, filled: bool = False
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
        reason = f"the value is not finished where the pickle ends: {program.trouble}"
        finding = self.finding_at(code_of(program.status), reason, "", program.end)
        return Entry(key, kind, start, program.end, status=program.status, finding=finding, at=at)

    def _values_of(self, program: Program, parts: list[Part], most: int | None = None) -> list[Any]:
        """Return the values of parts that follow each other. Raises what `Decoder.decode` does, if anything is odd."""
        start, end = parts[0][0] >> 8, parts[-1][1]
        is_odd = end - start > _TOGETHER or any(slot & 0xFF == DUP for slot, _ in parts)
        if is_odd or (most is not None and any(_is_deep(program, slot >> 8, stop, most) for slot, stop in parts)):
            raise MalformedError("its values are read one by one", offset=start)
        self.result.extraction.session.check_cancelled()
        values = program.decoder.decode_several(start, end, most)
        if len(values) != len(parts):
            raise MalformedError("opcodes do not make as many values as they should", offset=start)
        return values

    def parts_of(self, node: Node, most: int | None = None) -> Iterator[tuple[Key, Any]]:
        """Yield keys and children of a container: values, if they are small and nothing is wrong, for they are
        decoded together; else nodes. ``most``: how many bytes each of them may have, and what it names.

        Raises what `Node.index_to` does.
        """
        program, done, is_set = self.program(node.start), 0, node.kind in ("set", "frozenset")
        index = node.index_to(None)
        in_order = node.kind in SEQUENCES and node.known_status is Status.COMPLETE and not (is_set and most is None)
        if in_order and isinstance(index.note, Parts) and program.is_plain:
            paired = node.shape == "map"
            for parts in index.note.stretches(_TOGETHER, paired=paired):
                first, done = done, done + (len(parts) // 2 if paired else len(parts))
                try:
                    values = self._values_of(program, parts, most)
                    for value in values if is_set else ():
                        check_key(value)
                    keys = self._keys_of(node, parts, values) if paired else [None] * len(values)
                except DataError:
                    yield from ((kid.key, kid) for kid in map(node.child, range(first, done)))
                else:
                    yield from zip(keys, values[1::2] if paired else values, strict=True)
        if done < index.count:
            yield from ((kid.key, kid) for kid in node.children(done))

    def pairs_of(self, node: Node) -> Iterator[tuple[Any, Any]]:
        """Yield each key and value of a dict, decoded, few at a time: a key may be an object, which the tree does not
        have. What cannot be decoded is the error, whose reason says why.

        Raises what `Node.index_to` does.
        """
        program, index = self.program(node.start), node.index_to(None)
        tail = index.tail or []
        count = index.count - len(tail)
        for first in range(0, count, STRIDE):
            parts = self._parts_again(program, node, index, first, min(STRIDE, count - first))
            values: list[Any] = []
            with suppress(DataError):
                values = self._values_of(program, parts) if program.is_plain else []
            if not values:  # one by one
                values = [self._value_or_error(program, slot >> 8, end) for slot, end in parts]
            yield from zip(values[::2], values[1::2], strict=False)
        for entry in tail:
            at = entry.start if entry.at is None else entry.at
            key = entry.key if entry.key is not None else self._value_or_error(program, at, entry.start)
            if entry.finding is not None:
                yield key, MalformedError(entry.finding.reason, offset=entry.start)
            else:
                yield key, self._value_or_error(program, entry.start, entry.end or entry.start)

    def _value_or_error(self, program: Program, start: int, end: int) -> Any:
        try:
            return self.decoded(program, start, end)
        except DataError as error:
            return error

    def decoded(self, program: Program, start: int, end: int) -> Any:
        """Return the value ``[start, end)`` of a pickle, if there is room for it while it is made. Raises what
        `Decoder.decode` does."""
        amount = _AS_OBJECTS * (end - start) if end - start > _TOGETHER else 0
        with self.result.extraction.session.budget.charge(amount, "a value of a pickle"):
            return program.decoder.decode(start, end)

    def _keys_of(self, node: Node, parts: list[Part], values: list[Any]) -> list[Key]:
        """Return the keys among keys and values, as `_key` does. Raises `MalformedError`, `LimitError`: one is odd."""
        most, keys = self.result.extraction.session.limits.name_bytes, values[::2]
        for (slot, end), key in zip(parts[::2], keys, strict=True):
            check_key(key)
            if end - (slot >> 8) > most or (key == "__dict__" and node.note == "ordered"):
                raise MalformedError("a key is not one of those that are plain", offset=slot >> 8)
        return list(map(key_of, keys))

    def _most_at_once(self, depth: int) -> int:
        """Return how many bytes a container at a ``depth`` may have that is decoded at once.

        A level takes an opcode at least: nothing in it is deeper than nodes may be.
        """
        return min(_AT_ONCE, self.result.extraction.session.limits.depth - depth)

    def is_sound_inside(self, node: Node) -> bool | None:
        """Decode a small container at once, instead of reading the opcodes of each of its values twice."""
        start, end = node.start, node.end
        if end is None or node.kind == "pickles" or end - start > (most := self._most_at_once(node.depth)):
            return None
        program = self.program(start)
        if node.known_status is not Status.COMPLETE or not program.is_plain or _is_deep(program, start, end, most):
            return None
        try:
            program.decoder.decode(start, end, _AT_ONCE)
        except DataError:
            return False
        return True

    def children_in_doubt(self, node: Node) -> Iterator[Node]:
        """Yield the children that are not small values, or among which something may be wrong."""
        most = self._most_at_once(node.depth + 1)
        return (kid for _, kid in self.parts_of(node, most) if isinstance(kid, Node))

    def check(self, *, strict: bool = False) -> Iterator[Visit]:
        """Walk through all; the root is DAMAGED if a value is."""
        root = self.result.root
        damaged = None
        for visit in self.walk(root, detail=False):
            is_left = visit.status is Status.COMPLETE and visit.value is UNLOADED_VALUE
            if is_left and visit.kind in ("str", "global", "bytes"):
                fault = fault_in(self.program(visit.start), visit.start, visit.end or visit.start, visit.kind)
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
        start, end = node.start, node.end or node.start
        self.result.extraction.session.limits.check("scalar_bytes", end - start, "the value", offset=start)
        if node.kind == "raw":
            return self.result.extraction.data.read_exact(start, end - start)
        return Decoder(self.program(start)).decode(start, end)

    def value_inside(self, place: RawArray) -> Any:
        """Return the array of objects that joblib keeps in a pickle of its own. Raises what `Decoder.decode` does."""
        return self.program(place.begin).value()

    def json_default(self, value: object) -> object:
        """Return what a numpy scalar holds, as `pparse info` shows it; of any other object the text."""
        from pparse.parsers.pickle.arrays import number_of, scalar_of

        scalar = scalar_of(value) if isinstance(value, Call) else None
        return super().json_default(value) if scalar is None else number_of(scalar)

    def to_python(self, node: Node) -> Any:
        """Return the value of ``node``, with objects as `pparse.parsers.pickle.values.Call`."""
        node._refuse_if_not_whole()
        if node.kind in ("pickles", "items", "pairs"):
            return super().to_python(node)
        if node.kind == "raw":
            return self.load_scalar(node)
        return Decoder(self.program(node.start)).decode(node.start, node.end or node.start)


def _is_deep(program: Program, start: int, end: int, most: int) -> bool:
    """Whether ``[start, end)`` may be too deep for nodes, or have an object that is given a state (BUILD) more often
    than is shown."""
    size = end - start
    return size > most or (size > MOST_STATES and program.decoder.read(start, end).count(b"b") > MOST_STATES)


def code_of(status: Status) -> str:
    """Return the code of the finding on a pickle that ends as ``status`` says."""
    return "truncated" if status is Status.TRUNCATED else "malformed"
