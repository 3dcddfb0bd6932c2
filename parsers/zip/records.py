"""The records of a zip archive, as pure functions over bytes: headers, extra fields, names, times.

Nothing here reads a source or trusts an offset. A record that does not exist is None, never an exception.

Sources: PKWARE's APPNOTE.TXT 6.3.10; the extra fields of Info-ZIP (``extrafld.txt``); WinZip's AE-1 and AE-2.
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct
from zlib import crc32

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Final

LOCAL: Final = b"PK\x03\x04"
CENTRAL: Final = b"PK\x01\x02"
END: Final = b"PK\x05\x06"
END64: Final = b"PK\x06\x06"
LOCATOR: Final = b"PK\x06\x07"
DESCRIPTOR: Final = b"PK\x07\x08"
EXTRA_DATA: Final = b"PK\x06\x08"
SIGNATURE: Final = b"PK\x05\x05"  # the digital signature after a directory

LOCAL_SIZE: Final = 30
CENTRAL_SIZE: Final = 46
END_SIZE: Final = 22
END64_SIZE: Final = 56
LOCATOR_SIZE: Final = 20

# Flags.
ENCRYPTED: Final = 1
LZMA_END: Final = 2  # method 14: the stream has an end mark
STREAMED: Final = 8  # sizes and CRC come after the data
UTF8: Final = 0x800
MASKED: Final = 0x2000  # header values are masked: the directory is encrypted
RESERVED: Final = 0xD780

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

# signature, version, flags, method, time, date, CRC, compressed size, size, lengths of name and extra field
LOCAL_FIELDS: Final = Struct("<4sHHHHHIIIHH")
_LOCAL_LENGTHS: Final = Struct("<26xHH").unpack_from
_CENTRAL: Final = Struct("<4sHHHHHHIIIHHHHHII")
_CENTRAL_LENGTHS: Final = Struct("<28xHHH").unpack_from
_END: Final = Struct("<4sHHHHIIH")
_END64: Final = Struct("<4sQHHIIQQQQ")
_LOCATOR: Final = Struct("<4sIQI")
_FIELD: Final = Struct("<HH")
# The longest target of a symbolic link.
MOST_LINK: Final = 4096
_CONTROL: Final = bytes([*range(32), 127])


class LocalHeader:
    """The header before a member's bytes. ``compressed_size``, ``size`` and ``crc`` are None if unknown."""

    __slots__ = (
        "compressed_size",
        "crc",
        "date",
        "extra",
        "flags",
        "length",
        "method",
        "raw_name",
        "size",
        "time",
        "version",
        "whole",
    )

    def __init__(self, fields: tuple[int, ...], raw_name: bytes, extra: bytes) -> None:
        self.version, self.flags, self.method, self.time, self.date = fields[:5]
        crc, compressed_size, size = fields[5:8]
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
    name, extra = _LOCAL_LENGTHS(block, at)
    return int(LOCAL_SIZE + name + extra)


def may_be_local(head: bytes) -> bool:
    """Say whether ``head`` may be the beginning of a local header."""
    if not head.startswith(LOCAL[: len(head)]) or len(head) < LOCAL_SIZE:
        return LOCAL.startswith(head[: len(LOCAL)]) and len(head) >= len(LOCAL)
    _, version, flags, method, *_ = LOCAL_FIELDS.unpack_from(head)
    return version & 0xFF <= 63 and method in METHODS and not flags & RESERVED


def read_local(block: bytes, at: int = 0, *, broken: bool = False) -> LocalHeader | None:
    """Return the local header at ``at``; None if it is not there, or incomplete. ``broken`` ignores the signature."""
    if len(block) - at < LOCAL_SIZE:
        return None
    signature, *fields, name_length, extra_length = LOCAL_FIELDS.unpack_from(block, at)
    if signature != LOCAL and not broken:
        return None
    end = at + LOCAL_SIZE + name_length
    if len(block) < end + extra_length:
        return None
    return LocalHeader(tuple(fields), block[at + LOCAL_SIZE : end], block[end : end + extra_length])


class CentralEntry:
    """An entry of the central directory. ``offset`` is as stored; ``length`` is that of the entry itself."""

    __slots__ = (
        "compressed_size",
        "crc",
        "creator",
        "date",
        "disk",
        "external",
        "extra",
        "flags",
        "length",
        "method",
        "offset",
        "raw_name",
        "size",
        "time",
    )

    def __init__(self, fields: tuple[int, ...], raw_name: bytes, extra: bytes) -> None:
        made, _, self.flags, self.method, self.time, self.date, self.crc, compressed_size, size = fields[:9]
        _, _, comment, disk, _, self.external, offset = fields[9:]
        if compressed_size == FULL or size == FULL or offset == FULL:
            size, compressed_size, offset, disk = with_zip64(extra, size, compressed_size, offset, disk)
        self.creator = made >> 8
        self.compressed_size = compressed_size
        self.size = size
        self.offset = offset
        self.disk = disk
        self.raw_name = raw_name
        self.extra = extra
        self.length = CENTRAL_SIZE + len(raw_name) + len(extra) + comment

    def is_sane(self) -> bool:
        """Say whether this is plausible as an entry."""
        return self.method in METHODS and not self.flags & RESERVED and is_name(self.raw_name, self.flags)


def read_central(block: bytes, at: int = 0) -> CentralEntry | None:
    """Return the directory entry at ``at``; None if it is not there, or incomplete (except for its comment)."""
    if len(block) - at < CENTRAL_SIZE:
        return None
    signature, *fields = _CENTRAL.unpack_from(block, at)
    if signature != CENTRAL:
        return None
    name_end = at + CENTRAL_SIZE + fields[9]
    extra_end = name_end + fields[10]
    if len(block) < extra_end:
        return None
    return CentralEntry(tuple(fields), block[at + CENTRAL_SIZE : name_end], block[name_end:extra_end])


def central_length(block: bytes, at: int = 0) -> int:
    """Return the length of the directory entry at ``at``; its fixed 46 bytes must be in ``block``."""
    name, extra, comment = _CENTRAL_LENGTHS(block, at)
    return int(CENTRAL_SIZE + name + extra + comment)


class EndRecord:
    """The end record of a directory: number of ``entries``, ``size`` and ``offset`` of the directory, and disks.

    ``comment`` is the length of the comment in bytes, ``length`` that of the record with it.
    """

    __slots__ = ("comment", "disk", "disks_differ", "entries", "length", "offset", "size")

    def __init__(self, disk: int, first_disk: int, here: int, entries: int, size: int, offset: int, comment: int):
        self.disk = disk
        self.disks_differ = disk != first_disk or here != entries
        self.entries = entries
        self.size = size
        self.offset = offset
        self.comment = comment
        self.length = END_SIZE + comment

    @property
    def needs_64(self) -> bool:
        """Whether a value is stored in the zip64 record instead."""
        return self.entries == FULL16 or FULL in (self.size, self.offset)


def read_end(block: bytes, at: int = 0) -> EndRecord | None:
    """Return the end record at ``at``; None if it is not there (its comment may be cut)."""
    if len(block) - at < END_SIZE:
        return None
    signature, disk, first, here, entries, size, offset, comment = _END.unpack_from(block, at)
    return EndRecord(disk, first, here, entries, size, offset, comment) if signature == END else None


def read_end64(block: bytes, at: int = 0) -> EndRecord | None:
    """Return the zip64 end record at ``at``; None if it is not there."""
    if len(block) - at < END64_SIZE:
        return None
    signature, length, _, _, disk, first, here, entries, size, offset = _END64.unpack_from(block, at)
    if signature != END64:
        return None
    record = EndRecord(disk, first, here, entries, size, offset, 0)
    record.length = 12 + length
    return record


def read_locator(block: bytes, at: int = 0) -> int | None:
    """Return the offset of the zip64 end record in the locator at ``at``; None if there is no locator."""
    if at < 0 or len(block) - at < LOCATOR_SIZE:
        return None
    signature, _, offset, _ = _LOCATOR.unpack_from(block, at)
    return int(offset) if signature == LOCATOR else None


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
    if not raw or len(raw.translate(None, _CONTROL)) != len(raw):
        return False
    if flags & UTF8:
        try:
            raw.decode()
        except UnicodeDecodeError:
            return False
    return True


def decode_name(raw: bytes, flags: int, extra: bytes = b"") -> str:
    """Return a member's name. A unicode path field takes precedence; else it is UTF-8 if valid, else code page 437.

    The field (0x7075) counts only if its CRC is that of ``raw``. Flag 11 should say which encoding it is, but common
    writers (Info-ZIP in a UTF-8 locale, macOS) do not set it, and code page 437 is hardly ever valid UTF-8 by chance.
    """
    if extra and (field := extra_field(extra, 0x7075)) is not None and len(field) > 5 and field[0] == 1:
        try:
            text = field[5:].decode()
        except UnicodeDecodeError:
            text = ""
        if text and crc32(raw) == int.from_bytes(field[1:5], "little"):
            return text
    if raw.isascii():
        return raw.decode("ascii")
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw.decode("cp437")


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
