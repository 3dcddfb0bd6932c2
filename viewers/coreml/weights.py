"""Weights of Core ML programs without the model that names them: blobs as tensors of one dimension."""

from __future__ import annotations

from pparse.errors import DataError
from pparse.findings import Finding, Status
from pparse.parsers.milblob import SENTINEL, SIZE
from pparse.tensors.dtype import DTYPES, dtype_named
from pparse.tensors.node_viewer import NodeViewer
from pparse.tensors.span import Span
from pparse.tensors.tensor import Tensor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pparse.tree.node import Node


class WeightsViewer(NodeViewer):
    """A mapping of ``blob_0`` and so on to the elements of blobs; of types that arrays have not, to bytes."""

    places_by_offset = True

    needs_name = False

    def tensor_of(self, node: Node, name: str) -> Tensor:
        """Return the tensor of a blob; it may not be as long as it says if no header follows it."""
        start, end = node.start, node.end or node.start
        dtype = dtype_named(node.kind) or DTYPES["uint8"]
        status, finding = node.known_status or Status.COMPLETE, node.finding
        padding, is_last = node.note or (0, False)
        padding = padding if dtype.bits < 8 else 0
        elements = ((end - start) * 8 - padding) // dtype.bits
        if status is Status.COMPLETE and not self._ends_well(end, last=is_last):
            status = Status.DAMAGED
            reason = "no header, or end, follows its bytes: some may have gone there, or come in"
            finding = Finding("shifted", reason, path=name, source=self.extraction.name, offset=end)
        span = Span(self.extraction.data, start, end - start, self.extraction.path)
        return Tensor(
            name,
            dtype,
            (max(0, elements),),
            (span,),
            stored_dtype=node.kind,
            status=status,
            finding=finding,
            owner=self,
        )

    def _ends_well(self, end: int, *, last: bool) -> bool:
        """Return whether the file ends behind the last blob, and behind others another header begins."""
        extraction = self.extraction
        behind = end + -(end - extraction.start) % SIZE
        left = extraction.find_end() - behind
        if last or left < SIZE:  # the file ends, or is cut there
            return not last or extraction.find_end() <= end
        try:
            return extraction.data.read_exact(behind, 4) == SENTINEL.to_bytes(4, "little")
        except DataError:
            return False
