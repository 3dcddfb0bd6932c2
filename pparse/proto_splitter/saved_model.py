"""`SavedModelSplitter`: splits the graphs of all MetaGraphDefs, then whatever else is large.

TensorFlow's splits only the graph of the first MetaGraphDef, and leaves the rest, however large.
"""

from __future__ import annotations

from pparse.proto_splitter import sizes as measure
from pparse.proto_splitter.graph_def import GraphDefSplitter, check_type
from pparse.proto_splitter.repeated import RepeatedMessageSplitter
from pparse.proto_splitter.size import SizeSplitter
from pparse.proto_splitter.split import ComposableSplitter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


class SavedModelSplitter(ComposableSplitter):
    """Splits a SavedModel above `max_size`.

    In this order, until it is small enough: graphs are split (`GraphDefSplitter`), the largest first; graphs are moved
    out as a whole; object graphs, signatures and collections are split (`SizeSplitter`); MetaGraphDefs are sliced.

    Raise TypeError if ``proto`` is not a ``tensorflow.SavedModel``; `split` raises `SplitError` if a part cannot be
    split.
    """

    def __init__(self, proto: Any, **kwargs: Any) -> None:
        check_type(proto, "tensorflow.SavedModel")
        super().__init__(proto, **kwargs)

    def build_chunks(self) -> int:
        """Split; return how many bytes were moved into chunks."""
        model, limit = self._proto, self.max_size
        # Each size is measured once: a pass over the bytes of a large model takes seconds.
        self._sizes = [measure.message_size(meta) for meta in model.meta_graphs]
        self._graphs: dict[int, int] = {}
        self._rest = measure.unknown_size(model) + sum(
            measure.field_size(*item) for item in model.ListFields() if item[0].name != "meta_graphs"
        )
        before = self._size()
        self._each(self._split_graph)
        self._each(self._move_graph)
        self._each(self._split_others)
        if self._size() > limit:
            graphs = RepeatedMessageSplitter(model, "meta_graphs", (), room=limit - self._rest, parent_splitter=self)
            graphs.build_chunks()
            self._sizes = graphs.sizes
        return before - self._size()

    def _framed(self) -> int:
        return sum(measure.framed(1, size) for size in self._sizes)

    def _size(self) -> int:
        return self._rest + self._framed()

    def _each(self, action: Callable[[int, Any], int]) -> None:
        """Run ``action`` on the MetaGraphDefs, the largest first, until everything fits into a chunk."""
        limit = self.max_size
        for index in sorted(range(len(self._sizes)), key=lambda index: -self._sizes[index]):
            if self._size() <= limit:
                return
            self._sizes[index] -= action(index, self._proto.meta_graphs[index])

    def _split_graph(self, index: int, meta: Any) -> int:
        if not meta.HasField("graph_def"):
            return 0
        splitter = GraphDefSplitter(
            meta.graph_def, parent_splitter=self, fields_in_parent=["meta_graphs", index, "graph_def"]
        )
        gone = splitter.build_chunks()
        left = self._graphs[index] = splitter.size
        return measure.framed(1, left + gone) - measure.framed(1, left)

    def _move_graph(self, index: int, meta: Any) -> int:
        if not meta.HasField("graph_def"):
            return 0
        size, chunk = self._graphs[index], meta.graph_def
        meta.ClearField("graph_def")  # the message stays alive and is not copied
        self.add_measured(chunk, size, ["meta_graphs", index, "graph_def"], index=1)
        return measure.framed(1, size)

    def _split_others(self, index: int, meta: Any) -> int:
        room = self.max_size - (self._size() - self._sizes[index]) - 16  # its tag and length, which change
        return SizeSplitter(
            meta,
            room=room if room > 0 else self.max_size // 4,
            keep=("graph_def",),
            parent_splitter=self,
            fields_in_parent=["meta_graphs", index],
        ).build_chunks()
