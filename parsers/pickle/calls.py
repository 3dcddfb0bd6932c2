"""What a pickle would look up and call if it were loaded: its opcodes followed one by one, as CPython's unpickler does.

A pickle has no branches and no loops. So which names it looks up, and what it calls with which arguments, is decidable,
up to what those calls themselves do: their results are taken for objects that accept everything.

========================  ==============================================================================================
what is on the stack      how it is kept
========================  ==============================================================================================
a constant                a slot, ``offset << 8 | opcode``: its bytes are read again when somebody asks
list, tuple, dict, set    `Stacked`: what it is, how many it holds, the first of them
a name, a call, …         the classes of `pparse.parsers.pickle.values`
========================  ==============================================================================================

Rules, by Modules/_pickle.c and Lib/pickle.py of CPython 3.11:

1. An opcode that the C unpickler refuses ends it: what stands behind is not run. `Event.certain` is False from there on
   if another reader may go on: Python's own unpickler, which joblib's derives from, does not compare frames with the
   data and takes any iterable for arguments.
2. Strings of Python 2 are read as latin-1, and buffers outside of the pickle are taken for given.
3. Nothing is imported, looked up or run.

Memory is bounded: of containers the first parts are kept, of what is memoized 8 bytes for each constant and up to
100,000 objects; of more, only what they are.
"""

from __future__ import annotations

from array import array
from codecs import escape_decode
from warnings import catch_warnings, simplefilter

from pparse.data.base import Range, find_not_utf8
from pparse.data.spliced import SplicedData
from pparse.errors import LimitError
from pparse.parsers.pickle.program import payload
from pparse.parsers.pickle.values import KIND_OF, KINDS, WIDTHS, Call, Extension, Global, Persistent, as_text, constant

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, Final

    from pparse.data.base import Data
    from pparse.tree.host import HostSession

    Value = Any  # a slot, a Box, or an object of pparse.parsers.pickle.values

_BLOCK: Final = 64 << 10
# The longest opcode without a line or a payload has 9 bytes.
_HEAD: Final = 16
# The longest line: GLOBAL has two. A longer one is no name, and a number of so many digits is refused.
_LONGEST_LINE: Final = 1 << 20
# Texts up to this many bytes are decoded at once, longer ones by blocks.
_AT_ONCE: Final = 4 << 10
# How many parts of a container are kept; how many are shown of one argument, and how deep.
_PARTS: Final = 16
_SHOWN: Final = 200
_DEPTH: Final = 8
# The most values on the stack, constants that are memoized, and those with numbers of their own; objects memoized.
_MOST_STACKED: Final = 1 << 20
_MOST_MEMOIZED: Final = 4 << 20
_MOST_NUMBERED: Final = 200_000
_MOST_KEPT: Final = 100_000
_MOST_TORN: Final = 16
_CHECK_EVERY: Final = 4096

# Constants by the size of opcode and argument, if that is fixed.
_FIXED: Final = {0x4E: 1, 0x88: 1, 0x89: 1, 0x29: 1, 0x97: 1, 0x4B: 2, 0x4D: 3, 0x4A: 5, 0x47: 9}
_UTF8: Final = frozenset(b"\x8cX\x8d")
_SIGNED: Final = frozenset(b"T\x8b")
_PYTHON2: Final = frozenset(b"SUT")
_BYTES: Final = frozenset(KINDS["bytes"])
_IN_PIECES: Final = frozenset(KINDS["bytes"] + KINDS["bytearray"])
_NUMBERS: Final = frozenset(b"IL")
_HIGHEST_PROTOCOL: Final = 5
_LISTS, _TUPLES, _DICTS, _SETS, _FROZEN, _BUFFERS = "list", "tuple", "dict", "set", "frozenset", "buffer"


class Stacked:
    """A container on the stack: what it is, how many it holds, and the first of them."""

    __slots__ = ("count", "is_shared", "kind", "loose", "parts")

    def __init__(self, kind: str, parts: list[Value], *, loose: bool = False, is_shared: bool = False) -> None:
        self.kind = kind
        """``list``, ``tuple``, ``dict``, ``set`` or ``frozenset``; ``buffer``: a read-only view of a bytearray."""
        self.count = len(parts)
        """How many values it holds; keys and values of a dict are two, and one key twice counts twice."""
        self.parts = parts[:_PARTS]
        """The first of them."""
        self.loose = loose
        """Whether it is a tuple that holds something without a hash."""
        self.is_shared = is_shared
        """Whether it stands for many, of which nothing else is kept."""

    def add(self, values: list[Value]) -> None:
        """Take more values."""
        if self.is_shared:
            return
        self.count += len(values)
        if len(self.parts) < _PARTS:
            self.parts += values[: _PARTS - len(self.parts)]


def _is_data(value: Value) -> bool:
    """Whether a value is a constant or a container, and no object."""
    return type(value) in (int, Stacked)


_SHARED: Final = {
    (kind, loose): Stacked(kind, [], loose=loose, is_shared=True)
    for kind in (_LISTS, _DICTS, _SETS, _FROZEN, _TUPLES, _BUFFERS)
    for loose in (False, True)
}
_SOME_RESULT: Final = Call(None, None)


class Event:
    """One thing that loading a pickle would do besides making plain data."""

    __slots__ = ("_args", "_kwargs", "_machine", "_target", "certain", "kind", "offset", "opcode")

    def __init__(
        self, machine: Machine, kind: str, opcode: str, offset: int, target: Value, args: Value, kwargs: Value
    ) -> None:
        self._machine, self._target, self._args, self._kwargs = machine, target, args, kwargs
        for at, size in machine.dropped:
            offset += size if offset >= at else 0
        self.opcode = opcode
        """The opcode by its name: ``GLOBAL``, ``REDUCE`` …"""
        self.offset = offset
        """Where it stands in the data."""
        self.kind = kind
        """``name``: one is looked up; ``call``; ``method``: an object is given something; ``persistent``."""
        self.certain = machine.certain
        """Whether the C unpickler gets there; else only some other reader."""

    @property
    def target(self) -> Any:
        """The `Global` that is looked up or called; what else is called; the object that is given something."""
        return self._machine.plain(self._target)

    @property
    def args(self) -> Any:
        """The arguments, as far as they are constant; ``...`` stands for what is not kept."""
        return self._machine.plain(self._args)

    @property
    def kwargs(self) -> Any:
        """The named arguments; None: none."""
        return self._machine.plain(self._kwargs)

    @property
    def made_by(self) -> tuple[str, ...]:
        """Of a result that is called: the name of what made it, and of what made that; "" for what is no global."""
        first = self._target.callable if type(self._target) is Call else None
        second = first.callable if type(first) is Call else None
        return tuple(str(one) if type(one) is Global else "" for one in (first, second) if one is not None)

    @property
    def data(self) -> Data:
        """The data that hold the pickle, without what of a torn frame is not read."""
        return self._machine.data

    def first_bytes(self) -> tuple[int, int] | None:
        """Return begin and end of the bytes that are the first argument; None if that is no constant of bytes."""
        args = self._args
        first = args.parts[0] if type(args) is Stacked and args.parts else None
        return self._machine.bytes_of(first)

    def as_call(self) -> Call:
        """Return it as the call that it is."""
        return Call(self.target, self.args, self.kwargs, self.offset)


class _BadOpcode(Exception):
    """An opcode that no unpickler takes."""


class _Torn(Exception):
    """A frame ends inside of what is read at once: ``at`` where that begins, and where the frame does."""

    def __init__(self, at: int, frame: int, frame_end: int) -> None:
        super().__init__(at)
        self.at, self.frame, self.frame_end = at, frame, frame_end


class CallReading:
    """One pass over a pickle."""

    def __init__(
        self, data: Data, start: int, end: int, session: HostSession | None = None, *, frames: bool = True
    ) -> None:
        """``frames``: as the C unpickler reads from a file object, which drops what is left of a frame where it needs
        more than that at once; else as it reads from bytes."""
        self.data, self.start, self.end, self.session = data, start, end, session
        self.frames = frames
        self.behind: Callable[[int], int] | None = None
        """Says where opcodes go on behind the BUILD that ends at an offset: joblib puts arrays there."""
        self.is_torn = False
        """Whether a frame ended inside of what was read at once: other readers run other opcodes."""
        self.trouble = ""
        """Why it ended before STOP."""
        self.stopped_at = start
        """Behind its STOP; behind the last opcode that was run if there is none."""

    def events(self) -> Iterator[Event]:
        """Yield what the pickle would look up and call, in order, until it ends or breaks.

        Raises `LimitError` if more is on the stack or memoized than is kept.
        """
        data, end, told = self.data, self.end, 0
        ends: dict[int, int] = {}
        dropped: list[tuple[int, int]] = []
        while True:
            machine = Machine(self, data, end, ends if self.frames else None, dropped)
            try:
                for number, event in enumerate(machine.run()):
                    if number >= told:
                        told += 1
                        yield event
                self.trouble, self.stopped_at = machine.trouble, machine.place()
                return
            except _Torn as torn:
                if len(dropped) >= _MOST_TORN:
                    raise LimitError("frames end inside of opcodes too often", option="", got=_MOST_TORN) from None
                self.is_torn = True
                ends[torn.frame] = torn.at
                dropped = [*dropped, (torn.at, torn.frame_end - torn.at)]
                data = SplicedData([Range(data, 0, torn.at), Range(data, torn.frame_end, end)])
                end -= torn.frame_end - torn.at


class Machine:
    """The unpickler: stack, marks, memo."""

    def __init__(
        self, reading: CallReading, data: Data, end: int, ends: dict[int, int] | None, dropped: list[tuple[int, int]]
    ) -> None:
        """``ends``: where frames end that are torn, by their begin; None: frames are not looked at.

        ``dropped``: where bytes were dropped before, and how many: offsets behind are larger in the file.
        """
        start = reading.start
        gap = data.next_gap(start) if data.gaps else None
        self.data, self.session, self.behind, self.dropped = data, reading.session, reading.behind, dropped
        self.end = end if gap is None else min(end, gap.offset)
        """Where the bytes end that are there."""
        self.certain = True
        """Whether the C unpickler has not stopped before."""
        self.trouble = ""
        """Why it ended before STOP."""
        self._ends, self._frame, self._frame_end = ends, 0, 0
        self._stack: list[Value] = []
        self._marks: list[int] = []
        self._fence = 0
        self._first = -1
        self._memo: array[int] = array("q")
        self._others: dict[int, int] = {}
        self._kept: list[Any] = []
        self._globals: dict[tuple[str, str], Global] = {}
        self._numbers: dict[int, int] = {}  # of globals, and of what stands for many, in `_kept`
        self._buf, self._base, self._i = b"", start, 0
        self._sizes: dict[int, int] = {}  # of bytearrays that were changed
        self._found: list[Event] = []

    # -- bytes -------------------------------------------------------------------------------------------------------

    def _fill(self, size: int) -> None:
        """Have ``size`` bytes from the next opcode on at hand, fewer where the data end."""
        at = self._base + self._i
        if self.session is not None:
            self.session.check_cancelled()
        self._buf = self.data.pread(at, min(max(size, _BLOCK), self.end - at)) if at < self.end else b""
        self._base, self._i = at, 0

    def _take(self, size: int) -> bytes:
        """Return the next bytes. Raises `_BadOpcode` if fewer are there."""
        self._cross(size)
        if len(self._buf) - self._i < size:
            self._fill(size)
            if len(self._buf) < size:
                raise _BadOpcode("the pickle ends inside an opcode")
        found = self._buf[self._i : self._i + size]
        self._i += size
        return found

    def _cross(self, size: int) -> None:
        at = self._base + self._i
        if at < self._frame_end < at + size:
            raise _Torn(at, self._frame, self._frame_end)

    def _line(self) -> bytes:
        """Return the next line, with its end; the C unpickler wants one, Python's drops a byte instead."""
        size = _BLOCK
        while True:
            end = self._buf.find(b"\n", self._i)
            if end >= 0:
                self._cross(end + 1 - self._i)
                line = self._buf[self._i : end + 1]
                self._i = end + 1
                return line
            if self._base + len(self._buf) >= self.end:
                break
            if size > _LONGEST_LINE:
                raise LimitError("a line of a pickle is too long", option="", wanted=size, got=_LONGEST_LINE)
            self._fill(size)
            size *= 4
        self.certain = False
        line = self._buf[self._i :]
        self._i = len(self._buf)
        return line[:-1] + b"\n"

    # -- values ------------------------------------------------------------------------------------------------------

    def constant(self, slot: int) -> Any:
        """Return the value of a constant; of a long one, its beginning and ``…``; of one that was changed, ``...``."""
        if slot in self._sizes:
            return ...
        at, op = slot >> 8, slot & 0xFF
        head = self.data.pread(at, min(_HEAD, self.end - at))
        width = WIDTHS.get(op)
        if width is not None:
            size = int.from_bytes(head[1 : 1 + width], "little")
            if size > _AT_ONCE:
                if op in _BYTES:
                    return self.data.pread(at + 1 + width, _SHOWN)
                return self._beginning(at + 1 + width, "utf-8") if KIND_OF[op] == "str" else ...
            found = constant(self.data.pread(at, 1 + width + size))
            return found if op in _BYTES else as_text(found)
        if op in _FIXED:
            return constant(head)
        raw = self.data.pread(at, min(_AT_ONCE, self.end - at))
        end = raw.find(b"\n")
        if end < 0:
            return self._beginning(at + 1, "latin-1") if KIND_OF[op] == "str" else ...
        if op == 0x50:  # an id outside of the pickle
            return raw[1:end].decode("ascii", "replace")
        if op == 0x46:
            return float(raw[1:end].split(b"\0")[0])
        if op in _NUMBERS:
            found = _whole(raw[1:end].removesuffix(b"L" if op == 0x4C else b""))
            if op == 0x49 and end == 3 and found in (0, 1):  # of ``-0`` and the like, only C's makes a bool
                return found == 1 if raw[1:2] == b"0" else ...
            return ... if found is None else found
        return as_text(constant(raw[: end + 1]))

    def _beginning(self, at: int, encoding: str) -> str:
        return f"{self.data.pread(at, _SHOWN).decode(encoding, 'replace')}…"

    def bytes_of(self, value: Value) -> tuple[int, int] | None:
        """Return where the bytes of a constant of bytes begin and end; None if it is no such constant."""
        return payload(self.data, value >> 8, self.end) if self.type_of(value) == "bytes" else None

    def plain(self, value: Value) -> Any:
        """Return a value as data of Python, bounded: ``...`` stands for what is not kept, or is too much."""
        return self._plain(value, [_SHOWN], _DEPTH)

    def _plain(self, value: Value, room: list[int], depth: int) -> Any:
        room[0] -= 1
        if value is None or room[0] < 0 or depth < 0:
            return None if value is None else ...
        if type(value) is int:
            return self.constant(value)
        if type(value) is Call:
            return Call(*(self._plain(part, room, depth - 1) for part in (value.callable, value.args, value.kwargs)))
        if type(value) is Persistent:
            return Persistent(self._plain(value.id, room, depth - 1))
        if type(value) is not Stacked:
            return value
        if value.is_shared:
            return ...
        parts = [self._plain(part, room, depth - 1) for part in value.parts]
        if value.kind == _DICTS:
            found = dict(zip(parts[::2], parts[1::2], strict=False))
            return {**found, ...: ...} if value.count > len(parts) else found
        return _PLAIN[value.kind](parts + [...] * (value.count > len(parts)))

    def type_of(self, value: Value) -> str:
        """Return what a value is: ``int``, ``str``, ``list`` …; "" for what only a call knows."""
        if type(value) is int:
            return KIND_OF[value & 0xFF]
        return value.kind if type(value) is Stacked else ""

    def _has_hash(self, value: Value) -> bool:
        if type(value) is int:
            return KIND_OF[value & 0xFF] != "bytearray"
        return type(value) is not Stacked or value.kind == _FROZEN or (value.kind == _TUPLES and not value.loose)

    def _need_hashes(self, values: list[Value]) -> None:
        if not all(map(self._has_hash, values)):
            raise _BadOpcode("what has no hash is a key, or in a set")

    def place(self) -> int:
        """Return the offset of the next opcode in the file."""
        at = self._base + self._i
        return at + sum(size for begin, size in self.dropped if at >= begin)

    # -- the stack ---------------------------------------------------------------------------------------------------

    def _pop(self) -> Value:
        if len(self._stack) <= self._fence:
            raise _BadOpcode("an opcode finds too few values on the stack")
        return self._stack.pop()

    def _top(self) -> Value:
        if len(self._stack) <= self._fence:
            raise _BadOpcode("an opcode finds too few values on the stack")
        return self._stack[-1]

    def _popped(self) -> list[Value]:
        """Take what lies above the topmost mark."""
        if not self._marks:
            raise _BadOpcode("an opcode finds no mark")
        at = self._marks.pop()
        self._fence = self._marks[-1] if self._marks else 0
        taken = self._stack[at:]
        del self._stack[at:]
        return taken

    def _push(self, value: Value) -> None:
        if len(self._stack) >= _MOST_STACKED:
            reason = "more values are on the stack than pparse follows"
            raise LimitError(reason, option="", wanted=len(self._stack) + 1, got=_MOST_STACKED)
        self._stack.append(value)

    def _box(self, kind: str, parts: list[Value]) -> Stacked:
        loose = kind == _TUPLES and not all(map(self._has_hash, parts))
        if len(self._stack) > _MOST_KEPT:
            return _SHARED[kind, loose]
        return Stacked(kind, parts, loose=loose)

    # -- the memo ----------------------------------------------------------------------------------------------------

    def _put(self, number: int) -> None:
        value = self._top()
        code = value if type(value) is int else ~self._keep(value)
        first, memo = self._first, self._memo
        if first < 0:
            self._first = first = number
        place = number - first
        if 0 <= place < len(memo):
            memo[place] = code
        elif place == len(memo):
            if place >= _MOST_MEMOIZED:
                raise LimitError("more is memoized than pparse follows", option="", got=_MOST_MEMOIZED)
            memo.append(code)
            self._others.pop(number, None)
        else:
            if len(self._others) >= _MOST_NUMBERED and number not in self._others:
                raise LimitError("more is memoized than pparse follows", option="", got=_MOST_NUMBERED)
            self._others[number] = code

    def _keep(self, value: Any) -> int:
        """Return the number of an object that is memoized; of too many, of one that stands for all of its kind."""
        is_full = len(self._kept) >= _MOST_KEPT
        if type(value) is Global or is_full:
            if type(value) is not Global:
                value = _SHARED[value.kind, value.loose] if type(value) is Stacked else _SOME_RESULT
            known = self._numbers.setdefault(id(value), len(self._kept))
            if known < len(self._kept):
                return known
        self._kept.append(value)
        return len(self._kept) - 1

    def _get(self, number: int) -> None:
        place = number - self._first
        if self._first >= 0 and 0 <= place < len(self._memo):
            code = self._memo[place]
        else:
            found = self._others.get(number)
            if found is None:
                raise _BadOpcode(f"nothing was memoized as number {number}")
            code = found
        self._push(code if code >= 0 else self._kept[~code])

    # -- the loop ----------------------------------------------------------------------------------------------------

    def run(self) -> Iterator[Event]:
        """Run the opcodes; yield what they look up and call."""
        found, steps = self._found, 0
        try:
            while True:
                if len(self._buf) - self._i < _HEAD:
                    self._fill(_HEAD)
                    if not self._buf:
                        raise _BadOpcode("the pickle ends before its STOP")
                at = self._base + self._i
                op = self._buf[self._i]
                self._i += 1
                if op in _FIXED:
                    self._take(_FIXED[op] - 1)
                    self._push(at << 8 | op)
                elif op in WIDTHS:
                    self._counted(op, at)
                elif op == 0x2E:
                    self._pop()
                    return
                else:
                    handler = _HANDLERS.get(op)
                    if handler is None:
                        raise _BadOpcode(f"there is no opcode {op:#04x}")
                    handler(self, op, at)
                    if found:
                        yield from found
                        found.clear()
                steps += 1
                if steps % _CHECK_EVERY == 0 and self.session is not None:
                    self.session.check_cancelled()
        except _BadOpcode as ended:
            self.trouble = str(ended)
        yield from found

    def _counted(self, op: int, at: int) -> None:
        width = WIDTHS[op]
        raw = self._take(width)
        size = int.from_bytes(raw, "little", signed=op in _SIGNED)
        begin = self._base + self._i
        if op not in _IN_PIECES:
            self._cross(size)
        if not 0 <= size <= self.end - begin:
            raise _BadOpcode("the pickle ends inside a value" if size >= 0 else "a length is negative")
        if op in _UTF8 and size <= _AT_ONCE:
            try:
                self._take(size).decode("utf-8", "surrogatepass")
            except UnicodeDecodeError:
                raise _BadOpcode("a text is not UTF-8") from None
        else:
            if op in _UTF8 and find_not_utf8(self.data, begin, begin + size, "surrogatepass") is not None:
                raise _BadOpcode("a text is not UTF-8")
            self._skip(size)
        self._push(at << 8 | op)

    def _skip(self, size: int) -> None:
        self._i += size
        if self._i > len(self._buf):
            self._base, self._buf, self._i = self._base + self._i, b"", 0

    # -- opcodes -----------------------------------------------------------------------------------------------------

    def _event(self, kind: str, op: str, at: int, target: Value, args: Value = None, kwargs: Value = None) -> None:
        self._found.append(Event(self, kind, op, at, target, args, kwargs))

    def _named(self, opcode: str, at: int, module: str, name: str) -> Global:
        known = self._globals.get((module, name))
        if known is None:
            if len(self._globals) >= _MOST_NUMBERED:
                raise LimitError("more names are looked up than pparse follows", option="", got=_MOST_NUMBERED)
            known = self._globals[module, name] = Global(module, name)
        self._event("name", opcode, at, known)
        return known

    def _call(self, opcode: str, at: int, target: Value, args: Value, kwargs: Value = None) -> None:
        """Note a call, and push its result."""
        if _is_data(target):
            raise _BadOpcode(f"a {self.type_of(target)} is called")
        self._event("call", opcode, at, target, args, kwargs)
        self._push(Call(target, args, kwargs, at))

    def _check_arguments(self, args: Value) -> None:
        """The C unpickler wants a tuple; Python's unpacks whatever can be."""
        kind = self.type_of(args)
        if kind in ("none", "int", "float"):
            raise _BadOpcode(f"the arguments of a call are a {kind}")
        self.certain = self.certain and kind == _TUPLES

    def _global(self, op: int, at: int) -> None:
        module, name = self._line(), self._line()
        self.certain = self.certain and len(module) > 1 and len(name) > 1
        self._push(self._named("GLOBAL", at, _decoded(module), _decoded(name)))

    def _stack_global(self, op: int, at: int) -> None:
        name, module = self._pop(), self._pop()
        words = []
        for word in (module, name):
            kind = self.type_of(word)
            if kind not in ("str", ""):
                raise _BadOpcode(f"a name is a {kind}")
            self.certain = self.certain and kind == "str"
            words.append(self.constant(word) if kind else _UNKNOWN_NAME)
        self._push(self._named("STACK_GLOBAL", at, *words))

    def _extension(self, op: int, at: int) -> None:
        width = 1 << (op - 0x82)
        code = int.from_bytes(self._take(width), "little", signed=width == 4)
        if code <= 0:
            raise _BadOpcode("the code of an extension is not positive")
        self.certain = False  # nobody registers codes
        self._event("name", f"EXT{width}", at, Extension(code))
        self._push(Extension(code))

    def _inst(self, op: int, at: int) -> None:
        module, name = self._line(), self._line()
        # Without a mark, Python's unpickler looks the name up before it fails.
        self.certain = self.certain and len(module) > 1 and len(name) > 1 and bool(self._marks)
        target = self._named("INST", at, _decoded(module, "ascii"), _decoded(name, "ascii"))
        self._call("INST", at, target, self._box(_TUPLES, self._popped()))

    def _obj(self, op: int, at: int) -> None:
        taken = self._popped()
        if not taken:
            raise _BadOpcode("an opcode finds too few values on the stack")
        self._call("OBJ", at, taken[0], self._box(_TUPLES, taken[1:]))

    def _reduce(self, op: int, at: int) -> None:
        args, target = self._pop(), self._pop()
        if not _is_data(target):
            self._check_arguments(args)
        self._call("REDUCE", at, target, args)

    def _newobj(self, op: int, at: int) -> None:
        kwargs = self._pop() if op == 0x92 else None
        args, target = self._pop(), self._pop()
        if kwargs is not None and self.type_of(kwargs) not in (_DICTS, ""):
            raise _BadOpcode("named arguments are no dict")
        self.certain = self.certain and (kwargs is None or self.type_of(kwargs) == _DICTS)
        if not _is_data(target):
            self._check_arguments(args)
        self._call("NEWOBJ_EX" if op == 0x92 else "NEWOBJ", at, target, args, kwargs)

    def _build(self, op: int, at: int) -> None:
        state, target = self._pop(), self._top()
        if _is_data(target):
            self._build_plain(state)
        else:
            self._event("method", "BUILD", at, target, state)
            if self.behind is not None:
                to = self.behind(at + 1)
                self._skip(max(0, to - at - 1))

    def _build_plain(self, state: Value) -> None:
        """Give a state to what has no attributes, so that only one which sets none is taken."""
        slots: Value = None
        if type(state) is Stacked and state.kind == _TUPLES and state.count == 2 and not state.is_shared:
            state, slots = state.parts
        taken = self.type_of(state) == "none" and (slots is None or self.type_of(slots) == _DICTS)
        for part in (state, slots):
            if part is not None and (_is_data(part) and not self._is_nothing(part)):
                raise _BadOpcode("what has no attributes is given a state")
            taken = taken and (part is None or _is_data(part))
        self.certain = self.certain and taken  # else Python's takes it: what is false for it sets nothing

    def _is_nothing(self, value: Value) -> bool:
        """Whether a value is false for Python."""
        if type(value) is Stacked:
            return value.count == 0
        kind = self.type_of(value)
        if kind == "bytearray":
            return not self._size_of(value)
        return kind == "buffer" or not self.constant(value)  # one that is given may have no bytes

    def _append(self, op: int, at: int) -> None:
        taken = [self._pop()] if op == 0x61 else self._popped()
        opcode = "APPEND" if op == 0x61 else "APPENDS"
        target = self._top()
        if not _is_data(target):
            self._method(opcode, at, target, taken)
        elif type(target) is Stacked and target.kind == _LISTS:
            target.add(taken)
        elif taken and self.type_of(target) != "bytearray":
            raise _BadOpcode(f"something is appended to a {self.type_of(target)}")
        elif taken:
            self._check_bytes(taken)
            self._resize(target, self._size_of(target) + len(taken))

    def _check_bytes(self, values: list[Value]) -> None:
        for value in values:
            kind = self.type_of(value)
            if kind not in ("int", "bool", "") or (kind and not 0 <= self.constant(value) < 256):
                raise _BadOpcode("what is no byte is put into a bytearray")
            self.certain = self.certain and bool(kind)

    def _resize(self, slot: int, size: int) -> None:
        """Note that a bytearray was changed, and how many bytes it has now."""
        if len(self._sizes) >= _MOST_NUMBERED and slot not in self._sizes:
            raise LimitError("more bytearrays are changed than pparse follows", option="", got=_MOST_NUMBERED)
        self._sizes[slot] = size

    def _method(self, opcode: str, at: int, target: Value, taken: list[Value]) -> None:
        """Note that an object is given values; if there are none, only Python's unpickler extends it by them."""
        if taken or opcode == "APPENDS":
            self._event("method", opcode, at, target, self._box(_LISTS, taken))
            self._found[-1].certain = self.certain and bool(taken)

    def _set_items(self, op: int, at: int) -> None:
        if op == 0x73:
            value, key = self._pop(), self._pop()
            taken = [key, value]
        else:
            taken = self._popped()
        target, odd = self._top(), len(taken) % 2
        self.certain = self.certain and not odd  # Python's unpickler sets the pairs before
        if not _is_data(target):
            self._method("SETITEM" if op == 0x73 else "SETITEMS", at, target, taken[: len(taken) - odd])
        if odd:
            raise _BadOpcode("a key has no value")
        if type(target) is Stacked and target.kind == _DICTS:
            self._need_hashes(taken[::2])
            target.add(taken)
        elif taken and _is_data(target):
            self._set_at_places(target, taken)

    def _set_at_places(self, target: Value, taken: list[Value]) -> None:
        """``list[place] = value``."""
        kind = self.type_of(target)
        if kind not in (_LISTS, "bytearray"):
            raise _BadOpcode(f"items are set in a {kind}")
        for place, value in zip(taken[::2], taken[1::2], strict=True):
            what = self.type_of(place)
            if what not in ("int", "bool", ""):
                raise _BadOpcode(f"an item of a {kind} is set at a {what}")
            if kind == "bytearray":
                self._check_bytes([value])
                self._resize(target, self._size_of(target))
            if not what or (type(target) is Stacked and target.is_shared):
                self.certain = False
                continue
            size = target.count if type(target) is Stacked else self._size_of(target)
            if not -size <= self.constant(place) < size:
                raise _BadOpcode(f"an item of a {kind} is set behind its end")
            if type(target) is Stacked and 0 <= (nth := self.constant(place) % size) < len(target.parts):
                target.parts[nth] = value

    def _size_of(self, slot: int) -> int:
        """Return how many bytes a bytearray has."""
        known = self._sizes.get(slot)
        return int.from_bytes(self.data.pread((slot >> 8) + 1, 8), "little") if known is None else known

    def _add_items(self, op: int, at: int) -> None:
        taken, target = self._popped(), self._top()
        if not _is_data(target):
            self._method("ADDITEMS", at, target, taken)
        elif type(target) is Stacked and target.kind == _SETS:
            self._need_hashes(taken)
            target.add(taken)
        elif taken:
            raise _BadOpcode(f"items are added to a {self.type_of(target)}")

    def _make(self, op: int, at: int) -> None:
        kind = _MADE[op]
        parts = [] if op in _EMPTY else self._popped()
        if kind == _DICTS:
            if len(parts) % 2:
                raise _BadOpcode("a key has no value")
            self._need_hashes(parts[::2])
        elif kind == _FROZEN:
            self._need_hashes(parts)
        self._push(self._box(kind, parts))

    def _small_tuple(self, op: int, at: int) -> None:
        count = op - 0x84
        if len(self._stack) - self._fence < count:
            raise _BadOpcode("an opcode finds too few values on the stack")
        parts = self._stack[-count:]
        del self._stack[-count:]
        self._push(self._box(_TUPLES, parts))

    def _drop(self, op: int, at: int) -> None:
        if op == 0x31:
            self._popped()
        elif op == 0x32:
            self._push(self._top())
        elif self._marks and self._marks[-1] == len(self._stack):
            self._popped()
        else:
            self._pop()

    def _mark(self, op: int, at: int) -> None:
        if len(self._marks) >= _MOST_STACKED:
            raise LimitError("more marks are on the stack than pparse follows", option="", got=_MOST_STACKED)
        self._fence = len(self._stack)
        self._marks.append(self._fence)

    def _memoize(self, op: int, at: int) -> None:
        if op == 0x94:
            self._put(self._memo_size)
        elif op == 0x71:
            self._put(self._take(1)[0])
        elif op == 0x72:
            self._put(int.from_bytes(self._take(4), "little"))
        else:
            line = self._line()
            self._top()
            number = self._number(line)
            if number < 0:
                raise _BadOpcode("a number of the memo is negative")
            self._put(number)

    @property
    def _memo_size(self) -> int:
        """How many numbers of the memo are taken."""
        return len(self._memo) + len(self._others)

    def _number(self, line: bytes) -> int:
        if len(line) < 2 or len(line) > _SHOWN:
            raise _BadOpcode("a number of the memo is none")
        try:
            return int(line.split(b"\0")[0])
        except ValueError:
            raise _BadOpcode("a number of the memo is none") from None

    def _recall(self, op: int, at: int) -> None:
        if op == 0x68:
            self._get(self._take(1)[0])
        elif op == 0x6A:
            self._get(int.from_bytes(self._take(4), "little"))
        else:
            self._get(self._number(self._line()))

    def _proto(self, op: int, at: int) -> None:
        protocol = self._take(1)[0]
        if protocol > _HIGHEST_PROTOCOL:
            raise _BadOpcode(f"protocol {protocol} is not known")

    def _open_frame(self, op: int, at: int) -> None:
        size = int.from_bytes(self._take(8), "little")
        if self._ends is None:
            return
        at = self._base + self._i
        if at in self._ends:
            self._frame, self._frame_end = at, self._ends[at]
            return
        self._cross(size)
        if size > self.end - at:
            self.certain = False
        elif at + size > self._frame_end:
            self._frame, self._frame_end = at, at + size

    def _read_only(self, op: int, at: int) -> None:
        value = self._top()
        kind = self.type_of(value)
        if kind not in ("bytes", "bytearray", "buffer", "") and not (kind == "str" and value & 0xFF in _PYTHON2):
            raise _BadOpcode(f"a {kind} is no buffer")
        self.certain = self.certain and kind not in ("", "str")  # texts of Python 2 may be read as bytes
        if kind == "bytearray":  # bytes are read-only by themselves
            self._stack[-1] = _SHARED[_BUFFERS, False]

    def _persistent(self, op: int, at: int) -> None:
        if op == 0x51:
            id = self._pop()
            self._event("persistent", "BINPERSID", at, None, id)
        else:
            line = self._line()
            _decoded(line, "ascii")
            id = at << 8 | op
            self._event("persistent", "PERSID", at, None, id)
        self._push(Persistent(id))

    def _text_line(self, op: int, at: int) -> None:
        """Push a constant that is written as a line, if it can be read."""
        line = self._line()
        if len(line) < 2 and op in b"ILF":
            raise _BadOpcode("a number has no digits")
        _LINES[op](self, line)
        self._push(at << 8 | op)

    def _whole_line(self, line: bytes) -> None:
        if _whole(line[:-1]) is None:
            self.certain = False  # Python can be told to read that many digits

    def _long_line(self, line: bytes) -> None:
        if _whole(line[:-1].removesuffix(b"L"), octal=False) is None:
            self.certain = False

    def _float_line(self, line: bytes) -> None:
        text = line[:-1].split(b"\0")[0]
        try:
            value = float(text)
        except ValueError:
            raise _BadOpcode("a number has no digits") from None
        huge = value in (float("inf"), float("-inf")) and b"n" not in text.lower()
        self.certain = self.certain and not huge and text.strip() == text and b"_" not in text

    def _quoted_line(self, line: bytes) -> None:
        text = line[:-1]
        if len(text) < 2 or text[:1] != text[-1:] or text[:1] not in (b"'", b'"'):
            raise _BadOpcode("a string is not in quotes")
        if b"\\" in text:
            with catch_warnings():
                simplefilter("ignore")  # an escape that is not known is text
                try:
                    escape_decode(text[1:-1])
                except ValueError:
                    raise _BadOpcode("a string has an escape that is none") from None

    def _unicode_line(self, line: bytes) -> None:
        if b"\\" in line:
            try:
                line[:-1].decode("raw-unicode-escape")
            except UnicodeDecodeError:
                raise _BadOpcode("a text has an escape that is none") from None


def _decoded(line: bytes, encoding: str = "utf-8") -> str:
    try:
        return line[:-1].decode(encoding)
    except UnicodeDecodeError:
        raise _BadOpcode("a name is no text") from None


def _whole(text: bytes, *, octal: bool = True) -> int | None:
    """Return the integer that C's ``strtol`` or Python reads in a text; None: more digits than Python reads."""
    text = text.split(b"\0")[0]
    if octal and not text:
        return 0  # strtol reads nothing, and ends at the NUL
    try:
        return int(text, 0)
    except ValueError:
        digits = text.strip().lstrip(b"+-")
        if octal and digits[:1] == b"0" and digits.strip(b"01234567") == b"" and not text[-1:].isspace():
            return int(text, 8)
        if len(digits) > 4_300 and digits.isdigit():
            return None
        raise _BadOpcode("a number has no digits") from None


_UNKNOWN_NAME: Final = "?"
_PLAIN: Final[dict[str, Callable[[list[Any]], Any]]] = {_LISTS: list, _TUPLES: tuple, _SETS: set, _FROZEN: frozenset}
_MADE: Final = {0x5D: _LISTS, 0x7D: _DICTS, 0x8F: _SETS, 0x74: _TUPLES, 0x6C: _LISTS, 0x64: _DICTS, 0x91: _FROZEN}
_EMPTY: Final = frozenset(b"]}\x8f")
_LINES: Final[dict[int, Callable[[Machine, bytes], None]]] = {
    0x49: Machine._whole_line,
    0x4C: Machine._long_line,
    0x46: Machine._float_line,
    0x53: Machine._quoted_line,
    0x56: Machine._unicode_line,
}
_HANDLERS: Final[dict[int, Callable[[Machine, int, int], None]]] = {
    **dict.fromkeys(b"\x94qrp", Machine._memoize),
    **dict.fromkeys(b"hjg", Machine._recall),
    0x28: Machine._mark,
    **dict.fromkeys(_MADE, Machine._make),
    **dict.fromkeys(b"\x85\x86\x87", Machine._small_tuple),
    **dict.fromkeys(b"ae", Machine._append),
    **dict.fromkeys(b"su", Machine._set_items),
    0x90: Machine._add_items,
    0x63: Machine._global,
    0x93: Machine._stack_global,
    **dict.fromkeys(b"\x82\x83\x84", Machine._extension),
    0x69: Machine._inst,
    0x6F: Machine._obj,
    0x52: Machine._reduce,
    **dict.fromkeys(b"\x81\x92", Machine._newobj),
    0x62: Machine._build,
    **dict.fromkeys(b"012", Machine._drop),
    **dict.fromkeys(b"ILFSV", Machine._text_line),
    **dict.fromkeys(b"PQ", Machine._persistent),
    0x80: Machine._proto,
    0x95: Machine._open_frame,
    0x98: Machine._read_only,
}
