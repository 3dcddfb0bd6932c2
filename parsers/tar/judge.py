"""Damaged tar headers, judged by what is left of them.

Nothing is guessed: an unknown byte is restored only if the checksum proves it.
"""

from __future__ import annotations

from pparse.lazy import lazy_pattern
from pparse.parsers.tar.headers import BLOCK, LETTERS, MAGICS, TarHeader, dialect_of, read_header, read_number, sum_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Final

# The form that writers use: padding, digits, an end.
_TIDY: Final = lazy_pattern(rb"[ \0]*[0-7]+[ \0]*|[ \0]+")
_INNER: Final = lazy_pattern(rb"[^0-7](?=[^0-7]*[0-7])")
# offset and length of the numbers in every dialect
_NUMBERS: Final = ((100, 8), (108, 8), (116, 8), (124, 12), (136, 12), (148, 8))


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
        if not aligned or not all(tidy) or not raw[0] or not raw[148:156].strip(b"\0 ") or raw[156] not in LETTERS:
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
    for known, dialect in MAGICS.items():
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
