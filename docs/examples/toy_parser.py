"""TOY1 files: the magic, then records, some of which are groups of records."""

from __future__ import annotations

from struct import unpack_from

from pparse import DONE, MAP, Confidence, Entry, Finding, MalformedError, Parser, Status

KINDS = {1: "bytes", 2: "group", 3: "floats"}


class ToyParser(Parser):
    """A record is u8 kind, u16 name length, name, u32 length, payload; little-endian."""

    name = "toy"
    description = "toy records"
    extensions = (".toy",)
    limitations = ("a file cut between two records of the first level looks whole",)
    shapes = {"toy": MAP, "group": MAP}
    child_state = "expect_record"

    @classmethod
    def match(cls, excerpt):
        return Confidence.CERTAIN if excerpt.head(4) == b"TOY1" else Confidence.NO

    def begin(self, ctx):
        if ctx.node.kind == "group":
            return ctx.pos, self.expect_record, 0
        return ctx.pos, self.expect_magic, 4

    def expect_magic(self, ctx, block, base):
        if not block.startswith(b"TOY1", ctx.pos - base):
            raise MalformedError("the magic is not TOY1", offset=ctx.pos)
        return ctx.pos + 4, self.expect_record, 0

    def expect_record(self, ctx, block, base):
        at, have = ctx.pos - base, base + len(block) - ctx.pos
        if ctx.pos == (ctx.data.size if ctx.end is None else ctx.end):
            return ctx.pos, DONE, 0
        if have < self.inside(ctx, 3):
            return ctx.pos, self.expect_record, 3
        kind, name_length = unpack_from("<BH", block, at)
        if have < (header := self.inside(ctx, 3 + name_length + 4)):
            return ctx.pos, self.expect_record, header
        (length,) = unpack_from("<I", block, at + header - 4)
        start = ctx.pos + header
        end = ctx.scratch = ctx.pos + self.inside(ctx, header + length)
        if kind not in KINDS:
            raise MalformedError(f"there is no kind {kind}", offset=ctx.pos)
        try:
            name = block[at + 3 : at + header - 4].decode()
        except UnicodeDecodeError as error:
            raise MalformedError("the name is not UTF-8", offset=ctx.pos + 3) from error
        there = min(stop for stop in (end, ctx.data.size, self.result.extraction.end) if stop is not None)
        entry = Entry(name, KINDS[kind], start, end, status=None if kind == 2 else Status.COMPLETE, at=ctx.pos)
        if there < end:
            numbers = {"offset": start, "wanted": length, "got": there - start}
            entry.finding = Finding("truncated", f"{name!r} ends early", source=ctx.data.name, **numbers)
            entry.status = Status.TRUNCATED
        ctx.emit(entry)
        return there, self.expect_record, end - there

    def inside(self, ctx, count):
        if ctx.node.kind == "group" and ctx.pos + count > ctx.end:
            raise MalformedError("the record leaves its group", offset=ctx.pos, wanted=count, got=ctx.end - ctx.pos)
        return count

    def resync(self, ctx, error):
        return (ctx.scratch, self.expect_record, 0) if (ctx.scratch or 0) > ctx.pos else None
