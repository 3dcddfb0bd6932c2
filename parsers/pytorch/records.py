"""The members of a checkpoint's zip archive, by name: where each is, in few bytes and without making nodes."""

from __future__ import annotations

from struct import Struct

from pparse.findings import Status
from pparse.parsers.zip.directory import BLOCK, end_records, entries, local_at, read_end_at
from pparse.parsers.zip.records import CENTRAL_SIZE, FULL, STORED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Final

    from pparse.containers.member import ArchiveMember
    from pparse.data.base import Data
    from pparse.findings import Finding
    from pparse.parsers.zip.directory import Directory
    from pparse.parsers.zip.parser import ZipParser

# flags, method, packed and whole size, lengths of name, extra field and comment, offset (APPNOTE.TXT 4.3.12)
_ENTRY: Final = Struct("<8xHH8xIIHHH8xI").unpack_from
_ENCRYPTED: Final = 1


class Record:
    """A member: its size, and where it is."""

    __slots__ = ("_at", "_judged", "_member", "_parser", "_start", "raw_name", "size")

    def __init__(
        self, parser: ZipParser, size: int, start: int, at: int, member: ArchiveMember | None = None, name: bytes = b""
    ) -> None:
        self._parser = parser
        self.size = size
        """Size of the content in bytes."""
        self._start = start  # of the local header, if the member is stored as it is; else -1
        self._at = at  # of the entry in the directory
        self._member = member
        self._judged = False  # whether its checksum was compared
        self.raw_name = name
        """As a directory that is trusted has it."""

    @property
    def start(self) -> int:
        """Offset of the local header, or of the bytes."""
        return self._start if self._member is None else self._member.start

    @property
    def member(self) -> ArchiveMember | None:
        """What the archive says of it."""
        if self._member is None:
            self._member = self._parser.listed_member(self._at)
        return self._member

    @property
    def unusual(self) -> ArchiveMember | None:
        """What the archive says of a member that is not stored as it is; None of any other."""
        return self._member if self._start < 0 else None

    def listed(self) -> ArchiveMember | None:
        """What the directory says of a member that is stored as it is, read anew; None of any other."""
        return self._parser.listed_member(self._at) if self._start >= 0 else None

    @property
    def is_renamed(self) -> bool:
        """Whether its local header has another name than the directory: one of the two is wrong."""
        if self._start < 0 or not self.raw_name:
            return False
        result = self._parser.result
        header = local_at(result.extraction.data, self._start, result.extraction.known_end())
        return header is not None and header.raw_name != self.raw_name

    def prove(self) -> bool:
        """Compare its checksum, once; return whether nothing is wrong with it, as far as is known then."""
        member = self.member
        if member is None or member.checksum is None or member.status is not Status.COMPLETE or self._judged:
            return self.status is Status.COMPLETE
        verdict = self._parser.verify(member)
        self._judged = True  # not earlier: another thread must not go on before
        return verdict.reason is None

    @property
    def status(self) -> Status:
        """COMPLETE, as far as the archive tells."""
        return Status.COMPLETE if self._member is None else self._member.status

    @property
    def finding(self) -> Finding | None:
        """What is wrong with it, if anything."""
        return None if self._member is None else self._member.finding

    @property
    def data(self) -> Data | None:
        """The data that it lies in as it is; None if only `place` tells."""
        return self._parser.result.extraction.data if self._start >= 0 and self._member is None else None

    def place(self) -> tuple[Data, int, int]:
        """Return the data, and begin and end of the content there. Raises `MalformedError`, `UnsupportedError`."""
        parser = self._parser
        if self._start >= 0 and self._member is None:
            data = parser.result.extraction.data
            header = local_at(data, self._start, parser.result.extraction.known_end())
            fits = header is not None and _fits(header.extra)
            # Of a directory that only torch believes there are no members: it says what the names are.
            if header is not None and fits and (header.raw_name == self.raw_name or self.member is None):
                begin = self._start + header.length
                return data, begin, begin + self.size
        member = self.member
        if member is None:
            from pparse.errors import MalformedError

            raise MalformedError("its entry in the directory cannot be read", offset=self._at)
        if self._start >= 0:
            self.prove()  # its header is wrong: only the checksum can tell what its bytes are
        data, begin, end = parser.content(member)
        return data, begin, begin + self.size if end is None else end

    def is_of_zeros(self) -> bool:
        """Return whether its checksum is that of as many zeros as it has bytes, or it has none."""
        from pparse.kernels.joined_crc import crc_of_zeros

        known = None if self.member is None else self.member.checksum
        return known is None or known == ("crc32", crc_of_zeros(self.size))


def _fits(extra: bytes) -> bool:
    """Say whether the fields of a local header fill its extra part: its length is right."""
    at = 0
    while at + 4 <= len(extra):
        at += 4 + int.from_bytes(extra[at + 2 : at + 4], "little")
    return at == len(extra)


def records_listed(parser: ZipParser, directory: Directory | LastDirectory) -> Iterator[tuple[str, Record]]:
    """Yield names and records by a trusted directory, at a microsecond each."""
    data, at = parser.result.extraction.data, directory.begin
    while at < directory.end:
        parser.result.extraction.session.check_cancelled()
        block = data.pread(at, min(BLOCK, directory.end - at))
        pos, last = 0, len(block) - CENTRAL_SIZE
        while pos <= last:
            flags, method, packed, size, names, extra, comment, offset = _ENTRY(block, pos)
            following = pos + CENTRAL_SIZE + names + extra + comment
            if following > len(block):
                break
            raw = block[pos + CENTRAL_SIZE : pos + CENTRAL_SIZE + names]
            name = raw.decode("utf-8", "replace")
            plain = method == STORED and not flags & _ENCRYPTED and packed == size and FULL not in (size, offset)
            if plain:
                yield name, Record(parser, size, offset + directory.shift, at + pos, name=raw)
            else:
                member = parser.listed_member(at + pos)
                yield name, Record(parser, size if member is None else member.size or 0, -1, at + pos, member, raw)
            pos = following
        if not pos:
            return
        at += pos


class LastDirectory:
    """The directory that torch uses: that of the last end record, whatever lies around it."""

    __slots__ = ("begin", "end", "shift")

    def __init__(self, begin: int, end: int, shift: int) -> None:
        self.begin = begin
        self.end = end
        self.shift = shift


def last_directory(parser: ZipParser) -> LastDirectory | None:
    """Return the directory of the last end record if each of its entries leads to a local header; else None.

    miniz, which torch reads archives with, takes the last one and compares nothing (mz_zip_reader_read_central_dir).
    """
    extraction = parser.result.extraction
    data, start, end = extraction.data, extraction.start, extraction.known_end()
    if data.gaps or data.flawed:
        return None
    at = next(iter(end_records(data, start, end)), None)
    found = None if at is None else read_end_at(data, at, start, end)
    if found is None or found[0].disks_differ:
        return None
    record, stop = found
    begin = start + record.offset
    if not start <= begin <= begin + record.size <= stop:
        return None
    place = LastDirectory(begin, begin + record.size, start)
    if parser.directory is not None and parser.directory.begin == begin:
        return place  # the one that accounts for the archive
    count = 0
    named: set[bytes] = set()
    strange: set[bytes] = set()
    for where, entry in entries(data, begin, place.end):
        header = local_at(data, start + entry.offset, end)
        if header is None or header.method != entry.method:
            return None
        if header.raw_name != entry.raw_name:
            strange.add(header.raw_name)
        named.add(entry.raw_name)
        if entry.method == STORED and entry.size != entry.compressed_size:
            return None
        count, begin = count + 1, where + entry.length
    if strange & named:  # an entry leads to a member that is another one's
        return None
    return place if count and count == record.entries and begin == place.end else None


def records_scanned(parser: ZipParser) -> Iterator[tuple[str, Record]]:
    """Yield names and records of an archive whose directory is missing or does not fit."""
    for member in parser.files():
        parser.recall(member)
        if parser.needs_proof(member):
            parser.verify(member)
            parser.recall(member)
        yield member.name, Record(parser, _there(parser, member), -1, member.at, member)


def _there(parser: ZipParser, member: ArchiveMember) -> int:
    """Return how many bytes of the content of a member are there; what its header says, unless it is cut.

    A cut member that is compressed is the last one, so that only its content is decoded here.
    """
    said = (member.compressed_size if member.size is None else member.size) or 0
    if member.status is not Status.TRUNCATED:
        return said
    if member.extra is not None and member.extra.method != STORED:
        return min(said, parser.verify(member).size)
    return min(said, max(0, member.end - member.start))
