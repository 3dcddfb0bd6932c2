"""What pickles say, and how it is made of their opcodes: plain data as Python's own types, everything else as the
classes here (names of globals, calls that nobody makes, ids); and the few calls whose result is plain data.

Nothing is imported or called by a name that stands in the pickle. A value is made of its own bytes; what it names of
those memoized before is made of theirs, each once, without recursion.
"""

from __future__ import annotations

from codecs import escape_decode
from collections import OrderedDict
from itertools import islice
from struct import unpack
from warnings import catch_warnings, simplefilter

from pparse.errors import LimitError, MalformedError, UnsupportedError
from pparse.kernels import interpreted
from pparse.kernels.pickle_scan import MARK, MORE, SLACK, Scan, scan
from pparse.parsers.pickle.reading import get_number

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any, Final

    from pparse.parsers.pickle.joblib import Arrays, RawArray
    from pparse.parsers.pickle.program import Program
    from pparse.tree.entry import Key

    # Does what the opcode at a place says, and returns where the next one is; None: it has no argument.
    Handler = Callable[["_Frame", int], int | None]

# What a value is, by the opcode that made it (pickletools.py of CPython).
KINDS: Final = {
    "none": b"N",
    "bool": b"\x88\x89",
    "int": b"IKMJL\x8a\x8b",
    "float": b"FG",
    "str": b"XV\x8c\x8dSTU",
    "bytes": b"BC\x8e",
    "bytearray": b"\x96",
    "buffer": b"\x97",
    "tuple": b")t\x85\x86\x87",
    "list": b"]l",
    "dict": b"}d",
    "set": b"\x8f",
    "frozenset": b"\x91",
    "call": b"R\x81\x92oi",
    "global": b"c\x93",
    "extension": b"\x82\x83\x84",
    "persistent": b"Q",
    "persistent-id": b"P",
    "alias": b"hjg2",
    "unfinished": b"(",
}
KIND_OF: Final = {opcode: kind for kind, opcodes in KINDS.items() for opcode in opcodes}
# Of constants with a length: its bytes, by opcode.
WIDTHS: Final = {
    **dict.fromkeys(b"\x8cCU\x8a", 1),
    **dict.fromkeys(b"XBT\x8b", 4),
    **dict.fromkeys(b"\x8d\x8e\x96", 8),
}

# Tuples are compared and hashed by recursion, and shared ones again and again: larger ones are no keys.
_KEY_DEPTH: Final = 100
_KEY_PARTS: Final = 10_000


class Global:
    """The name of a class or function. It is never looked up."""

    __slots__ = ("_full", "module", "name")

    def __init__(self, module: str, name: str) -> None:
        self.module = module
        """The module that it is said to be in."""
        self.name = name
        """Its name there; with dots for what is inside of a class."""
        self._full = f"{module}.{name}"  # each object of its class is told by it

    def __str__(self) -> str:
        return self._full

    def __repr__(self) -> str:
        return f"Global({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Global) and (self.module, self.name) == (other.module, other.name)

    def __hash__(self) -> int:
        return hash((self.module, self.name))


class Call:
    """An object as its pickle describes it: a call that is not made, and what would be done with the result."""

    __slots__ = ("args", "array", "callable", "end", "items", "kwargs", "pairs", "start", "state")

    def __init__(self, callable: Any, args: Any, kwargs: Any = None, start: int = 0) -> None:
        self.callable = callable
        """What would be called: a `Global`, or anything else that the pickle says."""
        self.args = args
        """With which arguments: a tuple, in pickles that real picklers make."""
        self.kwargs = kwargs
        """And with which named ones; None: none."""
        self.state: Any = None
        """What the object would be given as its state; None: nothing."""
        self.items: list[Any] = []
        """What would be appended to it."""
        self.pairs: list[tuple[Any, Any]] = []
        """Keys and values that would be set in it."""
        self.array: RawArray | None = None
        """The array of joblib that it stands for."""
        self.start = start
        """Offset at which the object begins in the pickle."""

    @property
    def name(self) -> str:
        """Full name of what would be called; "" if that is not a global."""
        return self.callable._full if type(self.callable) is Global else ""

    def __repr__(self) -> str:

        return call_words(self)


class Persistent:
    """A value that lies outside of the pickle, by its id there."""

    __slots__ = ("id",)

    def __init__(self, id: Any) -> None:
        self.id = id
        """The id: any value; torch's are tuples."""

    def __repr__(self) -> str:
        return f"Persistent({self.id!r})" if not isinstance(self.id, tuple | list | dict) else "<Persistent>"


class Extension:
    """A global by its number in a registry that the pickle does not hold (PEP 307)."""

    __slots__ = ("code",)

    name = ""
    """What it is called in its module: nobody knows."""

    def __init__(self, code: int) -> None:
        self.code = code
        """The number."""

    def __str__(self) -> str:
        return f"extension {self.code}"

    def __repr__(self) -> str:
        return f"Extension({self.code})"


class OutOfBand:
    """A buffer that was stored outside of the pickle (PEP 574)."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "OutOfBand()"


@interpreted
class Ordered(OrderedDict):  # type: ignore[type-arg]
    """A ``collections.OrderedDict``, and the state that it was given."""

    state: Any = None
    """Its attributes; None: none."""


MOST_BITS: Final = 14_000
"""Of a number that is shown: Python refuses to write one of more than 4,300 digits."""


def key_of(value: Any) -> Key:
    """Return the key of a child of a dict with this key; None if it is known by its number alone."""
    if isinstance(value, int):
        return value if value.bit_length() <= MOST_BITS else None
    return value if isinstance(value, str | bytes) else None


def check_key(key: Any) -> None:
    """Raise the error of a key, or member of a set, that cannot be hashed, or not in little time."""
    kind = type(key)
    if kind is str or kind is int:
        return
    todo, parts = [(key, 0)], 0
    while todo:
        value, depth = todo.pop()
        if isinstance(value, list | dict | set | bytearray):
            raise MalformedError(f"a {type(value).__name__} is a key, or in a set: it cannot be")
        if isinstance(value, tuple | frozenset):
            parts += len(value)
            if depth >= _KEY_DEPTH or parts > _KEY_PARTS:
                raise LimitError("a key of the pickle is too large", option="", wanted=parts, got=_KEY_PARTS)
            todo.extend((part, depth + 1) for part in value)


def as_set(items: Iterable[Any], into: set[Any]) -> set[Any]:
    """Add ``items`` to a set. Raises `MalformedError` if one cannot be in a set."""
    for item in items:
        check_key(item)
        into.add(item)
    return into


def _set(items: Any = ()) -> Any:
    return as_set(items, set()) if isinstance(items, list | tuple) else None


def _frozenset(items: Any = ()) -> Any:
    return frozenset(as_set(items, set())) if isinstance(items, list | tuple) else None


def _encode(text: Any, encoding: Any = "latin1") -> Any:
    """Bytes as protocols 0 to 2 write them: text of the characters 0 to 255."""
    if type(text) is not str or encoding not in ("latin1", "latin-1", "iso-8859-1"):
        return None
    content = as_latin1(text)
    if content is None:
        raise MalformedError("bytes are written as text with characters above 255")
    return content


def as_latin1(text: str) -> bytes | None:
    """Return the bytes that ``text`` has, a character each; None if a character is above 255."""
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        return None


def as_text(word: Any) -> Any:
    """Return a word that Python 2 wrote as bytes as a text; anything else as it is."""
    return word.decode("latin-1") if isinstance(word, bytes) else word


def _bytes(content: Any = b"") -> Any:
    return bytes(content) if type(content) is bytes else None


def _bytearray(content: Any = b"", encoding: Any = None) -> Any:
    if encoding is not None:
        content = _encode(content, encoding)
    if isinstance(content, list):
        whole = all(type(code) is int and 0 <= code < 256 for code in content)
        content = bytes(content) if whole else None
    return bytearray(content) if type(content) is bytes else None


def _complex(real: Any = 0.0, imag: Any = 0.0) -> Any:
    return complex(real, imag) if type(real) is float and type(imag) is float else None


def _ordered(pairs: Any = ()) -> Any:
    if not isinstance(pairs, list | tuple):
        return None
    made = Ordered()
    for pair in pairs:
        if not isinstance(pair, list | tuple) or len(pair) != 2:
            return None
        check_key(pair[0])
        made[pair[0]] = pair[1]
    return made


# What returns plain data, by its full name: what makes the result, and how many arguments it takes.
_MAKERS: Final[dict[str, tuple[Callable[..., Any], int, int]]] = {
    "_codecs.encode": (_encode, 1, 2),
    "collections.OrderedDict": (_ordered, 0, 1),
    **{
        f"{module}.{name}": maker
        for module in ("builtins", "__builtin__")
        for name, maker in {
            "set": (_set, 0, 1),
            "frozenset": (_frozenset, 0, 1),
            "bytes": (_bytes, 0, 1),
            "bytearray": (_bytearray, 0, 2),
            "complex": (_complex, 1, 2),
        }.items()
    },
}


# -- Values of pickles as short texts: what stands for an object that is never made. Bounded, whatever the value is ----

# How deep values in values are shown, how many of each, letters of a text, bits of an integer, and letters in all.
_DEPTH: Final = 3
_ITEMS: Final = 6
_LETTERS: Final = 40
_BITS: Final = 256
_MOST: Final = 200
# What picklers call to make an object of a class: its first argument.
_CLASS_MAKERS: Final = frozenset(("copyreg._reconstructor", "copy_reg._reconstructor", "copyreg.__newobj__"))


def call_words(call: Call) -> str:
    """Return what a call would make: ``datetime.date(b'…')``, ``shop.Cart() with {'total': 3}``."""
    return _cut(_call(call, _DEPTH), _MOST)


def _call(call: Call, depth: int) -> str:
    name, args = call.name, call.args
    if name in _CLASS_MAKERS and type(args) is tuple and args and isinstance(args[0], Global):
        name, args = str(args[0]), ()
    if depth <= 0:
        return f"{name or '…'}(…)"
    name = name or _words(call.callable, depth - 1)
    shown = _parts(args, depth - 1) if type(args) is tuple else f"*{_words(args, depth - 1)}"
    if call.kwargs:
        shown += f", **{_words(call.kwargs, depth - 1)}"
    more = [_words(given, depth - 1) for given in (call.state, call.items) if given]
    if call.pairs:
        more.append(f"{{{_pairs(call.pairs, len(call.pairs), depth - 2)}}}")
    return f"{name}({shown})" + (f" with {' and '.join(more)}" if more else "")


def _words(value: Any, depth: int) -> str:
    if isinstance(value, Call):
        return _call(value, max(0, depth))
    if isinstance(value, str | bytes | bytearray):
        start = value[:_LETTERS]
        shown = repr(start if isinstance(start, str) else bytes(start))
        return shown + "…" * (len(value) > _LETTERS)
    if type(value) is int and value.bit_length() > _BITS:
        return f"an integer of {value.bit_length():,} bits"
    if isinstance(value, dict):
        return f"{{{_pairs(value.items(), len(value), depth - 1) if depth > 0 else '…' * bool(value)}}}"
    if isinstance(value, list | tuple | set | frozenset):
        around = "[]" if type(value) is list else "()" if type(value) is tuple else "{}"
        inner = _parts(value, depth - 1) if depth > 0 else "…" * bool(value)
        return around[0] + inner + "," * (type(value) is tuple and len(value) == 1 and depth > 0) + around[1]
    return _cut(repr(value), 2 * _LETTERS)


def _parts(values: Any, depth: int) -> str:
    return _joined((_words(value, depth) for value in values), len(values))


def _pairs(pairs: Iterable[tuple[Any, Any]], count: int, depth: int) -> str:
    return _joined((f"{_words(key, depth)}: {_words(value, depth)}" for key, value in pairs), count)


def _joined(texts: Iterable[str], count: int) -> str:
    shown = list(islice(texts, _ITEMS))
    return ", ".join(shown + ["…"] * (count > _ITEMS))


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}…"


# -- The decoder -------------------------------------------------------------------------------------------------------

# How often a value may need another one first.
_MOST_FRAMES: Final = 1_000
# What later opcodes may change, or change parts of.
_CONTAINERS: Final = (list, tuple, dict, set, frozenset, Call, Persistent)
_WINDOW: Final = 64 << 10
_WINDOWS: Final = 4
_LONGEST_NAME: Final = 1024
# What may lie between two stretches that are decoded one after the other: opcodes that put values into others.
_BETWEEN: Final = 16
_NO_VALUES: Final = b"aseut(\x90\x85\x86\x87"
# A global, or what may be one, or a part of its name, that is named again.
_NAMES: Final = frozenset(b"c\x93hjg")


class _Frame:
    """The decoding of one stretch of opcodes: those before ``buf[end]``."""

    __slots__ = ("arrays", "base", "buf", "end", "i", "marks", "nth", "stack")

    def __init__(self, buf: bytes, start: int, end: int, nth: int, arrays: Arrays) -> None:
        self.buf, self.i, self.end, self.arrays = buf, 0, end, arrays
        self.base = start  # what must be added to a place in `buf`: more behind bytes that are left out
        self.nth = nth  # how many values are memoized before
        self.stack: list[Any] = []
        self.marks: list[int] = []

    def popped(self) -> list[Any]:
        """Take what lies above the topmost mark from the stack."""
        mark = self.marks.pop()
        if mark > len(self.stack):
            raise IndexError
        taken = self.stack[mark:]
        del self.stack[mark:]
        return taken


class Decoder:
    """Makes the values of one pickle."""

    def __init__(self, program: Program, window: int = _WINDOW) -> None:
        """``window``: how much is read at once of stretches that are near each other."""
        self.program = program
        """The pickle."""
        self._size = window
        # The last ones: where values stand, and where those do that they name. The newest is the last.
        self._windows: tuple[tuple[int, bytes], ...] = ()
        self._objects: dict[int, Any] = {}  # what was memoized, by number in order
        self._behind = -_BETWEEN - 1, 0  # where the last stretch ended, and how many values are memoized before

    def peek(self, start: int, end: int) -> bytes:
        """Return bytes of the pickle, fewer if some are lost: what is looked for need not reach that far."""
        data = self.program.data
        gap = data.next_gap(start) if data.gaps else None
        return self.read(start, end if gap is None else max(start, min(end, gap.offset)))

    def at_hand(self, start: int, length: int) -> bytes:
        """Return bytes that were read before; none if they were not."""
        windows = self._windows
        for base, window in windows:
            if base <= start <= base + len(window) - length:
                if window is not windows[-1][1]:
                    self._windows = (*(one for one in windows if one[0] != base), (base, window))
                return window[start - base : start - base + length]
        return b""

    def read(self, start: int, end: int) -> bytes:
        """Return bytes of the pickle; small stretches near each other come out of one read, which ends before the bytes
        of an array."""
        found = self.at_hand(start, end - start)
        if found or start == end:
            return found
        data = self.program.data
        if end - start > self._size // 4:
            return data.read_exact(start, end - start)
        last = max(end, self.program.arrays.next_from(end, self.program.end))
        window = data.pread(start, min(self._size, last - start))
        if len(window) < end - start:
            return data.read_exact(start, end - start)
        self._windows = (*self._windows[1 - _WINDOWS :], (start, window))
        return window[: end - start]

    def decode(self, start: int, end: int, most: int | None = None) -> Any:
        """Return the value whose opcodes are ``[start, end)``.

        ``most``: how many bytes the values may have that it names (None: as many as a scalar). Raises
        `MalformedError`, `LimitError`; `UnsupportedError` if it may be changed by opcodes that come later.
        """
        (made,) = self.decode_several(start, end, most, alone=True)
        if self.program.late and end < self.program.late[-1] and isinstance(made, _CONTAINERS):
            what = f"the pickle changes values where it names them again, first at offset {self.program.late[0]}"
            raise UnsupportedError(f"{what}: what they hold is known of the whole pickle only", offset=start)
        return made

    def decode_several(self, start: int, end: int, most: int | None = None, *, alone: bool = False) -> list[Any]:
        """Return the values that follow each other in ``[start, end)``, of a pickle that changes none later; ``alone``:
        the only one there. Raises what `decode` does.
        """
        if len(self._objects) > 100_000:
            self._objects.clear()
        try:
            return self._decode(start, end, most, alone)
        except BaseException:
            self._objects.clear()  # some may be half made
            raise

    def global_at(self, start: int, end: int) -> Any:
        """Return the global that the value ``[start, end)`` begins with, as objects do; None: there is none.

        Raises what `decode` does.
        """
        head = self.peek(start, min(start + _LONGEST_NAME, end))
        if not head or head[0] == MARK:
            return None
        state, i, buf = Scan(), 0, head + bytes(SLACK)
        for _ in range(12):
            i, why = scan(buf, i, min(i + 1, len(head)), start, state)
            if why != MORE or i > len(head):
                return None
            if len(state.slots) == 1 and state.slots[0] & 0xFF in _NAMES:
                found = self.decode(start, start + i, _LONGEST_NAME)
                if isinstance(found, Global):
                    return found
                if not isinstance(found, str):
                    return None
        return None

    def _decode(self, start: int, end: int, most: int | None, alone: bool) -> list[Any]:
        program, spent = self.program, 0
        frames = [self._frame(start, end)]
        asked: list[int] = []
        while True:
            top = frames[-1]
            wanted = _run(top, self._objects, program)
            if wanted is None:
                frames.pop()
                if top.marks or (len(top.stack) != 1 and (alone or frames)):
                    raise MalformedError("its opcodes do not make one value", offset=top.base)
                if not frames:
                    if not top.arrays:
                        self._behind = end, top.nth
                    return top.stack
                # The frame below asks for the number again, and finds the value; a list has put itself there before.
                self._objects.setdefault(asked.pop(), top.stack[0])
                continue
            slot, put = program.memoized(wanted)
            if program.is_late(slot):
                reason = f"the pickle changes a value where it names it again, at offset {program.late[0]} for one"
                raise UnsupportedError(reason, offset=top.base)
            last = program.end_of(slot, put, wanted)
            spent += program.size_of(slot >> 8, last)
            program.session.limits.check("scalar_bytes", spent, "the values that it names", offset=top.base)
            if most is not None and spent > most:
                raise LimitError("the values that it names are too large", option="", wanted=spent, got=most)
            if len(frames) >= _MOST_FRAMES:
                raise LimitError("values name each other too deep", option="", offset=top.base)
            frames.append(self._frame(slot >> 8, last))
            asked.append(wanted)

    def _frame(self, start: int, end: int) -> _Frame:
        arrays = self.program.arrays  # their bytes are not read
        buf = b"".join([self.read(*stretch) for stretch in arrays.stretches(start, end)])
        return _Frame(buf + bytes(9), start, len(buf), self._number_at(start), arrays)

    def _number_at(self, start: int) -> int:
        """Return how many values are memoized before ``start``: known if the last stretch ended there, or nearly."""
        last, nth = self._behind
        if start == last:
            return nth
        between = self.at_hand(last, start - last) if 0 < start - last <= _BETWEEN else b""
        if between and not between.strip(_NO_VALUES):
            return nth
        return self.program.number_at(start)


def _run(frame: _Frame, objects: dict[int, Any], program: Program) -> int | None:  # noqa: C901 -- a loop, for speed
    """Run the opcodes of ``frame``; return the number of a memoized value that must be made first, None at the end."""
    buf, i, end, stack, nth = frame.buf, frame.i, frame.end, frame.stack, frame.nth
    push = stack.append
    regular = not program.numbers
    first = program.state.first
    handlers, fresh, tuples = _HANDLERS, _FRESH, _TUPLES
    try:
        while i < end:
            op = buf[i]
            if op == 0x94 or op == 0x71 or op == 0x72:  # the most frequent ones of checkpoints
                objects[nth] = stack[-1]
                nth += 1
                i += 1 if op == 0x94 else 2 if op == 0x71 else 5
            elif op == 0x68 or op == 0x6A or op == 0x67:
                number = buf[i + 1] if op == 0x68 else get_number(buf, i, frame.base + i)
                meant = number - first if regular else program.nth(number, frame.base + i)
                if meant < 0 or meant >= nth:
                    raise MalformedError(f"nothing is memoized yet as number {number}", offset=frame.base + i)
                if meant not in objects:
                    frame.i, frame.nth = i, nth
                    return meant
                push(objects[meant])
                i = i + 2 if op == 0x68 else i + 5 if op == 0x6A else buf.index(b"\n", i) + 1
            elif op == 0x8C:
                size = buf[i + 1]
                push(str(buf[i + 2 : i + 2 + size], "utf-8", "surrogatepass"))
                i += 2 + size
            elif op == 0x58:
                size = int.from_bytes(buf[i + 1 : i + 5], "little")
                push(str(buf[i + 5 : i + 5 + size], "utf-8", "surrogatepass"))
                i += 5 + size
            elif op == 0x4B:
                push(buf[i + 1])
                i += 2
            elif op == 0x28:
                frame.marks.append(len(stack))
                i += 1
            elif op == 0x4D:
                push(buf[i + 1] | buf[i + 2] << 8)
                i += 3
            elif op == 0x74:
                push(tuple(frame.popped()))
                i += 1
            elif op in fresh:
                push(fresh[op]())
                i += 1
            elif op in tuples:
                count = tuples[op]
                if len(stack) + count < 0:
                    raise IndexError
                stack[count:] = [tuple(stack[count:])]
                i += 1
            elif op == 0x70:
                objects[nth] = stack[-1]
                nth += 1
                i = buf.index(b"\n", i) + 1
            else:
                handler = handlers.get(op)
                if handler is None:
                    raise MalformedError(f"there is no opcode {op:#04x}")
                i = handler(frame, i) or i + 1
            if i > end:
                raise MalformedError("an opcode goes beyond its value", offset=frame.base + i)
    except MalformedError as error:
        if error.offset is None:
            error.offset = frame.base + i
        raise
    except (IndexError, TypeError, ValueError) as error:
        reason = f"opcode {buf[i]:#04x} does not fit what is on the stack, or its argument is wrong"
        raise MalformedError(reason, offset=frame.base + i) from error
    frame.nth = nth
    return None


def _fixed(size: int, make: Callable[[bytes], Any]) -> Handler:
    def push(frame: _Frame, i: int) -> int:
        frame.stack.append(make(frame.buf[i + 1 : i + 1 + size]))
        return i + 1 + size

    return push


def _counted(width: int, make: Callable[[bytes], Any]) -> Handler:
    def push(frame: _Frame, i: int) -> int:
        begin = i + 1 + width
        size = int.from_bytes(frame.buf[i + 1 : begin], "little")
        if begin + size > frame.end:
            raise MalformedError("a length goes beyond its value", wanted=size, got=frame.end - begin)
        frame.stack.append(make(frame.buf[begin : begin + size]))
        return begin + size

    return push


def _text(raw: bytes) -> str:
    return str(raw, "utf-8", "surrogatepass")


def _old_text(raw: bytes) -> str | bytes:
    """A string of Python 2: text if it is ASCII, else bytes."""
    return raw.decode("ascii") if raw.isascii() else raw


def _unsigned(raw: bytes) -> int:
    return int.from_bytes(raw, "little")


def _long(raw: bytes) -> int:
    return int.from_bytes(raw, "little", signed=True)


def _line(make: Callable[[bytes], Any]) -> Handler:
    def push(frame: _Frame, i: int) -> int:
        end = frame.buf.index(b"\n", i)
        frame.stack.append(make(frame.buf[i + 1 : end]))
        return end + 1

    return push


def _number(raw: bytes) -> Any:
    if raw in (b"00", b"01"):
        return raw == b"01"  # compiled, what is a bool or an int in one expression becomes an int
    return _digits(raw)


def _digits(raw: bytes) -> int:
    text = raw.removesuffix(b"L")
    if len(text) > 4_300:
        raise LimitError("a number has too many digits", option="", wanted=len(text), got=4_300)
    return int(text)


def _quoted(raw: bytes) -> str | bytes:
    if len(raw) < 2 or raw[:1] != raw[-1:] or raw[:1] not in (b"'", b'"'):
        raise MalformedError("a string is not in quotes")
    if b"\\" not in raw:
        return _old_text(raw[1:-1])
    with catch_warnings():
        simplefilter("ignore")  # of escapes that mean nothing, which stay as they are
        return _old_text(escape_decode(raw[1:-1])[0])


def _make_of(make: Callable[[list[Any]], Any]) -> Handler:
    def made(frame: _Frame, _: int) -> None:
        frame.stack.append(make(frame.popped()))

    return made


def _set_pairs(target: Any, items: list[Any]) -> Any:
    if len(items) % 2:
        raise MalformedError("a key has no value")
    if isinstance(target, Call):
        target.pairs.extend(zip(items[::2], items[1::2], strict=True))
        return target
    if not isinstance(target, dict):
        raise MalformedError(f"pairs are put into a {type(target).__name__}")
    for key in items[::2]:
        if type(key) is not str:
            check_key(key)
    target.update(zip(items[::2], items[1::2], strict=True))
    return target


def _add_items(target: Any, items: list[Any]) -> None:
    if isinstance(target, Call):
        target.items.extend(items)
    elif isinstance(target, list):
        target.extend(items)
    elif isinstance(target, set):
        as_set(items, target)
    else:
        raise MalformedError(f"items are put into a {type(target).__name__}")


def _fill(frame: _Frame, i: int) -> None:
    """Put the uppermost values into the one below: those above a mark, or one item or pair."""
    op, stack = frame.buf[i], frame.stack
    if op in b"as":
        first = -1 if op == 0x61 else -2
        items = stack[first:]
        del stack[first:]
    else:
        items = frame.popped()
    (_set_pairs if op in b"us" else _add_items)(stack[-1], items)


def _reduce(frame: _Frame, i: int, kwargs: Any = None) -> None:
    args = frame.stack.pop()
    frame.stack[-1] = _called(frame.stack[-1], args, frame, i, kwargs)


def _called(target: Any, args: Any, frame: _Frame, i: int, kwargs: Any = None) -> Any:
    if kwargs is None and type(target) is Global and target._full in _MAKERS and type(args) is tuple:
        maker, least, most = _MAKERS[target._full]
        made = maker(*args) if least <= len(args) <= most else None
        if made is not None:
            return made
    return Call(target, args, kwargs, frame.base + i)


def _build(frame: _Frame, i: int) -> None:
    state = frame.stack.pop()
    target = frame.stack[-1]
    if not isinstance(target, Call | Ordered):
        raise MalformedError(f"a {type(target).__name__} is given a state")
    before = target.state
    both = isinstance(before, dict) and isinstance(state, dict)
    target.state = {**before, **state} if both else state if before is None else (before, state)
    number = frame.arrays.number_behind(frame.base + i + 1)
    if number is not None and isinstance(target, Call):
        target.array = frame.arrays.array(number)
        frame.base = target.array.end - i - 1


def _global(frame: _Frame, i: int) -> int:
    buf = frame.buf
    middle = buf.index(b"\n", i)
    end = buf.index(b"\n", middle + 1)
    frame.stack.append(Global(_text(buf[i + 1 : middle]), _text(buf[middle + 1 : end])))
    return end + 1


def _stack_global(frame: _Frame, _: int) -> None:
    name = frame.stack.pop()
    module = frame.stack.pop()
    if type(name) is not str or type(module) is not str:
        raise MalformedError("a global is named by something that is no text")
    frame.stack.append(Global(module, name))


def _inst(frame: _Frame, i: int) -> int:
    args = tuple(frame.popped())
    end = _global(frame, i)
    frame.stack[-1] = _called(frame.stack[-1], args, frame, i)
    return end


def _obj(frame: _Frame, i: int) -> None:
    target, *args = frame.popped()
    frame.stack.append(_called(target, tuple(args), frame, i))


def _persistent(frame: _Frame, _: int) -> None:
    frame.stack[-1] = Persistent(frame.stack[-1])


def _pop(frame: _Frame, _: int) -> None:
    if frame.marks and frame.marks[-1] == len(frame.stack):
        frame.marks.pop()
    else:
        frame.stack.pop()


def _dup(frame: _Frame, _: int) -> None:
    if frame.marks and frame.marks[-1] == len(frame.stack):
        raise IndexError
    if not frame.stack:
        raise UnsupportedError("DUP takes the value before it once more: this one cannot be read alone")
    frame.stack.append(frame.stack[-1])


def _pop_mark(frame: _Frame, _: int) -> None:
    frame.popped()


# What makes the value of an opcode without argument; how many values from the end of the stack become a tuple.
_FRESH: Final[dict[int, Callable[[], Any]]] = {
    0x4E: type(None),
    0x88: lambda: True,
    0x89: bool,
    0x29: tuple,
    0x5D: list,
    0x7D: dict,
    0x8F: set,
    0x97: OutOfBand,
}
_TUPLES: Final = {0x85: -1, 0x86: -2, 0x87: -3}
_HANDLERS: Final[dict[int, Handler]] = {
    0x4A: _fixed(4, _long),
    0x47: _fixed(8, lambda raw: unpack(">d", raw)[0]),
    0x4B: _fixed(1, _unsigned),
    0x4D: _fixed(2, _unsigned),
    0x8C: _counted(1, _text),
    0x58: _counted(4, _text),
    0x8A: _counted(1, _long),
    0x8B: _counted(4, _long),
    0x8D: _counted(8, _text),
    0x43: _counted(1, bytes),
    0x42: _counted(4, bytes),
    0x8E: _counted(8, bytes),
    0x96: _counted(8, bytearray),
    0x55: _counted(1, _old_text),
    0x54: _counted(4, _old_text),
    0x49: _line(_number),
    0x4C: _line(_digits),
    0x46: _line(float),
    0x53: _line(_quoted),
    0x56: _line(lambda raw: str(raw, "raw-unicode-escape")),
    0x50: _line(lambda raw: Persistent(_text(raw))),
    0x6C: _make_of(list),
    0x64: _make_of(lambda items: _set_pairs({}, items)),
    0x91: _make_of(lambda items: frozenset(as_set(items, set()))),
    **dict.fromkeys(b"aesu\x90", _fill),
    **dict.fromkeys(b"R\x81", _reduce),
    0x92: lambda frame, i: _reduce(frame, i, frame.stack.pop()),
    0x62: _build,
    0x63: _global,
    0x93: _stack_global,
    0x69: _inst,
    0x6F: _obj,
    0x51: _persistent,
    0x30: _pop,
    0x31: _pop_mark,
    0x32: _dup,
    0x80: lambda _, i: i + 2,
    0x95: lambda _, i: i + 9,
    0x98: lambda _, i: i + 1,
    **{op: _fixed(1 << nth, lambda raw: Extension(_unsigned(raw))) for nth, op in enumerate(b"\x82\x83\x84")},
}


def constant(raw: bytes) -> Any:
    """Return the value of the one opcode in ``raw``, which needs nothing on the stack. Raises `MalformedError`."""
    if raw[0] in _FRESH:
        return _FRESH[raw[0]]()
    frame = _Frame(raw, 0, len(raw), 0, None)  # type: ignore[arg-type]
    _HANDLERS[raw[0]](frame, 0)
    return frame.stack[0]
