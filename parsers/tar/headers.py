"""Tar headers: one block of 512 bytes, parsed strictly; and what extended headers say: names, sizes, times.

Layout, offsets in the block (POSIX pax, GNU tar manual, star(5)); v7 ends at 257, the rest of it is zeros::

    0 name[100]  100 mode[8]  108 uid[8]  116 gid[8]  124 size[12]  136 mtime[12]  148 checksum[8]  156 type[1]
    157 link[100]  257 magic[6]  263 version[2]  265 uname[32]  297 gname[32]  329 devmajor[8]  337 devminor[8]
    345 prefix[155] (ustar; 131 in star)    386 sparse map[4 * 24]  482 extended[1]  483 real size[12] (old GNU)

Numbers are octal digits, padded with spaces and ended by any mixture of NULs and spaces, or binary with the top bit of
the first byte set (two's complement). The checksum is the sum of all bytes, with spaces for its own field; some old
writers added signed bytes.

Extended headers describe the next member:

- GNU ``L`` and ``K``: the data are a name or a link target that is too long for the header.
- pax ``x`` and ``g`` (and Solaris ``X``): records ``LENGTH KEY=VALUE\\n``, for one member or for all that follow.
- what says where the data of a sparse file belong is told in `pparse.parsers.tar.sparse`.

So a member's size is that in its header: octal, or binary for 8 GiB and more (`read_number`); but a pax record ``size``
of it, or a global one before, counts before that (`Attributes.size_of`). The next header is behind so many bytes, in
whole blocks (`padded`); none follow a link, a device or a folder (`BODILESS`).
"""

from __future__ import annotations

import re
from array import array
from zlib import adler32

from pparse.lazy import lazy_pattern
from pparse.tree.context import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Final

    Records = list[tuple[bytes, bytes]]

BLOCK: Final = 512
HEADER: Final = Record.of(
    "name:100s mode:8s uid:8s gid:8s size:12s mtime:12s checksum:8s type:1s link:100s magic:6s version:2s"
    " uname:32s gname:32s devmajor:8s devminor:8s prefix:155s"
)
# Larger sizes and times count as damage (libarchive has the same bound).
LARGEST: Final = 1 << 60
ZEROS: Final = bytes(BLOCK)

_NUMBER: Final = lazy_pattern(rb" *([0-7]*) *(?:\0.*)?", re.DOTALL)
MAGICS: Final = {b"ustar\x0000": "ustar", b"ustar  \0": "gnu"}
EXTENDED: Final = frozenset((b"L", b"K", b"x", b"g", b"X"))
LONG_NAME: Final = b"././@LongLink"  # what GNU tar, and others, call the header of a long name
BODILESS: Final = frozenset((b"1", b"2", b"3", b"4", b"5", b"6", b"V"))
LETTERS: Final = b"\x0001234567DKLMNSVXgx"
_HIGH_OUT: Final = bytes(range(128))
# A regular file as most writers encode it, from the mode on: mode, size, mtime, checksum, magic.
USUAL: Final = lazy_pattern(
    rb"([0-7]{7})[\0 ](?:[0-7]{7}[\0 ]){2}([0-7]{11})[\0 ]([0-7]{11})[\0 ]([0-7]{6})\0 ([05\0])\0{100}"
    rb"ustar(\x0000|  \0)"
)


# The numbers of any header as most writers encode them: mode, size, mtime, checksum.
_PLAIN: Final = lazy_pattern(rb"([0-7]{7})[\0 ](?:[0-7]{7}[\0 ]){2}([0-7]{11})[\0 ]([0-7]{11})[\0 ]([0-7]{6})\0 ")

# The most digits of a number in a record or a map: more means damage, and is slow to parse.
DIGITS: Final = 20
RECORD_LENGTH: Final = lazy_pattern(rb" *([0-9]{1,9}) ")
_DAMAGED: Final = lazy_pattern(rb"[^\n=]{0,20} ([A-Za-z][^ \n=\0]{0,250})=([^\n\0]*)\n")
_TIME: Final = lazy_pattern(rb"-?[0-9]{1,18}(?:\.[0-9]*)?")
# The records that are used; all others are skipped.
_SPARSE: Final = (b"major", b"name", b"realsize", b"size", b"map", b"offset", b"numbytes")
_KNOWN: Final = frozenset((b"path", b"linkpath", b"size", b"mtime", *(b"GNU.sparse." + word for word in _SPARSE)))


def padded(size: int) -> int:
    """Return how many bytes ``size`` bytes take in whole blocks."""
    return size + (-size % BLOCK)


class TarHeader:
    """A tar header."""

    __slots__ = ("dialect", "letter", "mode", "mtime", "problem", "raw", "raw_link", "raw_name", "size", "sound")

    def __init__(
        self, raw: bytes, dialect: str, *, sound: bool, problem: str | None = None, plain: re.Match[bytes] | None = None
    ) -> None:
        self.raw = raw
        """The block."""
        self.dialect = dialect
        """The dialect: v7, ustar, gnu or star."""
        self.sound = sound
        """Whether the checksum agrees, so that this certainly is a header."""
        self.problem = problem
        """What is wrong with it, in words; None if nothing is."""
        _, mode, _, _, size, mtime, _, self.letter, link, *_ = HEADER.unpack(raw)
        """The type, one byte."""
        self.raw_name = _name(raw, dialect, self.letter)
        """The name as stored, with prefix and ``/``; ``?`` for unknown bytes."""
        self.raw_link = _if_known(link.split(b"\0", 1)[0])
        """The link target as stored; ``?`` for unknown bytes."""
        if plain is not None:
            self.mode: int | None = int(plain[1], 8)
            self.size: int | None = int(plain[2], 8)
            self.mtime: int | None = int(plain[3], 8)
            return
        self.mode, seconds, count = read_number(mode), read_number(mtime), read_number(size)
        self.mtime = seconds if seconds is not None and abs(seconds) < LARGEST else None
        self.size = count if count is not None and 0 <= count < LARGEST else None

    @property
    def stored(self) -> int:
        """Bytes that its member takes behind it, in whole blocks."""
        return 0 if self.letter in BODILESS else padded(self.size or 0)


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
    dialect = MAGICS.get(raw[257:265])
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
        if raw[156] not in LETTERS or not raw[0] or b"ustar" in raw[253:266]:
            return None
        dialect = "v7"
    header = TarHeader(raw, dialect, sound=True, plain=plain)
    if header.size is None or header.mode is None or header.mode < 0:
        return None
    return header


# -- extended headers ------------------------------------------------------------------------------------------------


def read_name(data: bytes) -> bytes:
    """Return the name in the data of a GNU ``L`` or ``K`` header."""
    return data.split(b"\0", 1)[0]


# -- pax records -----------------------------------------------------------------------------------------------------


def read_records(data: bytes) -> tuple[Records, str | None]:
    """Return the ``(key, value)`` records in the data of a pax header, and what is wrong with them in words, or None.

    Broken records are skipped. After a damaged length, reading continues at the first line from which all lengths agree
    up to the end; a single line before that is taken as a record, whatever its length says.
    """
    records: Records = []
    problem = None
    at = 0
    while at < len(data) and data[at]:  # some writers pad with zeros
        match = RECORD_LENGTH.match(data, at)
        end = at + int(match[1]) if match is not None else 0
        if match is None or not match.end() < end <= len(data) or data[end - 1] != 0x0A:
            problem = problem or f"the length of a pax record is damaged, {len(data) - at} bytes before the records end"
            end = _agreeing(data, at)
            found = _DAMAGED.fullmatch(data, at, end)
            if found is not None:
                records.append((found[1], found[2]))
        else:
            key, equals, value = data[match.end() : end - 1].partition(b"=")
            if equals and key:
                records.append((key, value))
            else:
                problem = problem or "a pax record has no key"
        at = end
    return records, problem


def _agreeing(data: bytes, at: int) -> int:
    """Return the first line start after ``at`` from which all lengths lead to the end; the end if there is none.

    One pass from the end: a line agrees if its record ends where an agreeing one begins.
    """
    end = len(data.rstrip(b"\0"))
    if end <= at or data[end - 1] != 0x0A:
        return len(data)
    good = {end}
    line = data.rfind(b"\n", at, end - 1)
    while line >= 0:
        match = RECORD_LENGTH.match(data, line + 1)
        if match is not None and line + 1 + int(match[1]) in good:
            good.add(line + 1)
        line = data.rfind(b"\n", at, line) if line > at else -1
    return min(good) if min(good) < end else len(data)


class Attributes:
    """The attributes in the pax records of a member; None if no record gives them."""

    __slots__ = ("link", "map", "mtime", "path", "problem", "real_size", "size", "sparse")

    def __init__(self) -> None:
        self.path: bytes | None = None
        """Path, as stored."""
        self.link: bytes | None = None
        """Link target, as stored."""
        self.size: int | None = None
        """Bytes stored."""
        self.mtime: float | None = None
        """Modification time, in seconds since 1970."""
        self.sparse: str | None = None
        """Version of a sparse member: 0.0, 0.1 or 1.0."""
        self.real_size: int | None = None
        """Size of a sparse file with its holes."""
        self.map: array[int] | None = None
        """Offset and length of each stored range of a sparse file; None in version 1.0."""
        self.problem: str | None = None
        """What is wrong with the records, in words."""

    def note(self, problem: str | None) -> None:
        """Keep the first problem."""
        self.problem = self.problem or problem

    def size_of(self, header: TarHeader | None) -> int | None:
        """Return how many bytes are stored of the member with ``header``; None if it is not known."""
        return self.size if self.size is not None or header is None else header.size

    def apply(self, records: Iterable[tuple[bytes, bytes]]) -> None:
        """Apply ``records``; later ones win. An invalid value is skipped and recorded as a problem."""
        seen: dict[bytes, bytes] = {}
        pairs = array("q")
        for key, value in records:
            if key not in _KNOWN:
                continue
            if key in (b"GNU.sparse.offset", b"GNU.sparse.numbytes"):
                number = self._number(key, value)
                if number is not None and (len(pairs) % 2 == 1) is (key == b"GNU.sparse.numbytes"):
                    pairs.append(number)
                else:
                    self.note("a pair of a sparse map is damaged")
            else:
                seen[key] = value
        if not seen:
            return
        self.path = self._text(seen, b"GNU.sparse.name") or self._text(seen, b"path") or self.path
        self.link = self._text(seen, b"linkpath") or self.link
        size = self._number(b"size", seen.get(b"size"))
        self.size = self.size if size is None else size
        self._apply_mtime(seen.get(b"mtime"))
        self._apply_sparse(seen, pairs)

    def _text(self, seen: dict[bytes, bytes], key: bytes) -> bytes | None:
        value = seen.get(key)
        if value is not None and (not value or b"\0" in value):
            self.note(f"the value of the pax record {key.decode()} is not a name")
            return None
        return value

    def _number(self, key: bytes, value: bytes | None) -> int | None:
        if value is None:
            return None
        if not value.isdigit() or len(value) > DIGITS or int(value) >= LARGEST:
            self.note(f"the value of the pax record {key.decode()} is not a number")
            return None
        return int(value)

    def _apply_mtime(self, value: bytes | None) -> None:
        if value is None:
            return
        if len(value) <= 64 and _TIME.fullmatch(value):
            self.mtime = float(value)
        else:
            self.note("the value of the pax record mtime is not a time")

    def _apply_sparse(self, seen: dict[bytes, bytes], pairs: array[int]) -> None:
        if seen.get(b"GNU.sparse.major") == b"1":
            self.sparse = "1.0"
            self.real_size = self._number(b"GNU.sparse.realsize", seen.get(b"GNU.sparse.realsize"))
            return
        size = self._number(b"GNU.sparse.size", seen.get(b"GNU.sparse.size"))
        if size is None:
            return
        self.real_size = size
        text = seen.get(b"GNU.sparse.map")
        if text is not None:
            self.sparse, self.map = "0.1", array("q")
            for word in text.split(b","):
                number = self._number(b"GNU.sparse.map", word)
                if number is None:
                    break
                self.map.append(number)
        else:
            self.sparse, self.map = "0.0", pairs
