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
