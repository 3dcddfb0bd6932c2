"""Splitters of TensorFlow's messages: `SavedModelSplitter`, `GraphDefSplitter`, and its parts, usable alone too.

Values of numeric constants become chunks of bytes at ``tensor_content``, exactly as TensorFlow's splitter writes them.
Text constants do not: TensorFlow's Python splitter writes memory addresses for them, and the layout of its C++ splitter
(lengths, then texts) is read by C++ but not by ``MakeNdarray`` in Python. Here the attribute or the node becomes a
chunk unchanged, which every reader understands. A constant given as one repeated value is small, and stays.

A node that is not a constant and too large (TensorFlow refuses it) is split by size alone. TensorFlow's splitter of a
SavedModel splits only the graph of the first MetaGraphDef, and leaves the rest, however large.
"""

from __future__ import annotations

import math

from pparse.errors import SplitError
from pparse.proto_splitter import sizes as measure
from pparse.proto_splitter.size import ElementSplitter, LargeMessageSplitter, RepeatedMessageSplitter, SizeSplitter
from pparse.proto_splitter.split import ComposableSplitter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Final

_LISTS: Final = ("node", "library")
_CONTENT: Final = ("attr", "value", "tensor", "tensor_content")
# By DataType: the field that has the values, the numpy type they are given as, and the one they are stored as. Lists
# of halves are bit patterns; complex numbers are pairs. Text, resources, variants and packed types are not here: their
# bytes have no form that every reader understands.
_STORED: Final = {
    1: ("float_val", "<f4", "<f4"),
    2: ("double_val", "<f8", "<f8"),
    8: ("scomplex_val", "<f4", "<f4"),
    9: ("int64_val", "<i8", "<i8"),
    10: ("bool_val", "u1", "u1"),
    18: ("dcomplex_val", "<f8", "<f8"),
    22: ("uint32_val", "<u4", "<u4"),
    23: ("uint64_val", "<u8", "<u8"),
    **dict.fromkeys((3, 13), ("int_val", "<i4", "<i4")),
    **dict.fromkeys((4, 12, 30), ("int_val", "<i4", "u1")),
    **dict.fromkeys((5, 15), ("int_val", "<i4", "<i2")),
    **dict.fromkeys((6, 11, 29), ("int_val", "<i4", "i1")),
    **dict.fromkeys((16, 17), ("int_val", "<i4", "<u2")),
    **dict.fromkeys((14, 19), ("half_val", "<i4", "<u2")),
    **dict.fromkeys((24, 25), ("float8_val", "u1", "u1")),
}
_PAIRS: Final = (8, 18)
_KEPT: Final = ("dtype", "tensor_shape", "version_number")


class ConstantNodeDefSplitter(ElementSplitter):
    """Moves the value of a ``Const`` NodeDef above `max_size` into a chunk of bytes at its ``tensor_content``.

    Values given as typed lists are converted to these bytes, except text, and lists much shorter than the tensor. A
    node that is still too large, or is not a constant, is split by size. Raise `SplitError` with the node and its sizes
    if that is not possible.
    """

    @classmethod
    def threshold(cls, limit: int) -> int:
        """Return the size up to which a node is left as it is."""
        return limit

    def build_chunks(self) -> int:
        """Split; return how many bytes were moved into chunks."""
        limit, node = self.max_size, self._proto
        if self.proto_size <= limit:
            return 0
        if node.op == "Const" and "value" in node.attr:
            self._take_value(node.attr["value"].tensor)
        left = measure.message_size(node)
        if left > limit:
            what = describe_node(node)  # before it is in pieces
            try:
                left -= self.reduce(limit // 3)
            except SplitError as error:
                reason = f"{error.reason}; the node: {what}"
                raise SplitError(reason, path=error.path, wanted=error.wanted, got=error.got) from error
        return self.proto_size - left

    def _take_value(self, tensor: Any) -> None:
        content = raw_content(tensor, 4 * max(self.proto_size, self.max_size))
        if not content:
            return
        self.add_chunk(content, _CONTENT)
        for field, _ in tensor.ListFields():
            if field.name not in _KEPT:
                tensor.ClearField(field.name)


class FunctionDefSplitter(ElementSplitter):
    """Splits a FunctionDef: above a third of `max_size` it becomes a chunk, above `max_size` nodes are split."""

    def build_chunks(self) -> int:
        """Split; return how many bytes were moved into chunks."""
        limit, size, function = self.max_size, self.proto_size, self._proto
        if size <= limit:
            return LargeMessageSplitter(function, size, parent_splitter=self).build_chunks()
        nodes = RepeatedMessageSplitter(
            function, "node_def", NODE_SPLITTERS, parent_splitter=self, by_parts=is_constant
        )
        # The enclosing messages add their tags and lengths, so it must be a little smaller than a chunk.
        room = limit - len(self._in_root(())[1]) * (1 + measure.varint_size(limit))
        rest = size - nodes.size
        nodes.split_elements()
        nodes.split_list(room - rest)
        left = rest + nodes.size
        if left > room:
            left -= self.reduce(room, keep=("node_def",))
        return size - left


NODE_SPLITTERS: Final = (ConstantNodeDefSplitter, LargeMessageSplitter)


class GraphDefSplitter(ComposableSplitter):
    """Splits a GraphDef above `max_size`: constants, large nodes and functions, then nodes and functions in slices.

    The larger of nodes and library is split first, then the other if necessary. If the graph is still too large, a
    library above half of a chunk is moved out as a whole, and nodes are sliced; a library above `max_size` is sliced
    too.

    Raise TypeError if ``proto`` is not a ``tensorflow.GraphDef``; `split` raises `SplitError` if a part cannot be
    split.
    """

    def __init__(self, proto: Any, **kwargs: Any) -> None:
        check_type(proto, "tensorflow.GraphDef")
        super().__init__(proto, **kwargs)

    def build_chunks(self) -> int:
        """Split; return how many bytes were moved into chunks."""
        graph, limit = self._proto, self.max_size
        self._nodes = RepeatedMessageSplitter(graph, "node", NODE_SPLITTERS, parent_splitter=self, by_parts=is_constant)
        self._functions = RepeatedMessageSplitter(
            graph.library, "function", [FunctionDefSplitter], parent_splitter=self, fields_in_parent=["library"]
        )
        self._rest = measure.size_without(graph, _LISTS)
        self._has_library = graph.HasField("library")
        library = graph.library if self._has_library else type(graph.library)()
        self._gradients = measure.size_without(library, ("function",))
        before = self.size
        lists = [self._nodes, self._functions]
        if self._library_size() > self._nodes.size:
            lists.reverse()
        for each in lists:
            if self.size > limit:
                each.split_elements()
        if self.size > limit:
            self._split_lists()
        if self.size > limit:
            self._rest -= SizeSplitter(graph, room=limit, keep=_LISTS, parent_splitter=self).build_chunks()
        return before - self.size

    def _library_size(self) -> int:
        return measure.framed(1, self._gradients + self._functions.size) if self._has_library else 0

    @property
    def size(self) -> int:
        """The current size of the graph in bytes, after `build_chunks`."""
        return self._rest + self._nodes.size + self._library_size()

    def _split_lists(self) -> None:
        limit = self.max_size
        nodes, library = self._nodes.size, self._library_size()
        room = limit - self._rest
        if library <= limit // 2:
            self._nodes.split_list(room - library)
        elif nodes <= limit // 2:
            self._functions.split_list(room - nodes - (library - self._functions.size))
            self._split_gradients(room - nodes - measure.framed(1, self._functions.size))
        else:
            self._move_library()
            self._nodes.split_list(room - self._library_size())

    def _move_library(self) -> None:
        graph = self._proto
        if self._gradients + self._functions.size <= self.max_size:
            chunk = graph.library
            graph.ClearField("library")  # the message stays alive and is not copied
            self._has_library = False
            self.add_chunk(chunk, ["library"], index=1)
            return
        self._functions.split_list(0)
        self._split_gradients(self.max_size // 3)

    def _split_gradients(self, room: int) -> None:
        if self._gradients > max(room, 0):
            self._gradients -= SizeSplitter(
                self._proto.library,
                room=max(room, 0) + self._functions.size,
                keep=("function",),
                parent_splitter=self,
                fields_in_parent=["library"],
            ).build_chunks()


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
        self._rest = measure.size_without(model, ("meta_graphs",))
        before = self._size()
        self._each(self._split_graph)
        self._each(self._move_graph)
        self._each(self._split_others)
        if self._size() > limit:
            graphs = RepeatedMessageSplitter(model, "meta_graphs", (), room=limit - self._rest, parent_splitter=self)
            graphs.build_chunks()
            self._sizes = graphs.sizes
        return before - self._size()

    def _size(self) -> int:
        return self._rest + sum(measure.framed(1, size) for size in self._sizes)

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


def is_constant(node: Any) -> bool:
    """Say whether a NodeDef is a constant. These may be huge, and are measured without encoding them."""
    return bool(node.op == "Const")


def describe_node(node: Any) -> str:
    """Describe a node in an error: name, operation, inputs, device, and the sizes of its attributes."""
    mapped = next((item for item in node.ListFields() if item[0].name == "attr"), None)
    attributes = ""
    if mapped is not None:
        keys = list(mapped[1])
        sizes = measure.entry_sizes(mapped[0], mapped[1], keys)
        attributes = ", ".join(f"{key} {size}" for key, size in sorted(zip(keys, sizes, strict=True))[:20])
    inputs = ", ".join(node.input[:10])
    return (
        f"name {node.name[:200]!r}, op {node.op[:200]!r}, inputs [{inputs[:200]}], device {node.device[:200]!r}, "
        f"sizes of attributes: {attributes or 'none'}"
    )


def check_type(proto: Any, full_name: str) -> None:
    """Raise TypeError if ``proto`` is not a message of that type."""
    descriptor = getattr(proto, "DESCRIPTOR", None)
    found = getattr(descriptor, "full_name", type(proto).__name__)
    if found != full_name:
        raise TypeError(f"this splitter is for {full_name}, not for {found}")


# -- the values of a constant ------------------------------------------------------------------------------------------


def raw_content(tensor: Any, max_bytes: int) -> bytes | None:
    """Return the bytes of a TensorProto's values, in memory order, little-endian; None if the type has no such bytes.

    A list shorter than the tensor repeats its last value, so the result may exceed the bytes given, up to
    ``max_bytes``.
    """
    if tensor.tensor_content:
        return bytes(tensor.tensor_content)
    stored = _STORED.get(tensor.dtype)
    dims = [dim.size for dim in tensor.tensor_shape.dim]
    if stored is None or tensor.tensor_shape.unknown_rank or min(dims, default=0) < 0:
        return None
    name, given, wanted = stored
    values = getattr(tensor, name, b"")
    width = 2 if tensor.dtype in _PAIRS else 1
    count = math.prod(dims) * width
    if not values or len(values) > count or len(values) % width:
        return None
    import numpy as np

    kind = np.dtype(wanted)
    if count * kind.itemsize > max_bytes:
        return None
    listed = np.fromiter(values, given, len(values))
    out = np.empty(count, kind)
    out[: len(listed)] = listed.astype(kind)
    if len(listed) < count:
        out[len(listed) :].reshape(-1, width)[:] = out[len(listed) - width : len(listed)]
    return out.tobytes()
