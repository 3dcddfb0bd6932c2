"""Weights of Core ML programs (``weight.bin``): blobs, each with a header of 64 bytes, little-endian.

MILBlob's format (apple/coremltools mlmodel/src/MILBlob/Blob/StorageFormat.hpp, BlobDataType.hpp)::

    offset  0   u32 number of blobs, u32 version 2, zeros up to byte 64
    header      u32 0xDEADBEEF, u32 type, u64 bytes of the elements, u64 where they begin, u64 bits of padding, zeros

Headers and elements begin at multiples of 64. The model beside the file names blobs by where their headers are; by
themselves they have no names.

States::

    state        needs  reads                                goes to
    expect_file  64     the number of blobs                  expect_blob
    expect_blob  64     a header; elements are jumped over   expect_blob; DONE behind the last one
"""

from __future__ import annotations

from struct import Struct

from pparse.errors import MalformedError
from pparse.tree.context import DONE
from pparse.tree.entry import MAP
from pparse.tree.parser import Parser, Signature

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import ClassVar, Final

    from pparse.tree.context import NodeContext, Step

HEADER: Final = Struct("<IIQQQ")
SIZE: Final = 64
"""Bytes of a header, and what begins of headers and elements are multiples of."""
SENTINEL: Final = 0xDEADBEEF
TYPES: Final = [
    "FLOAT16", "FLOAT32", "UINT8", "INT8", "BFLOAT16", "INT16", "UINT16", "INT4", "UINT1", "UINT2", "UINT4", "UINT3",
    "UINT6", "INT32", "UINT32", "FLOAT8E4M3FN", "FLOAT8E5M2",
]  # fmt: skip
"""Types by their numbers in headers, from 1 on, as MIL calls them."""
_VERSION: Final = 2


class MilBlobParser(Parser):
    """The weights of a Core ML program."""

    name = "coreml-weights"
    description = "weights of a Core ML program"
    viewer = "pparse.viewers.coreml.weights:WeightsViewer"
    root_shape = MAP
    extensions: ClassVar[tuple[str, ...]] = (".bin",)
    named_is_enough = False
    signatures = (Signature(SENTINEL.to_bytes(4, "little"), SIZE),)
    references: ClassVar[tuple[str, ...]] = ("apple/coremltools mlmodel/src/MILBlob/Blob/StorageFormat.hpp",)
    limitations: ClassVar[tuple[str, ...]] = (
        "names, and shapes of tensors, are in the model beside it: open that, or its package",
        "there are no checksums; behind a header that is damaged, nothing is listed",
    )

    def begin(self, ctx: NodeContext) -> Step:
        """Begin the file."""
        return ctx.pos, self.expect_file, SIZE

    def expect_file(self, ctx: NodeContext, block: bytes, base: int) -> Step:
        """Read how many blobs there are."""
        count, version = ctx.take("<II")
        if version != _VERSION:
            raise MalformedError(f"the version is {version}, not {_VERSION}", offset=ctx.pos - 4)
        ctx.skip(SIZE - 8)
        ctx.scratch = count, 0
        return ctx.pos, self.expect_blob, 0

    def expect_blob(self, ctx: NodeContext, block: bytes, base: int) -> Step:
        """Read a header."""
        count, number = ctx.scratch
        if number == count:
            if not ctx.is_at_end:
                self.note("trailing-bytes", "bytes after the last blob belong to none", ctx.pos)
            return ctx.pos, DONE, 0
        ctx.skip(-(ctx.pos - ctx.node.start) % SIZE)
        at = ctx.pos
        sentinel, kind, length, start, padding = ctx.take(HEADER.format)
        if sentinel != SENTINEL or start != at - ctx.node.start + SIZE:
            raise MalformedError(f"there is no header of blob {number:,} of {count:,}", offset=at)
        ctx.skip(SIZE - HEADER.size)
        ctx.scratch = count, number + 1
        word = TYPES[kind - 1] if 0 < kind <= len(TYPES) else f"type {kind}"
        ctx.emit_next(f"blob_{number}", word, length, at=at, note=(padding, number + 1 == count))
        return ctx.pos, self.expect_blob, 0
