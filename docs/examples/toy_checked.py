"""TOY2 files: as TOY1, but a payload that is no group ends with the CRC-32 of what is before it."""

from __future__ import annotations

from zlib import crc32

from toy_parser import ToyParser

from pparse import MAP, EndOfDataError, GapError, MalformedError, Signature, Status

WRONG = "its checksum is wrong"


class CheckedToyParser(ToyParser):
    """The toy, whose checksums are compared before a value is returned, and all of them by `check`."""

    name = "toy2"
    description = "toy records with checksums"
    extensions = (".toy2",)
    signatures = (Signature(b"TOY2"),)
    shapes = {"toy2": MAP, "group": MAP}

    def expect_magic(self, ctx, block, base):
        if ctx.take_bytes(4) != b"TOY2":
            raise MalformedError("the magic is not TOY2", offset=ctx.pos - 4)
        return ctx.pos, self.expect_record, 0

    def compare(self, record):
        """Compare the checksum of a record and tell what came of it; None if not all of its bytes are there."""
        data, end, crc = record.extraction.data, record.end - 4, 0
        try:
            for at in range(record.start, end, 1 << 20):
                crc = crc32(data.read_exact(at, min(1 << 20, end - at)), crc)
            agrees = end >= record.start and data.read_exact(end, 4) == crc.to_bytes(4, "little")
        except (EndOfDataError, GapError):
            return None
        if agrees:
            data.vouch(record.start, record.end)
        else:
            data.condemn(record.start, record.end, WRONG)
            finding = self.finding_at("checksum", WRONG, record.path, record.start)
            self.result.close_node(record, Status.DAMAGED, finding)
        return agrees

    def load_scalar(self, node):
        if self.compare(node) is False:
            raise MalformedError(WRONG, offset=node.start, path=node.path)
        return super().load_scalar(node)[:-4]

    def check(self, *, strict=False):
        for visit in super().check(strict=strict):
            if self.shape(visit.kind) != MAP and visit.status is Status.COMPLETE:
                self.compare(self.result.extraction.node(visit.path))
            yield visit
