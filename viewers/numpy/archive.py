"""The arrays of an .npz file."""

from __future__ import annotations

from functools import cached_property

from pparse.containers.archive import quoted
from pparse.containers.member import NameCounter
from pparse.data.base import BytesData
from pparse.errors import PASSING, PparseError
from pparse.findings import Finding, Severity, Status
from pparse.parsers.numpy.header import read_header
from pparse.parsers.numpy.npz import EXTENSION
from pparse.tensors.tensor import Span, Tensor
from pparse.tensors.viewer import Viewer
from pparse.viewers.numpy.viewer import tensor_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any, Final

    from pparse.containers.member import ArchiveMember
    from pparse.data.base import Data
    from pparse.document.extraction import Extraction
    from pparse.parsers.numpy.npz import NpzParser
    from pparse.tensors.viewer import Extent

# The arrays that scipy.sparse.save_npz writes besides ``format`` and ``shape`` (scipy/sparse/_matrix_io.py).
_SPARSE: Final = {
    "csr": ("data", "indices", "indptr"),
    "csc": ("data", "indices", "indptr"),
    "bsr": ("data", "indices", "indptr"),
    "coo": ("data", "row", "col"),
    "dia": ("data", "offsets"),
}


# What is decoded of a deflated array to list it: the headers of most.
_HEAD: Final = 512


def _numbered(name: str) -> tuple[str, int] | None:
    """Return the name and the number that a name as ``name#2`` consists of; None for any other."""
    base, _, number = name.rpartition("#")
    numbered = base and number.isascii() and number.isdecimal() and len(number) < 7 and number[0] != "0"
    return (base, int(number)) if numbered and number != "1" else None


class MemberSpan(Span):
    """The bytes of an array in an archive, which is opened when they are asked for; it holds what was opened."""

    __slots__ = ("_member", "_opened", "_parser")

    def __init__(
        self,
        parser: NpzParser,
        member: ArchiveMember,
        opened: Extraction | None,
        offset: int,
        length: int,
        end: int | None = None,
    ) -> None:
        self.offset = offset
        self.length = length
        self.end = end
        self._parser = parser
        self._member = member
        self._opened = opened
        inside = "" if self.is_placed else f"::{quoted(member.name)}"
        self.path = parser.extraction.path + inside

    @property
    def opened(self) -> Extraction:
        """The content of the array."""
        if self._opened is None:
            self._opened = self._parser.opened(self._member)
        return self._opened

    @property
    def data(self) -> Data | None:  # type: ignore[override]
        """That of the content."""
        return self.opened.data

    @property
    def is_open(self) -> bool:  # type: ignore[override]
        """Whether the content was opened."""
        return self._opened is not None

    @property
    def is_placed(self) -> bool:  # type: ignore[override]
        """Whether the offset is one in the archive: the array is stored as it is."""
        return self._opened is not None and self._opened.data is self._parser.extraction.data


class NpzViewer(Viewer):
    """A mapping of numpy's names to arrays: those of the members, without ``.npy``."""

    parser: NpzParser
    needs_name = True
    row_bytes = 1_500

    def __init__(self, extraction: Extraction) -> None:
        super().__init__(extraction)
        self.parser = extraction.parse().parser  # type: ignore[assignment]
        self._settled = False

    def size_hint(self) -> int | None:
        """Return the number of members, if there is a directory."""
        directory = self.parser.directory
        return None if directory is None else directory.count

    def tensors(self) -> Iterator[Tensor]:
        """Yield the arrays, in the order of the archive."""
        for name, member in self._named():
            tensor = self._made(name, member)
            if tensor.finding is not None and tensor.finding.code == "magic":
                self._warn("magic", f"{tensor.finding.reason}: numpy.load returns it as bytes", name)
            yield tensor

    def find(self, name: str) -> Tensor | None:
        """Return the array with that name, or None."""
        member = self._member(name)
        return None if member is None else self._made(name, member)

    def check(self, *, strict: bool = False) -> Iterator[Finding]:
        """Read every member, then tell what is wrong with arrays in members that are whole."""
        yield from super().check(strict=strict)
        seen = len(self.findings) - self.findings.omitted
        extent = self.extent()  # before the findings on single arrays, which say nothing against the archive
        if extent.whole < extent.count:
            for name, member in self._named():
                self._tell_flaw(member, self._made(name, member))
        yield from (self.findings[at] for at in range(seen, len(self.findings) - self.findings.omitted))

    def _tell_flaw(self, member: ArchiveMember, tensor: Tensor) -> None:
        """Add a finding on an array that is not whole, or cannot be read, though its member is whole."""
        found, status = tensor.finding, tensor.claimed_status
        if member.status is not Status.COMPLETE or status is Status.COMPLETE:
            return
        if found is None:
            reason = f"{tensor.available_nbytes:,} of its {tensor.stored_nbytes:,} bytes are there"
            found = Finding(str(status), reason, path=tensor.name, source=self.extraction.name)
        if found.code not in ("magic", "objects"):  # told in lists; no flaw
            self.findings.add(found)

    def _warn(self, code: str, reason: str, name: str) -> None:
        source = self.extraction.name
        self.findings.add(Finding(code, reason, severity=Severity.WARNING, path=name, source=source))

    # -- names -------------------------------------------------------------------------------------------------------

    def _named(self) -> Iterator[tuple[str, ArchiveMember]]:
        """Yield the arrays with their names: of several equal ones, the second is ``name#2``, if no other has that."""
        names = NameCounter()
        latest: dict[str, int] = {}  # numbers of names that occurred again
        for name, member in self.parser.arrays():
            if names.add(name) == 1:
                yield name, member
                continue
            if name not in latest:
                which = "the one without .npy" if self._odd_names.get(name) else "the last"
                self._warn("duplicate", f"several members have this name: numpy.load takes {which}", name)
            number = latest.get(name, 1) + 1
            while f"{name}#{number}" in self._odd_names:
                number += 1
            latest[name] = number
            yield f"{name}#{number}", member

    @cached_property
    def _odd_names(self) -> dict[str, bool]:
        """Names that end as if they were of second members, and those of arrays without ``.npy``: True."""
        found: dict[str, bool] = {}
        for name, member in self.parser.arrays():
            if not member.name.endswith(EXTENSION):
                found[name] = True
            elif _numbered(name) is not None:
                found.setdefault(name, False)
        return found

    def _member(self, name: str) -> ArchiveMember | None:
        member = self.parser.array(name)
        parts = _numbered(name) if member is None else None
        if parts is None:
            return member
        base, number = parts
        taken = sum(
            1 for other in filter(None, map(_numbered, self._odd_names)) if other[0] == base and other[1] < number
        )
        return self.parser.array(base, number - taken)

    def _made(self, name: str, member: ArchiveMember) -> Tensor:
        """Return a member as a tensor; it is damaged or cut if the archive says so."""
        tensor = self._peeked(name, member)
        if tensor is not None:
            return tensor
        try:
            opened = self.parser.opened(member)
            header = read_header(opened.data, opened.start, opened.end, opened.session.limits)
            tensor = tensor_of(header, name, opened, self)
            spans = (MemberSpan(self.parser, member, opened, at.offset, at.length, at.end) for at in tensor.spans)
            tensor.spans = tuple(spans)
        except PASSING:
            raise
        except PparseError as error:
            status = Status.DAMAGED if member.status is Status.COMPLETE else member.status
            finding = member.finding or Finding("malformed", error.reason, path=name, source=self.extraction.name)
            return Tensor(name, None, (), (), status=status, finding=finding, owner=self)
        if member.status in (Status.DAMAGED, Status.UNSUPPORTED) and tensor.claimed_status is Status.COMPLETE:
            tensor.status, tensor.finding = member.status, member.finding
        return tensor

    def _peeked(self, name: str, member: ArchiveMember) -> Tensor | None:
        """Return a deflated array of which nothing is wrong so far, without opening it; None for any other."""
        first = self.parser.first_bytes(member, _HEAD)
        if not first:
            return None
        header = read_header(BytesData(first), 0, len(first), self.extraction.session.limits)
        if header.nbytes is None or header.status is not Status.COMPLETE or header.end + header.nbytes != member.size:
            return None
        return Tensor(
            name,
            header.dtype,
            header.shape,
            (MemberSpan(self.parser, member, None, header.end, header.nbytes),),
            stored_dtype=header.descr,
            strides=header.strides(),
            byteorder=header.byteorder,
            owner=self,
        )

    def confirm(self, tensor: Tensor) -> None:
        """Compare the checksums around the archive, and that of the array, if that costs little."""
        super().confirm(tensor)
        for span in tensor.spans:
            if isinstance(span, MemberSpan) and tensor.claimed_status is Status.COMPLETE:
                self.parser.confirm_member(span.opened)

    def settle(self) -> None:
        """From now on, let `tensors` first compare the checksums of all arrays, once."""
        if not self._settled:
            self._settled = True
            self.parser.prove_arrays()

    def close_extent(self, extent: Extent) -> Extent:
        """Complete an extent to which all arrays were added; without its directory, the archive may have had more."""
        closed = super().close_extent(extent)
        closed.at_least = closed.at_least or closed.document_status is Status.TRUNCATED
        return closed

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
