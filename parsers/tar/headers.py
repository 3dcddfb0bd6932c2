"""Tar headers: one block of 512 bytes, parsed strictly, or judged by what is left of it.

Layout, offsets in the block (POSIX pax, GNU tar manual, star(5)); v7 ends at 257, the rest of it is zeros::

    0 name[100]  100 mode[8]  108 uid[8]  116 gid[8]  124 size[12]  136 mtime[12]  148 checksum[8]  156 type[1]
    157 link[100]  257 magic[6]  263 version[2]  265 uname[32]  297 gname[32]  329 devmajor[8]  337 devminor[8]
    345 prefix[155] (ustar; 131 in star)    386 sparse map[4 * 24]  482 extended[1]  483 real size[12] (old GNU)

Numbers are octal digits, padded with spaces and ended by any mixture of NULs and spaces, or binary with the top bit of
the first byte set (two's complement). The checksum is the sum of all bytes, with spaces for its own field; some old
writers added signed bytes.

Nothing is guessed: an unknown byte is restored only if the checksum proves it.
"""

from __future__ import annotations

import re
from zlib import adler32

from pparse.lazy import lazy_pattern

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Final

BLOCK: Final = 512
# Larger sizes and times count as damage (libarchive has the same bound).
LARGEST: Final = 1 << 60
ZEROS: Final = bytes(BLOCK)

_NUMBER: Final = lazy_pattern(rb" *([0-7]*) *(?:\0.*)?", re.DOTALL)
# The form that writers use: padding, digits, an end.
_TIDY: Final = lazy_pattern(rb"[ \0]*[0-7]+[ \0]*|[ \0]+")
_INNER: Final = lazy_pattern(rb"[^0-7](?=[^0-7]*[0-7])")
_MAGICS: Final = {b"ustar\x0000": "ustar", b"ustar  \0": "gnu"}
# offset and length of the numbers in every dialect
_NUMBERS: Final = ((100, 8), (108, 8), (116, 8), (124, 12), (136, 12), (148, 8))
_LETTERS: Final = b"\x0001234567DKLMNSVXgx"
_HIGH_OUT: Final = bytes(range(128))
# A regular file as most writers encode it, from the mode on: mode, size, mtime, checksum, magic.
USUAL: Final = lazy_pattern(
    rb"([0-7]{7})[\0 ](?:[0-7]{7}[\0 ]){2}([0-7]{11})[\0 ]([0-7]{11})[\0 ]([0-7]{6})\0 ([05\0])\0{100}"
    rb"ustar(\x0000|  \0)"
)


# The numbers of any header as most writers encode them: mode, size, mtime, checksum.
_PLAIN: Final = lazy_pattern(rb"([0-7]{7})[\0 ](?:[0-7]{7}[\0 ]){2}([0-7]{11})[\0 ]([0-7]{11})[\0 ]([0-7]{6})\0 ")


class TarHeader:
    """A tar header."""

    __slots__ = ("dialect", "letter", "mode", "mtime", "problem", "raw", "raw_link", "raw_name", "size", "sound")

    def __init__(
        self,
        raw: bytes,
        dialect: str,
        *,
        sound: bool,
        problem: str | None = None,
        plain: re.Match[bytes] | None = None,
    ) -> None:
        self.raw = raw
        """The block."""
        self.dialect = dialect
        """The dialect: v7, ustar, gnu or star."""
        self.sound = sound
        """Whether the checksum agrees, so that this certainly is a header."""
        self.problem = problem
        """What is wrong with it, in words; None if nothing is."""
        self.letter = raw[156:157]
        """The type, one byte."""
        self.raw_name = _name(raw, dialect, self.letter)
        """The name as stored, with prefix and ``/``; ``?`` for unknown bytes."""
        self.raw_link = _if_known(raw[157:257].split(b"\0", 1)[0])
        """The link target as stored; ``?`` for unknown bytes."""
        if plain is not None:
            self.mode: int | None = int(plain[1], 8)
            self.size: int | None = int(plain[2], 8)
            self.mtime: int | None = int(plain[3], 8)
            return
        self.mode = read_number(raw[100:108])
        mtime, size = read_number(raw[136:148]), read_number(raw[124:136])
        self.mtime = mtime if mtime is not None and abs(mtime) < LARGEST else None
        self.size = size if size is not None and 0 <= size < LARGEST else None

    def __repr__(self) -> str:
        return f"<TarHeader {self.raw_name!r}, {self.dialect} {self.letter!r}, {self.size} bytes, sound={self.sound}>"


def _name(raw: bytes, dialect: str, letter: bytes) -> bytes:
    name = raw[:100].split(b"\0", 1)[0]
    if dialect in ("ustar", "star") and letter not in (b"L", b"K", b"S"):
        prefix = _if_known(raw[345 : 476 if dialect == "star" else 500].split(b"\0", 1)[0])
        if prefix:
            return prefix + b"/" + name
    return name


def _if_known(text: bytes) -> bytes:
    """Return ``text``; empty if all of it is unknown, since it is likely empty then."""
    return text if text.strip(b"?") else b""


def read_number(field: bytes) -> int | None:
    """Return the number in ``field``, octal or binary, even negative; 0 if it is empty, None if it is invalid."""
    if field[0] & 0x80:
        # GNU writes 0x80 or 0xFF first; the sign is the second highest bit (libarchive, star).
        value = int.from_bytes(field, "big") & ((1 << (8 * len(field) - 1)) - 1)
        return value - (1 << (8 * len(field) - 1)) if field[0] & 0x40 else value
    match = _NUMBER.fullmatch(field)
    return int(match[1] or b"0", 8) if match is not None else None


def text_of(raw: bytes) -> str:
    """Return a stored name as text: UTF-8, with invalid bytes as lone surrogates (as `os.fsdecode`, and tarfile)."""
    return raw.decode("utf-8", "surrogateescape")


def sum_of(raw: bytes) -> int:
    """Return the sum of all bytes of a block, with spaces in place of the checksum field."""
    # The low half of Adler-32 is the sum plus one, modulo 65521, which 256 bytes cannot reach.
    return (adler32(raw[:148]) & 0xFFFF) + (adler32(raw[156:356]) & 0xFFFF) + (adler32(raw[356:512]) & 0xFFFF) + 253


def checksum_agrees(raw: bytes) -> bool:
    """Say whether the checksum of a block is right, as a sum of unsigned or of signed bytes."""
    declared = read_number(raw[148:156])
    if declared is None or not raw[148:156].strip(b"\0 "):
        return False
    total = sum_of(raw)
    if total == declared:
        return True
    high = len((raw[:148] + raw[156:]).translate(None, _HIGH_OUT))
    return high > 0 and total - 256 * high == declared


def dialect_of(raw: bytes) -> str | None:
    """Return ustar, gnu or star by the magic; None if there is none (v7, or not a header)."""
    dialect = _MAGICS.get(raw[257:265])
    if dialect is None:
        return "ustar" if raw[257:262] == b"ustar" else None
    return "star" if dialect == "ustar" and raw[508:512] == b"tar\0" else dialect


def read_header(raw: bytes) -> TarHeader | None:
    """Return the header in a block of 512 bytes whose checksum and numbers are right; None otherwise."""
    plain = _PLAIN.match(raw, 100)
    if plain is not None and sum_of(raw) != int(plain[4], 8):
        plain = None  # it may be a signed sum
    if plain is None and not checksum_agrees(raw):
        return None
    dialect = dialect_of(raw)
    if dialect is None:
        # The magic beside its place: a header that moved by a few bytes, whose sum is right by chance. In v7, the name
        # of a link ends at 257, and zeros follow.
        if raw[156] not in _LETTERS or not raw[0] or b"ustar" in raw[253:266]:
            return None
        dialect = "v7"
    header = TarHeader(raw, dialect, sound=True, plain=plain)
    if header.size is None or header.mode is None or header.mode < 0:
        return None
    return header


def judge_header(raw: bytes, unknown: Iterable[tuple[int, int]] = (), *, aligned: bool = True) -> TarHeader | None:
    """Return the header that a block of 512 bytes is, or was before damage; None without enough evidence.

    ``unknown`` are ranges ``(offset, length)`` of the block that are not known (zeros in ``raw``). ``aligned`` says
    that a header is expected here, so that a plausible one is accepted despite a damaged checksum or magic.
    """
    holes = [at for first, count in unknown for at in range(first, first + count)]
    if holes:
        return _judge_known(raw, holes, aligned)
    header = read_header(raw)
    if header is not None:
        return header
    tidy = [bool(_TIDY.fullmatch(raw[at : at + length])) or raw[at] in (0x80, 0xFF) for at, length in _NUMBERS]
    dialect = dialect_of(raw)
    if dialect is None:
        # The magic is damaged, or the checksum of a v7 header is: all numbers must be valid.
        if not aligned or not all(tidy) or not raw[0] or not raw[148:156].strip(b"\0 ") or raw[156] not in _LETTERS:
            return None
        dialect = _nearest(raw[257:265])
        return TarHeader(raw, dialect, sound=False, problem="the checksum of its header is wrong")
    if sum(tidy) < (4 if aligned else 6):
        return None
    spoilt = _spoilt(raw)
    if len(spoilt) == 1:
        mended, left = solve(raw, spoilt)
        if not left and (header := read_header(mended)) is not None:
            header.problem = "one byte of its header was damaged; restored from the checksum"
            return header
    return TarHeader(raw, dialect, sound=False, problem="the checksum of its header is wrong")


def _nearest(magic: bytes) -> str:
    for known, dialect in _MAGICS.items():
        if sum(a != b for a, b in zip(magic, known, strict=True)) <= 3:
            return dialect
    return "v7"


def _spoilt(raw: bytes) -> list[int]:
    """Return the offsets of bytes in mode, size and mtime that are invalid in a number: not digits, or inner blanks."""
    found: set[int] = set()
    for at, length in ((100, 8), (124, 12), (136, 12)):
        field = raw[at : at + length]
        if not field[0] & 0x80:
            found.update(at + place for place, byte in enumerate(field) if byte not in b"01234567 \0")
            blanks = len(field) - len(field.lstrip(b" \0"))
            found.update(at + match.start() for match in _INNER.finditer(field, blanks))
    return sorted(found)


def solve(raw: bytes, holes: list[int]) -> tuple[bytes, list[int]]:
    """Restore bytes at ``holes`` as far as the checksum proves them; return the block, and the holes that remain.

    If the checksum is known, so is the sum of the unknown bytes: 0 means that all are zeros, and a single byte is the
    sum.
    """
    if any(148 <= at < 156 for at in holes):
        return raw, holes
    declared = read_number(raw[148:156])
    mended = bytearray(raw)
    for at in holes:
        mended[at] = 0
    rest = -1 if declared is None else declared - sum_of(bytes(mended))
    if rest == 0 or (len(holes) == 1 and 0 < rest < 256):
        mended[holes[0]] = rest
        return bytes(mended), []
    return raw, holes


def _judge_known(raw: bytes, holes: list[int], aligned: bool) -> TarHeader | None:
    """Judge a block with unknown bytes by its known ones."""
    if len(holes) > BLOCK - 64:
        return None
    mended, left = solve(raw, holes)
    if not left:
        header = read_header(mended)
        if header is not None:
            return header
    missing = set(left)
    legal = points = bad = 0
    for at, length in _NUMBERS:
        known = [raw[place] for place in range(at, at + length) if place not in missing]
        if known and not raw[at] & 0x80 and not all(byte in b"01234567 \0" for byte in known):
            bad += 1
        elif sum(byte in b"01234567" for byte in known) >= 3:
            points += 1
            legal += len(known)
    magic = [(raw[place], byte) for place, byte in zip(range(257, 262), b"ustar", strict=True) if place not in missing]
    if bad or any(found != byte for found, byte in magic) or not _feasible(raw, left):
        return None
    by_magic = len(magic) >= 3 and points >= (2 if aligned else 3)
    if not by_magic and not (aligned and points >= 4 and legal >= 24):
        return None
    shown = bytearray(raw)
    for at in left:
        shown[at] = 0x3F
    dialect = "gnu" if bytes(shown[262:264]) == b"  " else "ustar" if magic else "v7"
    header = TarHeader(bytes(shown), dialect, sound=False, problem="bytes of its header are lost")
    if 156 in missing:
        header.letter = b"0"
    return header


def size_that_fits(field: bytes, room: int) -> int | None:
    """Return the only size that matches the intact digits in ``field`` and fills ``room`` in blocks; else None."""
    if room % BLOCK:
        return None
    found = None
    for size in range(max(0, room - BLOCK + 1), room + 1):
        digits = b"%011o" % size
        if all(known not in b"01234567" or known == digit for known, digit in zip(field[:11], digits, strict=False)):
            if found is not None:
                return None
            found = size
    return found


def _feasible(raw: bytes, holes: list[int]) -> bool:
    """Say whether bytes at ``holes`` can make the checksum right; True if it is not known."""
    if not holes or any(148 <= at < 156 for at in holes):
        return True
    declared = read_number(raw[148:156])
    return declared is not None and 0 <= declared - sum_of(raw) <= 255 * len(holes)
