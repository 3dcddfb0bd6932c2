"""What a PyTorch parser offers to the viewer: the pickle with the names, and the storages by key.

Apart from what rebuilds tensors: every tar and zip is asked whether it is a checkpoint, and few are.
"""

from __future__ import annotations

from pparse.data.range_status import cut_status
from pparse.errors import PathError
from pparse.findings import HasStatus, Status

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pparse.data.base import Data
    from pparse.document.extraction import Extraction
    from pparse.findings import Finding
    from pparse.parsers.pickle.values import Persistent
    from pparse.parsers.pytorch.rebuild import StoredTensor
    from pparse.tree.code_use import CodeUse
    from pparse.tree.node import Node

    Place = tuple[Data, int, int]


class Stored(HasStatus):
    """A storage as the file has it."""

    __slots__ = ()
    size: int
    """Bytes that the file has of it."""
    status: Status
    """COMPLETE, if all of its bytes are there as far as the container tells."""
    finding: Finding | None
    """What is wrong with it, if anything."""
    data: Data | None = None
    """The data that it lies in, if its place there is yet to be read."""

    @property
    def place(self) -> Place:
        """The data, and begin and end of the bytes there. Raises `MalformedError`, `UnsupportedError`."""
        raise NotImplementedError

    def verify(self) -> bool:
        """Compare its checksum, if it has one, once; return whether nothing is wrong with it as far as known then."""
        return self.is_complete

    def written(self) -> int | None:
        """Return how many of the bytes there precede zeros that last to the end of the file; None: nobody knows."""
        return None

    def is_of_zeros(self) -> bool:
        """Return whether its checksum is that of nothing but zeros, or its format has them and it has none."""
        return False


class StoredAt(Stored):
    """A storage of ``size`` bytes that begins at ``begin``, where the file has those before ``end``."""

    def __init__(self, data: Data, begin: int, size: int, end: int) -> None:
        self.size, self.finding = max(0, min(size, end - begin)), None
        self.status = Status.COMPLETE if self.size >= size else cut_status(self.size > 0)
        self._place = data, begin, begin + self.size

    @property
    def place(self) -> Place:
        """The data, and begin and end of the bytes there."""
        return self._place


def first_value(pickled: Extraction) -> Node:
    """Return the value of the first pickle in a member: torch reads to the first STOP."""
    root = pickled.parse("pickle").root
    return root.child(0) if root.kind == "pickles" else root


class StorageReader:
    """The part of a PyTorch parser that the viewer needs; by itself that of a plain pickle, which has no storages."""

    has_checksums = False
    """Whether the format has checksums of the storages."""

    def saved_at(self, path: str) -> Node | None:
        """Return the node of what was saved under ``path``; None if there is none."""
        saved = self.pickled()
        try:
            return None if saved is None else saved.at(path)
        except PathError:
            return None

    def pickled(self) -> Node | None:
        """Return the value that was saved, a node of a `PickleParser`; None if it is lost."""
        return None

    def saved_details(self, own: str = "") -> Iterator[tuple[str, str]]:
        """Yield the lines of `pparse info` on the pickle of what was saved, without names that begin with ``own``."""
        saved = self.pickled()
        if saved is None:
            return
        if not own:
            yield from saved.result.parser.details()  # type: ignore[attr-defined]
            return
        from pparse.tree.code_use import code_lines

        yield from saved.result.parser.facts()  # type: ignore[attr-defined]
        others: Iterator[CodeUse] = saved.result.parser.globals()  # type: ignore[attr-defined]
        yield from code_lines(use for use in others if not use.name.startswith(own))

    def saved_globals(self) -> Iterator[CodeUse]:
        """Yield the globals that the pickle of what was saved names."""
        saved = self.pickled()
        if saved is not None:
            for use in saved.result.parser.globals():  # type: ignore[attr-defined]
                use.pickle = saved.extraction.name
                yield use

    def verify_storages(self, but: Mapping[int, int] | None = None) -> dict[int, int] | None:
        """Compare all checksums that the file has of what was saved; but not those of ``but``: ends by begins of bytes.

        Return the CRC-32 of each stretch of those that is just a storage, by its begin. None if anything was wrong.
        """
        return {}

    def constants(self) -> Node | None:
        """Return the constants of its code, a tuple of tensors and other values; None if it has none."""
        return None

    def bytecode(self) -> Node | None:
        """Return its byte code for the mobile interpreter; None if it has none."""
        return None

    def constant(self, key: str) -> Stored | None:
        """Return a storage of a constant."""
        return None

    @property
    def has_code(self) -> bool:
        """Whether code was saved with it, as TorchScript does."""
        return False

    def source(self, name: str, check: Callable[[int], object]) -> tuple[str, bytes, Finding | None] | None:
        """Return a source of its code: what the file calls it, its bytes, and what is wrong with them; None: there is
        none.

        ``check`` is called with the number of bytes before so many are kept, and may raise.
        """
        return None

    def named(self, value: Persistent) -> StoredTensor | None:
        """Return the tensor that a persistent id means, if ids of the format are names of tensors; else None."""
        return None

    def stored(self, key: str) -> Stored | None:
        """Return the storage with that key, without reading it; None if the file has none."""
        return None

    def keys(self) -> Iterator[str]:
        """Yield the keys of all storages in the file."""
        return iter(())

    @property
    def byteorder(self) -> str:
        """Byte order of the storages: ``"little"``, as the old formats have it on every machine, or ``"big"``."""
        return "little"
