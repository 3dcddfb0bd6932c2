"""SMF1 files, a small format for models: a header, typed key-values, a table of tensors, and their aligned bytes.

States::

    state           reads                                            goes to
    expect_header   magic, version, numbers of tensors and pairs     expect_tensors behind the pairs
    expect_pair     a key, a type, a value                           expect_pair; DONE after the last
    expect_element  one element of an array                          expect_element; DONE after the last
    expect_tensors  nothing: the table becomes a child               expect_data behind the table
    expect_tensor   name, shape, type and place of a tensor          expect_tensor; DONE after the last
    expect_data     nothing: the bytes behind the padding            DONE

A text is u64 length and UTF-8; an array is u32 type, u64 count, elements; little-endian. Tensors begin at multiples of
32, counted from the end of the table.
"""

from __future__ import annotations

from math import prod
from struct import calcsize

from pparse import DONE, LIST, MAP, Entry, Field, MalformedError, Parser, Record, Signature
from pparse.tree.context import decode_text

HEADER = Record(Field("magic", "4s"), Field("version", "<I"), Field("tensors", "<Q"), Field("pairs", "<Q"))
TEXT, ARRAY = 8, 9
NAMES = ("uint8", "int8", "uint16", "int16", "uint32", "int32", "float32", "bool", "", "", "uint64", "int64", "float64")
NUMBERS = {kind: (NAMES[kind], "<" + code) for kind, code in enumerate("BbHhIif?--Qqd") if code != "-"}
ALIGNMENT = 32


class SmallParser(Parser):
    """A small model file."""

    name = "small"
    description = "small model file"
    extensions = (".smf",)
    signatures = (Signature(b"SMF1"),)
    shapes = {"small": MAP, "pairs": MAP, "array": LIST, "table": MAP}
    child_state = {"pairs": "expect_pair", "array": "expect_element", "table": "expect_tensor"}
    data_size = 0  # bytes that the tensors seen so far need

    def begin(self, ctx):
        states = {"pairs": self.expect_pair, "array": self.expect_element, "table": self.expect_tensor}
        return ctx.pos, states.get(ctx.node.kind, self.expect_header), 0

    def expect_header(self, ctx, block, base):
        header = ctx.scratch = ctx.emit_record(HEADER)
        if header.magic != b"SMF1" or header.version != 1:
            raise MalformedError(f"it is version {header.version} of {header.magic!r}", offset=ctx.pos)
        ctx.emit(Entry("metadata", "pairs", ctx.pos, None, status=None, note=header.pairs))
        return ctx.behind_child(self.expect_tensors)

    def expect_tensors(self, ctx, block, base):
        ctx.emit(Entry("table", "table", ctx.pos, None, status=None, note=ctx.scratch.tensors))
        return ctx.behind_child(self.expect_data)

    def expect_pair(self, ctx, block, base):
        if ctx.emitted == ctx.node.note:
            return ctx.pos, DONE, 0
        at = ctx.pos
        key = ctx.take_text(*ctx.take("<Q"), "the key")
        return self.emit_value(ctx, key, *ctx.take("<I"), at, self.expect_pair)

    def expect_element(self, ctx, block, base):
        kind, count = ctx.node.note
        if ctx.emitted == count:
            return ctx.pos, DONE, 0
        return self.emit_value(ctx, None, kind, ctx.pos, self.expect_element)

    def emit_value(self, ctx, key, kind, at, following):
        start = ctx.pos
        if kind in NUMBERS:
            name, layout = NUMBERS[kind]
            ctx.emit(Entry(key, name, start, start + calcsize(layout), *ctx.take(layout), at=at))
        elif kind == TEXT:
            ctx.emit_text(key, *ctx.take("<Q"), at=at)
        elif kind == ARRAY:
            kind, count = ctx.take("<IQ")
            if kind in NUMBERS:
                ctx.emit_numbers(key, NUMBERS[kind][1], count, at=at)
            else:
                ctx.emit(Entry(key, "array", ctx.pos, None, status=None, at=at, note=(kind, count)))
                return ctx.behind_child(following)
        else:
            raise MalformedError(f"there is no type {kind}", offset=start - 4)
        return ctx.pos, following, 0

    def expect_tensor(self, ctx, block, base):
        if ctx.emitted == ctx.node.note:
            return ctx.pos, DONE, 0
        at = ctx.pos
        name = ctx.take_text(*ctx.take("<Q"), "the name")
        (rank,) = ctx.take("<I")
        if rank > 16:
            raise MalformedError(f"a tensor has {rank} dimensions", offset=ctx.pos - 4)
        *shape, kind, offset = ctx.take(f"<{rank}QIQ")
        if kind not in NUMBERS:
            raise MalformedError(f"there is no type {kind}", offset=ctx.pos - 12)
        size = prod(shape) * calcsize(NUMBERS[kind][1])
        self.data_size = max(self.data_size, offset + size)
        value = {"shape": shape, "type": NUMBERS[kind][0], "offset": offset, "size": size}
        ctx.emit(Entry(name, "tensor", at, ctx.pos, value))
        return ctx.pos, self.expect_tensor, 0

    def expect_data(self, ctx, block, base):
        ctx.skip((self.result.extraction.start - ctx.pos) % ALIGNMENT if self.data_size else 0)
        ctx.emit_next("data", "bytes", self.data_size)
        return ctx.pos, DONE, 0

    def load_scalar(self, node):
        value = super().load_scalar(node)
        return decode_text(value, node.start) if node.kind == "text" and isinstance(value, bytes) else value
