"""The data files of a TensorBundle: which there are, where downloads go on, and checksums in them."""

from __future__ import annotations

from errno import ENOENT
from functools import partial
from struct import pack, unpack_from

from pparse.document.opening import Resume
from pparse.errors import EndOfDataError, SourceError
from pparse.findings import Finding, Status
from pparse.kernels.crc32c import crc32c, masked
from pparse.locking import Lock
from pparse.viewers.tensor_proto.maker import ProtoTensor, lengths_in, string_list, strings_begin

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, Final

    from pparse.data.base import Data
    from pparse.data.reader import Range
    from pparse.document.extraction import Extraction
    from pparse.findings import FindingList
    from pparse.tensors.extent import Extent
    from pparse.tensors.tensor import Span

MAX_SHARDS: Final = 1 << 20
# With more data files than these, only those are opened that the folder has.
_MANY: Final = 1_000
_FILE_BYTES: Final = 1_000


class DataFiles:
    """The data files beside an index, each opened when it is first asked for."""

    def __init__(self, index: Extraction, count: Callable[[], int], name_of: Callable[[int], str]) -> None:
        """``count`` tells how many there are (0: not known), ``name_of`` how one is called, by its number."""
        self._index = index
        self._count = count
        self.name_of = name_of
        self._files: dict[int, Extraction | Finding] = {}
        self._charge = index.session.budget.charge(0, "the list of the data files")
        self._listed: frozenset[str] | None = None
        self._unreadable: set[int] = set()
        self._needed: dict[int, int] = {}

    def open(self, shard: int) -> Extraction | Finding:
        """Return a data file, or why it cannot be read."""
        found = self._files.get(shard)
        if found is not None:
            return found
        count, source = self._count(), self._index.name
        if count and shard >= count:  # not kept: each entry may name another one
            return Finding("missing", f"it is in data file {shard}, and there are {count}", source=source)
        name = self.name_of(shard)
        self._charge.resize(self._charge.amount + _FILE_BYTES)
        try:
            if len(self._files) >= _MANY and self._names_there and name not in self._names_there:
                raise SourceError("the folder does not have it", errno=ENOENT)
            found = self._index.sibling(name)
            found.find_end()  # a file is opened when it is asked
        except (SourceError, EndOfDataError) as error:
            reason = f"{name} is not there"
            if isinstance(error, SourceError) and error.errno != ENOENT and self._index.folder is not None:
                reason = f"{name} cannot be read: {error.reason}"
                self._unreadable.add(shard)
            found = Finding("missing", reason, source=source)
        self._files[shard] = found
        return found

    def need(self, shard: int, end: int) -> None:
        """Note that a tensor in a data file, which is there, ends at ``end``."""
        self._needed[shard] = max(self._needed.get(shard, 0), end)

    @property
    def _names_there(self) -> frozenset[str]:
        """The names of the files in the folder, so that not each of very many is opened; none if they are not known."""
        if self._listed is None:
            folder = self._index.folder
            try:
                self._listed = frozenset((folder.names() if folder is not None else None) or ())
            except SourceError:
                self._listed = frozenset()
        return self._listed

    def there(self) -> Iterator[tuple[str, Extraction]]:
        """Yield those that are there, by name."""
        count = self._count()
        many = count > _MANY and self._names_there
        for shard in range(min(count, MAX_SHARDS)):
            name = self.name_of(shard)
            file = None if many and name not in self._names_there else self.open(shard)
            if file is not None and not isinstance(file, Finding):
                yield name, file

    def missing(self) -> Iterator[tuple[int, str]]:
        """Yield number, and why it cannot be read, of each that was asked for and is not there."""
        count = self._count()
        for shard, file in sorted(self._files.items()):
            if isinstance(file, Finding) and (not count or shard < count):
                yield shard, file.reason

    def add_to(self, extent: Extent) -> None:
        """Add to an extent how large the files are and should be, and where their downloads go on."""
        extent.actual, extent.expected = extent.actual or 0, extent.expected or 0
        for shard, needed in sorted(self._needed.items()):
            file = self._files[shard]
            if not isinstance(file, Finding):
                there = file.find_end() - file.start
                extent.actual += there
                extent.expected += max(needed, there)
                if needed > there:
                    extent.cut_files += 1
                    extent.resume.append(Resume(self._index.path_beside(self.name_of(shard)), there))
        for shard, _ in self.missing():
            extent.missing_files += 1
            extent.at_least = True
            if shard not in self._unreadable:  # to fetch it again would not help
                extent.resume.append(Resume(self._index.path_beside(self.name_of(shard)), 0))


# -- Checksums of tensors: read for themselves, or followed while a large tensor is read, which need not be read twice

_BLOCK: Final = 256 << 10
CONTRADICTED: Final = "its checksum is wrong"


class Follower:
    """The checksum of the bytes of one tensor that were read so far, from the first on. Thread-safe."""

    def __init__(self, span: Span, wanted: int, contradiction: Finding, findings: FindingList) -> None:
        """``wanted`` is the masked CRC-32C, ``contradiction`` what is added to ``findings`` if it is another."""
        self._span = span
        self._wanted = wanted
        self._contradiction = contradiction
        self._findings = findings
        self._lock = Lock()
        self._at = 0
        self._crc = 0

    def follows(self, span: Span) -> bool:
        """Return whether it is the checksum of these bytes."""
        own = self._span
        return own.data is span.data and own.offset == span.offset and own.length == span.length

    def feed(self, offset: int, piece: memoryview) -> None:
        """Take a stretch that was read; with the last one, vouch for all bytes, or condemn them.

        A stretch that does not begin where the last one ended, such as a slice, is not counted; the first begins anew.
        """
        with self._lock:
            if not offset:
                self._at = self._crc = 0
            if offset != self._at:
                return
            self._crc = crc32c(piece, self._crc)
            self._at += len(piece)
            done = self._at == self._span.length
        data = self._span.data
        if not done or data is None:
            return
        start, end = self._span.offset, self._span.offset + self._span.length
        if masked(self._crc) == self._wanted:
            data.vouch(start, end)
        else:
            data.condemn(start, end, CONTRADICTED)
            self._findings.add(self._contradiction)


def crc_of(data: Data, offset: int, length: int, poll: Any) -> int:
    """Return the masked CRC-32C of bytes, read piece by piece."""
    crc = 0
    # One buffer for all of it: a new one each time costs as much as the checksum.
    buffer = memoryview(bytearray(min(_BLOCK, length)))
    for at in range(offset, offset + length, _BLOCK):
        poll()
        view = buffer[: min(_BLOCK, offset + length - at)]
        if data.preadinto(at, view) < len(view):
            raise EndOfDataError("the bytes of the tensor end early", offset=at, wanted=len(view))
        crc = crc32c(view, crc)
    return masked(crc)


# -- Tensors of strings in a data file (tensor_bundle.cc, WriteStringTensor) -------------------------------------------

# All lengths as varints, u32 masked CRC-32C of the lengths, then all bytes. That checksum is of each length as u32, or
# as u64 from 2^32 on; both in the byte order of the machine. The one in the index is of these lengths, the stored
# checksum and the bytes.

_CRC: Final = 4


class StringTensor(ProtoTensor):
    """A tensor of strings in a data file; ``_crc`` is their checksum in the index, None if there is none."""

    __slots__ = ("_crc",)

    _crc: int | None

    def lie_in(self, span: Span, crc: int | None) -> None:
        """Note the bytes in the data file, which may not be there, and the checksum of them that the index states."""
        data, self._listing, self._crc = span.data, None, crc
        self._maker, self._parts = None, ()
        if data is not None:
            content = data.range(span.offset, span.offset + span.length)
            self._listing = partial(string_list, content, self.size, _CRC), content

    def strings(self) -> Iterator[bytes]:
        """Yield the elements in C order. Raises `MalformedError` if the lengths are not those of the content."""
        self._refuse_if_not_whole()
        yield from super().strings()

    def verify(self) -> bool | None:
        """Compare the checksums, reading all of it; None if there is none."""
        content = None if self._listing is None else self._listing[1]
        if self._crc is None or content is None or self.status is not Status.COMPLETE:
            return None
        return string_crc(content, self.size, self.byteorder) == self._crc


def string_crc(content: Range, count: int, byteorder: str = "little") -> int:
    """Return the masked checksum that an index states for a tensor of strings; -1 if the one inside is wrong.

    Lengths and inner checksum are in the byte order of the machine that wrote them.
    """
    order = ">" if byteorder == "big" else "<"
    pos = strings_begin(content, count, _CRC)
    crc = 0
    for length, _ in lengths_in(content, count):
        crc = crc32c(pack(order + ("I" if length < 1 << 32 else "Q"), length), crc)
    stored = content.data.read_exact(pos - _CRC, _CRC)
    (stated,) = unpack_from(order + "I", stored)
    if masked(crc) != stated:
        return -1
    crc = crc32c(stored, crc)
    while pos < content.end:
        block = content.data.read_exact(pos, min(1 << 20, content.end - pos))
        crc = crc32c(block, crc)
        pos += len(block)
    return masked(crc)
