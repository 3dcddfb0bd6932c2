"""The tensors of a PyTorch checkpoint."""

from __future__ import annotations

from functools import partial

from pparse.containers.member import NameCounter
from pparse.errors import PparseError
from pparse.findings import Finding, Status
from pparse.parsers.pytorch.rebuild import Odd
from pparse.tensors.dtype import DTYPES
from pparse.tensors.status import status_by_place
from pparse.tensors.tensor import Span, Tensor
from pparse.tensors.viewer import Viewer
from pparse.viewers.pytorch.walk import Walk

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

    from pparse.document.extraction import Extraction
    from pparse.parsers.pickle.parser import PickleParser
    from pparse.parsers.pytorch.rebuild import StoredTensor
    from pparse.parsers.pytorch.storages import Checkpoint, Stored
    from pparse.viewers.pytorch.walk import Found


class PyTorchViewer(Viewer):
    """A mapping of names to tensors: those of ``torch.load``, by their paths in what was saved."""

    def __init__(self, extraction: Extraction) -> None:
        super().__init__(extraction)
        self.parser: Checkpoint = extraction.parse().parser  # type: ignore[assignment]
        self._byteorder: str | None = None

    def leaves(self) -> Iterator[Found]:
        """Yield everything that was saved, name by name."""
        found = self.parser.pickled()
        if found is None:
            return
        document, root = found
        parser: PickleParser = document.parse("pickle").parser  # type: ignore[assignment]
        yield from Walk(parser).leaves(root)

    def tensors(self) -> Iterator[Tensor]:
        """Yield every tensor, in the order of the pickle."""
        names = NameCounter()
        for leaf in self.leaves():
            for suffix, stored in leaf.tensors or ():
                name = leaf.name + suffix
                number = names.add(name)
                yield self._tensor(name if number == 1 else f"{name}#{number}", stored)
            if isinstance(leaf.value, Odd):
                finding = Finding("bad-tensor", str(leaf.value), path=leaf.name, source=self.extraction.name, offset=leaf.at)
                yield Tensor(leaf.name, None, (), (), status=Status.UNSUPPORTED, finding=finding, owner=self)

    def find(self, name: str) -> Tensor | None:
        """Return the tensor with that name, or None."""
        for tensor in self.tensors():
            if tensor.name == name:
                return tensor
        return None

    @property
    def metadata(self) -> Mapping[str, Any]:
        """What was saved besides tensors, by name."""
        found: dict[str, Any] = {}
        for leaf in self.leaves():
            if leaf.tensors is None and not isinstance(leaf.value, Odd):
                found[leaf.name] = leaf.value
        return found

    def _tensor(self, name: str, stored: StoredTensor) -> Tensor:
        dtype = DTYPES.get(stored.dtype)
        if stored.storage is None:
            finding = Finding("meta", "a meta tensor has a shape and a type, but no values", path=name, source=self.extraction.name)
            return Tensor(name, dtype, stored.shape, (), stored_dtype=stored.torch_dtype, status=Status.UNSUPPORTED, finding=finding, owner=self)
        if dtype is None:
            finding = Finding("unsupported", f"the type {stored.torch_dtype} is not known", path=name, source=self.extraction.name)
            return Tensor(name, None, stored.shape, (), stored_dtype=stored.torch_dtype, status=Status.UNSUPPORTED, finding=finding, owner=self)
        item = dtype.itemsize
        first, last = stored.offset, stored.offset
        if 0 not in stored.shape:
            last += 1 + sum((length - 1) * step for length, step in zip(stored.shape, stored.stride, strict=True))
        begin, end = first * item, last * item
        held = self.parser.stored(stored.storage.key)
        if held is None:
            finding = Finding("missing-storage", f"its storage {stored.storage.key!r} is not in the file", path=name, source=self.extraction.name)
            return Tensor(name, dtype, stored.shape, (Span(None, 0, end - begin, self.extraction.path),), stored_dtype=stored.torch_dtype, status=Status.MISSING, finding=finding, owner=self)
        status, finding = held.status, held.finding
        if status is Status.COMPLETE or status is Status.TRUNCATED:
            status = status_by_place(begin, end, held.size)
        strides = tuple(step * item for step in stored.stride)
        made = Tensor(
            name,
            dtype,
            stored.shape,
            partial(self._spans, held, begin, end),
            stored_dtype=stored.torch_dtype,
            strides=None if _is_contiguous(stored) else strides,
            byteorder=self.byteorder if item > 1 else "little",
            status=status,
            finding=finding if status is not Status.COMPLETE else None,
            owner=self,
        )
        return made

    @property
    def byteorder(self) -> str:
        """Byte order of the values."""
        if self._byteorder is None:
            self._byteorder = self.parser.byteorder
        return self._byteorder

    def _spans(self, held: Stored, begin: int, end: int) -> tuple[Span, ...]:
        try:
            data, start, stop = held.place
        except PparseError:
            return (Span(None, 0, end - begin, self.extraction.path),)
        return (Span(data, start + begin, end - begin, self.extraction.path, stop),)


def _is_contiguous(stored: StoredTensor) -> bool:
    distance = 1
    for length, step in zip(reversed(stored.shape), reversed(stored.stride), strict=True):
        if length == 0:
            return True
        if length > 1 and step != distance:
            return False
        distance *= length
    return True
