"""Members of a zip archive as its directory lists them: with nodes (`listed_member`), and as rows without (`listing`).

Small ones are verified by a single read. `ZipNote` is what the parser keeps of a member beside what every archive says
of one.
"""

from __future__ import annotations

from operator import attrgetter
from struct import Struct
from zlib import MAX_WBITS, crc32, decompressobj, error

from pparse.containers.archive import ArchiveMember, NameCounter
from pparse.errors import EndOfDataError, LimitError, MalformedError
from pparse.findings import Finding, Severity, Status
from pparse.limits import KIB
from pparse.parsers.zip import records
from pparse.parsers.zip.records import (
    BLOCK,
    CENTRAL_SIZE,
    CODEC_OF_METHOD,
    DEFLATE,
    ENCRYPTED,
    FINDER,
    FULL,
    FULL16,
    LOCAL_SIZE,
    LZMA_HEAD,
    MASKED,
    STORED,
    STREAMED,
    UTF8,
    CentralEntry,
    declared_kind,
    decode_name,
    describe_encryption,
    kind_of,
    lzma_alone,
    match_descriptor,
    method_name,
    mode_of,
    modified,
    read_central,
    read_local,
)
from pparse.tree.visit import Member

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, Final

    from pparse.data.base import Data, Range
    from pparse.data.window import Window
    from pparse.document.extraction import Extraction
    from pparse.limits import Limits
    from pparse.parsers.zip.parser import ZipParser
    from pparse.parsers.zip.records import LocalHeader
    from pparse.parsers.zip.trust import Directory


# Methods that can be read.
READABLE: Final = frozenset((STORED, *CODEC_OF_METHOD))
_READ_BY_7ZIP: Final = frozenset(("deflate64", "implode", "ppmd", "shrink"))
# The most bytes that one compressed byte can decode to.
_MOST_INFLATED: Final = {DEFLATE: 1_100}
_MOST_RATIO: Final = 1 << 15
# From so many stored bytes on a member may hold 2^32 bytes.
LARGE: Final = records.WRAP // _MOST_INFLATED[DEFLATE]


class ZipNote:
    """The data that the parser keeps of a member."""

    __slots__ = ("broken", "declared", "flags", "guessed", "listed", "listed_crc", "method", "rival", "sure", "wraps")

    def __init__(self, flags: int, method: int, declared: str, *, listed: bool, guessed: bool = False) -> None:
        self.flags = flags
        """Flags of the member."""
        self.method = method
        """Number of the compression method."""
        self.declared = declared
        """Kind of the member by its name and mode."""
        self.listed = listed
        """Whether the member comes from the directory, so that its ``start`` is a local header."""
        self.sure = True
        """Whether the size is reliable."""
        self.listed_crc: int | None = None
        """CRC-32 in the directory."""
        self.rival: int | None = None
        """A differing CRC-32 in the local header or the descriptor."""
        self.broken = False
        """Whether the local header is damaged."""
        self.wraps = False
        """Whether the size is known modulo 2^32 only."""
        self.guessed = guessed
        """Whether the encoding of the name is only guessed."""


def listed_member(
    extraction: Extraction, entry: CentralEntry, at: int, directory: Directory, encoding: str
) -> ArchiveMember:
    """Return the member that an entry of a trusted directory says; its name may be in ``encoding``."""
    start = entry.offset + directory.shift_of(at)
    packed, size = entry.compressed_size, entry.size
    if directory.places is not None and (more := directory.places.more.get(at, 0)):
        packed += more
        size += more if entry.method == STORED else 0
    end = start + LOCAL_SIZE + len(entry.raw_name) + packed
    member = member_of(entry, entry, encoding, at, start, end, size, packed, entry.crc)
    source = extraction.name
    if directory.overlaps(at):
        blame(member, source, Status.DAMAGED, "overlap", "its bytes belong to an earlier member")
    elif start >= directory.begin:
        blame(member, source, Status.DAMAGED, "malformed", "its offset points past the last member")
    elif is_refused(member, source, entry.extra) or has_wrong_size(member, source) or has_gap(member, extraction):
        pass
    elif entry.method == STORED and size != packed:
        reason = f"it is stored as it is, and has two sizes: {packed:,} and {size:,} bytes"
        blame(member, source, Status.DAMAGED, "contradiction", reason)
    return member


def member_of(
    record: CentralEntry | LocalHeader,
    entry: CentralEntry | None,
    encoding: str,
    at: int,
    start: int,
    end: int,
    size: int | None,
    packed: int,
    crc: int | None,
) -> ArchiveMember:
    """Return the member of ``packed`` stored bytes that a ``record`` is of: its directory entry, or its local header,
    for which ``entry`` tells more, if there is one."""
    told = record if entry is None else entry
    name, guessed = decode_name(record.raw_name, record.flags, told.extra, encoding)
    declared = declared_kind(name, told.creator, told.external)
    note = ZipNote(record.flags, record.method, declared, listed=record is entry, guessed=guessed)
    if entry is not None:
        note.listed_crc, note.wraps = entry.crc, may_wrap(entry, packed)
    return ArchiveMember(
        name,
        record.raw_name,
        kind_of(declared, packed if size is None else packed and size),
        at,
        start,
        end,
        size,
        compressed_size=packed,
        mtime=modified(told.date, told.time, told.extra),
        mode=mode_of(told.creator, told.external),
        method=method_name(record.method, record.flags),
        checksum=None if crc is None else ("crc32", crc),
        extra=note,
    )


def has_gap(member: ArchiveMember, extraction: Extraction) -> bool:
    """Say whether a gap is in the stored bytes of a member, and add the reason."""
    data = extraction.data
    gap = data.next_gap(member.start) if data.gaps else None
    if gap is None or gap.offset >= member.end:
        return False
    blame(member, extraction.name, Status.DAMAGED, "gap", "some of its bytes are missing")
    return True


def may_wrap(entry: CentralEntry, compressed_size: int) -> bool:
    """Say whether a member may hold 2^32 bytes more than its entry says, or several times that.

    Archive Utility and ``ditto`` of macOS keep sizes modulo 2^32, and write no zip64 fields.
    """
    plain = entry.made == FINDER and entry.method == DEFLATE and entry.flags & STREAMED
    return bool(plain) and entry.size + records.WRAP <= _MOST_INFLATED[DEFLATE] * compressed_size


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
    return match_descriptor(behind(), crc, member.compressed_size, member.size) > 0


def blame(member: ArchiveMember, source: str, status: Status, code: str, reason: str) -> None:
    """Set what is wrong with ``member``, of the archive ``source``."""
    member.status = status
    severity = Severity.WARNING if status is Status.COMPLETE else Severity.ERROR
    where: dict[str, Any] = {"path": member.name, "offset": member.start, "length": member.compressed_size}
    member.finding = Finding(code, reason, source=source, severity=severity, **where)


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
    if not member.is_complete or member.finding is not None or note.method not in (STORED, DEFLATE):
        return None
    header, block = _stored(data, member, compressed_size + _DESCRIPTOR)
    if header is None or len(block) < compressed_size or not agrees(member, header, lambda: block[compressed_size:]):
        return None
    stored = block[:compressed_size]
    content = stored if note.method == STORED else _inflated(stored, size)
    if content is None or len(content) != size or crc32(content) != checksum[1]:
        return None
    return member.start + header.length, content


def first_content(data: Data | Window, member: ArchiveMember, note: ZipNote, count: int) -> tuple[bytes, int]:
    """Return the first ``count`` bytes of a member, or fewer, and where it begins in ``data`` if it is stored as it is,
    else -1; no bytes if anything is odd about it.

    Only the beginning of a stream is read: nothing is learned of the rest.
    """
    odd = not member.is_complete or member.finding is not None or not note.listed
    stored, packed = note.method == STORED, member.compressed_size
    if odd or note.method not in (STORED, DEFLATE) or (stored and packed != member.size):
        return b"", -1
    header, block = _stored(data, member, min(packed, count if stored else 2 * count))
    if stored:
        return block[:packed], -1 if header is None else member.start + header.length
    try:
        return decompressobj(-MAX_WBITS).decompress(block[:packed], count), -1
    except error:
        return b"", -1


def _stored(data: Data | Window, member: ArchiveMember, count: int) -> tuple[LocalHeader | None, bytes]:
    """Return the local header of a listed member, and at least ``count`` bytes from its first stored one on, as far as
    they exist; None and no bytes if the header is not there."""
    room = LOCAL_SIZE + len(member.raw_name)
    try:
        block = data.known(member.start, room + _EXTRA + count)
        extra = int.from_bytes(block[LOCAL_SIZE - 2 : LOCAL_SIZE], "little")
        if extra > _EXTRA:
            block = data.known(member.start, room + extra + count)
    except (EndOfDataError, LimitError, MalformedError):
        return None, b""
    header = read_local(block)
    if header is None or header.raw_name != member.raw_name:
        return None, b""
    return header, block[header.length :]


def likely_size(data: Data, member: ArchiveMember) -> int | None:
    """Return how much a member holds whose size is known modulo 2^32, if that is likely; else None.

    It is the least size that its stored bytes may have, if all of it is compressed about as much as its beginning:
    twice as much, where it takes less than 2 GiB. So a model in an archive of macOS need not be decoded to its end.
    """
    size, stored = member.size or 0, member.compressed_size
    least = stored - stored // 1_000 - 64  # deflate adds five bytes to 64 KiB that it cannot compress
    size += max(0, -((size - least) // records.WRAP)) * records.WRAP
    decoder, count = decompressobj(-MAX_WBITS), 0
    head = rest = _stored(data, member, min(member.compressed_size, SMALL))[1][: member.compressed_size]
    try:
        while rest:
            count += len(decoder.decompress(rest, SMALL))
            rest = decoder.unconsumed_tail
    except error:
        return None
    return size if head and count * stored < (size + records.WRAP // 2) * len(head) else None


def _inflated(stream: bytes, size: int) -> bytes | None:
    """Return what a deflate stream holds; None if that is not ``size`` bytes, or its end is not there."""
    decoder = decompressobj(-MAX_WBITS)
    try:
        content = decoder.decompress(stream, size + 1)  # one more, or the end is not looked at
    except error:
        return None
    return content if decoder.eof and len(content) == size else None


def lzma_source(source: Range, flags: int, size: int | None, name: str) -> Range:
    """Return the stream of the member ``name`` with the header of .lzma files in place of the zip's own."""
    from pparse.data.base import BytesData
    from pparse.data.spliced import SplicedData

    begin = source.start + LZMA_HEAD + 5
    head = lzma_alone(source.data.known(source.start, min(LZMA_HEAD + 5, len(source))), flags, size)
    if head is None:
        raise MalformedError("the stream lacks LZMA properties", path=name, offset=source.start)
    rest = source.data.range(begin, source.end)
    spliced = SplicedData([BytesData(head).range(0, len(head)), rest], source.data.name)
    return spliced.range(0, spliced.size or 0)


# How many hashes of names are kept in a set; more are kept in a compact table.
_MOST_HASHES: Final = 100_000
# flags and method in one, compressed size, size, lengths of name, extra field and comment, the upper byte of the unix
# mode, offset
_LISTED: Final = Struct("<8xI8xIIHHH7xBI").unpack_from
# Flags and methods of members that need no second look.
_PLAIN: Final = frozenset(
    flags | method << 16 for flags in (0, 2, 4, 6, STREAMED, UTF8, STREAMED | UTF8) for method in READABLE
)
# Upper bytes of modes of files and folders, and of modes without a kind.
_MODES: Final = frozenset((*range(16), *range(0x40, 0x50), *range(0x80, 0x90)))
_NAME: Final = attrgetter("name")


class ZipRow(Member):
    """A row of a listing; its ``note``, the `ArchiveMember`, is made on demand."""

    __slots__ = ("_at", "_parser")

    # Class attributes: values that are not set per row cost nothing.
    kind = "file"
    status = Status.COMPLETE
    _reason = None

    def __init__(self, name: str, start: int, size: int, at: int, parser: ZipParser) -> None:
        self.name = name
        self.start = start
        self.size = size
        self._at = at
        self._parser = parser

    @property
    def note(self) -> Any:
        """The `ArchiveMember`, read again."""
        return self._parser.listed_member(self._at)


class _ZipFolder(ZipRow):
    __slots__ = ()

    kind = "folder"


def listing(parser: ZipParser, directory: Directory) -> Iterator[Member]:
    """Yield the rows of the members in ``directory``; the second of two equal names as ``name#2``."""
    seen: set[int] = set()
    names: NameCounter | None = None  # made if a name repeats, or if there are many
    at = directory.begin
    while at < directory.end:
        rows, length = _rows(parser, directory, at)
        if names is None:
            before = len(seen)
            seen.update(map(hash, map(_NAME, rows)))
            if len(seen) < before + len(rows) or len(seen) > _MOST_HASHES:
                names = _count_names(parser, directory, at)
                seen.clear()
        if names is not None:
            for row in rows:
                number = names.add(row.name)
                if number > 1:
                    row.name += f"#{number}"
        yield from rows
        at += length
    root = parser.result.root
    if root.known_status is None:  # all were read
        parser.result.close_node(root, Status.COMPLETE, None)


def _count_names(parser: ZipParser, directory: Directory, end: int) -> NameCounter:
    """Return a counter of the names of all entries before ``end``."""
    names, at = NameCounter(), directory.begin
    while at < end:
        rows, length = _rows(parser, directory, at)
        for row in rows:
            names.add(row.name)
        at += length
    return names


def _rows(parser: ZipParser, directory: Directory, base: int) -> tuple[list[Member], int]:
    """Return the rows of a block of entries from ``base`` on, and its length. The entries were checked before."""
    parser.result.extraction.session.check_cancelled()
    block = parser.result.extraction.data.pread(base, min(BLOCK, directory.end - base))
    shift, plain, zip64 = directory.shift, _PLAIN, directory.zip64
    rows: list[Member] = []
    # Locals save a tenth of the time.
    append, row, folder, listed, modes = rows.append, ZipRow, _ZipFolder, _LISTED, _MODES
    head, end, large = CENTRAL_SIZE, len(block), LARGE
    text = block.decode("latin-1")
    pos, last = 0, end - head
    while pos <= last:
        how, packed, size, name_length, extra_length, comment_length, mode, offset = listed(block, pos)
        name_at = pos + head
        name_end = name_at + name_length
        following = name_end + extra_length + comment_length
        if following > end:
            break
        name = text[name_at:name_end]
        if (
            mode in modes
            and not (size and name[-1:] == "/")
            and how in plain
            and (packed == size or how > FULL16)
            and not (zip64 and FULL in (size, offset))
            and packed < large
            and name.isascii()
            and not (extra_length and b"up" in block[name_end : name_end + extra_length])
        ):
            append((folder if name[-1:] == "/" else row)(name, offset + shift, size, base + pos, parser))
        elif (entry := read_central(block, pos)) is not None:
            member = parser.listed(entry, base + pos, directory)
            parser.note_size(member)
            rows.append(Member(member.name, member.kind, member.start, member.size or 0, member.status, member))
        pos = following
    if not pos:
        raise MalformedError("no directory entry is at this offset", offset=base, source=parser.result.extraction.name)
    return rows, pos
