"""Strict JSON: from bytes to Python values, and to the description of one child.

The standard library's decoder does the work, on pieces of known extent and depth, with hooks for everything that it
accepts wrongly: NaN and infinities, numbers that overflow or have thousands of digits, lone surrogates, duplicate keys.

Facts: RFC 8259 (grammar: §2 to §7; byte order mark: §8.1; duplicate names: §4; surrogates: §8.2).
"""

from __future__ import annotations

import json
import re
import sys
from math import inf, isinf

from pparse.errors import DataError, LimitError, MalformedError, PparseError, UnsupportedError
from pparse.findings import Finding, Status
from pparse.kernels.json_fold import depth_at_most
from pparse.lazy import lazy_pattern
from pparse.tree.entry import UNLOADED_VALUE, Entry
from pparse.tree.node import as_dict

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

    from pparse.limits import Limits

WHITESPACE: Final = b" \t\n\r"
BOM: Final = b"\xef\xbb\xbf"

# Scalars of at most this many bytes are decoded while their parent is listed.
BORN_LOADED: Final = 256
# So much text is decoded at a time, or with its parent.
DECODE_BATCH: Final = 64 << 10

KEY: Final = lazy_pattern(rb'[ \t\n\r]*+("[^"\\]*+(?:\\.[^"\\]*+)*+")[ \t\n\r]*+:[ \t\n\r]*+', re.DOTALL)
KEY_ONLY: Final = lazy_pattern(rb'[ \t\n\r]*+("[^"\\]*+(?:\\.[^"\\]*+)*+")[ \t\n\r]*+', re.DOTALL)
BLANK: Final = lazy_pattern(rb"[ \t\n\r]*+")
STRING: Final = lazy_pattern(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
# Numbers that end without the digits they need: they were cut.
NUMBER_START: Final = lazy_pattern(rb"-|-?(?:0|[1-9][0-9]*+)(?:\.|(?:\.[0-9]++)?[eE][+-]?)")
# From this size on, strings are decoded without the copies that the decoder makes.
_LONG: Final = 1 << 16
_CONTROL: Final = lazy_pattern(rb"[\x00-\x1f]")
# The first half of a surrogate pair without the second behind it, or the second without the first before it.
_LONE: Final = lazy_pattern(
    rb"\\u[dD](?:[89abAB](?![0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})"
    rb"|(?<!\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD])[c-fC-F])"
)

KINDS: Final = {
    0x7B: "object",
    0x5B: "array",
    0x22: "string",
    0x74: "true",
    0x66: "false",
    0x6E: "null",
    0x2D: "number",
    0x4E: "number",  # NaN
    0x49: "number",  # Infinity
    **dict.fromkeys(b"0123456789", "number"),
}
NOT_FINITE: Final = "NaN or infinite numbers, which JSON does not have (RFC 8259 §6)"
CLOSER: Final = {"object": 0x7D, "array": 0x5D}
_CLOSERS: Final = (b'"', b"}", b"]")
_ZEROED: Final = WHITESPACE + b"\0"

_TEXT = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'


def _leaf(levels: int) -> bytes:
    inner = _TEXT + (b"|" + _leaf(levels - 1) if levels else b"")
    return rb'[\[{](?:[^"\[\]{}]++|' + inner + rb")*+[\]}]"


SUBTREE: Final = lazy_pattern(_leaf(3), re.DOTALL)
_SMALL: Final = rb"(?:" + _TEXT + rb"|" + _leaf(3) + rb"|[^\s,:\[\]{}\"]++)\s*+"
# Small members after the first of an object or array, by its bracket: each with the comma before it, all of them whole.
FOLLOWING: Final = {
    0x7B: lazy_pattern(rb"(?:,\s*+" + _TEXT + rb"\s*+:\s*+" + _SMALL + rb"(?=[,}]))++", re.DOTALL),
    0x5B: lazy_pattern(rb"(?:,\s*+" + _SMALL + rb"(?=[,\]]))++", re.DOTALL),
}


def _is_plain_string(text: bytes) -> bool:
    """Return whether a text is one quoted string, with nothing that must be decoded or refused."""
    whole = text[:1] == text[-1:] == b'"' and text.find(b'"', 1) == len(text) - 1
    return whole and b"\\" not in text and _CONTROL.search(text) is None


class StrictDecoder:
    """Decodes pieces of JSON text. The second of two equal keys in an object becomes ``key#2``."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.duplicates = 0
        """How many repeated keys were met so far."""
        self.is_lenient = False
        """Whether NaN and infinities are numbers: many libraries write them, though JSON does not have them."""
        self.odd_numbers = 0
        """How many of them were met so far."""
        self.pairs: list[tuple[str, Any]] = []
        """Members of the outermost object that was decoded last, repeated keys included."""
        digits = sys.get_int_max_str_digits()
        # The interpreter's own limit on digits is faster than a hook, if it is at least as strict as ours.
        parse_int = None if 0 < digits <= limits.number_bytes else self._int
        self._json = json.JSONDecoder(
            object_pairs_hook=self._object, parse_int=parse_int, parse_float=self._float, parse_constant=self._constant
        )
        self._plain = json.JSONDecoder(parse_int=parse_int, parse_constant=self._refuse_constant)
        # What `skim` uses: hooks that are no Python code.
        self._objects: list[list[tuple[str, Any]]] = []
        self._floats: list[str] = []
        self._skimmer = json.JSONDecoder(
            object_pairs_hook=self._objects.append,
            parse_int=parse_int,
            parse_float=self._floats.append,
            parse_constant=self._constant,
        )

    def decode(self, text: bytes, offset: int) -> Any:
        """Return the value of ``text``, which begins at ``offset`` and is shallow enough for a recursive decoder.

        Raises `MalformedError` with the offset of the fault, `LimitError` or `UnsupportedError` for numbers.
        """
        if b"\\u" in text:
            self.refuse_lone_surrogates(text, offset)
        unicode = ""
        try:
            if len(text) > _LONG and _is_plain_string(text):
                return str(memoryview(text)[1:-1], "utf-8")  # like the decoder, without copying everything
            unicode = text.decode()
            return self._json.decode(unicode)
        except UnicodeDecodeError as error:
            raise MalformedError("not UTF-8", offset=offset + error.start) from error
        except json.JSONDecodeError as error:
            at = len(unicode[: error.pos].encode())
            raise MalformedError(_in_words(error.msg), offset=offset + at) from error
        except RecursionError as error:
            raise MalformedError("nested too deep to decode at once", offset=offset) from error
        except PparseError as error:
            if error.offset is None:
                error.offset = offset
            raise
        except ValueError as error:  # int() of too many digits
            raise self._too_long(offset) from error

    def skim(self, text: bytes) -> Any:
        """Return what `decode` does, with None for each object and each number that is no integer, in half of the time.

        For text that is shallow enough, of which only whether it is sound matters. `UNLOADED_VALUE` if anything is
        wrong with it, which `decode` tells.
        """
        objects, floats, odd = self._objects, self._floats, self.odd_numbers
        try:
            if b"\\u" in text:
                self.refuse_lone_surrogates(text, 0)
            value = self._skimmer.decode(text.decode())
            most = self._limits.number_bytes
            if any(map(isinf, map(float, floats))) or (floats and max(map(len, floats)) > most):
                value = UNLOADED_VALUE
            else:
                self.duplicates += sum(map(len, objects)) - sum(map(len, map(dict, objects)))
                self.pairs = objects[-1] if objects else []
        except (ValueError, RecursionError, PparseError):
            value = UNLOADED_VALUE
        finally:
            objects.clear()
            floats.clear()
        if value is UNLOADED_VALUE:
            self.odd_numbers = odd
        return value

    def decode_plain(self, text: bytes, offset: int) -> list[Any]:
        """Return the values of a list of scalars, as `decode` does, in a fraction of the time for numbers."""
        try:
            found: list[Any] = self._plain.decode(text.decode())
        except (ValueError, PparseError):
            return list(self.decode(text, offset))
        if inf in found or -inf in found or max(map(len, text.split(b","))) > self._limits.number_bytes:
            return list(self.decode(text, offset))
        return found

    def decode_shallow(self, text: bytes, offset: int) -> Any:
        """Decode text of any depth; raises what `decode` does, and `LimitError` below ``leaf_depth`` levels."""
        if not depth_at_most(text, self._limits.leaf_depth):
            reason = f"nested deeper than leaf_depth={self._limits.leaf_depth}"
            raise LimitError(reason, option=self._limits.option("leaf_depth"), offset=offset)
        return self.decode(text, offset)

    def _too_long(self, offset: int | None, count: int = 0) -> LimitError:
        """Return the error for a number of ``count`` digits: above our limit, or else that of Python."""
        digits, limit = sys.get_int_max_str_digits(), self._limits.number_bytes
        if not 0 < digits <= limit or limit < count:
            return LimitError(
                f"a number of more than {limit} digits",
                option=self._limits.option("number_bytes", count),
                offset=offset,
            )
        return LimitError(
            f"a number of more than {digits} digits, which Python does not convert",
            option="PYTHONINTMAXSTRDIGITS=0 in the environment",
            offset=offset,
        )

    def refuse_key(self, offset: int) -> LimitError:
        """Return the error for a key that is too long."""
        limit = self._limits.name_bytes
        return LimitError(f"a key above name_bytes={limit}", option=self._limits.option("name_bytes"), offset=offset)

    def _object(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        self.pairs = pairs
        found = dict(pairs)
        if len(found) == len(pairs):
            return found
        self.duplicates += len(pairs) - len(found)
        return as_dict(pairs)

    def _int(self, digits: str) -> int:
        if len(digits) > self._limits.number_bytes:
            raise self._too_long(None, len(digits))
        return int(digits)

    def _float(self, text: str) -> float:
        if len(text) > self._limits.number_bytes:
            raise self._too_long(None, len(text))
        value = float(text)
        if value in (float("inf"), float("-inf")):
            raise UnsupportedError(f"the number {text[:40]} is out of the range of float64")
        return value

    def _constant(self, word: str) -> float:
        if not self.is_lenient:
            raise MalformedError(f"{word} is not JSON")
        self.odd_numbers += 1
        return float(word)

    @staticmethod
    def _refuse_constant(word: str) -> float:
        raise MalformedError(f"{word} is not JSON")

    @staticmethod
    def refuse_lone_surrogates(text: bytes, offset: int) -> None:
        """Raise `MalformedError` if ``text`` contains an escape for half a surrogate pair."""
        if b"\\ud" not in text and b"\\uD" not in text:
            return
        match = _LONE.search(text.replace(b"\\\\", b"__"))  # same length, so that offsets stay right
        if match is not None:
            raise MalformedError("a lone surrogate in a string", offset=offset + match.start())


def _in_words(message: str) -> str:
    """Return the library's message in our words: lower case, and without the position."""
    return {
        "Extra data": "more data after the value",
        "Expecting value": "expected a value",
        "Expecting ':' delimiter": "expected ':'",
        "Expecting ',' delimiter": "expected ',' or the closing bracket",
        "Expecting property name enclosed in double quotes": "expected a key in double quotes",
        "Illegal trailing comma before end of object": "a comma before the closing bracket",
        "Illegal trailing comma before end of array": "a comma before the closing bracket",
        "Invalid control character at": "a control character in a string",
        "Unterminated string starting at": "a string that does not end",
    }.get(message, message[:1].lower() + message[1:])


class ChildText:
    """The text of one child of a container, which lies between two commas or brackets."""

    __slots__ = ("at", "closed", "end", "last", "open_inside", "raw", "skipped", "stop", "zeros")

    def __init__(self, raw: bytes, at: int, end: int, tail: bytes | None = None, tail_at: int = 0, skipped: int = 0):
        text = raw if tail is None else tail
        text = text.rstrip(WHITESPACE)
        self.zeros = text.endswith(b"\0") and text.rstrip(_ZEROED)[-1:] in _CLOSERS
        """Whether zeros, overwritten or never written bytes, follow the value, which ends before them."""
        if self.zeros:
            text = text.rstrip(_ZEROED)
        self.raw = raw
        """All of the text; if it is long, its head: the key and at least `BORN_LOADED` bytes of the value."""
        self.at = at
        """Where the text begins."""
        self.end = end
        """Where the text ends."""
        self.skipped = skipped
        """Bytes of whitespace before the value that ``raw`` leaves out."""
        self.stop = (at if tail is None else tail_at) + len(text)
        """One past the last byte that is not whitespace."""
        self.last = text[-1:]
        """That byte."""
        self.closed = True
        """False for the last child of a cut container."""
        self.open_inside = False
        """Whether the cut is inside a string or bracket."""


def describe_child(text: ChildText, is_map: bool, decoder: StrictDecoder, source: str) -> Entry | None:
    """Return the entry of a child; None for a cut one without a whole key."""
    raw, at, stop = text.raw, text.at, text.stop
    key: str | None = None
    if is_map:
        match = KEY.match(raw)
        if match is None:
            return _describe_keyless(text, decoder, source)
        try:
            key = decode_key(match[1], at + match.start(1), decoder)
        except PparseError as error:
            return _invalid(None, at, text.end, error, source)
    else:
        match = BLANK.match(raw)
    begin = match.end() if match is not None else 0  # in raw
    start = at + begin + text.skipped
    length = stop - start
    if length <= 0:
        return _describe_empty(text, key, start, is_map, source)
    kind = KINDS.get(raw[begin])
    if kind is None:
        return _invalid(key, at, stop, MalformedError("expected a value", offset=start), source, start=start)
    if not text.closed and (text.open_inside or (stop == text.end and _may_go_on(kind, raw[begin : begin + length]))):
        maybe = f"the document ends here, and the {kind} may be incomplete"
        reason = f"the {kind} ends early" if text.open_inside else maybe
        cut = _cut(reason, text.end, text.end - start, source)
        return Entry(key, kind, start, text.end, status=Status.TRUNCATED, at=at, finding=cut)
    if kind in CLOSER or kind == "string":
        closer = 0x22 if kind == "string" else CLOSER[kind]
        if text.last[0] != closer or length < 2:
            return _describe_unclosed(text, key, kind, start, source)
    value: object = UNLOADED_VALUE
    if kind not in CLOSER and length <= BORN_LOADED:
        try:
            value = decoder.decode(raw[begin : begin + length], start)
        except (LimitError, UnsupportedError) as refused:
            finding = _malformed(refused, start, source, code=unsupported_code(refused))
            return Entry(key, kind, start, stop, status=Status.UNSUPPORTED, at=at, finding=finding)
        except PparseError as wrong:
            return _invalid(key, at, stop, wrong, source, start=start)
    return Entry(key, kind, start, stop, value, Status.COMPLETE, at=at)


def unsupported_code(error: PparseError) -> str:
    """Return the code of the finding for ``error``: whether a limit can be lifted, or not."""
    return "limit" if isinstance(error, LimitError) else "unsupported"


def decode_key(quoted: bytes, offset: int, decoder: StrictDecoder) -> str:
    """Return the text of a quoted key. Raises `MalformedError`."""
    if b"\\" in quoted or _CONTROL.search(quoted) is not None:
        return str(decoder.decode(quoted, offset))
    try:
        return quoted[1:-1].decode()
    except UnicodeDecodeError as error:
        raise MalformedError("a key is not UTF-8", offset=offset + 1 + error.start) from error


def key_hash(raw: bytes, decoder: StrictDecoder) -> int:
    """Return the hash of the key at the start of the child text ``raw``; of None if there is no valid key."""
    match = KEY.match(raw)
    if match is None:
        return hash(None)
    try:
        return hash(decode_key(match[1], 0, decoder))
    except DataError:
        return hash(None)


def _describe_empty(text: ChildText, key: str | None, start: int, is_map: bool, source: str) -> Entry | None:
    """Return the entry of a child without a value, which was cut off or never there; None if no key was cut from it."""
    if text.closed:
        return _invalid(key, text.at, text.end, MalformedError("expected a value", offset=start), source)
    if not is_map:
        return None
    cut = _cut("the document ends before the value", start, 0, source)
    return Entry(key, "unknown", start, text.end, status=Status.TRUNCATED, at=text.at, finding=cut)


def _describe_unclosed(text: ChildText, key: str | None, kind: str, start: int, source: str) -> Entry:
    """Return the entry of a string or container that does not end as it began."""
    closer = '"' if kind == "string" else chr(CLOSER[kind])
    unclosed = MalformedError(f"the {kind} does not end with {closer}", offset=text.stop - 1)
    if kind not in CLOSER:
        return _invalid(key, text.at, text.stop, unclosed, source, start=start)
    finding = _malformed(unclosed, start, source)
    return Entry(key, kind, start, text.stop, status=Status.DAMAGED, at=text.at, finding=finding)


def _describe_keyless(text: ChildText, decoder: StrictDecoder, source: str) -> Entry | None:
    match = KEY_ONLY.match(text.raw)
    if not text.closed:
        return None
    if match is not None and match.end() == len(text.raw):
        try:
            key = decode_key(match[1], text.at + match.start(1), decoder)
        except PparseError as error:
            return _invalid(None, text.at, text.end, error, source)
        return _invalid(key, text.at, text.end, MalformedError("expected ':'", offset=text.end), source)
    bare = text.raw.lstrip(WHITESPACE)
    offset = text.at + len(text.raw) - len(bare)
    if match is None and bare.startswith(b'"') and len(text.raw) < text.end - text.at:
        finding = _malformed(decoder.refuse_key(offset), offset, source, code="limit")
        return Entry(None, "unknown", text.at, text.end, status=Status.UNSUPPORTED, finding=finding)
    return _invalid(None, text.at, text.end, MalformedError("expected a key and ':'", offset=offset), source)


def _may_go_on(kind: str, word: bytes) -> bool:
    """Return whether ``word``, the last of a cut text, may be only the beginning of a value of ``kind``."""
    if kind == "number":
        return True
    return kind in ("true", "false", "null") and len(word) < len(kind) and kind.encode().startswith(word)


def _invalid(key: str | None, at: int, end: int, error: PparseError, source: str, start: int | None = None) -> Entry:
    start = at if start is None else start
    return Entry(key, "invalid", start, end, status=Status.DAMAGED, finding=_malformed(error, start, source), at=at)


def _malformed(error: PparseError, start: int, source: str, code: str = "malformed") -> Finding:
    offset = error.offset if error.offset is not None else start
    return Finding(code, error.reason, source=source, offset=offset, option=error.option)


def _cut(reason: str, offset: int, got: int, source: str) -> Finding:
    return Finding("truncated", reason, source=source, offset=offset, got=got)
