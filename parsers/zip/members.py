"""Members of a zip archive as its directory lists them (`listed_member`), and small ones verified by a single read.

`ZipNote` is what the parser keeps of a member beside what every archive says of one.
"""

from __future__ import annotations

from zlib import MAX_WBITS, crc32, decompressobj, error

from pparse.containers.archive import ArchiveMember
from pparse.errors import EndOfDataError, GapError, LimitError, MalformedError
from pparse.findings import Finding, Severity, Status
from pparse.limits import KIB
from pparse.parsers.zip.extent import values_agree
from pparse.parsers.zip.records import (
    CODEC_OF_METHOD,
    DEFLATE,
    ENCRYPTED,
    FULL,
    LOCAL,
    LOCAL_FIELDS,
    LOCAL_SIZE,
    MASKED,
    STORED,
    CentralEntry,
    declared_kind,
    decode_name,
    describe_encryption,
    kind_of,
    method_name,
    mode_of,
    modified,
    with_zip64,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

    from pparse.data.base import Data
    from pparse.document.extraction import Extraction
    from pparse.limits import Limits
    from pparse.parsers.zip.directory import Directory

# Methods that can be read.
READABLE: Final = frozenset((STORED, *CODEC_OF_METHOD))
# The most bytes that one compressed byte can decode to.
_MOST_INFLATED: Final = {DEFLATE: 1_100}
_MOST_RATIO: Final = 1 << 15


class ZipNote:
    """The data that the parser keeps of a member."""

    __slots__ = ("broken", "declared", "flags", "listed", "listed_crc", "method", "rival", "sure")

    def __init__(
        self,
        flags: int,
        method: int,
        declared: str,
        *,
        listed: bool,
        sure: bool = True,
        listed_crc: int | None = None,
        rival: int | None = None,
        broken: bool = False,
    ) -> None:
        self.flags = flags
        """Flags of the member."""
        self.method = method
        """Number of the compression method."""
        self.declared = declared
        """Kind of the member by its name and mode."""
        self.listed = listed
        """Whether the member comes from the directory, so that its ``start`` is a local header."""
        self.sure = sure
        """Whether the size is reliable."""
        self.listed_crc = listed_crc
        """CRC-32 in the directory."""
        self.rival = rival
        """A differing CRC-32 in the local header or the descriptor."""
        self.broken = broken
        """Whether the local header is damaged."""


def listed_member(extraction: Extraction, entry: CentralEntry, at: int, directory: Directory) -> ArchiveMember:
    """Return the member that an entry of a trusted directory says."""
    start = entry.offset + directory.shift
    end = start + LOCAL_SIZE + len(entry.raw_name) + entry.compressed_size
    name = decode_name(entry.raw_name, entry.flags, entry.extra)
    declared = declared_kind(name, entry.creator, entry.external)
    member = ArchiveMember(
        name,
        entry.raw_name,
        kind_of(declared, entry.compressed_size and entry.size),
        at,
        start,
        end,
        entry.size,
        compressed_size=entry.compressed_size,
        mtime=modified(entry.date, entry.time, entry.extra),
        mode=mode_of(entry.creator, entry.external),
        method=method_name(entry.method, entry.flags),
        checksum=("crc32", entry.crc),
        extra=ZipNote(entry.flags, entry.method, declared, listed=True, listed_crc=entry.crc),
    )
    source = extraction.name
    if directory.has_overlaps and directory.overlaps(at):
        blame(member, source, Status.DAMAGED, "overlap", "its bytes belong to an earlier member")
    elif start >= directory.begin:
        blame(member, source, Status.DAMAGED, "malformed", "its offset points past the last member")
    elif not is_refused(member, source, entry.extra) and not has_wrong_size(member, source):
        gap = extraction.data.next_gap(start) if extraction.data.gaps else None
        if gap is not None and gap.offset < end:
            blame(member, source, Status.DAMAGED, "gap", "some of its bytes are missing")
    return member


def is_refused(member: ArchiveMember, source: str, extra: bytes) -> bool:
    """Say whether the member cannot be read, and add the reason."""
    note: ZipNote = member.extra
    if note.flags & (ENCRYPTED | MASKED):
        member.checksum = None
        blame(member, source, Status.UNSUPPORTED, "encrypted", f"it is {describe_encryption(note.method, extra)}")
    elif note.method not in READABLE:
        blame(member, source, Status.UNSUPPORTED, "unsupported", f"its method, {member.method}, is not supported")
    else:
        return False
    return True


def has_wrong_size(member: ArchiveMember, source: str) -> bool:
    """Say whether the declared size is impossible; the size then becomes unknown."""
    method = member.extra.method
    most = _MOST_INFLATED.get(method, _MOST_RATIO) * (member.compressed_size + 64)
    if method == STORED or member.size is None or member.size <= most:
        return False
    reason = f"its compressed bytes are too few for {member.size:,} bytes of content"
    blame(member, source, Status.COMPLETE, "contradiction", reason)
    member.size = None
    return True


def blame(member: ArchiveMember, source: str, status: Status, code: str, reason: str) -> None:
    """Set what is wrong with ``member``, of the archive ``source``."""
    member.status = status
    member.finding = Finding(
        code,
        reason,
        path=member.name,
        source=source,
        offset=member.start,
        length=member.compressed_size,
        severity=Severity.WARNING if status is Status.COMPLETE else Severity.ERROR,
    )


# -- small members, each verified by one read ------------------------------------------------------------------------

# An archive may hold a million members of a few bytes. To read one through a decompressor that can step back, resume
# behind damage and be charged to the budget costs some hundred times what its bytes cost. Here one read gives header,
# content and descriptor of a member; if they agree with its directory entry and with the CRC-32, there is nothing else
# to find out about it. Anything else is not judged here: such a member is read as every other.

# The most bytes of a small member, stored and decompressed; the share of the limits that one may take.
SMALL: Final = 64 * KIB
# Room for the extra field of a local header, which the directory does not give the length of.
_EXTRA: Final = 64
_DESCRIPTOR: Final = 24
# How far is read ahead.
_AHEAD: Final = 128 * KIB


class ReadAhead:
    """Reads for many small members that follow each other: further than asked for, once they do.

    What was read ahead is as old as its read; so it must not outlive one pass over the members.
    """

    __slots__ = ("_at", "_block", "_data", "_end", "_revision")

    def __init__(self, data: Data) -> None:
        self._data = data
        self._block = b""
        self._at = self._end = 0
        self._revision = data.revision

    def pread(self, offset: int, length: int) -> bytes:
        """Return what `Data.pread` does."""
        at = offset - self._at
        if at >= 0 and offset + length <= self._end and self._revision == self._data.revision:
            return self._block[at : at + length]
        ahead = _AHEAD if at >= 0 and offset <= self._end + length else length
        self._revision = self._data.revision
        self._block = self._data.pread(offset, max(length, ahead))
        self._at, self._end = offset, offset + len(self._block)
        return self._block[:length]


def verified_content(
    data: Data | ReadAhead, member: ArchiveMember, note: ZipNote, limits: Limits
) -> tuple[int, bytes] | None:
    """Return the content of a small member that agrees in everything with its directory entry; None if not.

    Before the content comes the offset of its stored bytes. ``data`` are those of the archive. Source errors propagate.
    """
    size, compressed_size, checksum = member.size, member.compressed_size, member.checksum
    if size is None or size > SMALL or compressed_size > SMALL or checksum is None or size > limits.inflated_bytes:
        return None
    if member.status is not Status.COMPLETE or member.finding is not None or note.method not in (STORED, DEFLATE):
        return None
    name_end = LOCAL_SIZE + len(member.raw_name)
    try:
        block = data.pread(member.start, name_end + _EXTRA + compressed_size + _DESCRIPTOR)
        if len(block) < name_end or not block.startswith(LOCAL):
            return None
        begin = name_end + (block[LOCAL_SIZE - 2] | block[LOCAL_SIZE - 1] << 8)
        if begin > name_end + _EXTRA:
            block = data.pread(member.start, begin + compressed_size + _DESCRIPTOR)
    except (EndOfDataError, GapError, LimitError, MalformedError):
        return None
    end = begin + compressed_size
    if len(block) < end or not _agrees(block, end, member, note, checksum[1]):
        return None
    content = block[begin:end] if note.method == STORED else _inflated(block[begin:end], size)
    if content is None or len(content) != size or crc32(content) != checksum[1]:
        return None
    return member.start + begin, content


def first_content(data: Data, member: ArchiveMember, note: ZipNote, count: int) -> bytes:
    """Return the first ``count`` bytes of a deflated member, or fewer; none if anything is odd about it.

    Only the beginning of its stream is read: nothing is learned of the rest.
    """
    odd = member.status is not Status.COMPLETE or member.finding is not None or data.flawed
    if odd or not note.listed or note.method != DEFLATE:
        return b""
    name_end = LOCAL_SIZE + len(member.raw_name)
    try:
        block = data.pread(member.start, name_end + _EXTRA + min(member.compressed_size, 2 * count))
        if not block.startswith(LOCAL) or block[LOCAL_SIZE:name_end] != member.raw_name:
            return b""
        begin = name_end + (block[LOCAL_SIZE - 2] | block[LOCAL_SIZE - 1] << 8)
        return decompressobj(-MAX_WBITS).decompress(block[begin : begin + member.compressed_size], count)
    except (EndOfDataError, GapError, LimitError, MalformedError, IndexError, error):
        return b""


def _agrees(block: bytes, end: int, member: ArchiveMember, note: ZipNote, crc: int) -> bool:
    """Say whether the local header in ``block``, or the descriptor at ``end``, says what the directory says."""
    _, _, flags, method, _, _, said_crc, compressed_size, size, name_length, _ = LOCAL_FIELDS.unpack_from(block)
    if block[LOCAL_SIZE : LOCAL_SIZE + name_length] != member.raw_name:
        return False
    if FULL in (compressed_size, size):  # as numpy writes all: it does not know beforehand how large they become
        extra = block[LOCAL_SIZE + name_length : end - member.compressed_size]
        size, compressed_size = with_zip64(extra, size, compressed_size)
    said, meant = (said_crc, compressed_size, size), (crc, member.compressed_size, member.size)
    return values_agree(note, flags, method, said, meant, lambda: block[end:])


def _inflated(stream: bytes, size: int) -> bytes | None:
    """Return what a deflate stream holds; None if that is not ``size`` bytes, or its end is not there."""
    decoder = decompressobj(-MAX_WBITS)
    try:
        content = decoder.decompress(stream, size + 1)  # one more, or the end is not looked at
    except error:
        return None
    return content if decoder.eof and len(content) == size else None
