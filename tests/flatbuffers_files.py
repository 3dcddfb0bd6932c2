"""Writes FlatBuffers, from the back to the front as the format's own library does, and reads TFLite's tensors again.

Trusts nothing of pparse's: the layout is that of https://flatbuffers.dev/internals.
"""

from __future__ import annotations

import struct
from typing import Any


class Builder:
    """Puts parts before each other; a place is how many bytes lie behind its beginning."""

    def __init__(self, *, share: bool = True) -> None:
        self.behind = bytearray()  # reversed
        self.vtables: dict[bytes, int] = {}
        self.share = share

    def put(self, raw: bytes) -> int:
        self.behind += raw[::-1]
        return len(self.behind)

    def align(self, size: int, more: int = 0) -> None:
        """Pad so that what follows, behind ``more`` bytes, begins at a multiple of ``size``."""
        self.put(bytes(-(len(self.behind) + more) % size))

    def reference(self, place: int) -> None:
        self.put(struct.pack("<I", len(self.behind) + 4 - place))

    def vector(self, raw: bytes, count: int, align: int = 4) -> int:
        self.align(4, len(raw))
        self.align(align, len(raw))
        self.put(raw)
        return self.put(struct.pack("<I", count))

    def numbers(self, code: str, *numbers: float) -> int:
        raw = struct.pack(f"<{len(numbers)}{code}", *numbers)
        return self.vector(raw, len(numbers), struct.calcsize(code))

    def text(self, text: str) -> int:
        raw = text.encode()
        self.align(4, len(raw) + 1)
        self.put(raw + b"\0")
        return self.put(struct.pack("<I", len(raw)))

    def references(self, places: list[int]) -> int:
        self.align(4, 4 * len(places))
        for place in reversed(places):
            self.reference(place)
        return self.put(struct.pack("<I", len(places)))

    def table(self, **fields: tuple[int, str, Any]) -> int:
        """Put a table; a field is its slot, its layout (``@``: a place) and its value. Names are for readers only."""
        end = len(self.behind)
        places: dict[int, int] = {}
        for slot, code, value in sorted(fields.values(), key=lambda field: struct.calcsize(field[1].replace("@", "I"))):
            if code == "@":
                self.align(4)
                self.reference(value)
            else:
                self.align(struct.calcsize(code))
                self.put(struct.pack("<" + code, value))
            places[slot] = len(self.behind)
        self.align(4)
        start = len(self.behind) + 4
        slots = [start - places[slot] if slot in places else 0 for slot in range(max(places, default=-1) + 1)]
        vtable = struct.pack(f"<{2 + len(slots)}H", 4 + 2 * len(slots), start - end, *slots)
        known = self.vtables.get(vtable) if self.share else None
        if known is None:
            self.put(struct.pack("<i", len(vtable)))
            known = self.vtables[vtable] = self.put(vtable)
        else:
            self.put(struct.pack("<i", known - start))
        return start

    def finish(self, root: int, identifier: bytes = b"", *, prefix: bool = False) -> bytes:
        self.align(16, 4 + len(identifier) + 4 * prefix)
        self.put(identifier)
        self.reference(root)
        found = bytes(self.behind[::-1])
        return struct.pack("<I", len(found)) + found if prefix else found


TYPES = {"f4": 0, "f2": 1, "i4": 2, "u1": 3, "i8": 4, "S": 5, "?": 6, "i2": 7, "i1": 9, "f8": 10, "i4x": 17}
"""Numbers of element types in TFLite (tflite/converter/schema/schema.fbs)."""


def tflite(
    tensors: list[tuple[str, str, tuple[int, ...], bytes | None]],
    operators: list[tuple[int, list[int], list[int]]] = (),  # type: ignore[assignment]
    *,
    codes: list[int] = (),  # type: ignore[assignment]
    inputs: list[int] = (),  # type: ignore[assignment]
    outputs: list[int] = (),  # type: ignore[assignment]
    quantised: dict[int, tuple[list[float], list[int], int]] | None = None,
    far: bool = False,
    share: bool = True,
) -> bytes:
    """Return a model of one subgraph: tensors (name, type, shape, bytes), operators (code, inputs, outputs).

    ``far``: bytes lie behind the FlatBuffer. As the converter of TensorFlow does it, buffers are put first: they lie at
    the back; ``share``: tables of one kind share a vtable.
    """
    content = b""
    for _ in range(2 if far else 1):  # the second time, where the bytes lie is known
        build = Builder(share=share)
        base, behind = len(content), b""
        buffers = [build.table()]
        for *_, raw in tensors:
            if raw is None:
                continue
            if far:
                at = base + len(behind)
                buffers.append(build.table(offset=(1, "Q", max(2, at)), size=(2, "Q", len(raw))))
                behind += raw + bytes(-len(raw) % 16)
            else:
                buffers.append(build.table(data=(0, "@", build.vector(raw, len(raw), 16))))
        numbers = iter(range(1, len(buffers)))
        made = []
        for number, (name, kind, shape, raw) in enumerate(tensors):
            fields = {
                "shape": (0, "@", build.numbers("i", *shape)),
                "type": (1, "b", TYPES[kind]),
                "buffer": (2, "I", 0 if raw is None else next(numbers)),
                "name": (3, "@", build.text(name)),
            }
            if quantised and number in quantised:
                scales, zeros, axis = quantised[number]
                fields["quantization"] = (
                    4,
                    "@",
                    build.table(
                        scale=(2, "@", build.numbers("f", *scales)),
                        zero=(3, "@", build.numbers("q", *zeros)),
                        axis=(6, "i", axis),
                    ),
                )
            made.append(build.table(**fields))
        steps = [
            build.table(
                code=(0, "I", code),
                inputs=(1, "@", build.numbers("i", *ins)),
                outputs=(2, "@", build.numbers("i", *outs)),
            )
            for code, ins, outs in operators
        ]
        graph = build.table(
            tensors=(0, "@", build.references(made)),
            inputs=(1, "@", build.numbers("i", *inputs)),
            outputs=(2, "@", build.numbers("i", *outputs)),
            operators=(3, "@", build.references(steps)),
            name=(4, "@", build.text("main")),
        )
        known = [build.table(old=(0, "b", min(code, 127)), code=(3, "i", code)) for code in codes]
        root = build.table(
            version=(0, "I", 3),
            codes=(1, "@", build.references(known)),
            graphs=(2, "@", build.references([graph])),
            description=(3, "@", build.text("made for a test")),
            buffers=(4, "@", build.references(buffers)),
        )
        content = build.finish(root, b"TFL3")
    return content + behind


class Flex:
    """Writes a FlexBuffer (https://flatbuffers.dev/flexbuffers): children first, offsets back to them.

    Values are those of Python, or of the classes below; ``least`` is the logarithm of the narrowest place.
    """

    CODES = {1: "bhiq", 2: "BHIQ", 3: "?efd", 26: "BHIQ"}

    def __init__(self, value: Any, least: int = 0) -> None:
        self.out = bytearray()
        self.least = least
        self.keys: dict[bytes, int] = {}
        item = self.put(value)
        log = self.places([item])
        self.content = bytes(self.out) + bytes((item[0] << 2 | item[1], 1 << log))

    def put(self, value: Any) -> tuple[int, int, Any, bool]:
        """Write what a value leads to: its type, the logarithm of its width, its number or place, and which it is."""
        if value is None or isinstance(value, bool):
            return (0 if value is None else 26), 0, int(bool(value)), False
        if isinstance(value, int):
            log = next(log for log, bits in enumerate((7, 15, 31, 64)) if -(1 << bits) <= value < 1 << bits)
            return (1 if value < 1 << 63 else 2), log, value, False
        if isinstance(value, float):
            return 3, 2 if struct.unpack("<f", struct.pack("<f", value))[0] == value else 3, value, False
        if isinstance(value, Raw):
            return value.put(self)
        if isinstance(value, bytes | str):
            raw = value if isinstance(value, bytes) else value.encode()
            log = self.count(len(raw))
            at = len(self.out)
            self.out += raw if isinstance(value, bytes) else raw + b"\0"
            return (25 if isinstance(value, bytes) else 5), log, at, True
        if isinstance(value, dict):
            pairs = sorted((key.encode(), each) for key, each in value.items())
            items = [(self.key(key), self.put(each)) for key, each in pairs]
            wide, keys = self.key_vector([at for at, _ in items])
            return 9, *self.vector([item for _, item in items], keys, wide)
        return 10, *self.vector([self.put(each) for each in value])

    def key(self, key: bytes) -> int:
        if key not in self.keys:
            self.keys[key] = len(self.out)
            self.out += key + b"\0"
        return self.keys[key]

    def align(self, log: int) -> None:
        self.out += bytes(-len(self.out) % (1 << log))

    def key_vector(self, keys: list[int]) -> tuple[int, int]:
        log = self.places([(2, 0, len(keys), False), *((4, 0, at, True) for at in keys)])
        return log, len(self.out) - (len(keys) << log)

    def count(self, number: int) -> int:
        """Write the number of the bytes that follow."""
        log = max(self.least, next(log for log in range(4) if number < 1 << (8 << log)))
        self.align(log)
        self.out += number.to_bytes(1 << log, "little")
        return log

    def places(self, items: list[Any]) -> int:
        """Write the places of items, as narrow as they can be; of a map or vector, what is before them, too."""
        for wide in range(self.least, 4):
            start = len(self.out) + -len(self.out) % (1 << wide)
            raw = b""
            try:
                for kind, size, what, leads in items:
                    if leads:
                        raw += (start + len(raw) - what).to_bytes(1 << wide, "little")
                    elif kind == 3 and wide < size:
                        raise OverflowError
                    else:
                        raw += struct.pack("<" + self.CODES.get(kind, "BHIQ")[wide], what)
            except (OverflowError, struct.error):
                continue
            self.align(wide)
            self.out += raw
            return wide
        raise OverflowError("no place is so wide")

    def vector(self, items: list[Any], keys: int | None = None, wide: int = 0) -> tuple[int, int, bool]:
        head = [] if keys is None else [(0, 0, keys, True), (2, 0, 1 << wide, False)]
        log = self.places([*head, (2, 0, len(items), False), *items])
        at = len(self.out) - (len(items) << log)
        self.out += bytes(kind << 2 | size for kind, size, *_ in items)
        return log, at, True


class Raw:
    """What Python has no type for: a number of a type at the end of an offset, or many of them."""

    def __init__(self, kind: int, code: str, *numbers: Any) -> None:
        self.kind, self.code, self.numbers = kind, code, numbers

    def put(self, flex: Flex) -> tuple[int, int, Any, bool]:
        size = struct.calcsize(self.code or "B")
        log = size.bit_length() - 1
        if self.kind < 4:  # in its place, which is as wide as this at least
            return self.kind, log, self.numbers[0], False
        if self.kind == 4:
            return 4, 0, flex.key(self.numbers[0]), True
        if self.kind in (14, 15):
            return self.kind, *flex.key_vector([flex.key(each) for each in self.numbers]), True
        flex.align(log)
        if self.kind in (11, 12, 13, 36):
            flex.out += len(self.numbers).to_bytes(size, "little")
        at = len(flex.out)
        flex.out += struct.pack(f"<{len(self.numbers)}{self.code}", *self.numbers)
        return self.kind, log, at, True


def step(content: bytes, at: int, slot: int) -> int:
    """Return what the offset in a field of the table at a place leads to."""
    vtable = at - struct.unpack_from("<i", content, at)[0]
    place = at + struct.unpack_from("<H", content, vtable + 4 + 2 * slot)[0]
    return place + struct.unpack_from("<I", content, place)[0]


def element(content: bytes, at: int, number: int) -> int:
    """Return what the offset of an element leads to, of the vector at a place."""
    place = at + 4 + 4 * number
    return place + struct.unpack_from("<I", content, place)[0]


def vector_at(content: bytes, at: int, size: int) -> tuple[int, int]:
    """Return begin and end of the elements, of so many bytes each, of the vector at a place."""
    return at + 4, at + 4 + size * struct.unpack_from("<I", content, at)[0]
