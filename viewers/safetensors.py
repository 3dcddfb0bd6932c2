"""The tensors of one safetensors file."""

from __future__ import annotations

from bisect import bisect_right

from pparse.errors import MalformedError, PparseError
from pparse.findings import Finding, Severity, Status
from pparse.node import UNLOADED_VALUE
from pparse.tensor import Span, Tensor
from pparse.viewer import Extent, Viewer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

    from pparse.extraction import Extraction
    from pparse.node import Entry
    from pparse.parsers.safetensors import SafetensorsParser, TensorInfo


class SafetensorsViewer(Viewer):
    """A mapping of tensor names to tensors, of one file."""

    def __init__(self, extraction: Extraction) -> None:
        super().__init__(extraction)
        self.parser: SafetensorsParser = extraction.parse().parser  # type: ignore[assignment]
        self._holes: list[tuple[int, int]] | None = None
        self._path = extraction.path

    def tensors(self) -> Iterator[Tensor]:
        """Yield every tensor in the order of the header."""
        try:
            repeated = self.parser.repeated()
        except MalformedError:
            return
        seen: dict[str, int] = {}
        for ordinal, name, info, entry in self.parser.infos():
            if ordinal in repeated and name is not None:
                occurrence = seen[name] = seen.get(name, 0) + 1
                yield self._tensor(ordinal, name, info, entry, occurrence)
            else:
                yield self._tensor(ordinal, name, info, entry)

    def _tensor(
        self, ordinal: int, name: str | None, info: TensorInfo, entry: Entry | None, occurrence: int = 1
    ) -> Tensor:
        shown = f"header[#{ordinal}]" if name is None else name if occurrence == 1 else f"{name}#{occurrence}"
        if entry is not None:
            # The header's own text is cut or damaged here; what it would say lies beyond what can be read.
            status = Status.MISSING if entry.status is Status.TRUNCATED else Status.DAMAGED
            reason = entry.finding.reason if entry.finding is not None else "the header entry cannot be read"
            finding = Finding("bad-entry", f"its header entry: {reason}", path=shown, source=self.extraction.name,
                              offset=entry.start)  # fmt: skip
            return Tensor(shown, None, (), (), status=status, finding=finding, owner=self)
        span = Span(self.extraction.data, self.parser.data_start + info.begin, info.end - info.begin, self._path)
        tensor = Tensor(
            shown, info.dtype, info.shape, (span,), stored_dtype=info.stored_dtype, status=self.parser.status_of(info),
            owner=self,
        )  # fmt: skip
        if info.problem is not None:
            tensor.finding = Finding("bad-entry", info.problem, path=shown, source=self.extraction.name,
                                     offset=span.offset, wanted=info.wanted, got=info.got)  # fmt: skip
        elif self.holes and span.length:
            tensor.finding = self._hole_finding(shown, span)
        return tensor

    @property
    def holes(self) -> list[tuple[int, int]]:
        """Stretches of the file that were never written, in order."""
        if self._holes is None:
            self._holes = self.parser.unwritten()
        return self._holes

    def _hole_finding(self, name: str, span: Span) -> Finding | None:
        """Return a finding if ``span`` overlaps a hole of the file."""
        at = bisect_right(self.holes, (span.offset, 1 << 63)) - 1
        first = length = 0
        for start, end in self.holes[max(0, at) :]:
            low, high = max(start, span.offset), min(end, span.offset + span.length)
            if start >= span.offset + span.length:
                break
            if low < high:
                first = first or low
                length += high - low
        if not length:
            return None
        return Finding(
            "unwritten", f"{length} of {span.length} bytes were never written (a file hole): they read as zeros",
            severity=Severity.WARNING, path=name, source=self.extraction.name, offset=first, length=length,
        )  # fmt: skip

    def find(self, name: str) -> Tensor | None:
        """Return the tensor of that name (``name#2``: the second of that name), or None."""
        from pparse.parsers.safetensors import METADATA

        if name == METADATA:
            return None
        found = self._find(name, 1)
        if found is None:
            base, mark, number = name.rpartition("#")
            if mark and number.isascii() and number.isdigit() and len(number) < 10 and int(number) > 1:
                found = self._find(base, int(number))
        return found

    def _find(self, name: str, occurrence: int) -> Tensor | None:
        from pparse.parsers.safetensors import TensorInfo

        try:
            header = self.parser.header
        except MalformedError:
            return None
        if header.root.kind != "object":
            return None
        ordinal = header.find(header.root, name, occurrence)
        if ordinal is None:
            return None
        entry = header.entry(header.root, ordinal)
        try:
            fields = header.root.child(ordinal).to_python()
        except PparseError as error:
            entry.status = Status.DAMAGED if entry.status is Status.COMPLETE else entry.status
            entry.finding = entry.finding or Finding("malformed", error.reason, offset=error.offset)
            return self._tensor(ordinal, name, TensorInfo(UNLOADED_VALUE), entry, occurrence)
        return self._tensor(ordinal, name, TensorInfo(fields), None, occurrence)

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The header's ``__metadata__``; empty where there is none."""
        from pparse.parsers.safetensors import METADATA

        try:
            header = self.parser.header
            node = header.root.find(METADATA) if header.root.kind == "object" else None
            found = node.to_python() if node is not None else None
        except PparseError:
            return {}
        return found if isinstance(found, dict) else {}

    def check(self, *, strict: bool = False) -> Iterator[Finding]:
        """Check everything, and yield each finding as it is made; ``strict`` adds the reference reader's rules."""
        from pparse.viewers.safetensors_rules import check_file

        return check_file(self, strict=strict)

    def extent(self) -> Extent:
        """Say how large the file is and should be, and where it was cut."""
        extent = self.new_extent()
        for tensor in self.tensors():
            extent.add(tensor)
        return self.close_extent(extent)

    def new_extent(self) -> Extent:
        """Return an extent to which the tensors can be added while they are listed; then `close_extent`."""
        return Extent(self.extraction.known_end() - self.extraction.start)

    def close_extent(self, extent: Extent) -> Extent:
        """Complete an extent to which all tensors were added."""
        extraction, parser = self.extraction, self.parser
        if parser.zeroed_header() is not None:
            extent.document_status = Status.DAMAGED
            return extent
        try:
            data_start = parser.data_start - extraction.start
            header = parser.header.status
        except MalformedError as error:
            short = (extent.actual or 0) < 8
            extent.document_status = Status.TRUNCATED if short else Status.DAMAGED
            extent.expected = 8 if short else None
            extent.at_least = True
            parser.result.findings.add(
                Finding("truncated" if short else "malformed", error.reason, source=extraction.name,
                        offset=error.offset, wanted=error.wanted, got=error.got)
            )  # fmt: skip
            extent.resume_at = extent.actual if short else None
            return extent
        extent.document_status = header
        extent.at_least = header is Status.TRUNCATED
        extent.expected = max(data_start, extent.last_byte - extraction.start)
        if extent.actual is not None and extent.actual < extent.expected:
            extent.cut_files = 1
            extent.resume_at = extent.actual
            extent.resume_file = extraction.name
        elif self.holes and extent.actual == extent.expected:
            # A download into a preallocated file: what is before the first hole is there.
            extent.resume_at = self.holes[0][0] - extraction.start
            extent.resume_file = extraction.name
        return extent
