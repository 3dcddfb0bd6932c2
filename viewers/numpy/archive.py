"""The arrays of an .npz file."""

from __future__ import annotations

from collections import deque
from functools import cached_property

from pparse.containers.archive import ENTERED, quoted
from pparse.containers.member import ArchiveMember, NameCounter
from pparse.data.base import BytesData
from pparse.errors import PASSING, DataError, PparseError
from pparse.findings import Finding, Severity, Status
from pparse.parsers.numpy.npy import ArrayHeader, nameless, read_header
from pparse.parsers.numpy.npz import EXTENSION, is_little
from pparse.parsers.zip.members import ZipNote
from pparse.tensors.dtype import are_characters
from pparse.tensors.span import Span
from pparse.tensors.status import SETTLED
from pparse.tensors.tensor import UNKNOWN_SHAPE, Tensor
from pparse.tensors.viewer import Viewer
from pparse.viewers.numpy.viewer import tensor_of, with_spans

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping
    from typing import Any, Final

    from pparse.data.base import Data
    from pparse.document.extraction import Extraction
    from pparse.parsers.numpy.npz import NpzParser
    from pparse.tree.node import Node

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
# How many of the members that were listed last are kept, and of the headers that arrays share.
_RECENT: Final = 128
# Memory of an array that is held, and of a member, without their names.
_ROW: Final = 700
_MEMBER: Final = 700


def _numbered(name: str) -> tuple[str, int] | None:
    """Return the name and the number that a name as ``name#2`` consists of; None for any other."""
    base, _, number = name.rpartition("#")
    numbered = base and number.isascii() and number.isdecimal() and len(number) < 7 and number[0] != "0"
    return (base, int(number)) if numbered and number != "1" else None


class MemberSpan(Span):
    """The bytes of an array in an archive.

    There may be a million of them. So a span holds an offset, by which the directory gives the member again; the
    member, if there is no directory; and its content, see `ContentSpan`.
    """

    __slots__ = ("_at", "_held", "_member", "_viewer")

    _at: int
    _held: Extraction | None
    _member: ArchiveMember | None
    _viewer: NpzViewer

    @property
    def member(self) -> ArchiveMember:
        """The member."""
        known = self._member
        if known is None and self._held is not None and self._held.origin is not None:
            known = self._held.origin[1]
        return known or self._viewer.member_at(self._at)


class StoredSpan(MemberSpan):
    """The bytes of an array that is stored as it is: they are those of the archive."""

    __slots__ = ()

    def __init__(self, viewer: NpzViewer, at: int, member: ArchiveMember | None, span: Span) -> None:
        super().__init__(span.data, span.offset, span.length, viewer.archive_path, span.end)
        self._viewer, self._at, self._member, self._held = viewer, at, member, None

    def resolve(self) -> None:
        """Compare the checksum of the member, if that costs little."""
        if not self.length or not self.is_proved:
            self._viewer.parser.resolve_stored(self.member)


class ContentSpan(MemberSpan):
    """Bytes of the content of a member, which is opened when they are asked for.

    It holds the content, once that is open, if something is wrong with it, or if it is large: to open it again would
    cost the reading of what comes before.
    """

    __slots__ = ()

    def __init__(self, viewer: NpzViewer, at: int, offset: int, length: int, end: int | None = None) -> None:
        """``offset`` and ``end`` are those in the content."""
        self.offset, self.length, self.end = offset, length, end
        self._viewer, self._at, self._member, self._held = viewer, at, None, None

    def holding(self, member: ArchiveMember | None, content: Extraction | None) -> ContentSpan:
        """Let it hold the member, its content or both, and return it."""
        self._member, self._held = member, content
        return self

    @property
    def opened(self) -> Extraction:
        """The content of the array."""
        opened = self._held or self._viewer.parser.known_opened(self._at)
        if opened is None:
            member = self.member
            opened = self._viewer.opened(member)
            if not is_little(member):
                self._held = opened
        return opened

    @property
    def data(self) -> Data | None:  # type: ignore[override]
        """That of the content."""
        return self.opened.data

    @property
    def is_open(self) -> bool:  # type: ignore[override]
        """Whether the content is open."""
        return self._held is not None or self._viewer.parser.known_opened(self._at) is not None

    @property
    def is_placed(self) -> bool:  # type: ignore[override]
        """Whether the offset is one in the archive: the array is stored as it is."""
        held = self._held
        return held is not None and held.data is self._viewer.parser.extraction.data

    @property
    def path(self) -> str:  # type: ignore[override]
        """What messages call the data: the member, or the archive if the offset is one in it."""
        path = self._viewer.archive_path
        return path if self.is_placed else f"{path}::{quoted(self.member.name)}"

    @property
    def found_in(self) -> Data | None:
        """The data of the archive, unless the content is held."""
        held = self._held
        return self._viewer.parser.extraction.data if held is None else held.data

    @property
    def found_at(self) -> int:
        """Where the member begins in the archive, unless the content is held."""
        return self.offset if self._held is not None else self.member.start

    @property
    def place(self) -> tuple[object, ...]:
        """The member, and the bytes in it."""
        return id(self._viewer.parser), self._at, self.offset, self.length

    @property
    def is_proved(self) -> bool:
        """Whether the checksum of the member agreed."""
        return super().is_proved or (self._held is None and self._viewer.parser.is_proved(self._at))

    def resolve(self) -> None:
        """Compare the checksum of the member, if that costs little."""
        held, parser = self._held, self._viewer.parser
        if held is not None:
            parser.resolve_opened(held)
        elif not parser.is_proved(self._at):
            self._held = parser.resolve_array(self.member)


class NpzViewer(Viewer):
    """A mapping of numpy's names to arrays: those of the members, without ``.npy``."""

    parser: NpzParser
    needs_name = True
    may_have_had_more = True

    def __init__(self, extraction: Extraction) -> None:
        super().__init__(extraction)
        self.parser = extraction.parse().parser  # type: ignore[assignment]
        self._resolved = False
        self._told_nameless = False
        self._latest: deque[Extraction] = deque(maxlen=ENTERED)  # arrays that were opened last
        self._recent: dict[int, ArchiveMember] = {}  # members that were listed last, by their ``at``
        self._headers: dict[bytes, ArrayHeader] = {}

    @property
    def row_bytes(self) -> int:  # type: ignore[override]
        """Approximate memory of one array: without a directory, it holds what is known of its member."""
        return _ROW if self.parser.directory is not None else _ROW + _MEMBER

    @cached_property
    def archive_path(self) -> str:
        """The path of the archive."""
        return self.parser.extraction.path

    def member_at(self, at: int) -> ArchiveMember:
        """Return the member whose directory entry is at ``at``. Raises `DataChangedError`."""
        member = self._recent.get(at)
        if member is None:
            return self.parser.member_at(at)
        self.parser.recall(member)
        return member

    def opened(self, member: ArchiveMember) -> Extraction:
        """Return the content of a member, and keep the last 500."""
        opened = self.parser.opened(member)
        self._latest.append(opened)
        return opened

    def size_hint(self) -> int | None:
        """Return the number of members, if there is a directory."""
        directory = self.parser.directory
        return None if directory is None else directory.count

    def tensors(self) -> Iterator[Tensor]:
        """Yield the arrays, in the order of the archive."""
        with self.parser.reading_ahead():
            for name, member in self._named():
                tensor = self.as_of_now(self._made(name, member))
                if tensor.finding is not None and tensor.finding.code == "magic":
                    self._warn("magic", f"{tensor.finding.reason}: numpy.load returns it as bytes", name)
                self._recent[member.at] = member
                if len(self._recent) > _RECENT:
                    del self._recent[next(iter(self._recent))]
                yield tensor

    def _each_name(self) -> Generator[tuple[str, ArchiveMember], None, None]:
        with self.parser.reading_ahead():
            yield from self._named()

    def _given(self, name: str, what: Any) -> Tensor:
        return self.as_of_now(self._made(name, what))

    def find(self, name: str) -> Tensor | None:
        """Return the array with that name, or None."""
        member = self._member(name)
        return None if member is None else self.as_of_now(self._made(name, member))

    def tensor_at(self, node: Node) -> Tensor | None:
        """Return the array in a member."""
        return self.find(str(node.key).removesuffix(EXTENSION)) if node.parent is self.root else None

    def check(self, *, strict: bool = False) -> Iterator[Finding]:
        """Read every member, then tell what is wrong with arrays in members that are whole."""
        yield from super().check(strict=strict)
        seen = len(self.findings) - self.findings.omitted
        extent = self.extent()  # before the findings on single arrays, which say nothing against the archive
        if extent.whole < extent.count:
            for name, member in self._named():
                tensor = self._made(name, member)
                found = tensor.finding
                odd = member.is_complete and not tensor.is_claimed_whole
                if odd and found is not None and found.code not in ("magic", "objects"):  # those are told in lists
                    self.findings.add(found)
        yield from (self.findings[at] for at in range(seen, len(self.findings) - self.findings.omitted))

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
        others = filter(None, map(_numbered, self._odd_names))
        taken = sum(other[0] == base and other[1] < number for other in others)
        return self.parser.array(base, number - taken)

    def _made(self, name: str, member: ArchiveMember) -> Tensor:
        """Return a member as a tensor; it is damaged or cut if the archive says so."""
        tensor = self._peeked(name, member)
        if tensor is not None:
            return tensor
        try:
            opened = self.parser.opened(member)
            header = read_header(opened.data, opened.start, opened.end, opened.session)
            if header.is_nameless and not self._told_nameless:
                self._told_nameless = True
                source, at = opened.name, header.places["descr"][0]
                finding = Finding("unnamed-type", nameless(), severity=Severity.NOTE, source=source, offset=at)
                self.parser.result.findings.add(finding)
            tensor = tensor_of(header, name, opened, self)
            tensor.spans = tuple(self._span(member, opened, tensor, span) for span in tensor.spans)
        except DataError as error:
            status = Status.DAMAGED if member.is_complete else member.status
            finding = member.finding or Finding("malformed", error.reason, path=name, source=self.extraction.name)
            return Tensor(name, None, UNKNOWN_SHAPE, (), status=status, finding=finding, owner=self)
        if member.status in SETTLED:
            tensor.doubt(member.finding, member.status)
        return tensor

    def _span(self, member: ArchiveMember, opened: Extraction, tensor: Tensor, span: Span) -> MemberSpan:
        """Return a span of the content of a member, that holds as little as it can."""
        inside = ContentSpan(self, member.at, span.offset, span.length, span.end)
        sound = member.is_complete and member.finding is None and not opened.data.flawed
        if not sound or not tensor.is_claimed_whole:
            return inside.holding(None, opened)
        known = None if isinstance(member.extra, ZipNote) and member.extra.listed else member
        if opened.data is self.parser.extraction.data:
            return StoredSpan(self, member.at, known, span)
        return inside.holding(known, None if is_little(member) else opened)

    def _peeked(self, name: str, member: ArchiveMember) -> Tensor | None:
        """Return an array of which nothing is wrong so far, without opening it; None for any other."""
        first, begin = self.parser.first_bytes(member, _HEAD)
        if not first:
            return None
        text = first[: 10 + int.from_bytes(first[8:10], "little")]  # most arrays of an archive have one of a few
        header = self._headers.get(text)
        if header is None:
            header = read_header(BytesData(first), 0, len(first), self.extraction.session)
            if len(self._headers) < _RECENT and len(text) < len(first):
                self._headers[text] = header
        odd = header.is_nameless or not header.is_whole
        nbytes = header.nbytes
        if odd or nbytes is None or header.end + nbytes != member.size:
            return None
        span: MemberSpan = ContentSpan(self, member.at, header.end, nbytes)
        if begin >= 0:
            place = Span(self.parser.extraction.data, begin + header.end, nbytes, "", begin + member.size)
            span = StoredSpan(self, member.at, None, place)
        return with_spans(header, name, (span,), self)

    @property
    def _has_news(self) -> bool:  # type: ignore[override]
        """Whether members are known that are not whole."""
        return bool(self.parser.spoilt)

    def around(self, span: Span) -> tuple[int, int]:
        """Return where the member is: its header tells of this array only."""
        member = span.member if isinstance(span, MemberSpan) else None
        return super().around(span) if member is None else (member.start, member.end)

    def resolve_all(self) -> None:
        """From now on, let `tensors` first compare the checksums of all arrays, once."""
        if not self._resolved:
            self._resolved = True
            self.parser.verify_arrays()

    @property
    def metadata(self) -> Mapping[str, Any]:
        """What the arrays of a sparse matrix of SciPy say of it: its format and shape; of others nothing."""
        form, shape = self.find("format"), self.find("shape")
        if form is None or shape is None or form.size != 1 or shape.size != 2 or form.dtype is None:
            return {}
        try:
            words, lengths = form.numpy(), shape.numpy().tolist()
        except PASSING:
            raise
        except (PparseError, ValueError):
            return {}
        word = words.item() if are_characters(words) else ""
        text = word.decode("latin-1") if isinstance(word, bytes) else str(word)
        if any(self.parser.array(name) is None for name in _SPARSE.get(text, ("",))):
            return {}
        return {"matrix": "scipy.sparse", "format": text, "shape": lengths}
