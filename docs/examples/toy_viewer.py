"""The tensors of a TOY1 file: its records of kind floats, named by their paths."""

from __future__ import annotations

from pparse import Finding, PathError, Status, Tensor, Viewer
from pparse.tensors import DTYPES, Extent, Span


class ToyViewer(Viewer):
    """A mapping of the paths of records to float32 vectors."""

    metadata = {}

    def tensors(self):
        for visit in self.extraction.walk():
            if visit.kind == "floats":
                yield self._tensor(visit, visit.status)

    def find(self, name):
        try:
            node = self.extraction.node(name)
        except PathError:
            return None
        return self._tensor(node, node.known_status) if node.kind == "floats" else None

    def _tensor(self, record, status):
        length, finding = record.end - record.start, record.finding
        if length % 4:
            finding = Finding("toy-length", f"{length} bytes are not float32s", path=record.path, offset=record.start)
            status = Status.DAMAGED
        span = Span(self.extraction.data, record.start, length, self.extraction.path)
        return Tensor(
            record.path,
            DTYPES["float32"],
            (length // 4,),
            (span,),
            stored_dtype="floats",
            status=status,
            finding=finding,
            owner=self,
        )

    def extent(self):
        start, last = self.extraction.start, 0
        extent = Extent(self.extraction.find_end() - start)
        for visit in self.extraction.walk():
            last = max(last, visit.end or 0)
            if visit.kind == "floats":
                extent.add(self._tensor(visit, visit.status))
        if self.root.status is Status.TRUNCATED:
            extent.document_status = Status.TRUNCATED
            extent.expected, extent.at_least = max(last - start, extent.actual + 1), True
            extent.resume_at = extent.actual
        elif self.findings.errors:
            extent.document_status = Status.DAMAGED
        return extent
