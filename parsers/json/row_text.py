"""Rows of JSON Lines as text: where they end, and what can be told of them without decoding them."""

from __future__ import annotations

import json
import re
from array import array
from itertools import islice

from pparse.kernels import json_fold
from pparse.kernels.json_fold import Carry
from pparse.lazy import lazy_pattern
from pparse.parsers.json.text import BLANK, BOM, WHITESPACE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

# Between two documents there is no comma.
_ADJOINING: Final = lazy_pattern(rb"[}\]][ \t\r\n]*[{\[]")
# The same in a row that is wrong, with up to two other bytes in between.
_ADJOINED: Final = lazy_pattern(rb"[}\]][^,:]{0,2}[{\[]", re.DOTALL)
# What a value that is cut may end in behind what is sound: nothing, a comma, or a part of a word or number.
_LAST_WORD: Final = lazy_pattern(r",?[ \t]*[-+.\w]*")
_OPENER: Final = lazy_pattern(rb"[{\[]")
_FIRST_COLUMN: Final = lazy_pattern(rb"\n[{\[]")
# At how many places a whole document is looked for.
_PLACES: Final = 16
_CONTROL: Final = bytes(range(32)).translate(None, WHITESPACE)
# How many levels are looked at in `are_plain`, which costs one pass each.
_ROUNDS: Final = 24


def find_lines(block: bytes, pos: int, carry: Carry, base: int, out: array[int]) -> int:
    """Append to ``out`` the offset behind each line that is not blank, as far as its end is in ``block[pos:]``.

    ``carry.in_string`` tells whether the line that ``pos`` is in has begun before. Returns -1: no bracket ends a list.
    """
    find, append = block.find, out.append
    begun = carry.in_string
    while (at := find(b"\n", pos)) >= 0:
        if not begun and block[pos] in WHITESPACE:  # blank lines, perhaps many
            match = BLANK.match(block, pos)
            pos = match.end() if match is not None else pos
            if pos > at:
                continue
        append(base + at + 1)
        begun = 0
        pos = at + 1
    carry.in_string = int(bool(begun or block[pos:].strip(WHITESPACE)))
    return -1


def find_documents(block: bytes, pos: int, carry: Carry, base: int, out: array[int]) -> int:
    """Append to ``out`` the offset behind each bracket that closes a document in ``block[pos:]``. Returns -1."""
    size = len(block)
    document, opener = json_fold.nested(), _OPENER.search
    while pos < size:
        if carry.depth == 1:
            match = opener(block, pos)
            if match is None:
                break
            whole = document(block, match.start())
            if whole is not None:
                pos = whole.end()
                out.append(base + pos)
                continue
            carry.depth, carry.in_string, carry.escaped = 2, 0, 0
            pos = match.end()
        pos = json_fold.leave_nested(block, pos, carry)
        if carry.depth == 1:
            out.append(base + pos)
    return -1


def is_document(line: bytes) -> bool:
    """Return whether a line is an object or array of its own."""
    line = line.strip(WHITESPACE)
    return line[:1] in (b"{", b"[") and line[-1:] in (b"}", b"]") and is_json(line)


def is_json(line: bytes) -> bool:
    """Return whether a line is a JSON value of its own."""
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


def odd_row(raw: bytes) -> str | None:
    """Return what is wrong with the text of a row that is sound but for what writers put around it."""
    text = raw.strip(WHITESPACE)
    if not text.strip(WHITESPACE + b"\0"):
        return "zeros, where a row was never written or is lost"
    if text.startswith(BOM) and is_json(text[len(BOM) :]):
        return "a byte order mark before the row"
    return "a comma behind the row" if text.endswith(b",") and is_json(text[:-1]) else None


def is_foreign(raw: bytes) -> bool:
    """Return whether a wrong row is a line of other text, as of a log, which is no row that it may have been, nor the
    end of one or its beginning: the numbers of rows behind it are those of lines."""
    text = raw.strip(WHITESPACE)
    begins, ends = text[:1] in (b"{", b"["), text[-1:] in (b"}", b"]")
    clean = len(text.translate(None, _CONTROL)) == len(text) and "\ufffd" not in text.decode(errors="replace")
    return clean and not begins and not ends


def is_followed(text: bytes) -> bool:
    """Return whether a document ends in ``text``, and another one begins behind it."""
    if _ADJOINING.search(text) is None:
        return False
    found = array("q")
    find_documents(text, 0, Carry(), 0, found)
    follower = text[found[0] :].lstrip(WHITESPACE)[:1] if found else b""
    return follower in (b"{", b"[") and is_document(text[: found[0]])


def find_follower(text: bytes) -> int:
    """Return where, in the text from a document on that has no end, whole documents begin again in the first column, as
    this one does; -1 if none is seen. Elements of a list are none: a comma or a bracket is behind them.

    Only the first of some places are tried, which bounds the time.
    """
    before = text[: len(text) - len(text.lstrip(WHITESPACE))]
    if before and not before.endswith(b"\n"):
        return -1
    for match in islice(_FIRST_COLUMN.finditer(text, len(before)), _PLACES):
        if is_followed(text[match.end() - 1 :]):
            return match.end() - 1
    return -1


def is_one(raw: bytes) -> bool:
    """Return whether the text of a wrong row is of just one row: it begins and ends as one, and not in between."""
    text = raw.strip(WHITESPACE).removeprefix(BOM)
    text = text[:-1] if text.endswith((b"},", b"],")) else text
    closer = {b"{": b"}", b"[": b"]"}.get(text[:1])
    if closer is None or text[-1:] != closer or len(text.translate(None, _CONTROL)) < len(text) - 1:
        return False
    if text.decode(errors="replace").count("\ufffd") > 1:
        return False
    found = array("q")
    find_documents(text, 0, Carry(), 0, found)
    return found[0] == len(text) if found else _ADJOINED.search(text) is None


def is_cut(raw: bytes) -> bool:
    """Return whether the text of a wrong row begins as one, and just ends early: inside of a string, or outside of one
    if all before is sound.

    If the next line is a sound row, this one was just cut: no string has a line break in it, and a row that one broke
    in two has the brackets that are missing here in its second part. A text that ends with a bracket may be two rows.
    """
    text, carry, found = raw.strip(WHITESPACE).removeprefix(BOM), Carry(), array("q")
    if text[:1] not in (b"{", b"[") or len(text.translate(None, _CONTROL)) < len(text):
        return False
    find_documents(text, 0, carry, 0, found)
    decoded = text.decode(errors="replace")
    if found or decoded.count("\ufffd") > 1:
        return False
    return bool(carry.in_string) or (text[-1:] not in (b"}", b"]") and _ends_early(decoded))


def _ends_early(text: str) -> bool:
    """Return whether a text is the beginning of a JSON value: what is wrong is its end, or the word that it ends in."""
    try:
        json.loads(text)
    except RecursionError:
        return False
    except json.JSONDecodeError as error:
        return _LAST_WORD.fullmatch(text, error.pos) is not None
    return False


def are_plain(lines: bytes, count: int) -> bool:
    """Return whether each of ``count`` lines, all of which end in a line break, is surely no more and no less than one
    row: an object, or an array, by its brackets and quotes. What else is wrong in it makes no number uncertain.

    Some passes over all of the text at once, a twentieth of the time of decoding it.
    """
    text = b"\n" + (lines.replace(b"\r\n", b"\n") if b"\r" in lines else lines)
    braces = text.count(b"\n{")
    first, last = (b"\n{", b"}\n") if braces else (b"\n[", b"]\n")
    if text.count(first) != count or text.count(last) != count or len(text.translate(None, _CONTROL)) < len(text):
        return False
    if not text.isascii():
        try:
            text.decode()
        except UnicodeDecodeError:
            return False
    outside = json_fold.brackets_outside(text, b"\n")
    if outside.count(b"\n") != text.count(b"\n"):
        return False  # a string goes on in the next line
    inside = outside.replace(b"\n[", b"\n").replace(b"]\n", b"\n")
    for _ in range(_ROUNDS):
        shorter = inside.replace(b"[]", b"")
        if len(shorter) == len(inside):
            break
        inside = shorter
    return not inside.strip(b"\n")
