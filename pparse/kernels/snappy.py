"""Raw Snappy, element by element, for streams too large to decode as a whole."""

from __future__ import annotations

# All known compressors cut their input into fragments of 64 KiB (or less) and never copy across them.
HISTORY = 1 << 16


def run(  # noqa: C901 -- hot loop: a call an element costs a tenth and more
    source: bytes, at: int, out: bytearray, stop: int, literal: int
) -> tuple[int, int, int]:
    """Decode the elements of ``source`` from ``at``, appending to ``out`` until it holds about ``stop`` bytes.

    ``out`` begins with the history that copies may refer to, at most `HISTORY` bytes back. ``literal`` bytes of a
    literal are still to come. Return ``(at, literal, offset)``: where it stopped (before an incomplete element), how
    many bytes of a literal are left, and 0, or the offset (-1 for 0) of the copy before which it stopped, as that
    refers too far back. The last copy may exceed ``stop`` by up to 63 bytes.
    """
    end = len(source)
    size = len(out)
    while size < stop:
        if literal:
            count = min(literal, end - at, stop - size)
            if not count:
                break
            out += source[at : at + count]
            at += count
            size += count
            literal -= count
            continue
        if at >= end:
            break
        begin = at
        tag = source[at]
        kind = tag & 3
        if kind == 0:
            literal = (tag >> 2) + 1
            if literal > 60:
                extra = literal - 60
                if at + extra >= end:
                    literal = 0
                    break
                literal = int.from_bytes(source[at + 1 : at + 1 + extra], "little") + 1
                at += extra
            at += 1
            continue
        if kind == 1:
            if at + 2 > end:
                break
            count = (tag >> 2 & 7) + 4
            offset = (tag & 0xE0) << 3 | source[at + 1]
            at += 2
        elif kind == 2:
            if at + 3 > end:
                break
            count = (tag >> 2) + 1
            offset = source[at + 1] | source[at + 2] << 8
            at += 3
        else:
            if at + 5 > end:
                break
            count = (tag >> 2) + 1
            offset = int.from_bytes(source[at + 1 : at + 5], "little")
            at += 5
        if not 0 < offset <= size or offset > HISTORY:
            return begin, 0, offset or -1
        start = size - offset
        if offset >= count:
            out += out[start : start + count]
        else:
            out += (out[start:] * (count // offset + 1))[:count]
        size += count
    return at, literal, 0
