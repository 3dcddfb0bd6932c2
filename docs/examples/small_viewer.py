"""The tensors of a SMF1 file."""

from __future__ import annotations

from pparse import NodeViewer, Tensor
from pparse.tensors import DTYPES, Span
from pparse.tensors.status import status_by_place


class SmallViewer(NodeViewer):
    """A mapping of names to tensors; `metadata` has the key-values."""

    @property
    def metadata(self):
        return self.root["metadata"].to_python()

    @property
    def table(self):
        return self.root.find("table")

    def tensor_of(self, node, name):
        info, data = node.load(), self.root.find("data")
        start = (data.start if data is not None else self.extraction.known_end()) + info["offset"]
        end = start + info["size"]
        span = Span(self.extraction.data, start, info["size"], self.extraction.path)
        status = status_by_place(start, end, self.extraction.known_end())
        dtype = DTYPES.get(info["type"])
        return Tensor(name, dtype, tuple(info["shape"]), (span,), stored_dtype=info["type"], status=status, owner=self)
