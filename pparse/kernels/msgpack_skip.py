"""Passing over MessagePack values: how far they reach, without making anything of them.

A value needs no closing mark, so that nesting needs no stack: ``pending`` counts the values still to pass, and a
container adds its children to it. Payloads are jumped over: the position returned may lie behind the block.
"""

from __future__ import annotations

from pparse.lazy import lazy_pattern

TYPE_CHECKING = False
if TYPE_CHECKING:
    from array import array
    from typing import Final

NEVER: Final = 0xC1  # the one code that means nothing


def _fixed(code: int) -> int:
    """Return the size of a value that its code tells; 0: it has a length or children."""
    if code < 0x80 or code >= 0xE0 or code in (0x80, 0x90, 0xC0, 0xC2, 0xC3):
        return 1
    if 0xA0 <= code < 0xC0:
        return 1 + (code & 0x1F)
    if 0xD4 <= code < 0xD9:  # fixext: a type, and 1 to 16 bytes
        return 2 + (1 << (code - 0xD4))
    if 0xCA <= code < 0xD4:
        return (5, 9, 2, 3, 5, 9, 2, 3, 5, 9)[code - 0xCA]
    return 0


SIZES: Final = bytes(_fixed(code) for code in range(256))
"""Size of a value by its first byte; 0: it has a length or children."""
WIDTHS: Final = bytes(
    {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xC7: 1, 0xC8: 2, 0xC9: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4, 0xDC: 2, 0xDE: 2}.get(
        code, 4 if code in (0xDD, 0xDF) else 0
    )
    for code in range(256)
)
"""Bytes of the length, or of the number of children, that follow a first byte."""
# The type of a timestamp, or one that the block does not hold.
_TIMES: Final = (b"\xff", b"")
_NUMBERS: Final = range(0xCA, 0xD4)
# Constants, small integers, heads of small containers; short texts of ASCII, and runs of up to 15 numbers of a type.
_SINGLE: Final = rb"[\x00-\xa0\xc0\xc2\xc3\xe0-\xff]*+"
_TEXTS: Final = b"|".join(rb"\x%x[\x00-\x7f]{%d}" % (0xA0 + count, count) for count in range(1, 32))
_RUNS: Final = b"|".join(rb"(?:\x%x.{%d}){1,15}+(?!\x%x)" % (code, SIZES[code] - 1, code) for code in _NUMBERS)
_PLAIN: Final = lazy_pattern(rb"(?s:%s(?:%s|%s))*+%s" % (_SINGLE, _TEXTS, _RUNS, _SINGLE))
_NUMBER: Final = lazy_pattern(b"|".join(rb"\x%x(?s:.{%d})" % (code, SIZES[code] - 1) for code in _NUMBERS))
# How many bytes of what `_PLAIN` matches, each number made one byte, follow a byte as its children or text.
_BELOW: Final = bytes(
    code & 0x1F if 0xA0 <= code < 0xC0 else (code & 0x0F) << (code < 0x90) if 0x80 <= code < 0xA0 else 0
    for code in range(256)
)
_NOTHING_BELOW: Final = bytes(code for code in range(256) if not _BELOW[code])
# Runs of numbers of one type are first looked for in so many.
_WINDOW: Final = 64


def skip(block: bytes, at: int, pending: int, stop: int) -> tuple[int, int]:
    """Pass over up to ``pending`` values from ``at`` on, beginning none at ``stop`` or behind it.

    Returns where it stopped, and how many values are left: more than 0 at a code that means nothing, and at a head that
    the block does not hold in full.
    """
    sizes = SIZES
    while pending and at < stop:
        code = block[at]
        size = sizes[code]
        if size:
            at += size
            pending -= 1
            continue
        if code < 0xA0:
            pending += (code & 0x0F) - 1 if code >= 0x90 else 2 * (code & 0x0F) - 1
            at += 1
            continue
        width = WIDTHS[code]
        head = at + 1 + width
        if not width or head > len(block):
            break
        number = int.from_bytes(block[at + 1 : head], "big")
        if code < 0xDC:
            at = head + number + (0xC7 <= code <= 0xC9)  # the type of an extension
            pending -= 1
        else:
            at = head
            pending += (number if code < 0xDE else 2 * number) - 1
    return at, pending


def sound(block: bytes, at: int, pending: int) -> tuple[int, int]:
    """Pass over up to ``pending`` values, and look at their texts.

    Returns where it stopped, and how many values are left. More than 0 are at the end of the block, or at what needs a
    closer look: a text that is not UTF-8, or not in the block in full, a timestamp, a head that goes on behind the
    block, and `NEVER`. Numbers and texts of ASCII are passed over by a pattern, a tenth of the time.
    """
    end = len(block)
    while pending and at < end:
        behind = _PLAIN.match(block, at).end()  # type: ignore[union-attr]  # it matches nothing, too
        if behind > at:
            at, pending = _pass_plain(block, at, behind, pending)
            if at == end or not pending:
                break
        code = block[at]
        if code in _NUMBERS and (count := _run(block, at, SIZES[code], pending)):
            at += count * SIZES[code]
            pending -= count
            continue
        behind, left = skip(block, at, pending, at + 1)
        start = at + 1 + WIDTHS[code]
        is_extension = 0xC7 <= code < 0xCA or 0xD4 <= code < 0xD9
        if behind == at or (is_extension and block[start : start + 1] in _TIMES):
            break
        if (0xA0 <= code < 0xC0 or 0xD9 <= code < 0xDC) and (behind > end or not _is_utf8(block[start:behind])):
            break
        at, pending = behind, left
    return at, pending


def _pass_plain(block: bytes, at: int, end: int, pending: int) -> tuple[int, int]:
    """Pass over up to ``pending`` values in what `_PLAIN` matched, from ``at`` to ``end``, by arithmetic alone.

    A text counts as one more value for each of its bytes. As many bytes as are pending come, whatever they are.
    """
    plain, done, left = _NUMBER.sub(b"\xc0", block[at:end]), 0, pending
    size = len(plain)
    while done < size and left:
        piece = plain[done : done + left]
        done += len(piece)
        left += sum(piece.translate(_BELOW, _NOTHING_BELOW)) - len(piece)
    return (end, left) if done == size else skip(block, at, pending, end)


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def children(block: bytes, at: int, left: int, values: int, small: int, offsets: array[int], base: int) -> int:
    """Append where children begin to ``offsets``, as long as each ends in the block; return where the next begins.

    At most ``left`` children of ``values`` values each (2 in a map); ``block`` begins at offset ``base``. Stops at a
    child in which a value begins ``small`` bytes behind its start: it is large, or has a large payload before its end.
    """
    sizes, size, end = SIZES, len(block), len(offsets) + left
    while len(offsets) < end and at < size:
        code = block[at]
        step = sizes[code]
        if values == 2 or not step:
            behind, pending = skip(block, at, values, min(size, at + small))
            if pending or behind > size:
                break
        elif step > 1 and 0xCA <= code < 0xD4 and block[at + step : at + step + 1] == block[at : at + 1]:
            behind = at + step * _run(block, at, step, end - len(offsets))
            if behind == at:
                break
            offsets.extend(range(base + at, base + behind, step))
            at = behind
            continue
        else:
            behind = at + step
            if behind > size:
                break
        offsets.append(base + at)
        at = behind
    return at


def _run(block: bytes, at: int, step: int, most: int) -> int:
    """Return how many values of ``step`` bytes from ``at`` on have the same code, all in the block."""
    most = min(most, (len(block) - at) // step)
    code, found, window = block[at : at + 1], 0, _WINDOW
    while found < most:
        count = min(window, most - found)
        codes = block[at + found * step : at + (found + count) * step : step]
        same = count - len(codes.lstrip(code))
        found += same
        if same < count:
            break
        window *= 4
    return found
