"""The arrays of an .npz file."""

from __future__ import annotations

from pparse.containers.member import NameCounter
from pparse.errors import PASSING, PparseError
from pparse.findings import Finding, Severity, Status
from pparse.tensors.tensor import Tensor
from pparse.tensors.viewer import Viewer
from pparse.viewers.numpy.viewer import NpyViewer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any, Final

    from pparse.containers.member import ArchiveMember
    from pparse.document.extraction import Extraction
    from pparse.parsers.numpy.npz import NpzParser

# The arrays that scipy.sparse.save_npz writes besides ``format`` and ``shape`` (scipy/sparse/_matrix_io.py).
_SPARSE: Final = {
    "csr": ("data", "indices", "indptr"),
    "csc": ("data", "indices", "indptr"),
    "bsr": ("data", "indices", "indptr"),
    "coo": ("data", "row", "col"),
    "dia": ("data", "offsets"),
}


class NpzViewer(Viewer):
    """A mapping of numpy's names to arrays: those of the members, without ``.npy``."""

    parser: NpzParser

    def __init__(self, extraction: Extraction) -> None:
        super().__init__(extraction)
        self.parser = extraction.parse().parser  # type: ignore[assignment]
        self._settled = False

    def tensors(self) -> Iterator[Tensor]:
        """Yield the arrays, in the order of the archive."""
        names = NameCounter()
        for name, member in self.parser.arrays():
            number = names.add(name)
            if number == 2:
                reason = "several members have this name: numpy.load takes the last"
                self.findings.add(
                    Finding("duplicate", reason, severity=Severity.WARNING, path=name, source=self.extraction.name)
                )
            yield self._made(name if number == 1 else f"{name}#{number}", member)

    def find(self, name: str) -> Tensor | None:
        """Return the array with that name, or None."""
        member = self.parser.array(name)
        base, _, number = name.rpartition("#")
        if member is None and base and number.isdecimal() and 1 < int(number[:9]) < 1_000_000:
            member = self.parser.array(base, int(number[:9]))
        return None if member is None else self._made(name, member)

    def _made(self, name: str, member: ArchiveMember) -> Tensor:
        """Return a member as a tensor; it is damaged or cut if the archive says so."""
        try:
            opened = self.parser.opened(member)
            tensor = NpyViewer(opened, name).tensor()
        except PASSING:
            raise
        except PparseError as error:
            status = Status.DAMAGED if member.status is Status.COMPLETE else member.status
            finding = member.finding or Finding("malformed", error.reason, path=name, source=self.extraction.name)
            return Tensor(name, None, (), (), status=status, finding=finding, owner=self)
        if member.status in (Status.DAMAGED, Status.UNSUPPORTED) and tensor.claimed_status is Status.COMPLETE:
            tensor.status, tensor.finding = member.status, member.finding
        return tensor

    def settle(self) -> None:
        """From now on, let `tensors` first compare the checksums of all arrays, once."""
        if not self._settled:
            self._settled = True
            self.parser.prove_arrays()

    @property
    def metadata(self) -> Mapping[str, Any]:
        """What the arrays of a sparse matrix of SciPy say of it: its format and shape; of others nothing."""
        form, shape = self.find("format"), self.find("shape")
        if form is None or shape is None or form.size != 1 or shape.size != 2 or form.dtype is None:
            return {}
        try:
            word = form.numpy().item()
            lengths = shape.numpy().tolist()
        except PASSING:
            raise
        except (PparseError, ValueError):
            return {}
        text = word.decode("latin-1") if isinstance(word, bytes) else str(word)
        if any(self.parser.array(name) is None for name in _SPARSE.get(text, ("",))):
            return {}
        return {"matrix": "scipy.sparse", "format": text, "shape": lengths}
