"""The tensors of one GGUF file."""

from __future__ import annotations

from pparse.data.trailing_bytes import SHIFTED, has_odd_tail
from pparse.findings import COMPLETE, Finding, Severity, Status
from pparse.limits import count_words
from pparse.parsers.gguf.parser import TYPES, decoder, part_of
from pparse.tensors.block_tensor import BlockTensor
from pparse.tensors.dtype import DTYPES
from pparse.tensors.node_viewer import NodeViewer, repeated_names
from pparse.tensors.span import Span
from pparse.tensors.status import CONFLICTS, SHARED, sharers, status_by_place
from pparse.tensors.tensor import Tensor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, Final

    from pparse.document.extraction import Extraction
    from pparse.parsers.gguf.parser import GgufParser, GgufPlace
    from pparse.tensors.status import Extent
    from pparse.tensors.viewer import Viewer
    from pparse.tree.node import Node

NUMBER: Final = "split.no"
"""Key of the number of a file among those that a model lies in, from 0 on."""
_MAGIC: Final = b"GGUF"
COUNT: Final = "split.count"
"""Key of the number of files that a model lies in."""
TENSORS: Final = "split.tensors.count"
"""Key of the number of tensors in all of them."""
# A table that is cut lacks so many tensors at most; if the header says more, it is wrong.
_MOST_TOLD: Final = 1 << 20


class GgufViewer(NodeViewer):
    """A mapping of names to tensors, for one file; `metadata` has its key-values."""

    places_by_offset = True

    def __init__(self, extraction: Extraction) -> None:
        super().__init__(extraction)
        self.parser: GgufParser = extraction.parse().parser  # type: ignore[assignment]
        self._path = extraction.path
        self._sharers: frozenset[int] | None = None
        self._behind: tuple[int, bytes] | None = None
        self.is_alone = False
        """Whether the other files of a model that lies in several are not looked for."""

    @property
    def table(self) -> Node | None:
        """The table of tensors."""
        root = self.root
        root.find("data")  # only then is it known where the data begin
        return root.find("tensors")

    @property
    def is_cut_in_tensors(self) -> bool:  # type: ignore[override]
        """Whether the table, which follows the key-values, is whole."""
        table = self.table
        return table is not None and table.status is Status.COMPLETE

    @property
    def facts(self) -> Node | None:
        """The key-values."""
        return self.root.find("metadata")

    def split_value(self, key: str) -> int | None:
        """Return a number among the key-values; None if there is no such number, or it is cut off."""
        facts = self.facts
        node = facts.find(key) if facts is not None else None
        return node.value if node is not None and type(node.value) is int else None

    def __len__(self) -> int:
        return 0 if self.table is None else len(self.table)

    def tensor_of(self, node: Node, name: str) -> Tensor:
        """Return the tensor that an entry of the table describes."""
        extraction, place = self.extraction, node.note
        there = extraction.find_end()
        start = self.parser.data_start
        begin = (there if start is None else start) + place.offset  # if the table is cut, at the earliest
        span = Span(extraction.data, begin, place.size or 0, self._path, extraction.end)
        status, finding = node.known_status or COMPLETE, node.finding
        if status is COMPLETE:
            status = status_by_place(begin, begin + span.length, there)
            if start is None and self.root.status is Status.DAMAGED and span.length:
                reason = "the table is damaged: where the data begin is not known"
                status, finding = Status.DAMAGED, self._found(name, "malformed", reason)
            elif (self._behind or self.behind)[1] not in (b"", _MAGIC):  # the file is longer than its table says
                status, finding = Status.DAMAGED, self._found(name, "shifted", SHIFTED, offset=begin)
            elif node.ordinal in (self.sharing if self._sharers is None else self._sharers):
                status = Status.DAMAGED
                finding = self._found(name, "overlap", CONFLICTS[SHARED], offset=begin, length=span.length)
            elif not span.length and (doubt := extraction.data.why_suspect(node.start, node.end or node.start)):
                status, finding = Status.DAMAGED, self._found(name, "doubt", doubt, offset=node.start)
            elif name != node.key:
                reason = "its name occurs more than once"
                finding = self._found(name, "duplicate-name", reason, severity=Severity.WARNING)
                self.findings.add(finding)
        return self._made(name, place, span, status, finding)

    def _found(self, name: str, code: str, reason: str, **told: Any) -> Finding:
        return Finding(code, reason, path=name, source=self.extraction.name, **told)

    def _made(self, name: str, place: GgufPlace, span: Span, status: Status, finding: Finding | None) -> Tensor:
        known = TYPES.get(place.kind)
        if known is not None and known.dtype is not None and status is COMPLETE and finding is None and place.size:
            plain = Tensor(name, DTYPES[known.dtype], place.shape, (span,))  # keywords would take twice the time
            plain.stored_dtype, plain._owner = known.name, self
            if self.parser.order != "<":
                plain.byteorder = "big"
            return plain
        spans = (span,) if place.size is not None else ()
        stored = known.name if known is not None else f"type {place.kind}"
        order = "little" if self.parser.order == "<" else "big"
        told: dict[str, Any] = {"stored_dtype": stored, "status": status, "finding": finding, "owner": self}
        if known is None or known.dtype is not None:
            dtype = DTYPES[known.dtype] if known is not None and known.dtype is not None else None
            return Tensor(name, dtype, place.shape, spans, byteorder=order, **told)
        how: dict[str, Any] = {"block_size": known.block_size, "block_bytes": known.block_bytes, "block_order": order}
        return BlockTensor(name, place.shape, spans, decode=decoder(known.name, order), **how, **told)

    @property
    def behind(self) -> tuple[int, bytes]:
        """Where bytes follow the data of the last tensor and its padding, and the first four of them, if any may not be
        padding."""
        if self._behind is None:
            there, parser = self.extraction.find_end(), self.parser
            end, first = there, b""
            if self.table is not None and parser.data_start is not None and not parser.layout.unknown:
                data, start = self.extraction.data, self.extraction.start
                end = parser.data_start + parser.layout.end
                end = min(there, end + (start - end) % parser.layout.alignment)  # there is padding without data, too
                if self.root.status is Status.COMPLETE and has_odd_tail(data, start, end, there):
                    first = data.read_known(end, min(4, there - end))[0]
            self._behind = end, first
        return self._behind

    @property
    def sharing(self) -> frozenset[int]:
        """Numbers of the tensors that share bytes with another: any of them may be the wrong one."""
        if self._sharers is None:
            table, self._sharers = self.table, frozenset()
            if table is not None and self.parser.layout.overlaps:
                ranges = (
                    (node.ordinal, node.note.offset, node.note.offset + node.note.size)
                    for node in table.children()
                    if node.note.size is not None
                )
                self._sharers = frozenset(sharers(self.extraction.session.budget, ranges))
        return self._sharers

    def close_extent(self, extent: Extent) -> Extent:
        """Complete an extent to which all tensors were added; adds findings on their layout."""
        parser, source = self.parser, self.extraction.name
        if parser.odd_alignment is not None:
            reason = f"general.alignment is {parser.odd_alignment}, and not a power of two as uint32"
            self.findings.add(Finding("alignment", reason, severity=Severity.WARNING, source=source))
        promised, parts = self.split_value(TENSORS), self.split_value(COUNT)
        if promised is not None and promised > extent.count and parts is not None and parts < 2:
            reason = f"{TENSORS} says {count_words(promised, 'tensor')}, {extent.count} are known"
            self.findings.add(Finding("split", reason, source=source, wanted=promised, got=extent.count))
        lacks = self.is_alone and parts is not None and parts > 1 and self._lacks_parts(extent, promised, parts)
        if self.behind[1]:
            end, first = self.behind
            reason = "bytes after the last tensor belong to no tensor"
            if first == _MAGIC:
                reason = "another GGUF file follows: parts of a model are merged with llama-gguf-split, not joined"
            rest = self.extraction.find_end() - end
            self.findings.add(Finding("trailing-bytes", reason, source=source, offset=end, length=rest))
        if parser.data_start is not None:
            for finding in parser.layout.findings(parser.data_start, source):
                self.findings.add(finding)
        table = self.table
        if table is not None:
            for ordinal in sorted(self.sharing)[: self.extraction.session.limits.findings]:
                node = table.child(ordinal)
                found = self.tensor_of(node, str(node.key)).finding
                if found is not None:
                    self.findings.add(found)
        if table is not None and table.status is Status.TRUNCATED and table.note <= _MOST_TOLD:
            extent.unlisted = max(extent.unlisted, table.note - extent.count)
        extent = super().close_extent(extent)
        if lacks and self.findings.errors == 1:  # nothing but that
            extent.document_status = Status.TRUNCATED
        return extent

    def _lacks_parts(self, extent: Extent, promised: int | None, parts: int) -> bool:
        """Say that the file is one of several parts, and the others are not known; return whether the model lacks them:
        one that is named as the part that it is has them elsewhere, say in the same archive."""
        number, source = self.split_value(NUMBER), self.extraction.name
        which = "one" if number is None else f"number {number + 1}"
        reason = f"it is {which} of {parts:,} parts of a model"
        if number is not None and (part_of(source) or ())[1:] == (number + 1, parts):
            reason += "; the others were not read, as it does not lie in a folder"
            self.findings.add(Finding("shards-not-read", reason, severity=Severity.NOTE, source=source))
            return False
        reason += f", and not named as one (NAME-00001-of-{parts:05}.gguf)"
        extent.missing_files = parts - 1
        if promised is not None:
            extent.unlisted = max(0, promised - extent.count)
            reason += f": it has {extent.count:,} of {count_words(promised, 'tensor')}"
        self.findings.add(Finding("split", reason, source=source, wanted=promised, got=extent.count))
        return True

    def check(self, *, strict: bool = False) -> Iterator[Finding]:
        """Check everything, and yield each finding as it is made; keys that occur twice are looked for, too."""
        yield from super().check(strict=strict)
        seen = len(self.findings)
        self.extent()
        for key in repeated_names(self.facts):
            where: Any = {"path": key, "source": self.extraction.name, "severity": Severity.WARNING}
            self.findings.add(Finding("duplicate-key", f"the key {key} occurs more than once", **where))
        yield from (self.findings[at] for at in range(seen, len(self.findings) - self.findings.omitted))


def gguf_viewer(extraction: Extraction) -> Viewer:
    """Return the viewer of a file, or of all files of the model that it is a part of."""
    viewer = GgufViewer(extraction)
    if "-of-" in extraction.name:
        from pparse.viewers.gguf.split import GgufSplitViewer, is_part

        if is_part(viewer):
            return GgufSplitViewer(extraction)
    viewer.is_alone = True
    return viewer
