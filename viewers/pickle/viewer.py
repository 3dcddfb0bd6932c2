"""The arrays in a pickle: those of numpy, and of libraries that keep theirs in numpy's."""

from __future__ import annotations

from functools import partial

from pparse.containers.member import NameCounter
from pparse.findings import Finding, Status
from pparse.parsers.pickle.values import Call, Global, Persistent
from pparse.parsers.pytorch.rebuild import Odd
from pparse.tensors.viewer import Extent, Viewer
from pparse.viewers.pickle.make import TensorMaker
from pparse.viewers.pickle.nested import storage_in
from pparse.viewers.pickle.walk import Walk

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any, Final

    from pparse.document.extraction import Extraction
    from pparse.parsers.pickle.parser import PickleParser
    from pparse.parsers.pytorch.rebuild import StorageId, StoredTensor
    from pparse.parsers.pytorch.storages import Stored
    from pparse.tensors.tensor import Tensor
    from pparse.tree.node import Node
    from pparse.viewers.pickle.walk import Found

# Modules whose objects are, or hold, arrays.
_ARRAYS: Final = ("numpy.", "torch.", "joblib.")
_MOST_FACTS: Final = 10_000


class PickleViewer(Viewer):
    """A mapping of names to arrays, by their paths in what was pickled."""

    def __init__(self, extraction: Extraction) -> None:
        super().__init__(extraction)
        self.parser = extraction.parse().parser
        self._maker: TensorMaker | None = None

    @classmethod
    def applies(cls, parser: Any) -> bool:
        """Return whether the pickle names anything of numpy or torch."""
        return any(name.startswith(_ARRAYS) for _, name in parser.global_names())

    def pickled(self) -> Node | None:
        """Return the value that was pickled; None if it is lost."""
        return self.root

    def stored(self, storage: StorageId) -> Stored | None:
        """Return a storage of PyTorch; None if the file does not have it."""
        return None

    def named(self, value: Persistent) -> StoredTensor | None:
        """Return the tensor that a persistent id means; None if it means none."""
        return None

    @property
    def byteorder(self) -> str:
        """Byte order of PyTorch's storages."""
        return "little"

    @property
    def maker(self) -> TensorMaker:
        """Makes the tensors."""
        if self._maker is None:
            self._maker = TensorMaker(self, self.byteorder)
        return self._maker

    def leaves(self) -> Iterator[Found]:
        """Yield everything that was pickled, name by name."""
        root = self.pickled()
        if root is not None:
            parser: PickleParser = root.result.parser  # type: ignore[assignment]
            yield from Walk(parser, partial(storage_in, self.extraction)).leaves(root)

    def tensors(self) -> Iterator[Tensor]:
        """Yield every tensor, in the order of the pickle."""
        names, maker = NameCounter(), self.maker
        for leaf in self.leaves():
            if leaf.array is not None:
                yield maker.of_numpy(_numbered(names, leaf.name), leaf.array, leaf.dtype)
            elif isinstance(leaf.value, Odd):
                yield maker.unreadable(_numbered(names, leaf.name), "bad-tensor", f"{leaf.value}")
            elif leaf.tensors is None and isinstance(leaf.value, Persistent):
                meant = self.named(leaf.value)
                leaf.tensors = None if meant is None else [("", meant)]
            for suffix, stored in leaf.tensors or ():
                held = None
                if stored.storage is not None:
                    held = stored.storage.held or self.stored(stored.storage)
                name = leaf.name + suffix if leaf.name else suffix.removeprefix(".")
                yield maker.of_torch(_numbered(names, name), stored, held)

    def new_extent(self) -> Extent:
        """Return an extent to add tensors to while listing them; then call `close_extent`."""
        inner = self.extraction.parsed
        return Extent(inner.known_end() - inner.start, known=self.extraction.session.stats.discoveries)

    def extent(self) -> Extent:
        """Return how large the document is and should be, as far as the tensors tell."""
        extent = self.kept_extent
        if extent is None:
            extent = self.new_extent()
            for tensor in self.tensors():
                extent.add(tensor)
            extent = self.close_extent(extent)
        return extent

    def close_extent(self, extent: Extent) -> Extent:
        """Complete an extent to which all tensors were added."""
        actual = extent.actual or 0
        extent.expected = actual
        root = self.pickled()
        status = self.root.status
        if status is Status.COMPLETE and root is not None:
            status = root.status
        lacking = sum(self.maker.lacking.values())
        if status is Status.TRUNCATED:
            extent.document_status = Status.TRUNCATED
            extent.expected, extent.at_least = actual + max(1, lacking), True
            extent.resume_at = actual
        elif status is Status.DAMAGED or root is None or self.findings.errors:
            extent.document_status = Status.DAMAGED
        return self.keep_extent(extent)

    def truncation(self, extent: Extent) -> Finding:
        """Return the finding that the document is too short."""
        return Finding(
            "truncated",
            "the checkpoint ends early",
            source=self.extraction.name,
            offset=extent.actual,
            wanted=extent.expected,
            got=extent.actual,
        )

    def find(self, name: str) -> Tensor | None:
        """Return the tensor with that name, or None."""
        return next((tensor for tensor in self.tensors() if tensor.name == name), None)

    @property
    def metadata(self) -> Mapping[str, Any]:
        """What was pickled besides arrays, by name: the first 10,000 values; objects as the names of their classes."""
        found: dict[str, Any] = {}
        for leaf in self.leaves():
            if leaf.tensors is None and leaf.array is None and not isinstance(leaf.value, Odd):
                found[leaf.name] = _plain(leaf.value)
                if len(found) >= _MOST_FACTS:
                    break
        return found


def _numbered(names: NameCounter, name: str) -> str:
    number = names.add(name)
    return name if number == 1 else f"{name}#{number}"


def _plain(value: Any) -> Any:
    """Return a value as data that JSON knows, or as text."""
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, Call):
        return f"<{value.name or 'object'}>"
    if isinstance(value, Global):
        return str(value)
    if isinstance(value, Persistent):
        return "<persistent>"
    if isinstance(value, bytes | bytearray):
        return f"<{len(value)} bytes>"
    if isinstance(value, set | frozenset):
        return f"<set of {len(value)}>"
    if isinstance(value, dict | list | tuple):
        return value if not value else f"<{type(value).__name__} of {len(value)}>"
    return str(value)
