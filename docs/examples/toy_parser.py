"""TOY1 files: the magic, then records, some of which are groups of records."""

from __future__ import annotations

from pparse import DONE, MAP, MalformedError, Parser, Signature, Status
from pparse.tree.context import decode_text

KINDS = {1: "bytes", 2: "group", 3: "floats"}


class ToyParser(Parser):
    """A record is u8 kind, u16 name length, name, u32 length, payload; little-endian."""

    name = "toy"
    description = "toy records"
    extensions = (".toy",)
    signatures = (Signature(b"TOY1"),)
    limitations = ("a file cut between two records of the first level looks whole",)
    shapes = {"toy": MAP, "group": MAP}
    child_state = "expect_record"

    def begin(self, ctx):
        return ctx.pos, self.expect_record if ctx.node.kind == "group" else self.expect_magic, 0

    def expect_magic(self, ctx, block, base):
        if ctx.take_bytes(4) != b"TOY1":
            raise MalformedError("the magic is not TOY1", offset=ctx.pos - 4)
        return ctx.pos, self.expect_record, 0

    def expect_record(self, ctx, block, base):
        if ctx.is_at_end:
            return ctx.pos, DONE, 0
        at = ctx.pos
        kind, length = ctx.take("<BH")
        name = ctx.take_bytes(length)
        (length,) = ctx.take("<I")
        ctx.scratch = ctx.pos + length
        if kind not in KINDS:
            raise MalformedError(f"there is no kind {kind}", offset=at)
        key = decode_text(name, at + 3, "the name")
        ctx.emit_next(key, KINDS[kind], length, status=None if kind == 2 else Status.COMPLETE, at=at)
        return ctx.pos, self.expect_record, 0

    def resync(self, ctx, error):
        return (ctx.scratch, self.expect_record, 0) if (ctx.scratch or 0) > ctx.pos else None
