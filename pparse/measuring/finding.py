"""Finds tensors by what they are: the same content in several places, values that are not finite or all zero, and bytes
of files that no tensor uses.

Contents are hashed only where type and shape are the same, so files are gone through twice: `Duplicates.add`, then
`Duplicates.groups`, which opens those again that may have one.
"""

from __future__ import annotations

from pparse.measuring.content import shape_word, type_word
from pparse.measuring.hashing import hash_if_whole

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from typing import Final

    from pparse.limits import MemoryBudget
    from pparse.tensors.tensor import Tensor
    from pparse.tensors.viewer import Viewer

# Memory of a tensor that is held, and in how many bytes that grows.
_HELD: Final = 500
_STEP: Final = 1 << 20


class Found:
    """A tensor of a file."""

    __slots__ = ("file", "layout", "name", "nbytes", "place")

    def __init__(self, file: str, name: str, nbytes: int, place: object, layout: object) -> None:
        self.file = file
        self.name = name
        self.nbytes = nbytes
        """Bytes as stored."""
        self.place = place
        """What only tensors of the same bytes have in common."""
        self.layout = layout
        """What only those of them have in common in which the bytes are in the same order."""


class Group:
    """Tensors with the same content."""

    def __init__(self, dtype: str, shape: str, tensors: list[Found]) -> None:
        self.dtype = dtype
        self.shape = shape
        self.tensors = tensors

    @property
    def wasted(self) -> int:
        """How many bytes are there more than once; what several tensors share is there once."""
        places = {found.place for found in self.tensors}
        return self.tensors[0].nbytes * (len(places) - 1)


class Duplicates:
    """Tensors of any number of files, by type and shape; and those among them with the same content."""

    def __init__(self, budget: MemoryBudget) -> None:
        self._kinds: dict[tuple[str, str], list[Found]] = {}
        self._count = 0
        self._charge = budget.charge(0, "the tensors that may be there twice")

    def add(self, file: str, tensor: Tensor) -> None:
        """Note a tensor of a file; none without elements."""
        if not tensor.stored_nbytes or not tensor.is_complete:
            return
        self._count += 1
        if self._count * _HELD > self._charge.amount:
            self._charge.resize(self._charge.amount + _STEP)
        spans = tuple(
            (span.path if span.found_in is None else span.found_in.name, span.found_at, span.offset, span.length)
            for span in tensor.spans
        )
        layout = tensor.strides, tensor.byteorder, tensor.encoding
        found = Found(file, tensor.name, tensor.stored_nbytes, spans, layout)
        self._kinds.setdefault((type_word(tensor), shape_word(tensor)), []).append(found)

    def groups(self, opened: Callable[[str], AbstractContextManager[Viewer]]) -> Iterator[Group]:
        """Yield what is there twice or more often, that which wastes most first; ``opened`` opens a file again."""
        wanted: dict[str, list[tuple[tuple[str, str], Found]]] = {}
        for kind, tensors in self._kinds.items():
            for found in tensors if len(tensors) > 1 else ():
                wanted.setdefault(found.file, []).append((kind, found))
        same: dict[tuple[str, str, str], list[Found]] = {}
        for file, rows in wanted.items():
            with opened(file) as viewer:
                known: dict[object, str | None] = {}
                for (dtype, shape), found in rows:
                    place = dtype, shape, found.place, found.layout
                    if place not in known:
                        tensor = viewer.find(found.name)
                        known[place] = None if tensor is None else hash_if_whole(tensor)
                    digest = known[place]
                    if digest is not None:
                        same.setdefault((dtype, shape, digest), []).append(found)
        groups = [Group(dtype, shape, found) for (dtype, shape, _), found in same.items() if len(found) > 1]
        yield from sorted(groups, key=lambda group: -group.wasted)


def unused(viewer: Viewer) -> Iterator[tuple[str, int, list[tuple[int, int]]]]:
    """Yield for each file that tensors lie in its path, its size, and the stretches that no tensor uses: begin and end.

    Files in which tensors are packed, and those inside of archives, are left out.
    """
    used: dict[str, list[tuple[int, int]]] = {}
    sizes: dict[str, int] = {}
    for tensor in viewer.tensors():
        for span in tensor.spans:
            for data, offset, length in () if span.data is None else span.data.locate(span.offset, span.length):
                if data.is_plain:
                    sizes[data.name] = data.size or 0
                    used.setdefault(data.name, []).append((offset, offset + length))
    for path, stretches in used.items():
        yield path, sizes[path], list(_between(sorted(stretches), sizes[path]))


def _between(stretches: list[tuple[int, int]], size: int) -> Iterator[tuple[int, int]]:
    at = 0
    for start, end in stretches:
        if start > at:
            yield at, start
        at = max(at, end)
    if size > at:
        yield at, size
