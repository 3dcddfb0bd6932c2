"""FlexBuffers as files: their root is told by the last bytes, all else by that (`pparse.parsers.flatbuffers.flex`).

A file that lost its end has lost its root. Maps that agree in all points, and texts whose length and zero do, are found
all the same; they are named by where they are, since their own names were in what was lost (`_Rootless`).
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_right

from pparse.data.base import Access
from pparse.errors import DataError, LimitError
from pparse.findings import COMPLETE, Finding, Status
from pparse.limits import KIB, MIB, MemoryBudget
from pparse.parsers.flatbuffers.flex import FlexBuffer, FlexVector, Inspection
from pparse.parsers.flatbuffers.parser import FlatBuffersParser
from pparse.parsers.flatbuffers.reader import Reader
from pparse.tree.entry import LIST, MAP, SCALAR, UNLOADED_VALUE, Entry
from pparse.tree.parser import Confidence

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, Final

    from pparse.data.base import Range
    from pparse.tree.index import ChildIndex
    from pparse.tree.node import Node
    from pparse.tree.parser import Excerpt

# How many elements of the root are looked at to recognise a file.
_LOOKED_AT: Final = 64
_BLOCK: Final = 64 * KIB
# The longest text that is found without what leads to it.
_LONGEST: Final = 16 * KIB


class FlexBuffersParser(FlatBuffersParser):
    """FlexBuffers: maps, vectors and values without a schema."""

    name = "flexbuffers"
    description = "FlexBuffer (FlatBuffers without a schema)"
    extensions = (".flexbuf", ".flex")
    limitations = (
        "there is no magic number: a file is told by its extension, or by -f flexbuffers",
        "there are no checksums: changed bytes show only where they contradict others",
        "of a cut file only maps and texts are found, named by their offsets",
    )
    references = ("https://flatbuffers.dev/flexbuffers", "google/flatbuffers include/flatbuffers/flexbuffers.h")

    @property
    def buffer(self) -> FlexBuffer:
        """The FlexBuffer that the file is."""
        extraction = self.result.extraction
        return FlexBuffer(self.reader, extraction.start, extraction.find_end(), extraction.name)

    @classmethod
    def probe(cls, excerpt: Excerpt, reader: Range) -> Confidence:
        """LIKELY if the last bytes are those of a root, and the first elements of that can be read."""
        data, start = reader.data, reader.start
        if excerpt.size is None or data.access is not Access.FREE:
            return Confidence.NO
        end = start + excerpt.size
        root = FlexBuffer(Reader(data, start, end, MemoryBudget(MIB)), start, end, "").root()
        kids = root.note.entries(0, _LOOKED_AT) if type(root.note) is FlexVector else ()
        return Confidence.NO if any(kid.finding for kid in kids) else Confidence.LIKELY

    # -- nodes ---------------------------------------------------------------------------------------------------------

    def root_entry(self) -> Entry:
        """Describe the root; if the last bytes are none, what holds the pieces."""
        extraction, buffer = self.result.extraction, self.buffer
        try:
            root = buffer.root()
        except DataError:
            return Entry(None, self.name, extraction.start, extraction.end, status=None)
        if type(root.note) is FlexVector:
            root.start, root.end = buffer.start, buffer.end
        root.status = None
        return root

    def shape(self, kind: str) -> str:
        """Return the shape of nodes of ``kind``."""
        if kind in ("map", self.name):
            return MAP
        return LIST if kind[:1] == "[" or kind == "array" else SCALAR

    def fill(self, node: Node, index: ChildIndex) -> bool:
        """Index the children; of a file without a root, its pieces."""
        if node.kind != self.name:
            return super().fill(node, index)
        for entry in _Rootless(self.buffer).found():
            index.add_entry(entry)
        return True

    def load_scalar(self, node: Node) -> Any:
        """Return a value; that of the root is read again."""
        if node.parent is None and (found := self.buffer.root().value) is not UNLOADED_VALUE:
            return found
        return super().load_scalar(node)

    def resolve(self, node: Node) -> None:
        """Find out the status of the root, by going through all values; that of others is known from the first on."""
        try:
            finding = self.flaw()
        except LimitError as error:
            self.result.note_limit(node, error)
            return
        code = COMPLETE if finding is None else Status.TRUNCATED if finding.code == "truncated" else Status.DAMAGED
        self.result.close_node(node, code, finding)

    def flaw(self) -> Finding | None:
        """Return what is wrong first; None: nothing is."""
        buffer = self.buffer
        try:
            return buffer.flaw(buffer.root())
        except DataError as error:
            if Status.after(error) is Status.DAMAGED and self.result.extraction.data.flawed:
                return Finding(Status.DAMAGED.code, error.reason, source=buffer.name, offset=error.offset)
            reason = f"no root is at the end, which is lost or damaged: {error.reason}"
            return Finding("truncated", reason, source=buffer.name, offset=buffer.end)

    def details(self) -> Iterator[tuple[str, str]]:
        """Yield the lines of `pparse info`."""
        yield "root", self.result.root.kind

    def missing(self) -> int | None:
        """Return None: nothing tells how much a cut file lacks."""
        return None


class _Rootless:
    """Finds maps and texts in bytes of which the root is lost.

    A map has as many keys as values; its keys are sorted texts, and all that it leads to can be read. A text has its
    length before it, and a zero behind. What lies in a map that was found is not shown again. No piece is called as
    it was, since what named it is lost: its name is ``@`` and its offset.
    """

    def __init__(self, buffer: FlexBuffer) -> None:
        self._buffer = buffer
        self._maps = array("q")  # offset of the first place, times 4, and the logarithm of the width
        self._texts = array("q")  # offset and length, in turns

    def found(self) -> list[Entry]:
        """Return the pieces in the order of the file. Raises `LimitError`."""
        buffer, read = self._buffer, self._buffer.reader.data.known
        with buffer.reader.budget.charge(0, "where maps and texts may be") as charge:
            for at in range(buffer.start, buffer.end, _BLOCK):
                first = max(buffer.start, at - 8)  # the length of a text is before it
                self._look(first, at, read(first, min(buffer.end, at + _BLOCK + _LONGEST) - first))
                charge.resize(8 * (len(self._maps) + len(self._texts)) + 2 * _BLOCK)
            return self._chosen()

    def _look(self, start: int, low: int, block: bytes) -> None:
        """Note where a map may be, and where a text is, that begin in the ``_BLOCK`` bytes from ``low`` on."""
        for log, header in enumerate(_HEADERS):
            for place in (start + found.start() + (2 << log) for found in header.finditer(block)):
                if low <= place < low + _BLOCK and not (place - self._buffer.start) & ((1 << log) - 1):
                    self._maps.append(place << 2 | log)
        for found in _RUN.finditer(block):
            first, last = found.span()
            if block[last : last + 1] != b"\0":
                continue
            for at, width in ((first, 1), (first, 2), (first, 4), (first, 8), (first + 1, 1), (first + 2, 2)):
                length = last - at
                if width <= at and int.from_bytes(block[at - width : at], "little") == length > 1:
                    if low <= start + at < low + _BLOCK:
                        self._texts.extend((start + at, length))
                    break

    def _chosen(self) -> list[Entry]:
        buffer, inspection = self._buffer, Inspection(self._buffer)
        pieces: list[Entry] = []
        floor = buffer.end
        begins, ends = array("q"), array("q")  # of the maps, from the back
        for mark in sorted(self._maps, reverse=True):
            at, width = mark >> 2, 1 << (mark & 3)
            if at >= floor:
                continue
            try:
                count = int.from_bytes(buffer.reader.take(at - width, width), "little")
                entry = buffer.vector(f"@{at - buffer.start}", at, count, width, None, buffer.end, is_map=True)
                keys = b"".join(map(entry.note.key, range(min(count, _SURE))))
                if len(keys) < _SURE or not keys.decode().isprintable() or inspection.flaw(entry):
                    continue
            except (DataError, UnicodeDecodeError):
                continue
            pieces.append(entry)
            floor = inspection.lowest
            begins.append(floor)
            ends.append(entry.note.end)
        begins.reverse()
        ends.reverse()
        texts = iter(self._texts)
        for at, length in zip(texts, texts, strict=True):
            around = bisect_right(begins, at) - 1
            if around < 0 or at >= ends[around]:
                pieces.append(Entry(f"@{at - buffer.start}", "text", at, at + length))
        return sorted(pieces, key=lambda piece: piece.start)


# Of a map: the width of its keys' places, behind which its count is not 0; of each width, 1 to 8 bytes.
_HEADERS: Final = tuple(
    re.compile(rb"(?=[\1\2\4\10]\0{%d}(?!\0{%d}).)" % (width - 1, width), re.DOTALL) for width in (1, 2, 4, 8)
)
# Bytes of a text, as far as can be told without decoding.
_RUN: Final = re.compile(rb"[\t\n\r\x20-\x7e\x80-\xff]{2,}")
# Bytes of all keys of a map that are too many for chance.
_SURE: Final = 3
