"""Makes values of opcodes: plain data as Python's own types, everything else as `pparse.parsers.pickle.values`.

Nothing is imported or called by a name that stands in the pickle. A value is made of its own bytes; what it names of
those memoized before is made of theirs, each once, without recursion.
"""

from __future__ import annotations

from codecs import escape_decode
from struct import unpack
from warnings import catch_warnings, simplefilter

from pparse.errors import LimitError, MalformedError, UnsupportedError
from pparse.kernels.pickle_scan import MARK, MORE, SLACK, Scan, scan
from pparse.parsers.pickle.reading import get_number
from pparse.parsers.pickle.values import (
    Call,
    Extension,
    Global,
    Ordered,
    OutOfBand,
    Persistent,
    as_set,
    check_key,
    plain_result,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Final

    from pparse.parsers.pickle.program import Program
    from pparse.parsers.pickle.reading import Arrays

    # Does what the opcode at a place says, and returns where the next one is; None: it has no argument.
    Handler = Callable[["_Frame", int], int | None]

# How often a value may need another one first.
_MOST_FRAMES: Final = 1_000
# What later opcodes may change, or change parts of.
CONTAINERS: Final = (list, tuple, dict, set, frozenset, Call, Persistent)
_WINDOW: Final = 64 << 10
_LONGEST_NAME: Final = 1024
# A global, or what may be one, or a part of its name, that is named again.
_NAMES: Final = frozenset(b"c\x93hjg")


class _Frame:
    """The decoding of one stretch of opcodes."""

    __slots__ = ("arrays", "base", "buf", "end", "i", "marks", "nth", "stack")

    def __init__(self, buf: bytes, start: int, end: int, nth: int, arrays: Arrays | None) -> None:
        self.buf = buf
        self.base = start  # what must be added to a place in `buf`: more behind bytes that are left out
        self.i = 0
        self.end = end
        self.nth = nth  # how many values are memoized before
        self.arrays = arrays
        self.stack: list[Any] = []
        self.marks: list[int] = []


class Decoder:
    """Makes the values of one pickle."""

    def __init__(self, program: Program, window: int = _WINDOW) -> None:
        """``window``: how much is read at once of stretches that are near each other."""
        self.program = program
        """The pickle."""
        self._size = window
        self._window = (0, b"")
        self._objects: dict[int, Any] = {}  # what was memoized, by number in order

    def peek(self, start: int, end: int) -> bytes:
        """Return bytes of the pickle, fewer if some are lost: what is looked for need not reach that far."""
        data = self.program.data
        gap = data.next_gap(start) if data.gaps else None
        return self.read(start, end if gap is None else max(start, min(end, gap.offset)))

    def at_hand(self, start: int, length: int) -> bytes:
        """Return bytes that were read before; none if they were not."""
        base, window = self._window
        return window[start - base : start - base + length] if base <= start <= base + len(window) - length else b""

    def read(self, start: int, end: int) -> bytes:
        """Return bytes of the pickle; small stretches near each other come out of one read."""
        base, window = self._window
        if base <= start and end <= base + len(window):
            return window[start - base : end - base]
        data = self.program.data
        if end - start > self._size // 4:
            return data.read_exact(start, end - start)
        window = data.pread(start, min(self._size, max(self.program.next_array(end), end) - start))
        if len(window) < end - start:
            return data.read_exact(start, end - start)
        self._window = start, window
        return window[: end - start]

    def decode(self, start: int, end: int, most: int | None = None) -> Any:
        """Return the value whose opcodes are ``[start, end)``.

        ``most``: how many bytes the values may have that it names (None: as many as a scalar). Raises
        `MalformedError`, `LimitError`; `UnsupportedError` if it may be changed by opcodes that come later.
        """
        (made,) = self._values(start, end, most, alone=True)
        if self.program.late and end < self.program.late[-1] and isinstance(made, CONTAINERS):
            raise UnsupportedError(
                f"the pickle changes values where it names them again, first at offset {self.program.late[0]}: what"
                " they hold is known of the whole pickle only",
                offset=start,
            )
        return made

    def decode_several(self, start: int, end: int, most: int | None = None) -> list[Any]:
        """Return the values that follow each other in ``[start, end)``, of a pickle that changes none later.

        Raises what `decode` does.
        """
        return self._values(start, end, most, alone=False)

    def _values(self, start: int, end: int, most: int | None, *, alone: bool) -> list[Any]:
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
        limits = self.program.session.limits
        spent = 0
        frames = [self._frame(start, end)]
        asked: list[int] = []
        while True:
            wanted = _run(frames[-1], self._objects, self.program)
            if wanted is not None:
                slot, put = self.program.memoized(wanted)
                if self.program.is_late(slot):
                    raise UnsupportedError(
                        f"the pickle changes a value where it names it again, at offset {self.program.late[0]} for one",
                        offset=frames[-1].base,
                    )
                last = self.program.end_of(slot, put, wanted)
                spent += self.program.size_of(slot >> 8, last)
                limits.check("scalar_bytes", spent, "the values that it names", offset=frames[-1].base)
                if most is not None and spent > most:
                    raise LimitError("the values that it names are too large", option="", wanted=spent, got=most)
                if len(frames) >= _MOST_FRAMES:
                    raise LimitError("values name each other too deep", option="", offset=frames[-1].base)
                frames.append(self._frame(slot >> 8, last))
                asked.append(wanted)
                continue
            done = frames.pop()
            if done.marks or (len(done.stack) != 1 and (alone or frames)):
                raise MalformedError("its opcodes do not make one value", offset=done.base)
            if not frames:
                return done.stack
            # The frame below asks for the number again, and finds the value; a list has put itself there before.
            self._objects.setdefault(asked.pop(), done.stack[0])

    def _frame(self, start: int, end: int) -> _Frame:
        arrays = self.program.arrays
        if arrays is None:
            buf = self.read(start, end)
        else:  # bytes of arrays are not read
            buf = b"".join([self.read(*stretch) for stretch in arrays.stretches(start, end)])
        return _Frame(buf + bytes(9), start, len(buf), self.program.number_at(start), arrays)


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
    return None


def _popped(frame: _Frame) -> list[Any]:
    """Take what lies above the topmost mark from the stack."""
    mark = frame.marks.pop()
    if mark > len(frame.stack):
        raise IndexError
    taken = frame.stack[mark:]
    del frame.stack[mark:]
    return taken


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


def _int_line(raw: bytes) -> int | bool:
    if raw in (b"00", b"01"):
        return raw == b"01"
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


def _raw_text(raw: bytes) -> str:
    return str(raw, "raw-unicode-escape")


def _make_of(make: Callable[[list[Any]], Any]) -> Handler:
    def made(frame: _Frame, _: int) -> None:
        frame.stack.append(make(_popped(frame)))

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


def _setitems(frame: _Frame, _: int) -> None:
    items = _popped(frame)
    _set_pairs(frame.stack[-1], items)


def _setitem(frame: _Frame, _: int) -> None:
    items = frame.stack[-2:]
    target = frame.stack[-3]
    del frame.stack[-2:]
    _set_pairs(target, items)


def _appends(frame: _Frame, _: int) -> None:
    items = _popped(frame)
    _add_items(frame.stack[-1], items)


def _append(frame: _Frame, _: int) -> None:
    item = frame.stack.pop()
    _add_items(frame.stack[-1], [item])


def _reduce(frame: _Frame, i: int) -> None:
    args = frame.stack.pop()
    frame.stack[-1] = _called(frame.stack[-1], args, frame, i)


def _called(target: Any, args: Any, frame: _Frame, i: int) -> Any:
    made = plain_result(str(target), args) if isinstance(target, Global) else None
    return made if made is not None else Call(target, args, start=frame.base + i)


def _newobj_ex(frame: _Frame, i: int) -> None:
    kwargs = frame.stack.pop()
    args = frame.stack.pop()
    frame.stack[-1] = Call(frame.stack[-1], args, kwargs, start=frame.base + i)


def _build(frame: _Frame, i: int) -> None:
    state = frame.stack.pop()
    target = frame.stack[-1]
    if not isinstance(target, Call | Ordered):
        raise MalformedError(f"a {type(target).__name__} is given a state")
    before = target.state
    both = isinstance(before, dict) and isinstance(state, dict)
    target.state = {**before, **state} if both else state if before is None else (before, state)
    number = None if frame.arrays is None else frame.arrays.number_behind(frame.base + i + 1)
    if number is not None and frame.arrays is not None and isinstance(target, Call):
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
    args = tuple(_popped(frame))
    end = _global(frame, i)
    frame.stack[-1] = _called(frame.stack[-1], args, frame, i)
    return end


def _obj(frame: _Frame, i: int) -> None:
    target, *args = _popped(frame)
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
    frame.stack.append(frame.stack[-1])


def _pop_mark(frame: _Frame, _: int) -> None:
    _popped(frame)


def _skip(count: int) -> Handler:
    return lambda _, i: i + count


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
    0x4D: _fixed(2, _unsigned),
    0x4A: _fixed(4, _long),
    0x47: _fixed(8, lambda raw: unpack(">d", raw)[0]),
    0x8A: _counted(1, _long),
    0x8B: _counted(4, _long),
    0x8D: _counted(8, _text),
    0x43: _counted(1, bytes),
    0x42: _counted(4, bytes),
    0x8E: _counted(8, bytes),
    0x96: _counted(8, bytearray),
    0x55: _counted(1, _old_text),
    0x54: _counted(4, _old_text),
    0x49: _line(_int_line),
    0x4C: _line(_digits),
    0x46: _line(float),
    0x53: _line(_quoted),
    0x56: _line(_raw_text),
    0x50: _line(lambda raw: Persistent(_text(raw))),
    0x74: _make_of(tuple),
    0x6C: _make_of(list),
    0x64: _make_of(lambda items: _set_pairs({}, items)),
    0x91: _make_of(lambda items: frozenset(as_set(items, set()))),
    0x75: _setitems,
    0x73: _setitem,
    0x65: _appends,
    0x90: _appends,
    0x61: _append,
    0x52: _reduce,
    0x81: _reduce,
    0x92: _newobj_ex,
    0x62: _build,
    0x63: _global,
    0x93: _stack_global,
    0x69: _inst,
    0x6F: _obj,
    0x51: _persistent,
    0x30: _pop,
    0x31: _pop_mark,
    0x32: _dup,
    0x80: _skip(2),
    0x95: _skip(9),
    0x98: _skip(1),
    0x82: _fixed(1, lambda raw: Extension(_unsigned(raw))),
    0x83: _fixed(2, lambda raw: Extension(_unsigned(raw))),
    0x84: _fixed(4, lambda raw: Extension(_unsigned(raw))),
}
