"""The tensors of a SMF1 file."""

from __future__ import annotations

from pparse import NodeViewer, Status, Tensor
from pparse.tensors import DTYPES, Span
from pparse.tensors.status import status_by_place


class SmallViewer(NodeViewer):
    """A mapping of names to tensors; `metadata` has the key-values."""

    @property
    def table(self):
        return self.root.find("table")

    @property
    def facts(self):
        return self.root.find("metadata")

    def tensor_of(self, node, name):
        info, data, there = node.load(), self.root.find("data"), self.extraction.find_end()
        behind = there + (self.extraction.start - there) % 32  # if the file ends in the padding before them
        start = (behind if data is None else data.start) + info["offset"]
        status, finding = status_by_place(start, start + info["size"], there), None
        if data is None and self.root.status is Status.DAMAGED:
            # The table has no known end, so nobody knows where the data begin.
            status, finding = Status.DAMAGED, self.root.finding
        span, dtype = Span(self.extraction.data, start, info["size"], self.extraction.path), DTYPES[info["type"]]
        return Tensor(
            name,
            dtype,
            tuple(info["shape"]),
            (span,),
            stored_dtype=info["type"],
            status=status,
            finding=finding,
            owner=self,
        )
