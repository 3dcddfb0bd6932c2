"""Structure of JSON text with the standard library alone: regular expressions where it is shallow, folding elsewhere.

Both JSON kernels find the same thing: the commas at depth 1 and the bracket that closes depth 1, outside strings. They
check nothing else; bracket kinds and grammar are checked when a value is decoded.

What carries over from block to block is a `Carry`. A backslash escapes the quote or backslash behind it, inside strings
and (in malformed text) outside, so that both kernels agree on every input.
"""

from __future__ import annotations

import re
from functools import cache

from pparse.lazy import lazy_pattern

TYPE_CHECKING = False
if TYPE_CHECKING:
    from array import array
    from collections.abc import Callable
    from typing import Final

    Matcher = Callable[[bytes, int], re.Match[bytes] | None]

_QUOTE: Final = 0x22
_BACKSLASH: Final = 0x5C
_COMMA: Final = 0x2C
_CLOSERS: Final = b"]}"
_OPENERS: Final = b"[{"

# Every quantifier is possessive: a greedy one keeps a backtrack record per repetition (~60 MB per MB of string).
_STRING = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
# A backslash outside a string is malformed, but must not hide where strings begin.
_STRAY = rb'\\["\\]|\\(?=[^"\\])'


def _nested(levels: int) -> bytes:
    inner = _STRING + b"|" + _STRAY
    if levels:
        inner += b"|" + _nested(levels - 1)
    return rb'[\[{](?:[^"\\\[\]{}]++|' + inner + rb")*+[\]}]"


# Records of model metadata nest some five levels deep; below the eighth, folding takes over.
_RUN_PATTERN = rb'(?:[^"\\\[\]{},]++|' + _STRING + b"|" + _STRAY + b"|" + _nested(7) + rb")*+"


# Compiled on first use: small documents never need them, and it takes 3 ms.
_RUN: Final = lazy_pattern(_RUN_PATTERN, re.DOTALL)
_CHILD: Final = lazy_pattern(_RUN_PATTERN + b",", re.DOTALL)


@cache
def nested() -> Matcher:
    """Return what matches an object or array of up to eight levels, whichever brackets close it, at a position."""
    return re.compile(_nested(7), re.DOTALL).match


_STRING_REST: Final = lazy_pattern(rb'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)

# For folding: keep quotes and brackets, all brackets as one kind.
_DROP: Final = bytes(byte for byte in range(256) if byte not in b'"[]{}')
_ONE_KIND: Final = bytes.maketrans(b"{}", b"[]")

_FOLD_BLOCK: Final = 64 << 10
_FOLD_ROUNDS: Final = 24
_WALK_BLOCK: Final = 128


class Carry:
    """The state of a scan between two blocks."""

    __slots__ = ("depth", "escaped", "in_string")

    def __init__(self) -> None:
        self.depth = 1
        self.in_string = 0
        self.escaped = 0


def scan(block: bytes, pos: int, carry: Carry, base: int, out: array[int]) -> int:
    """Append to ``out`` the offset after each comma at depth 1 in ``block[pos:]``.

    Return the index of the bracket that closes depth 1 (the scan stops there, ``carry.depth`` is 0), or -1 when the
    block ends before it. ``base`` is the offset of ``block[0]``.
    """
    size = len(block)
    append = out.append
    child = _CHILD.match
    while pos < size:
        if carry.depth == 1 and not carry.in_string and not carry.escaped:
            while (match := child(block, pos)) is not None:
                pos = match.end()
                append(base + pos)
        pos = next_boundary(block, pos, carry)
        if pos >= size:
            return -1
        if block[pos] == _COMMA:
            pos += 1
            append(base + pos)
        else:
            carry.depth = 0
            return pos
    return -1


def next_boundary(block: bytes, pos: int, carry: Carry) -> int:
    """Return the index of the next comma or closing bracket at depth 1; ``len(block)`` if there is none."""
    size = len(block)
    run = _RUN.match
    while pos < size:
        if carry.in_string:
            pos = _leave_string(block, pos, carry)
        elif carry.depth > 1:
            pos = leave_nested(block, pos, carry)
        elif carry.escaped:
            carry.escaped = 0
            if block[pos] == _QUOTE or block[pos] == _BACKSLASH:
                pos += 1
        else:
            match = run(block, pos)
            pos = match.end() if match is not None else pos
            if pos == size:
                break
            byte = block[pos]
            if byte == _COMMA or byte in _CLOSERS:
                return pos
            pos += 1
            if byte == _QUOTE:
                carry.in_string = 1
            elif byte == _BACKSLASH:
                carry.escaped = 1
            else:
                carry.depth = 2
    return size


def _leave_string(block: bytes, pos: int, carry: Carry) -> int:
    """Return the index after the string that contains ``pos``, or the end of the block."""
    if carry.escaped:
        carry.escaped = 0
        pos += 1
    match = _STRING_REST.match(block, pos)
    pos = match.end() if match is not None else pos
    if pos >= len(block):
        return pos
    if block[pos] == _QUOTE:
        carry.in_string = 0
    else:
        carry.escaped = 1  # a backslash is the last byte of the block
    return pos + 1


def leave_nested(block: bytes, pos: int, carry: Carry) -> int:
    """Return the index after the bracket that brings the depth down to 1, or the end of the block."""
    size = len(block)
    # The piece folded grows while that goes well, so that a small value does not cost the folding of a large piece.
    step = _WALK_BLOCK
    while pos < size:
        end = min(pos + step, size)
        piece = block[pos:end]
        brackets, in_string, escaped = _fold(piece, carry.in_string, carry.escaped)
        closers = brackets.count(b"]")
        openers = len(brackets) - closers
        folded = not openers or not closers or brackets.find(b"[]") < 0
        if folded and closers < carry.depth - 1:
            carry.depth += openers - closers
            carry.in_string, carry.escaped = in_string, escaped
            pos = end
            step = min(step * 4, _FOLD_BLOCK)
        elif step > _WALK_BLOCK:
            step //= 4
        else:
            pos = _walk(block, pos, end, carry)
            if carry.depth == 1 and not carry.in_string:
                return pos
    return size


def _fold(piece: bytes, in_string: int, escaped: int) -> tuple[bytes, int, int]:
    """Return the unmatched brackets of ``piece`` outside strings (closers, then openers), and what carries over."""
    if escaped:
        if piece[0] in b'"\\':
            piece = b"_" + piece[1:]
        escaped = 0
    if b"\\" in piece:
        # Same length, so that nothing shifts: an escaped backslash first, then an escaped quote.
        piece = piece.replace(b"\\\\", b"__").replace(b'\\"', b"__")
        escaped = int(piece.endswith(b"\\"))
    marks = piece.translate(_ONE_KIND, _DROP)
    quotes = marks.count(b'"')
    if quotes:
        # Removing adjoining quote pairs keeps the parity of all others.
        outside = b"".join(marks.replace(b'""', b"").split(b'"')[in_string::2])
    else:
        outside = b"" if in_string else marks
    for _ in range(_FOLD_ROUNDS):
        shorter = outside.replace(b"[]", b"")
        if len(shorter) == len(outside):
            break
        outside = shorter
    return outside, (in_string + quotes) & 1, escaped


def _walk(block: bytes, pos: int, end: int, carry: Carry) -> int:
    """Go byte by byte, at most to ``end``, until the depth is 1; return the index reached."""
    depth, in_string, escaped = carry.depth, carry.in_string, carry.escaped
    while pos < end:
        byte = block[pos]
        pos += 1
        if escaped:
            escaped = 0
            if byte in (_QUOTE, _BACKSLASH):
                continue
        if byte == _BACKSLASH:
            escaped = 1
        elif byte == _QUOTE:
            in_string ^= 1
        elif not in_string:
            if byte in _OPENERS:
                depth += 1
            elif byte in _CLOSERS:
                depth -= 1
                if depth == 1:
                    break
    carry.depth, carry.in_string, carry.escaped = depth, in_string, escaped
    return pos


def depth_at_most(text: bytes, levels: int) -> bool:
    """Return whether brackets nest at most ``levels`` deep in ``text``, which begins outside strings.

    May return False for text with unmatched brackets; True is always right.
    """
    if text.count(b"[") + text.count(b"{") <= levels:
        return True
    outside = brackets_outside(text)
    # One replace takes away exactly one level of innermost pairs, or several of neighbours: never two nested ones.
    for _ in range(levels):
        if not outside:
            return True
        outside = outside.replace(b"[]", b"")
    return not outside


def brackets_outside(text: bytes, kept: bytes = b"") -> bytes:
    """Return the brackets of ``text`` outside of strings, all as ``[`` and ``]``, and the bytes that are ``kept``."""
    if b"\\" in text:
        text = text.replace(b"\\\\", b"__").replace(b'\\"', b"__")
    marks = text.translate(_ONE_KIND, _DROP.translate(None, kept))
    return b"".join(marks.replace(b'""', b"").split(b'"')[::2])
