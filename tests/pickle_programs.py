"""Pickle programs that no pickler writes: every opcode, in every state of the stack, the memo and the frames.

`program` makes one of a number; the same number makes the same program. Most are put together by `Writer`, which keeps
an approximate stack, so that opcodes mostly find what they need and calls are reached; some opcodes are taken at
random nevertheless. Others are real pickles, or programs, with bytes flipped, cut, put in, or spliced.
"""

from __future__ import annotations

import pickle
import random
import struct
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

#: What EXT1, EXT2 and EXT4 find if these codes are registered.
EXTENSIONS: dict[int, Any] = {1: ("os", "system"), 200: ("a.b", "c.d"), 300: ("posix", "popen"), 70_000: ("m", "n")}

_MODULES = (b"os", b"builtins", b"__builtin__", b"a.b", b"posix", b"torch._utils", b"m\xc3\xb6d", b"")
_NAMES = (b"system", b"getattr", b"eval", b"A.b", b"popen", b"na\xc3\xafve", b"x y", b"")
_TEXTS = (b"os", b"system", b"a", b"", b"builtins", b"exec", b"m\xc3\xb6d", b"x\xed\xa0\x80", b"a" * 300)
_INTS = (
    b"0 1 -1 7 12345 007 08 +5 00 01 000 0x1F 0X1f 0b11 0o17 1_000 1__0 _1 99999999999999999999 "
    b"-9999999999999999999 1L 5l 1.0 True x - + 9223372036854775807 9223372036854775808 -9223372036854775808 2147483648"
).split() + [
    b"",
    b" 7",
    b"0x",
    b"7 ",
    b"\t7",
    b"7\0",
    b"\0",
    b"7\r",
    b"- 1",
    b"1 2",
    b"\xb2",
    b"\xd9\xa3",
    b"9" * 4_300,
    b"9" * 4_301,
    b"0" * 20 + b"1",
]
_LONGS = [
    *_INTS,
    b"0L",
    b"1L",
    b"-1L",
    b"12345678901234567890L",
    b"1LL",
    b"L",
    b" 1L",
    b"1 L",
    b"1L ",
    b"0x1FL",
    b"1_0L",
    b"9" * 4_301 + b"L",
]
_FLOATS = (
    b"0 1.5 -1.5 1e5 inf 1E400 -1e400 -inf nan NaN Infinity infinity 1_0.0 0x1p3 1. .5 1e 1,5 x + -nan 1e-400 1.5L 1d5"
).split() + [b"", b" 1.5", b"1.5 ", b"1.5\0", b"1.5\r", b"1.5\x00x", b"\t2"]
_STRINGS = (
    rb"""'os' "system" 'a\x41' '\n' 'it\'s' "a'b" 'a'b' '' "" 'a" "a' a ' "
    'a 'a\ '\x4' '\xzz' '\101' '\u0041' '\N{DIGIT' \'a' 'a\\' '\8'"""
).split() + [
    b"'a b'",
    b"'\xff\x80'",
    b"'a' ",
    b" 'a'",
    b"'a'\r",
    b"'a\0b'",
    b"'" + b"s" * 200 + b"'",
    b"''' '''",
    b"''a''",
    b"",
]
_UNICODES = [
    b"os",
    b"system",
    b"a\\u0041",
    b"\\U0001F600",
    b"\\u12",
    b"\\ud800",
    b"\\U99999999",
    b"\xe9",
    b"\\\\u0041",
    b"\\",
    b"\\n",
    b"",
    b"a\rb",
    b"a\0b",
]
_INDEXES = [
    b"0",
    b"1",
    b"2",
    b"3",
    b"007",
    b"+1",
    b"-1",
    b" 1",
    b"1 ",
    b"1_0",
    b"0x1",
    b"x",
    b"",
    b"99999",
    b"1L",
    b"1\0",
    b"18446744073709551616",
    b"-0",
    b"1\r",
    b"\xd9\xa1",
]
_PERSIDS = (b"id", b"", b"12", b"a b", b"\xff", b"m\xc3\xb6d", b"('storage', 1)")


class Writer:
    """A program being written: its bytes, and the kinds of what should be on its stack, "(" for a mark."""

    def __init__(self, rnd: random.Random) -> None:
        self.rnd = rnd
        self.out = bytearray()
        self.stack: list[str] = []
        self.memo: dict[int, str] = {}
        # How often an opcode, or a length, is one that does not fit.
        self.wild = rnd.choice((0.0, 0.0, 0.01, 0.03, 0.1))
        self.large = rnd.random() < 0.01

    def odd(self) -> bool:
        return self.rnd.random() < self.wild

    def pick(self, choices: Sequence[bytes], usual: int) -> bytes:
        """Return one of the first ``usual`` choices, or any of them in a wild program."""
        return (
            self.rnd.choice(choices[:usual]) if self.rnd.random() < 0.9 or not self.wild else self.rnd.choice(choices)
        )

    def line(self, opcode: bytes, *lines: bytes) -> None:
        self.out += opcode + b"".join(line + b"\n" for line in lines)

    def sized(self, opcode: bytes, form: str, data: bytes) -> None:
        """Write an opcode with a length; an odd one has another, negative ones included."""
        length = len(data)
        if self.odd():
            top = (1 << 8 * struct.calcsize(form)) - 1
            length = self.rnd.choice((length + 1, max(length - 1, 0), 0, top, top // 2 + 1, top // 2, 255, 256)) & top
        self.out += opcode + length.to_bytes(struct.calcsize(form), "little") + data

    # -- constants

    def text(self) -> str:
        data = self.pick(_TEXTS, 6)
        way = self.rnd.randrange(8)
        if way == 0:
            self.line(b"V", self.pick(_UNICODES, 4))
        elif way == 1:
            self.line(b"S", self.pick(_STRINGS, 6))
        elif way == 2:
            self.sized(b"T", "<I", data)
        elif way == 3:
            self.sized(b"U", "<B", data[:255])
        elif way == 4:
            self.sized(b"\x8d", "<Q", data)
        elif way == 5:
            self.sized(b"X", "<I", data if not self.odd() else b"\xff")
        else:
            self.sized(b"\x8c", "<B", data[:255])
        return "text"

    def number(self) -> str:
        rnd, way = self.rnd, self.rnd.randrange(9)
        if way == 0:
            self.line(b"I", self.pick(_INTS, 5))
        elif way == 1:
            self.line(b"L", self.pick(_LONGS, 5))
        elif way == 2:
            self.line(b"F", self.pick(_FLOATS, 5))
        elif way == 3:
            self.out += b"G" + rnd.choice((bytes(8), struct.pack(">d", 1.5), rnd.randbytes(8)))
        elif way == 4:
            self.sized(b"\x8a", "<B", rnd.randbytes(rnd.choice((0, 1, 2, 9))))
        elif way == 5:
            self.sized(b"\x8b", "<I", rnd.randbytes(rnd.choice((0, 1, 2, 9))))
        else:
            self.out += rnd.choice((b"K" + rnd.randbytes(1), b"M" + rnd.randbytes(2), b"J" + rnd.randbytes(4)))
        return "float" if way in (2, 3) else "int"

    def data(self) -> str:
        data, way = self.rnd.randbytes(self.rnd.randrange(5)), self.rnd.randrange(6)
        if way == 0:
            self.sized(b"B", "<I", data)
        elif way == 1:
            self.sized(b"\x8e", "<Q", data)
        elif way == 2:
            self.sized(b"\x96", "<Q", data)
            if self.rnd.random() < 0.7:
                return "bytearray"
            self.out += b"\x98"
        elif way == 3:
            self.out += b"\x97"
            if self.rnd.random() < 0.4:
                self.out += b"\x98"
        else:
            self.sized(b"C", "<B", data)
        return "bytes"

    def constant(self) -> str:
        way = self.rnd.randrange(10)
        if way < 4:
            return self.text()
        if way < 7:
            return self.number()
        if way < 8:
            return self.data()
        self.out += self.rnd.choice((b"N", b"\x88", b"\x89", b"]", b")", b"}", b"\x8f"))
        kinds = {"N": "none", "\x88": "int", "\x89": "int", "]": "list", ")": "tuple", "}": "dict", "\x8f": "set"}
        return kinds[chr(self.out[-1])]

    def name(self) -> str:
        way = self.rnd.randrange(8)
        if way < 4:
            self.line(b"c", self.pick(_MODULES, 6), self.pick(_NAMES, 5))
        elif way < 6:
            self.value("text")
            self.value("text")
            self.out += b"\x93"
            del self.stack[-2:]
        elif way < 7 or not self.odd():
            self.line(b"c", b"os", b"system")
        else:
            code = self.rnd.choice((1, 200, 300, 70_000, 0, 5, -1))
            opcode, size = self.rnd.choice(((b"\x82", 1), (b"\x83", 2), (b"\x84", 4)))
            self.out += opcode + (code & (1 << 8 * size) - 1).to_bytes(size, "little")
        return "made"

    def persistent(self) -> str:
        if self.rnd.random() < 0.5:
            self.line(b"P", self.pick(_PERSIDS, 4))
        else:
            self.value()
            self.pop()
            self.out += b"Q"
        return "made"

    # -- the stack

    def push(self, kind: str) -> None:
        self.stack.append(kind)

    def pop(self) -> str:
        return self.stack.pop() if self.stack else "none"

    def value(self, kind: str = "") -> None:
        """Push a value, of that kind if one is given: a new one, or one from the memo."""
        known = [index for index, one in self.memo.items() if one == kind or (not kind and one != "(")]
        if known and self.rnd.random() < 0.3:
            self.get(self.rnd.choice(known))
        elif kind == "text":
            self.push(self.text())
        elif kind == "made":
            self.push(self.name())
        elif kind == "tuple":
            self.arguments()
        elif kind == "dict":
            self.out += b"}"
            self.push("dict")
            for _ in range(self.rnd.choice((0, 0, 1, 2))):
                self.value("text" if not self.odd() else "")
                self.value()
                self.out += b"s"
                del self.stack[-2:]
        else:
            self.push(self.constant())
        if self.rnd.random() < 0.2:
            self.put()

    def arguments(self) -> None:
        """Push a tuple."""
        count = self.rnd.choice((0, 1, 1, 1, 2, 2, 3, 4))
        marked = count > 3 or self.rnd.random() < 0.3
        if marked:
            self.out += b"("
            self.push("(")
        for _ in range(count):
            if self.rnd.random() < 0.15:
                self.value(self.rnd.choice(("made", "tuple")) if len(self.out) < 400 else "text")
            else:
                self.value()
        self.out += b"t" if marked else (b")", b"\x85", b"\x86", b"\x87")[count]
        del self.stack[len(self.stack) - count - marked :]
        self.push("tuple")

    def put(self) -> None:
        if not self.stack or self.stack[-1] == "(":
            return
        way = self.rnd.randrange(8)
        index = self.rnd.choice((0, 1, 2, 3, 5, 200, len(self.memo)))
        if way < 4:
            self.out += b"\x94"
            index = len(self.memo)
        elif way < 6:
            self.out += b"q" + bytes((index & 255,))
        elif way == 6:
            self.out += b"r" + index.to_bytes(4, "little")
        else:
            text = str(index).encode() if not self.odd() else self.rnd.choice(_INDEXES)
            self.line(b"p", text)
        self.memo[index] = self.stack[-1]

    def get(self, index: int) -> None:
        way = self.rnd.randrange(4)
        if way == 0:
            self.line(b"g", str(index).encode() if not self.odd() else self.rnd.choice(_INDEXES))
        elif way == 1 or index > 255:
            self.out += b"j" + index.to_bytes(4, "little")
        else:
            self.out += b"h" + bytes((index,))
        self.push(self.memo.get(index, "none"))

    # -- what calls

    def call(self) -> None:
        """Push something to call and arguments, and call it, in one of the six ways."""
        rnd, way = self.rnd, self.rnd.randrange(12)
        depth = len(self.stack)
        again = self.stack and self.stack[-1] == "made" and rnd.random() < 0.4
        if way < 9 and not again:
            self.value("made" if not self.odd() else "")
        if again and way >= 9:
            way = 0
        depth -= bool(again)
        if way < 5:
            self.value("tuple" if not self.odd() else "")
            self.out += b"R"
        elif way < 7:
            self.value("tuple" if not self.odd() else "")
            self.out += b"\x81"
        elif way < 9:
            self.value("tuple" if not self.odd() else "")
            self.value("dict" if not self.odd() else "")
            self.out += b"\x92"
        else:
            self.out += b"("
            self.push("(")
            if way == 9:
                self.value("made" if not self.odd() else "")
            for _ in range(rnd.choice((0, 1, 1, 2))):
                self.value()
            if way == 9:
                self.out += b"o"
            else:
                self.line(b"i", self.pick(_MODULES, 6), self.pick(_NAMES, 5))
        del self.stack[max(depth, 0) :]
        self.push("made")

    def change(self) -> None:
        """Change the object on top: build it, append to it, set and add items."""
        rnd = self.rnd
        kind = self.stack[-1] if self.stack else ""
        if not self.stack or kind not in ("made", "list", "dict", "set", "bytearray") or self.odd():
            self.value(rnd.choice(("made", "made", "dict", "")) if self.wild else "made")
            kind = self.stack[-1]
        ways = {"list": (0, 1, 6), "dict": (2, 3), "set": (4,), "bytearray": (0, 1, 6)}.get(
            kind, (0, 1, 2, 3, 4, 5, 5, 5)
        )
        way = rnd.choice(ways if not self.odd() else range(7))
        depth = len(self.stack)
        if way == 6:
            self.place()
            return
        if kind == "bytearray" and rnd.random() < 0.7:
            self.out += rnd.choice((b"K\x41a", b"\x88a", b"(K\1K\2e", b"(e", b"M\xff\xffa"))
            return
        if way in (1, 3, 4):
            self.out += b"("
            self.push("(")
        for _ in range(rnd.choice((0, 1, 2, 3)) if way in (1, 3, 4) else 1):
            if way in (2, 3):
                self.value("text" if rnd.random() < 0.7 else "")
            self.value(
                "tuple" if way == 5 and rnd.random() < 0.3 else "dict" if way == 5 and rnd.random() < 0.5 else ""
            )
        self.out += (b"a", b"e", b"s", b"u", b"\x90", b"b")[way]
        del self.stack[depth:]

    def place(self) -> None:
        """Set an item of a list or bytearray, or of whatever is there."""
        place = self.rnd.choice(
            (b"K\0", b"K\1", b"J\xff\xff\xff\xff", b"J\xfe\xff\xff\xff", b"\x88", b"K\x10", b"L0\n", b"I01\n")
        )
        self.out += place
        self.out += self.rnd.choice((b"K\5", b"N", b"]", b"K\xff", b"M\1\1")) + b"s"

    def bulk(self) -> None:
        """Push something large: what goes by blocks, or is not kept whole, comes into play."""
        rnd, way, size = self.rnd, self.rnd.randrange(8), self.rnd.choice((20, 300, 4_097, 5_000, 66_000, 140_000))
        if way < 3:
            text = bytearray("é" * (size // 2) if way else "a" * size, "utf-8")
            if rnd.random() < 0.3:
                text[rnd.randrange(len(text))] = 0xFF
            if way == 2:
                self.line(b"V", bytes(text))
            else:
                self.out += b"X" + len(text).to_bytes(4, "little") + text
            self.push("text")
        elif way == 3:
            self.out += rnd.choice((b"B", b"\x8b", b"T")) + size.to_bytes(4, "little") + bytes(size)
            self.push("bytes")
        elif way == 4:
            self.out += (
                b"(" + b"".join(b"K" + bytes((n & 255,)) for n in range(size >> 3)) + rnd.choice((b"l", b"t", b"\x91"))
            )
            self.push("tuple")
        elif way == 5:
            self.out += b"}(" + b"".join(b"J" + n.to_bytes(4, "little") + b"N" for n in range(size >> 4)) + b"u"
            self.push("dict")
        elif way == 6:
            self.out += b"".join(b"K" + bytes((n & 255,)) + b"\x940" for n in range(size >> 3))
        else:
            self.line(b"c", b"m" * size, b"n" * (size >> 3))
            self.push("made")

    def gather(self) -> None:
        """Make a container of what is above the last mark, or of new values."""
        count = self.rnd.choice((0, 1, 2, 2, 3))
        self.out += b"("
        for _ in range(count * 2):
            self.value("text" if self.rnd.random() < 0.6 else "")
        opcode = self.rnd.choice((b"l", b"t", b"d", b"\x91", b"1"))
        self.out += opcode
        del self.stack[max(len(self.stack) - count * 2, 0) :]
        if opcode != b"1":
            self.push({b"l": "list", b"t": "tuple", b"d": "dict", b"\x91": "frozenset"}[opcode])

    def juggle(self) -> None:
        """Pop, double, mark, and pop to the mark."""
        way = self.rnd.randrange(6)
        if way < 2 and self.stack:
            self.out += b"0"
            self.pop()
        elif way < 4 and self.stack and self.stack[-1] != "(":
            self.out += b"2"
            self.push(self.stack[-1])
        elif way == 4 or "(" not in self.stack:
            self.out += b"("
            self.push("(")
        else:
            end = self.rnd.choice((b"1", b"t", b"l"))
            self.out += end
            while self.pop() != "(":
                pass
            if end != b"1":
                self.push("tuple" if end == b"t" else "list")

    def framed(self) -> None:
        """Write protocol or frame in the middle."""
        if self.rnd.random() < 0.5:
            self.out += b"\x80" + bytes((self.rnd.choice((0, 1, 2, 3, 4, 5, 5, 6, 255)) if self.odd() else 4,))
        else:
            self.out += b"\x95" + self.rnd.choice((0, 1, 2, 5, 9, 20, 1 << 40)).to_bytes(8, "little")

    def step(self) -> None:
        """Write one more piece."""
        if self.odd():
            self.out.append(self.rnd.choice(_OPCODES) if self.rnd.random() < 0.9 else self.rnd.randrange(256))
            return
        steps: tuple[Callable[[], Any], ...] = (
            self.value, self.value, self.put, self.call, self.call, self.call, self.change, self.change, self.gather,
            self.juggle, lambda: self.value("made"),
            lambda: self.push(self.persistent()) if self.rnd.random() < 0.3 else None,
            lambda: self.get(self.rnd.choice([*self.memo] or [0])) if self.memo or self.odd() else None,
            lambda: self.framed() if self.odd() else None,
            lambda: self.bulk() if self.large else None,
        )  # fmt: skip
        self.rnd.choice(steps)()


_OPCODES = [getattr(pickle, name)[0] for name in pickle.__all__ if isinstance(getattr(pickle, name), bytes)]


def written(rnd: random.Random) -> bytes:
    """Return a program that is put together."""
    writer = Writer(rnd)
    for _ in range(rnd.choice((2, 3, 4, 6, 8, 12, 20))):
        writer.step()
    if not writer.stack or rnd.random() < 0.1:
        writer.value()
    body = bytes(writer.out) + (b"." if rnd.random() < 0.97 else b"")
    protocol = rnd.choice((0, 1, 2, 3, 4, 4, 4, 5))
    if protocol == 4 and rnd.random() < 0.5:
        length = len(body) if rnd.random() < 0.8 else rnd.choice((0, 1, len(body) // 2, len(body) + 1, len(body) - 1))
        body = b"\x95" + max(length, 0).to_bytes(8, "little") + body
    return (bytes((0x80, protocol)) if protocol > 1 else b"") + body


def damaged(rnd: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """Return a program with a few of its bytes changed."""
    out = bytearray(data)
    for _ in range(rnd.choice((1, 1, 1, 2, 4))):
        place = rnd.randrange(len(out) + 1)
        way = rnd.randrange(8)
        if way < 2 and place < len(out):
            out[place] = rnd.choice((rnd.randrange(256), rnd.choice(_OPCODES), out[place] ^ 1 << rnd.randrange(8)))
        elif way == 2:
            del out[place : place + rnd.choice((1, 1, 2, 10))]
        elif way == 3:
            out[place:place] = bytes((rnd.choice(_OPCODES),))
        elif way == 4:
            out[place:] = b""
        elif way == 5:
            other = rnd.choice(others) if others else data
            start = rnd.randrange(len(other))
            out[place:place] = other[start : start + rnd.choice((1, 5, 30))]
        elif way == 6:
            out[place:place] = out[place : place + rnd.choice((1, 5, 30))]
        else:
            out[place:place] = rnd.choice((b"0", b"2", b"(", b"1", b"\x94", b"h\0", b"R", b"b", b")R", b"}b", b"N"))
    return bytes(out)


def program(number: int, real: Sequence[bytes] = ()) -> bytes:
    """Return the program of that number; ``real`` pickles are among what is damaged."""
    rnd = random.Random(number)
    way = rnd.random()
    if way < 0.65 or (way > 0.85 and not real):
        return written(rnd)
    if way < 0.85:
        return damaged(rnd, written(rnd), [written(rnd)])
    return damaged(rnd, rnd.choice(real), real)
