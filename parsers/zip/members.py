"""Members of a zip archive as its directory lists them (`listed_member`), and small ones verified by a single read.

`ZipNote` is what the parser keeps of a member beside what every archive says of one.
"""

from __future__ import annotations

from zlib import MAX_WBITS, crc32, decompressobj, error

from pparse.containers.archive import ArchiveMember
from pparse.errors import EndOfDataError, LimitError, MalformedError
from pparse.findings import Finding, Severity, Status
from pparse.limits import KIB
from pparse.parsers.zip import attributes
from pparse.parsers.zip.attributes import (
    CODEC_OF_METHOD,
    DEFLATE,
    ENCRYPTED,
    FINDER,
    MASKED,
    STORED,
    STREAMED,
    declared_kind,
    decode_name,
    describe_encryption,
    kind_of,
    method_name,
    mode_of,
    modified,
)
from pparse.parsers.zip.directory import LOCAL_SIZE, CentralEntry, read_local
from pparse.parsers.zip.extent import match_descriptor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Final

    from pparse.data.base import Data
    from pparse.data.window import Window
    from pparse.document.extraction import Extraction
    from pparse.limits import Limits
    from pparse.parsers.zip.directory import LocalHeader
    from pparse.parsers.zip.trust import Directory

# Methods that can be read.
READABLE: Final = frozenset((STORED, *CODEC_OF_METHOD))
_READ_BY_7ZIP: Final = frozenset(("deflate64", "implode", "ppmd", "shrink"))
# The most bytes that one compressed byte can decode to.
_MOST_INFLATED: Final = {DEFLATE: 1_100}
_MOST_RATIO: Final = 1 << 15
# From so many stored bytes on a member may hold 2^32 bytes.
LARGE: Final = attributes.WRAP // _MOST_INFLATED[DEFLATE]


class ZipNote:
    """The data that the parser keeps of a member."""

    __slots__ = ("broken", "declared", "flags", "guessed", "listed", "listed_crc", "method", "rival", "sure", "wraps")

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
        guessed: bool = False,
        wraps: bool = False,
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
        self.wraps = wraps
        """Whether the size is known modulo 2^32 only."""
        self.guessed = guessed
        """Whether the encoding of the name is only guessed."""


def listed_member(
    extraction: Extraction, entry: CentralEntry, at: int, directory: Directory, encoding: str
) -> ArchiveMember:
    """Return the member that an entry of a trusted directory says; its name may be in ``encoding``."""
    start = entry.offset + directory.shift_of(at)
    compressed_size, size = entry.compressed_size, entry.size
    if directory.places is not None and (more := directory.places.more.get(at, 0)):
        compressed_size += more
        size += more if entry.method == STORED else 0
    end = start + LOCAL_SIZE + len(entry.raw_name) + compressed_size
    name, guessed = decode_name(entry.raw_name, entry.flags, entry.extra, encoding)
    declared = declared_kind(name, entry.creator, entry.external)
    member = ArchiveMember(
        name,
        entry.raw_name,
        kind_of(declared, compressed_size and size),
        at,
        start,
        end,
        size,
        compressed_size=compressed_size,
        mtime=modified(entry.date, entry.time, entry.extra),
        mode=mode_of(entry.creator, entry.external),
        method=method_name(entry.method, entry.flags),
        checksum=("crc32", entry.crc),
        extra=ZipNote(
            entry.flags,
            entry.method,
            declared,
            listed=True,
            listed_crc=entry.crc,
            guessed=guessed,
            wraps=may_wrap(entry, compressed_size),
        ),
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


def may_wrap(entry: CentralEntry, compressed_size: int) -> bool:
    """Say whether a member may hold 2^32 bytes more than its entry says, or several times that.

    Archive Utility and ``ditto`` of macOS keep sizes modulo 2^32, and write no zip64 fields.
    """
    plain = entry.made == FINDER and entry.method == DEFLATE and entry.flags & STREAMED
    return bool(plain) and entry.size + attributes.WRAP <= _MOST_INFLATED[DEFLATE] * compressed_size


def is_refused(member: ArchiveMember, source: str, extra: bytes) -> bool:
    """Say whether the member cannot be read, and add the reason."""
    note: ZipNote = member.extra
    if note.flags & (ENCRYPTED | MASKED):
        member.checksum = None
        blame(member, source, Status.UNSUPPORTED, "encrypted", f"it is {describe_encryption(note.method, extra)}")
    elif note.method not in READABLE:
        reason = f"its method, {member.method}, is not supported"
        reason += "; 7-Zip reads it" if member.method in _READ_BY_7ZIP else ""
        blame(member, source, Status.UNSUPPORTED, "unsupported", reason)
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


def agrees(member: ArchiveMember, header: LocalHeader, behind: Callable[[], bytes]) -> bool:
    """Say whether the local header of a listed member says what the directory says.

    In front of a streamed member CRC and sizes must be zeros or right, and the descriptor in the bytes ``behind`` its
    content must be right.
    """
    note: ZipNote = member.extra
    crc = member.checksum[1] if member.checksum is not None else None
    said, meant = (header.crc, header.compressed_size, header.size), (crc, member.compressed_size, member.size)
    if header.method != note.method or (header.flags ^ note.flags) & (ENCRYPTED | STREAMED | MASKED):
        return False
    if not header.flags & STREAMED:
        return said[1:] == meant[1:] and crc in (None, header.crc)
    if any(each and wanted is not None and each != wanted for each, wanted in zip(said, meant, strict=True)):
        return False
    return match_descriptor(behind(), 0, crc, member.compressed_size, member.size) > 0


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
# How far is read ahead, where many of them follow each other.
AHEAD: Final = 128 * KIB


def verified_content(
    data: Data | Window, member: ArchiveMember, note: ZipNote, limits: Limits
) -> tuple[int, bytes] | None:
    """Return the content of a small member that agrees in everything with its directory entry; None if not.

    Before the content comes the offset of its stored bytes. ``data`` are those of the archive. Source errors propagate.
    """
    size, compressed_size, checksum = member.size, member.compressed_size, member.checksum
    if size is None or size > SMALL or compressed_size > SMALL or checksum is None or size > limits.inflated_bytes:
        return None
    if member.status is not Status.COMPLETE or member.finding is not None or note.method not in (STORED, DEFLATE):
        return None
    room = LOCAL_SIZE + len(member.raw_name) + _EXTRA
    try:
        block = data.known(member.start, room + compressed_size + _DESCRIPTOR)
        extra = int.from_bytes(block[LOCAL_SIZE - 2 : LOCAL_SIZE], "little")
        if extra > _EXTRA:
            block = data.known(member.start, room + extra + compressed_size + _DESCRIPTOR)
    except (EndOfDataError, LimitError, MalformedError):
        return None
    header = read_local(block)
    if header is None or header.raw_name != member.raw_name:
        return None
    begin = header.length
    end = begin + compressed_size
    if len(block) < end or not agrees(member, header, lambda: block[end:]):
        return None
    content = block[begin:end] if note.method == STORED else _inflated(block[begin:end], size)
    if content is None or len(content) != size or crc32(content) != checksum[1]:
        return None
    return member.start + begin, content


def first_content(data: Data | Window, member: ArchiveMember, note: ZipNote, count: int) -> tuple[bytes, int]:
    """Return the first ``count`` bytes of a member, or fewer, and where it begins in ``data`` if it is stored as it is,
    else -1; no bytes if anything is odd about it.

    Only the beginning of a stream is read: nothing is learned of the rest.
    """
    odd = member.status is not Status.COMPLETE or member.finding is not None or not note.listed
    if odd or note.method not in (STORED, DEFLATE):
        return b"", -1
    if note.method == STORED:
        return _first_stored(data, member, count) if member.compressed_size == member.size else (b"", -1)
    try:
        return decompressobj(-MAX_WBITS).decompress(_first_stored(data, member, 2 * count)[0], count), -1
    except error:
        return b"", -1


def _first_stored(data: Data | Window, member: ArchiveMember, count: int) -> tuple[bytes, int]:
    """Return up to ``count`` stored bytes of a listed member, from the first on, and where they begin; none if its
    header is not there."""
    room = LOCAL_SIZE + len(member.raw_name) + _EXTRA
    try:
        block = data.known(member.start, room + min(member.compressed_size, count))
    except (EndOfDataError, LimitError, MalformedError):
        return b"", -1
    header = read_local(block)
    if header is None or header.raw_name != member.raw_name:
        return b"", -1
    return block[header.length :][: member.compressed_size], member.start + header.length


def likely_size(data: Data, member: ArchiveMember) -> int | None:
    """Return how much a member holds whose size is known modulo 2^32, if that is likely; else None.

    It is the least size that its stored bytes may have, if all of it is compressed about as much as its beginning:
    twice as much, where it takes less than 2 GiB. So a model in an archive of macOS need not be decoded to its end.
    """
    size, stored = member.size or 0, member.compressed_size
    least = stored - stored // 1_000 - 64  # deflate adds five bytes to 64 KiB that it cannot compress
    size += max(0, -((size - least) // attributes.WRAP)) * attributes.WRAP
    decoder, count = decompressobj(-MAX_WBITS), 0
    head = rest = _first_stored(data, member, SMALL)[0]
    try:
        while rest:
            count += len(decoder.decompress(rest, SMALL))
            rest = decoder.unconsumed_tail
    except error:
        return None
    return size if head and count * stored < (size + attributes.WRAP // 2) * len(head) else None


def _inflated(stream: bytes, size: int) -> bytes | None:
    """Return what a deflate stream holds; None if that is not ``size`` bytes, or its end is not there."""
    decoder = decompressobj(-MAX_WBITS)
    try:
        content = decoder.decompress(stream, size + 1)  # one more, or the end is not looked at
    except error:
        return None
    return content if decoder.eof and len(content) == size else None
