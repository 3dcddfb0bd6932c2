"""What the fields of a zip's headers mean: flags, methods, extra fields, names, kinds, times; as pure functions.

Sources: PKWARE's APPNOTE.TXT 6.3.10; the extra fields of Info-ZIP (``extrafld.txt``); WinZip's AE-1 and AE-2.
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct
from zlib import crc32

from pparse.errors import OptionError
from pparse.lazy import lazy_pattern

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Final

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
    if raw.isascii() or flags & UTF8:
        return False
    try:
        raw.decode()
    except UnicodeDecodeError:
        return True
    return False


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
