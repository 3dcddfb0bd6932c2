"""The records of a zip archive, what their fields mean, and how a member is found by them.

An archive is read from its end. Within the last 64 KiB stands the end record, which says where the directory is, or, by
a locator before it, where the zip64 end record says so (`end_records`, `read_end_at`). The directory has an entry for
each member, one behind the other (`entries`, `entry_at`): its name, and the offset of its local header (`local_at`).
Its bytes stand behind that header, as many as the entry says. So a member is found by its name among those of all
entries (`decode_name`), and by two numbers from there on::

    start = entry.offset + shift   # of the local header; shift is 0, unless other bytes precede the archive
    begin = start + header.length  # of entry.compressed_size bytes, to be decoded by entry.method

Whether a directory accounts for the archive, `pparse.parsers.zip.trust` says; without one,
`pparse.parsers.zip.scan` goes by the local headers. A record that does not exist is None, never an exception.

Sources: PKWARE's APPNOTE.TXT 6.3.10; the extra fields of Info-ZIP (``extrafld.txt``); WinZip's AE-1 and AE-2.
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import islice
from struct import Struct
from zlib import crc32

from pparse.data.base import is_utf8
from pparse.errors import OptionError
from pparse.lazy import lazy_pattern
from pparse.limits import KIB, MIB
from pparse.tree.context import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import Final

    from pparse.data.base import Data
    from pparse.data.window import Window
    from pparse.tree.context import Values

    Bytes = Data | Window


# Flags.
ENCRYPTED: Final = 1
LZMA_END: Final = 2  # method 14: the stream has an end mark
STREAMED: Final = 8  # sizes and CRC come after the data
UTF8: Final = 0x800
MASKED: Final = 0x2000  # header values are masked: the directory is encrypted
RESERVED: Final = 0xD780

FINDER: Final = 0x0315  # what Archive Utility and ditto of macOS write as "made by": version 2.1, Unix
WRAP: Final = 1 << 32  # writers without zip64 keep sizes and offsets modulo this
FULL: Final = 0xFFFFFFFF  # the value is in the zip64 field
FULL16: Final = 0xFFFF

STORED: Final = 0
DEFLATE: Final = 8
LZMA: Final = 14
AES: Final = 99

METHODS: Final = {
    0: "stored",
    1: "shrink",
    2: "reduce",
    3: "reduce",
    4: "reduce",
    5: "reduce",
    6: "implode",
    7: "tokenize",
    8: "deflate",
    9: "deflate64",
    10: "dcl-implode",
    12: "bz2",
    14: "lzma",
    16: "cmpsc",
    18: "terse",
    19: "lz77",
    20: "zstd",
    93: "zstd",
    94: "mp3",
    95: "xz",
    96: "jpeg",
    97: "wavpack",
    98: "ppmd",
    99: "encrypted",
}
# Supported methods, with the name of the codec. These streams mark their own end.
CODEC_OF_METHOD: Final = {8: "deflate", 12: "bz2", 14: "lzma", 20: "zstd", 93: "zstd", 95: "xz"}

_UNIX: Final = (3, 19)  # creator systems whose attributes hold a unix mode
_KINDS: Final = {0o12: "symlink", 0o04: "folder", 0o01: "fifo", 0o02: "device", 0o06: "device", 0o14: "other"}

_FIELD: Final = Struct("<HH")
# The longest target of a symbolic link.
MOST_LINK: Final = 4096
_CONTROL: Final = bytes([*range(32), 127])


# -- extra fields ----------------------------------------------------------------------------------------------------


def extra_fields(extra: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield ``(id, value)`` of the extra fields, up to the first malformed one (padding)."""
    at = 0
    while len(extra) - at >= 4:
        number, length = _FIELD.unpack_from(extra, at)
        at += 4
        if length > len(extra) - at:
            return
        yield number, extra[at : at + length]
        at += length


def is_extra(extra: bytes) -> bool:
    """Say whether extra fields fill ``extra`` exactly: they mostly do, unless its length is a damaged one."""
    return sum(4 + len(value) for _, value in extra_fields(extra)) == len(extra)


def extra_field(extra: bytes, wanted: int) -> bytes | None:
    """Return the value of the first extra field with that id; None if there is none."""
    return next((value for number, value in extra_fields(extra) if number == wanted), None)


def with_zip64(extra: bytes, *values: int) -> tuple[int, ...]:
    """Return ``values`` (size, compressed size, offset, disk), those that are all ones replaced from the zip64 field.

    The field holds only those, in this order, in 8 bytes each (the disk in 4). Values that it lacks stay unchanged.
    """
    field = extra_field(extra, 1)
    if field is None:
        return values
    at = 0
    found = []
    for number, value in enumerate(values):
        width, full = (4, FULL16) if number == 3 else (8, FULL)
        if value == full and len(field) - at >= width:
            value = int.from_bytes(field[at : at + width], "little")
            at += width
        found.append(value)
    return tuple(found)


# -- names, kinds, times ---------------------------------------------------------------------------------------------


def is_name(raw: bytes, flags: int) -> bool:
    """Say whether ``raw`` may be a member's name: not empty, no control characters, valid UTF-8 if flagged as such."""
    return bool(raw) and len(raw.translate(None, _CONTROL)) == len(raw) and (not flags & UTF8 or is_utf8(raw))


def check_encoding(encoding: str) -> str:
    """Return ``encoding``, which names are to be read in; empty: none is given.

    Raises `OptionError` if there is none of this name, or ASCII is no part of it.
    """
    try:
        if encoding and b"a/b".decode(encoding) != "a/b":
            raise LookupError
    except (LookupError, ValueError, TypeError):  # not known, not of text, or of wider units
        reason = f"there is no encoding {encoding!r} of names; some are cp932, gbk, euc-kr, cp1251, cp866, cp437"
        raise OptionError(reason, path="encoding") from None
    return encoding


def decode_name(raw: bytes, flags: int, extra: bytes = b"", encoding: str = "") -> tuple[str, bool]:
    """Return a member's name, and whether its encoding is only guessed, as code page 437.

    A unicode path field (0x7075) takes precedence if its CRC is that of ``raw``. Then flag 11 says that it is UTF-8;
    without it the name is in ``encoding``, if that is given and can be; else in UTF-8 if it is valid, else in code page
    437 (APPNOTE.TXT, appendix D). Common writers (Info-ZIP in a UTF-8 locale, macOS) do not set the flag, and code page
    437 is hardly ever valid UTF-8 by chance.
    """
    if extra and (field := extra_field(extra, 0x7075)) is not None and len(field) > 5 and field[0] == 1:
        try:
            text = field[5:].decode()
        except UnicodeDecodeError:
            text = ""
        if text and crc32(raw) == int.from_bytes(field[1:5], "little"):
            return text, False
    for form in ("ascii", "" if flags & UTF8 else encoding, "utf-8"):
        try:
            if form:
                return raw.decode(form), False
        except UnicodeDecodeError:
            pass
    return raw.decode("cp437"), True


# What names in Japanese consist of, besides ASCII: kana, kanji, full- and half-width letters, symbols of JIS X 0208 …
_JAPANESE: Final = lazy_pattern("[\0-\x7f\u3000-\u30ff\u4e00-\u9fff\uff01-\uff9f\u2010-\u266f×÷]*")
# … and no others have: two kana or kanji, one behind the other.
_SURE: Final = lazy_pattern("[\u3041-\u30ff\u4e00-\u9fff]{2}")
# What is no name in code page 437: its signs of currency, mathematics and frames, most of its Greek letters, and what
# parts a path in Windows, or is no letter there, behind a letter with an accent.
_NO_CP437: Final = lazy_pattern(rb"[\x9b-\x9f\xa9-\xac\xb0-\xe0\xe2-\xfe]|[\x80-\xff][\\|]")
# The first byte of kanji that are hardly in one of five letters, nor are half-width ones: bytes of other code pages
# look like these.
_RARE: Final = 0xE0


def is_japanese(names: Iterable[bytes]) -> bool:
    """Return whether ``names``, which are not flagged as UTF-8, can only be those of a Japanese Windows: code page 932.

    All of them must be text in that, and in no other language, and code page 437 must not make names of them. A word
    with an accent here and there (``Köln``) can be both: it is not taken for Japanese.
    """
    sure = wrong = False
    kanji = rare = 0
    for raw in names:
        try:
            text = raw.decode("cp932")
        except UnicodeDecodeError:
            return False
        if _JAPANESE.fullmatch(text) is None:
            return False
        sure = sure or _SURE.search(text) is not None
        wrong = wrong or _NO_CP437.search(raw) is not None
        firsts = [letter.encode("cp932")[0] for letter in text if letter > "\u3040"]
        kanji += len(firsts)
        rare += sum(first >= _RARE for first in firsts)
        rare += sum("\uff61" <= letter <= "\uff9f" for letter in text)  # half-width: a byte each, as elsewhere
    return sure and wrong and kanji >= 5 * rare


def needs_guess(raw: bytes, flags: int) -> bool:
    """Return whether nothing says which encoding a name is in: it is not ASCII, nor flagged as or valid UTF-8."""
    return not raw.isascii() and not flags & UTF8 and not is_utf8(raw)


def kind_of(declared: str, size: int) -> str:
    """Return the kind of a member of ``size`` bytes that is ``declared`` to be of some kind.

    A member with bytes is a file whatever is declared, unless the bytes may be the target of a symlink.
    """
    return "file" if size and (declared != "symlink" or size > MOST_LINK) else declared


def declared_kind(name: str, creator: int, external: int) -> str:
    """Return ``folder``, ``symlink``, ``fifo``, ``device``, ``other`` or ``file``, by the name and the unix mode."""
    kind = _KINDS.get(external >> 28, "file") if creator in _UNIX else "file"
    return "folder" if name.endswith("/") and kind in ("file", "folder") else "file" if kind == "folder" else kind


def mode_of(creator: int, external: int) -> int | None:
    """Return the permission bits; None if the creator's system has none."""
    return external >> 16 & 0o7777 if creator in _UNIX and external >> 16 else None


def method_name(method: int, flags: int) -> str:
    """Return the name of the compression method; ``encrypted`` if that hides it."""
    return "encrypted" if flags & (ENCRYPTED | MASKED) else METHODS.get(method, f"method {method}")


def describe_encryption(method: int, extra: bytes) -> str:
    """Describe how an encrypted member is encrypted."""
    field = extra_field(extra, 0x9901) if method == AES else None
    if field is None or len(field) < 7:
        return "encrypted" if method != AES else "encrypted (AES)"
    bits = {1: "128", 2: "192", 3: "256"}.get(field[4], "?")
    inner = METHODS.get(int.from_bytes(field[5:7], "little"), "?")
    return f"encrypted (AES-{bits}, AE-{field[0]}, {inner} inside)"


@lru_cache(1_024)  # the members of an archive often have one time
def dos_time(date: int, time: int) -> float | None:
    """Return a DOS date and time as seconds since 1970; None for an invalid date.

    DOS times are local times of an unknown zone; they are taken as UTC.
    """
    year, month, day = 1980 + (date >> 9), date >> 5 & 15, date & 31
    hour, minute, second = time >> 11, time >> 5 & 63, 2 * (time & 31)
    if not 1 <= month <= 12 or not day or hour > 23 or minute > 59 or second > 59:
        return None
    # Count years from March, so that the leap day comes last.
    year -= month < 3
    days = 365 * year + year // 4 - year // 100 + year // 400 + (153 * ((month + 9) % 12) + 2) // 5 + day - 719_469
    return float(86_400 * days + 3_600 * hour + 60 * minute + second)


def modified(date: int, time: int, extra: bytes) -> float | None:
    """Return the modification time in seconds since 1970: from an extra field (UTC) if there is one, else DOS time."""
    if extra:
        found = None
        for number, value in extra_fields(extra):
            if number == 0x5455 and len(value) >= 5 and value[0] & 1:  # extended timestamp
                return float(int.from_bytes(value[1:5], "little", signed=True))
            if number == 0x000A and len(value) >= 16 and value[4:8] == b"\1\0\x18\0":  # NTFS: 100 ns since 1601
                found = int.from_bytes(value[8:16], "little") / 10_000_000 - 11_644_473_600
            elif number in (0x5855, 0x000D) and len(value) >= 8:  # Info-ZIP unix (old), PKWARE unix
                found = float(int.from_bytes(value[4:8], "little", signed=True))
        if found is not None:
            return found
    return dos_time(date, time)


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
_NAME: Final = 128  # so long is a name mostly
_END64_HEAD: Final = 12  # signature, and the length of the rest
_CENTRAL_LENGTHS: Final = Struct("<28xHHH").unpack_from  # for each entry when many are indexed
_LOCALS: Final = lazy_pattern(re.escape(LOCAL))

# Bytes read at once: more than the longest entry (46 + 3 * 65,535).
BLOCK: Final = 256 * KIB
# How far from the end of the data a directory may end.
TAIL: Final = MIB + 64 * KIB + END_SIZE
_MOST_ENDS: Final = 16


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


def read_end(block: bytes) -> EndRecord | None:
    """Return the end record that ``block`` begins with; None if it does not (its comment may be cut)."""
    fields = _fields(_END, END, block)
    return None if fields is None else EndRecord(fields, fields.comment, END_SIZE + fields.comment)


def read_end64(block: bytes) -> EndRecord | None:
    """Return the zip64 end record that ``block`` begins with; None if it does not."""
    fields = _fields(_END64, END64, block)
    return None if fields is None else EndRecord(fields, 0, 12 + fields.length)


def read_locator(block: bytes) -> int | None:
    """Return the offset of the zip64 end record in the locator that ``block`` begins with; None if it does not."""
    fields = _fields(_LOCATOR, LOCATOR, block)
    return None if fields is None else int(fields.offset)


def _fields(record: Record, signature: bytes, block: bytes) -> Values | None:
    """Return the fields of the record that ``block`` begins with; None if there is none with this signature."""
    return record.read(block, 0, 0) if len(block) >= record.size and block.startswith(signature) else None


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


def directory_ends(data: Bytes, start: int, end: int) -> Iterator[tuple[int, EndRecord, int]]:
    """Yield the end records that can be read, the last one first, with their offsets and where directories end.

    No more than 16 are tried: bytes that repeat may hold thousands.
    """
    for at in islice(end_records(data, start, end), _MOST_ENDS):
        found = read_end_at(data, at, start, end)
        if found is not None:
            yield at, *found


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

    creator = external = 0  # what only the directory has

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
            for field, at in (("crc", 14), ("compressed_size", 18), ("size", 22)):
                if first < at + 4 and last > at:
                    setattr(self, field, None)
            low, high = max(0, first - LOCAL_SIZE), min(len(self.raw_name), last - LOCAL_SIZE)
            if low < high:
                self.raw_name = self.raw_name[:low] + b"?" * (high - low) + self.raw_name[high:]
                self.whole = False
        return True

    def is_sane(self) -> bool:
        """Say whether this is plausible as a header."""
        known = self.version & 0xFF <= 63 and self.method in METHODS and not self.flags & RESERVED
        return known and is_name(self.raw_name, self.flags)


def local_length(block: bytes) -> int:
    """Return the length of the local header that ``block`` begins with, at least with its fixed 30 bytes."""
    *_, name, extra = _LOCAL.unpack(block)
    return int(LOCAL_SIZE + name + extra)


def may_be_local(head: bytes) -> bool:
    """Say whether ``head`` may be the beginning of a local header, by its name, too, if that is in it."""
    fields = _fields(_LOCAL, LOCAL, head)
    if fields is None:
        return LOCAL.startswith(head[: len(LOCAL)]) and len(head) >= len(LOCAL)
    name = head[LOCAL_SIZE : LOCAL_SIZE + fields.name]
    if len(name) == fields.name and not is_name(name, fields.flags):
        return False
    return fields.version & 0xFF <= 63 and fields.method in METHODS and not fields.flags & RESERVED


def read_local(block: bytes, *, broken: bool = False) -> LocalHeader | None:
    """Return the local header that ``block`` begins with; None if it does not, or not with all of it.

    ``broken`` ignores the signature.
    """
    if len(block) < LOCAL_SIZE or not (broken or block.startswith(LOCAL)):
        return None
    fields = _LOCAL.unpack(block)
    end = LOCAL_SIZE + fields[9]
    behind = end + fields[10]
    return LocalHeader(fields[1:9], block[LOCAL_SIZE:end], block[end:behind]) if len(block) >= behind else None


def local_at(data: Bytes, pos: int, end: int, *, broken: bool = False) -> LocalHeader | None:
    """Return the local header at ``pos`` if all of it is known; None otherwise. ``broken`` ignores its signature."""
    head = data.known(pos, max(0, min(LOCAL_SIZE + _NAME, end - pos)))
    if len(head) < LOCAL_SIZE or (not broken and not head.startswith(LOCAL)):
        return None
    length = local_length(head)
    if length > len(head):
        head = data.known(pos, length) if length <= end - pos else b""  # what is cut is none: nothing is read for it
    return read_local(head, broken=broken)


def cut_header(data: Bytes, pos: int, end: int) -> bool:
    """Say whether a local header begins at ``pos`` and the data end inside it."""
    head = data.known(pos, max(0, min(LOCAL_SIZE, end - pos)))
    if not head or not (head.startswith(LOCAL) or LOCAL.startswith(head)):
        return False
    return len(head) < LOCAL_SIZE or pos + local_length(head) > end


def local_headers(data: Bytes, low: int, high: int, end: int, longest: int = 1 << 18) -> Iterator[int]:
    """Yield the offsets of plausible local headers in ``[low, high)`` of that length at most, up to ``end``."""
    while low < high:
        block, _ = data.read_known(low, min(BLOCK, high - low + len(LOCAL) - 1, end - low))
        for match in _LOCALS.finditer(block):
            head = block[match.start() : match.start() + LOCAL_SIZE + _NAME]
            if len(head) >= LOCAL_SIZE and not (may_be_local(head) and local_length(head) <= longest):
                continue  # before all of it is read: there may be many false signatures
            header = local_at(data, low + match.start(), end)
            if header is not None and header.is_sane():
                yield low + match.start()
        if len(block) < len(LOCAL):
            return
        low += len(block) - len(LOCAL) + 1


# -- the data descriptor behind a member's bytes ---------------------------------------------------------------------

# (length, signed, struct of crc, compressed size, size), longest first: a shorter one begins or ends a longer one.
LAYOUTS: Final = (
    (24, True, Struct("<4xIQQ")),
    (20, False, Struct("<IQQ")),
    (16, True, Struct("<4xIII")),
    (12, False, Struct("<III")),
)
_SHORT: Final = (12, 16)  # the lengths of those with sizes of 4 bytes
# No member is larger: a larger size is really the next record.
MOST_SIZE: Final = 1 << 48


def _readings(block: bytes) -> Iterator[tuple[int, int, int, int]]:
    """Yield ``(length, crc, compressed size, size)`` as each layout that ``block`` may begin with has them."""
    for length, signed, layout in LAYOUTS:
        if len(block) >= length and not (signed and not block.startswith(DESCRIPTOR)):
            yield length, *layout.unpack_from(block)


def match_descriptor(block: bytes, crc: int | None, compressed_size: int, size: int | None) -> int:
    """Return the length of the data descriptor that ``block`` begins with, with exactly these values; 0 if none of the
    four layouts fits.

    ``crc`` or ``size`` None means any value. What 4 bytes are too few for is there modulo 2^32.
    """
    for length, crc_there, *there in _readings(block):
        if crc in (None, crc_there) and _is_there((compressed_size, size), there, length):
            return length
    return 0


def _is_there(sizes: tuple[int, int | None], there: list[int], length: int) -> bool:
    wrap = WRAP if length in _SHORT else 1 << 64
    return all(size is None or size % wrap == said for size, said in zip(sizes, there, strict=True))


def descriptor_crc(block: bytes, compressed_size: int, size: int | None) -> int | None:
    """Return the CRC-32 in a data descriptor with these sizes at the beginning of ``block``; None if there is none."""
    for length, crc, *there in _readings(block):
        if _is_there((compressed_size, size), there, length):
            return crc
    return None


def descriptor_before(data: Data, at: int, start: int, least: int | None = None) -> tuple[int, int, int, int] | None:
    """Return ``(end of bytes, crc, compressed size, size)`` from a descriptor that ends at ``at``; None if none does.

    The size in it must be the distance from ``start``. With ``least`` it must be at least that, and the descriptor must
    have a signature (bytes are missing before it).
    """
    for length, signed, layout in LAYOUTS:
        place = at - length
        if place < start or (least is not None and not signed):
            continue
        block, unknown = data.read_known(place, length)
        if unknown or len(block) < length or (signed and not block.startswith(DESCRIPTOR)):
            continue
        crc, compressed_size, size = layout.unpack_from(block)
        if compressed_size == place - start or (least is not None and least <= compressed_size < MOST_SIZE):
            return place, crc, compressed_size, size
    return None


# Lengths of data descriptors, the likelier ones first.
LENGTHS: Final = (24, 16, 20, 12)


# -- the head of a stream of method 14 --------------------------------------------------------------------------------

# In front of the properties of a zip's LZMA stream: version (2 bytes), their length (2 bytes).
LZMA_HEAD: Final = 4


def lzma_alone(head: bytes, flags: int, size: int | None) -> bytes | None:
    """Return the header of an .lzma file for a stream that begins with ``head`` (9 bytes); None if that is invalid."""
    if len(head) < LZMA_HEAD + 5 or head[2:4] != b"\5\0":
        return None
    open_end = flags & LZMA_END or size is None
    return head[4:9] + (b"\xff" * 8 if open_end or size is None else size.to_bytes(8, "little"))
