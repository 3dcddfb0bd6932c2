"""Small members of a zip archive, each verified by one read.

An archive may hold a million members of a few bytes. To read one through a decompressor that can step back, resume
behind damage and be charged to the budget costs some hundred times what its bytes cost. Here one read gives header,
content and descriptor of a member; if they agree with its directory entry and with the CRC-32, there is nothing else to
find out about it. Anything else is not judged here: such a member is read as every other.
"""

from __future__ import annotations

from zlib import MAX_WBITS, crc32, decompressobj, error

from pparse.errors import EndOfDataError, GapError, LimitError, MalformedError
from pparse.findings import Status
from pparse.limits import KIB
from pparse.parsers.zip.descriptors import values_agree
from pparse.parsers.zip.records import DEFLATE, FULL, LOCAL, LOCAL_FIELDS, LOCAL_SIZE, STORED, with_zip64

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

    from pparse.containers.archive import ArchiveMember
    from pparse.data.base import Data
    from pparse.limits import Limits
    from pparse.parsers.zip.note import ZipNote

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
