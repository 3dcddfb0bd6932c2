"""The directory of a zip archive: how a member is found.

An archive is read from its end. Within the last 64 KiB stands the end record, which says where the directory is, or, by
a locator before it, where the zip64 end record says so (`end_records`, `read_end_at`). The directory has an entry for
each member, one behind the other (`entries`, `entry_at`): its name, and the offset of its local header (`local_at`).
Its bytes stand behind that header, as many as the entry says. So a member is found by its name among those of all
entries (`pparse.parsers.zip.attributes.decode_name`), and by two numbers from there on::

    start = entry.offset + shift   # of the local header; shift is 0, unless other bytes precede the archive
    begin = start + header.length  # of entry.compressed_size bytes, to be decoded by entry.method

Whether a directory accounts for the archive, `pparse.parsers.zip.trust` says; without one,
`pparse.parsers.zip.scan` goes by the local headers. A record that does not exist is None, never an exception.

Source: PKWARE's APPNOTE.TXT 6.3.10, 4.3.
"""

from __future__ import annotations

import re
from struct import Struct

from pparse.lazy import lazy_pattern
from pparse.limits import KIB, MIB
from pparse.parsers.zip.attributes import FULL, FULL16, METHODS, RESERVED, is_name, with_zip64
from pparse.tree.context import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Final

    from pparse.data.base import Data
    from pparse.data.window import Window
    from pparse.tree.context import Values

    Bytes = Data | Window

LOCAL: Final = b"PK\x03\x04"
CENTRAL: Final = b"PK\x01\x02"
END: Final = b"PK\x05\x06"
END64: Final = b"PK\x06\x06"
LOCATOR: Final = b"PK\x06\x07"
DESCRIPTOR: Final = b"PK\x07\x08"
# In front of the first member of an archive that is split, or was meant to be (APPNOTE.TXT 8.5.3, 8.5.4).
SPLIT_MARKS: Final = (DESCRIPTOR, b"PK00")
EXTRA_DATA: Final = b"PK\x06\x08"
SIGNATURE: Final = b"PK\x05\x05"  # the digital signature after a directory

_LOCAL: Final = Record.of(
    "signature:4s version:H flags:H method:H time:H date:H crc:I compressed_size:I size:I name:H extra:H"
)
_CENTRAL: Final = Record.of(
    "signature:4s made:H version:H flags:H method:H time:H date:H crc:I compressed_size:I size:I"
    " name:H extra:H comment:H disk:H internal:H external:I offset:I"
)
_END: Final = Record.of("signature:4s disk:H first_disk:H here:H total:H size:I offset:I comment:H")
_END64: Final = Record.of("signature:4s length:Q made:H version:H disk:I first_disk:I here:Q total:Q size:Q offset:Q")
_LOCATOR: Final = Record.of("signature:4s disk:I offset:Q disks:I")
LOCAL_SIZE: Final = _LOCAL.size
CENTRAL_SIZE: Final = _CENTRAL.size
END_SIZE: Final = _END.size
LOCATOR_SIZE: Final = _LOCATOR.size
_END64_HEAD: Final = 12  # signature, and the length of the rest
_CENTRAL_LENGTHS: Final = Struct("<28xHHH").unpack_from  # for each entry when many are indexed
_LOCALS: Final = lazy_pattern(re.escape(LOCAL))

# Bytes read at once: more than the longest entry (46 + 3 * 65,535).
BLOCK: Final = 256 * KIB
# How far from the end of the data a directory may end.
TAIL: Final = MIB + 64 * KIB + END_SIZE


# -- the end of the archive ------------------------------------------------------------------------------------------


class EndRecord:
    """The end record of a directory: number of ``entries``, ``size`` and ``offset`` of the directory, and disks.

    ``comment`` is the length of the comment in bytes, ``length`` that of the record with it.
    """

    def __init__(self, fields: Values, comment: int, length: int) -> None:
        self.disk: int = fields.disk
        self.disks_differ = bool(fields.disk != fields.first_disk or fields.here != fields.total)
        self.entries: int = fields.total
        self.size: int = fields.size
        self.offset: int = fields.offset
        self.comment = comment
        self.length = length

    @property
    def needs_64(self) -> bool:
        """Whether a value is stored in the zip64 record instead."""
        return self.entries == FULL16 or FULL in (self.size, self.offset)


def read_end(block: bytes, at: int = 0) -> EndRecord | None:
    """Return the end record at ``at``; None if it is not there (its comment may be cut)."""
    fields = _fields(_END, END, block, at)
    return None if fields is None else EndRecord(fields, fields.comment, END_SIZE + fields.comment)


def read_end64(block: bytes) -> EndRecord | None:
    """Return the zip64 end record that ``block`` begins with; None if it does not."""
    fields = _fields(_END64, END64, block)
    return None if fields is None else EndRecord(fields, 0, 12 + fields.length)


def read_locator(block: bytes) -> int | None:
    """Return the offset of the zip64 end record in the locator that ``block`` begins with; None if it does not."""
    fields = _fields(_LOCATOR, LOCATOR, block)
    return None if fields is None else int(fields.offset)


def _fields(record: Record, signature: bytes, block: bytes, at: int = 0) -> Values | None:
    """Return the fields of the record at ``at``; None if there is none with this signature."""
    whole = len(block) - at >= record.size and block.startswith(signature, at)
    return record.read(block, at, at) if whole else None


def end_records(data: Bytes, start: int, end: int) -> Iterator[int]:
    """Yield the possible offsets of end records, the last one first, within `TAIL` bytes from the end."""
    high, step, lowest = end, 4 * KIB, max(start, end - TAIL)
    while high > lowest:
        low = max(lowest, high - step)
        block, _ = data.read_known(low, min(high - low + len(END) - 1, end - low))
        place = len(block)
        while (place := block.rfind(END, 0, place + len(END) - 1)) >= 0:
            yield low + place
        high, step = low, min(4 * step, BLOCK)


def read_end_at(data: Bytes, at: int, start: int, end: int) -> tuple[EndRecord, int] | None:
    """Return the end record at ``at``, with zip64 values, and where the directory before it ends."""
    record = read_end(data.known(at, min(END_SIZE, end - at)))
    if record is None:
        return None
    place = at - LOCATOR_SIZE
    offset = read_locator(data.known(place, LOCATOR_SIZE)) if place >= start else None
    if offset is None:
        return (record, at) if not record.needs_64 or record.entries == FULL16 else None
    for where in (place - _END64.size, start + offset):
        zip64 = read_end64(data.known(where, _END64.size)) if start <= where < place else None
        if zip64 is not None:
            zip64.comment, zip64.length = record.comment, record.length
            return zip64, where
    return None if record.needs_64 else (record, place)


# -- the entries of the directory --------------------------------------------------------------------------------------


class CentralEntry:
    """An entry of the central directory. ``offset`` is as stored, in the part ``disk``; ``length`` is that of the entry
    itself."""

    def __init__(self, fields: tuple[int, ...], raw_name: bytes, extra: bytes) -> None:
        self.made, _, self.flags, self.method, self.time, self.date, self.crc, compressed_size, size = fields[1:10]
        comment, disk, _, self.external, offset = fields[12:]
        if FULL in (compressed_size, size, offset) or disk == FULL16:
            size, compressed_size, offset, disk = with_zip64(extra, size, compressed_size, offset, disk)
        self.disk = disk
        self.creator = self.made >> 8
        self.compressed_size = compressed_size
        self.size = size
        self.offset = offset
        self.raw_name = raw_name
        self.extra = extra
        self.length = CENTRAL_SIZE + len(raw_name) + len(extra) + comment

    def is_sane(self) -> bool:
        """Say whether this is plausible as an entry."""
        return self.method in METHODS and not self.flags & RESERVED and is_name(self.raw_name, self.flags)


def read_central(block: bytes, at: int = 0) -> CentralEntry | None:
    """Return the directory entry at ``at``; None if it is not there, or incomplete (except for its comment)."""
    if len(block) - at < CENTRAL_SIZE or not block.startswith(CENTRAL, at):
        return None
    fields = _CENTRAL.unpack(block, at)
    name_end = at + CENTRAL_SIZE + fields[10]
    extra_end = name_end + fields[11]
    if len(block) < extra_end:
        return None
    return CentralEntry(fields, block[at + CENTRAL_SIZE : name_end], block[name_end:extra_end])


def central_length(block: bytes, at: int = 0) -> int:
    """Return the length of the directory entry at ``at``; its fixed 46 bytes must be in ``block``."""
    name, extra, comment = _CENTRAL_LENGTHS(block, at)
    return int(CENTRAL_SIZE + name + extra + comment)


def entries(data: Bytes, at: int, end: int) -> Iterator[tuple[int, CentralEntry]]:
    """Yield ``(offset, entry)`` from ``at`` to ``end``, as long as entries follow each other."""
    while at < end:
        block = data.known(at, min(BLOCK, end - at))
        pos = 0
        while (entry := read_central(block, pos)) is not None and pos + entry.length <= len(block):
            yield at + pos, entry
            pos += entry.length
        if not pos:
            return
        at += pos


def entry_at(data: Bytes, at: int, end: int) -> CentralEntry | None:
    """Return the directory entry at ``at``."""
    head = data.known(at, max(0, min(1 * KIB, end - at)))
    if len(head) >= CENTRAL_SIZE and central_length(head) > len(head):
        head = data.known(at, max(0, min(central_length(head), end - at)))
    return read_central(head)


def cut_record(data: Bytes, at: int, end: int) -> bool:
    """Say whether a record of a directory begins at ``at`` and the data end inside it, or with it."""
    head = data.known(at, max(0, min(CENTRAL_SIZE, end - at)))
    sizes = {CENTRAL: CENTRAL_SIZE, END: END_SIZE, END64: _END64_HEAD}
    if len(head) == 3:  # fewer may begin a local header
        return at + 3 == end and any(mark.startswith(head) for mark in sizes)
    if len(head) < sizes.get(head[:4], 0):
        return at + len(head) >= end
    if head.startswith(CENTRAL):
        fields = _CENTRAL.unpack(head)
        return fields[4] in METHODS and not fields[3] & RESERVED and at + central_length(head) >= end
    return head.startswith(END64) and at + _END64_HEAD + int.from_bytes(head[4:_END64_HEAD], "little") >= end


# -- local headers, each in front of a member's bytes ------------------------------------------------------------------


class LocalHeader:
    """The header before a member's bytes. ``compressed_size``, ``size`` and ``crc`` are None if unknown."""

    def __init__(self, fields: Sequence[int], raw_name: bytes, extra: bytes) -> None:
        self.version, self.flags, self.method, self.time, self.date, crc, compressed_size, size = fields
        if FULL in (compressed_size, size):
            size, compressed_size = with_zip64(extra, size, compressed_size)
        self.crc: int | None = crc
        self.compressed_size: int | None = compressed_size
        self.size: int | None = size
        self.raw_name = raw_name
        self.extra = extra
        self.whole = True
        """Whether all of the name is known."""
        self.length = LOCAL_SIZE + len(raw_name) + len(extra)

    def mask(self, unknown: list[tuple[int, int]]) -> bool:
        """Forget the bytes in the ``unknown`` ranges, ``(offset in the header, length)``; unknown letters become ?.

        Return False if a field that a header needs is unknown.
        """
        for first, count in unknown:
            last = first + count
            if (first < 10 and last > 6) or (first < 30 and last > 26):  # flags and method, lengths
                return False
            if first < 18 and last > 14:
                self.crc = None
            if first < 22 and last > 18:
                self.compressed_size = None
            if first < 26 and last > 22:
                self.size = None
            low, high = max(0, first - LOCAL_SIZE), min(len(self.raw_name), last - LOCAL_SIZE)
            if low < high:
                self.raw_name = self.raw_name[:low] + b"?" * (high - low) + self.raw_name[high:]
                self.whole = False
        return True

    def is_sane(self) -> bool:
        """Say whether this is plausible as a header."""
        return (
            self.version & 0xFF <= 63
            and self.method in METHODS
            and not self.flags & RESERVED
            and is_name(self.raw_name, self.flags)
        )


def local_length(block: bytes, at: int = 0) -> int:
    """Return the length of the local header at ``at``; its fixed 30 bytes must be in ``block``."""
    *_, name, extra = _LOCAL.unpack(block, at)
    return int(LOCAL_SIZE + name + extra)


def may_be_local(head: bytes) -> bool:
    """Say whether ``head`` may be the beginning of a local header."""
    fields = _fields(_LOCAL, LOCAL, head)
    if fields is None:
        return LOCAL.startswith(head[: len(LOCAL)]) and len(head) >= len(LOCAL)
    return fields.version & 0xFF <= 63 and fields.method in METHODS and not fields.flags & RESERVED


def read_local(block: bytes, at: int = 0, *, broken: bool = False) -> LocalHeader | None:
    """Return the local header at ``at``; None if it is not there, or incomplete. ``broken`` ignores the signature."""
    if len(block) - at < LOCAL_SIZE or not (broken or block.startswith(LOCAL, at)):
        return None
    fields = _LOCAL.unpack(block, at)
    end = at + LOCAL_SIZE + fields[9]
    behind = end + fields[10]
    return LocalHeader(fields[1:9], block[at + LOCAL_SIZE : end], block[end:behind]) if len(block) >= behind else None


def local_at(data: Bytes, pos: int, end: int, *, broken: bool = False) -> LocalHeader | None:
    """Return the local header at ``pos`` if all of it is known; None otherwise. ``broken`` ignores its signature."""
    head = data.known(pos, max(0, min(LOCAL_SIZE + 128, end - pos)))
    if len(head) < LOCAL_SIZE or (not broken and not head.startswith(LOCAL)):
        return None
    length = local_length(head)
    if length > len(head):
        head = data.known(pos, min(length, end - pos))
    return read_local(head, broken=broken)


def cut_header(data: Bytes, pos: int, end: int) -> bool:
    """Say whether a local header begins at ``pos`` and the data end inside it."""
    head = data.known(pos, max(0, min(LOCAL_SIZE, end - pos)))
    if not head or not (head.startswith(LOCAL) or LOCAL.startswith(head)):
        return False
    return len(head) < LOCAL_SIZE or pos + local_length(head) > end


def local_headers(data: Bytes, low: int, high: int, end: int) -> Iterator[int]:
    """Yield the offsets of plausible local headers in ``[low, high)``; they may extend to ``end``."""
    while low < high:
        block, _ = data.read_known(low, min(BLOCK, high - low + len(LOCAL) - 1, end - low))
        for match in _LOCALS.finditer(block):
            header = local_at(data, low + match.start(), end)
            if header is not None and header.is_sane():
                yield low + match.start()
        if len(block) < len(LOCAL):
            return
        low += len(block) - len(LOCAL) + 1
