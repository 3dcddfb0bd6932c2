"""JSON text, strictly: from bytes to Python values, and to the description of one child.

The standard library's decoder does the work, only on pieces whose extent and depth are known, with hooks for all that
it lets pass: NaN and infinities, numbers that overflow, numbers of thousands of digits, lone surrogates, duplicate keys.

Facts: RFC 8259 (grammar: §2 to §7; byte order mark: §8.1; duplicate names: §4; surrogates: §8.2).
"""

from __future__ import annotations

import json
import re
import sys

from pparse.errors import LimitError, MalformedError, PparseError, UnsupportedError
from pparse.findings import Finding, Status
from pparse.kernels.json_fold import depth_at_most
from pparse.node import UNLOADED_VALUE, Entry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

    from pparse.limits import Limits

WHITESPACE: Final = b" \t\n\r"
BOM: Final = b"\xef\xbb\xbf"

# Scalars of at most this many bytes are decoded while their parent is listed.
BORN_LOADED: Final = 256

KEY: Final = re.compile(rb'[ \t\n\r]*+("[^"\\]*+(?:\\.[^"\\]*+)*+")[ \t\n\r]*+:[ \t\n\r]*+', re.DOTALL)
KEY_ONLY: Final = re.compile(rb'[ \t\n\r]*+("[^"\\]*+(?:\\.[^"\\]*+)*+")[ \t\n\r]*+', re.DOTALL)
BLANK: Final = re.compile(rb"[ \t\n\r]*+")
_STRING: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_CONTROL: Final = re.compile(rb"[\x00-\x1f]")
_SURROGATE: Final = re.compile(rb"\\u[dD][89a-fA-F]")
_PAIR: Final = re.compile(rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}")

KINDS: Final = {
    0x7B: "object", 0x5B: "array", 0x22: "string", 0x74: "true", 0x66: "false", 0x6E: "null", 0x2D: "number",
    **{digit: "number" for digit in b"0123456789"},
}  # fmt: skip
CLOSER: Final = {"object": 0x7D, "array": 0x5D}
_LITERALS: Final = {b"true": True, b"false": False, b"null": None}


class StrictDecoder:
    """Decodes pieces of JSON text.

    ``duplicates`` counts the keys that were met twice in one object so far: the second becomes ``key#2``. ``pairs``
    holds the members of the outermost object decoded last, duplicates and all.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.duplicates = 0
        self.pairs: list[tuple[str, Any]] = []
        digits = sys.get_int_max_str_digits()
        # The interpreter's own limit on digits is faster than a hook, where it is at least as strict as ours.
        parse_int = None if 0 < digits <= limits.number_bytes else self._int
        self._json = json.JSONDecoder(
            object_pairs_hook=self._object, parse_int=parse_int, parse_float=self._float, parse_constant=self._constant
        )

    def decode(self, text: bytes, offset: int) -> Any:
        """Return the value of ``text``, which is at ``offset`` and shallow enough for a recursive decoder.

        Raises `MalformedError` at the offset of the fault, `LimitError` or `UnsupportedError` for numbers.
        """
        if b"\\u" in text:
            self.refuse_lone_surrogates(text, offset)
        unicode = ""
        try:
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

    def decode_shallow(self, text: bytes, offset: int) -> Any:
        """As `decode`, for text of any depth: raises `LimitError` when it nests deeper than ``leaf_depth``."""
        if not depth_at_most(text, self._limits.leaf_depth):
            raise LimitError(
                f"nested deeper than leaf_depth={self._limits.leaf_depth}", option="--limit leaf_depth", offset=offset
            )
        return self.decode(text, offset)

    def _too_long(self, offset: int | None) -> LimitError:
        return LimitError(
            f"a number of more than {self._limits.number_bytes} digits", option="--limit number_bytes", offset=offset
        )

    def _object(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        self.pairs = pairs
        found = dict(pairs)
        return found if len(found) == len(pairs) else self._with_duplicates(pairs)

    def _with_duplicates(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        names = {key for key, _ in pairs}
        for key, value in pairs:
            name, occurrence = key, 1
            while name in found:
                self.duplicates += 1 if occurrence == 1 else 0
                occurrence += 1
                name = f"{key}#{occurrence}"
                while name in names:
                    occurrence += 1
                    name = f"{key}#{occurrence}"
            found[name] = value
        return found

    def _int(self, digits: str) -> int:
        if len(digits) > self._limits.number_bytes:
            raise self._too_long(None)
        return int(digits)

    def _float(self, text: str) -> float:
        if len(text) > self._limits.number_bytes:
            raise self._too_long(None)
        value = float(text)
        if value in (float("inf"), float("-inf")):
            raise UnsupportedError(f"the number {text[:40]} is beyond the range of a float64")
        return value

    @staticmethod
    def _constant(word: str) -> Any:
        raise MalformedError(f"{word} is not JSON")

    @staticmethod
    def refuse_lone_surrogates(text: bytes, offset: int) -> None:
        """Raise `MalformedError` if ``text`` escapes half of a surrogate pair."""
        plain = text.replace(b"\\\\", b"__")
        if _SURROGATE.search(plain) is None:
            return
        # Same length, so that offsets stay true.
        match = _SURROGATE.search(_PAIR.sub(b"_" * 12, plain))
        if match is not None:
            raise MalformedError("a lone surrogate in a string", offset=offset + match.start())


def _in_words(message: str) -> str:
    """Return the library's message as ours: lower case, and without what is said by the offset."""
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
    """The text of one child of a container: what lies between two commas or brackets.

    ``raw`` is all of it, or its head where it is long (then ``tail`` is its end). ``closed`` is False for the last
    child of a container that is cut; ``open_inside`` then says whether the cut lies inside a string or bracket.
    """

    __slots__ = ("at", "closed", "end", "open_inside", "raw", "tail")

    def __init__(self, raw: bytes, at: int, end: int, tail: bytes | None = None) -> None:
        self.raw = raw
        self.at = at
        self.end = end
        self.tail = tail
        self.closed = True
        self.open_inside = False


def describe_child(text: ChildText, is_map: bool, decoder: StrictDecoder, source: str) -> Entry | None:
    """Return the entry of a child; None for a cut one of which not even the key is whole."""
    raw, at, end = text.raw, text.at, text.end
    key: str | None = None
    start = 0
    if is_map:
        match = KEY.match(raw)
        if match is None:
            return _describe_keyless(text, decoder, source)
        try:
            key = decode_key(match[1], at + match.start(1), decoder)
        except PparseError as error:
            return _invalid(None, at, end, error, source)
        start = match.end()
    else:
        blank = BLANK.match(raw)
        start = blank.end() if blank is not None else 0
    last = (text.tail if text.tail is not None else raw[start:]).rstrip(WHITESPACE)
    stop = end - (len(text.tail) if text.tail is not None else len(raw) - start) + len(last)
    if start >= len(raw) or not last:
        if not text.closed:
            return None if not is_map else Entry(
                key, "unknown", at + start, end, status=Status.TRUNCATED, at=at,
                finding=_cut("the value is beyond the cut", at + start, 0, source),
            )  # fmt: skip
        return _invalid(key, at, end, MalformedError("expected a value", offset=at + start), source)
    kind = KINDS.get(raw[start])
    if kind is None:
        error = MalformedError("expected a value", offset=at + start)
        return _invalid(key, at, stop, error, source, start=at + start)
    if not text.closed and (text.open_inside or kind == "number" or _is_cut_literal(kind, last)):
        reason = f"the {kind} ends early" if text.open_inside else f"the {kind} may go on beyond the cut"
        return Entry(
            key, kind, at + start, end, status=Status.TRUNCATED, at=at,
            finding=_cut(reason, end, end - at - start, source),
        )  # fmt: skip
    if kind in CLOSER or kind == "string":
        closer = 0x22 if kind == "string" else CLOSER[kind]
        if last[-1] != closer or stop - at - start < 2:
            error = MalformedError(f"the {kind} is not closed by its own {chr(closer)}", offset=stop - 1)
            if kind in CLOSER:
                return Entry(
                    key, kind, at + start, stop, status=Status.DAMAGED, at=at,
                    finding=_malformed(error, at + start, source),
                )  # fmt: skip
            return _invalid(key, at, stop, error, source, start=at + start)
    length = stop - (at + start)
    value: object = UNLOADED_VALUE
    if kind not in CLOSER and length <= BORN_LOADED:
        try:
            value = decoder.decode(last if text.tail is None else raw[start : start + length], at + start)
        except (LimitError, UnsupportedError) as error:
            return Entry(
                key, kind, at + start, stop, status=Status.UNSUPPORTED, at=at,
                finding=_malformed(error, at + start, source, code="limit"),
            )  # fmt: skip
        except PparseError as error:
            return _invalid(key, at, stop, error, source, start=at + start)
    return Entry(key, kind, at + start, stop, value, Status.COMPLETE, at=at)


def decode_key(quoted: bytes, offset: int, decoder: StrictDecoder) -> str:
    """Return the text of a quoted key. Raises `MalformedError`."""
    if b"\\" in quoted or _CONTROL.search(quoted) is not None:
        return str(decoder.decode(quoted, offset))
    try:
        return quoted[1:-1].decode()
    except UnicodeDecodeError as error:
        raise MalformedError("a key is not UTF-8", offset=offset + 1 + error.start) from error


def key_hash(raw: bytes, decoder: StrictDecoder) -> int:
    """Return the hash of the key that the child text ``raw`` begins with; of None if it has no good key."""
    match = KEY.match(raw)
    if match is None:
        return hash(None)
    try:
        return hash(decode_key(match[1], 0, decoder))
    except PparseError:
        return hash(None)


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
    blank = BLANK.match(text.raw)
    offset = text.at + (blank.end() if blank is not None else 0)
    return _invalid(None, text.at, text.end, MalformedError("expected a key and ':'", offset=offset), source)


def _is_cut_literal(kind: str, word: bytes) -> bool:
    return kind in ("true", "false", "null") and len(word) < len(kind) and kind.encode().startswith(word)


def _invalid(
    key: str | None, at: int, end: int, error: PparseError, source: str, start: int | None = None
) -> Entry:
    start = at if start is None else start
    return Entry(key, "invalid", start, end, status=Status.DAMAGED, finding=_malformed(error, start, source), at=at)


def _malformed(error: PparseError, start: int, source: str, code: str = "malformed") -> Finding:
    return Finding(code, error.reason, source=source, offset=error.offset if error.offset is not None else start)


def _cut(reason: str, offset: int, got: int, source: str) -> Finding:
    return Finding("truncated", reason, source=source, offset=offset, got=got)
