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
_CLOSER_OF: Final = {"object": b"}", "array": b"]", "string": b'"'}
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
        both: dict[str, Any] = {"parse_int": parse_int, "parse_constant": self._constant}
        self._json = json.JSONDecoder(object_pairs_hook=self._object, parse_float=self._float, **both)
        self._plain = json.JSONDecoder(parse_int=parse_int, parse_constant=self._refuse_constant)
        # What `skim` uses: hooks that are no Python code.
        self._objects: list[list[tuple[str, Any]]] = []
        self._floats: list[str] = []
        self._skimmer = json.JSONDecoder(
            object_pairs_hook=self._objects.append, parse_float=self._floats.append, **both
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

    def skim_members(self, text: bytes, is_map: bool) -> list[Any] | None:
        """Return what `skim` makes of the members of a container, between its brackets: pairs, or elements. None, and
        nothing counted, also if a key occurs twice, or they are deep."""
        text = b"{%s}" % text if is_map else b"[%s]" % text
        duplicates = self.duplicates
        found = self.skim(text) if depth_at_most(text, self._limits.leaf_depth + 1) else UNLOADED_VALUE
        if found is UNLOADED_VALUE or self.duplicates != duplicates:
            self.duplicates = duplicates
            return None
        return self.pairs if is_map else list(found)

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
        reason, option = f"a number of more than {limit} digits", self._limits.option("number_bytes", count)
        if 0 < digits <= limit and count <= limit:
            reason = f"a number of more than {digits} digits, which Python does not convert"
            option = "PYTHONINTMAXSTRDIGITS=0 in the environment"
        return LimitError(reason, option=option, offset=offset)

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
        self.zeros = text.endswith(b"\0") and text.rstrip(_ZEROED)[-1:] in _CLOSER_OF.values()
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
    raw, at, start, end = text.raw, text.at, text.at, text.end
    key: str | None = None
    value: object = UNLOADED_VALUE
    kind, shown = "unknown", "invalid"  # the shown one is that of a child that is not JSON
    try:
        match = (KEY if is_map else BLANK).match(raw)
        if match is None:
            if not text.closed:
                return None
            key = _key_alone(text, decoder)
            raise MalformedError("expected ':'", offset=end)
        if is_map:
            key = decode_key(match[1], at + match.start(1), decoder)
        begin = match.end()
        value_at = at + begin + text.skipped
        length = text.stop - value_at
        if length <= 0:  # it was cut off, or never there
            if text.closed:
                raise MalformedError("expected a value", offset=value_at)
            if not is_map:
                return None
            cut = Finding("truncated", "the document ends before the value", source=source, offset=value_at, got=0)
            return Entry(key, kind, value_at, end, status=Status.TRUNCATED, at=at, finding=cut)
        start, end = value_at, text.stop
        found = KINDS.get(raw[begin])
        if found is None:
            raise MalformedError("expected a value", offset=start)
        kind = found
        if not text.closed and (
            text.open_inside or (end == text.end and _may_go_on(kind, raw[begin : begin + length]))
        ):
            maybe = f"the document ends here, and the {kind} may be incomplete"
            reason = f"the {kind} ends early" if text.open_inside else maybe
            cut = Finding("truncated", reason, source=source, offset=text.end, got=text.end - start)
            return Entry(key, kind, start, text.end, status=Status.TRUNCATED, at=at, finding=cut)
        closer = _CLOSER_OF.get(kind)
        if closer is not None and (text.last != closer or length < 2):
            shown = "invalid" if kind == "string" else kind
            raise MalformedError(f"the {kind} does not end with {closer.decode()}", offset=end - 1)
        if kind not in CLOSER and length <= BORN_LOADED:
            value = decoder.decode(raw[begin : begin + length], start)
    except PparseError as error:
        refused = isinstance(error, LimitError | UnsupportedError)
        kind, status = (kind, Status.UNSUPPORTED) if refused else (shown, Status.DAMAGED)
        code, offset = fault_code(error), start if error.offset is None else error.offset
        finding = Finding(code, error.reason, source=source, offset=offset, option=error.option)
        return Entry(key, kind, start, end, status=status, finding=finding, at=at)
    return Entry(key, kind, start, end, value, Status.COMPLETE, at=at)


def _key_alone(text: ChildText, decoder: StrictDecoder) -> str:
    """Return the key of a child that has nothing but a key. Raises `MalformedError` for any other without a key and a
    colon, and `LimitError` for a key that is too long."""
    match = KEY_ONLY.match(text.raw)
    if match is not None and match.end() == len(text.raw):
        return decode_key(match[1], text.at + match.start(1), decoder)
    bare = text.raw.lstrip(WHITESPACE)
    offset = text.at + len(text.raw) - len(bare)
    if match is None and bare.startswith(b'"') and len(text.raw) < text.end - text.at:
        raise decoder.refuse_key(offset)
    raise MalformedError("expected a key and ':'", offset=offset)


def fault_code(error: PparseError) -> str:
    """Return the code of the finding for ``error``: whether a limit can be lifted, or not; or the text is wrong."""
    codes = {LimitError: "limit", UnsupportedError: "unsupported"}
    return next((code for kind, code in codes.items() if isinstance(error, kind)), "malformed")


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


def _may_go_on(kind: str, word: bytes) -> bool:
    """Return whether ``word``, the last of a cut text, may be only the beginning of a value of ``kind``."""
    if kind == "number":
        return True
    return kind in ("true", "false", "null") and len(word) < len(kind) and kind.encode().startswith(word)


STRING_BODY: Final = rb'[^"\\\x00-\x1f]*+(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\x00-\x1f]*+)*+'
STRING_PART: Final = lazy_pattern(STRING_BODY)
