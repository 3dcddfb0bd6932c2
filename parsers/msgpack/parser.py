"""MessagePack, lazily, by its specification (https://github.com/msgpack/msgpack/blob/master/spec.md).

A value is a first byte with its type, then its length or number of children, then its payload; big-endian. Containers
have no closing mark: where one ends is where its last child does. States::

    state            reads                                      goes to
    expect_child     many small children at once, or one:       itself; DONE after the last one
                     a key (in maps), and the head of a value
    expect_key_end   a key that is a container, or long         expect_value
    expect_value     the head of a value behind such a key      expect_child
    expect_end       a container deeper than nodes may be       expect_child

Containers of up to 4 KiB are passed over by a kernel, in the block. Larger ones are read with their own states, whose
index is kept: nothing is read again to find an end.

The root is the value of the file. If it is no container, or a second value follows a first one that ends within 1 MiB,
the root is a ``stream``, the list of the file's values.
"""

from __future__ import annotations

from array import array
from codecs import getincrementaldecoder
from contextlib import suppress
from struct import Struct, error

from pparse.data.base import Access, find_not_utf8
from pparse.data.trailing_bytes import trailing_severity
from pparse.errors import EndOfDataError, GapError, LimitError, MalformedError, OptionError, spoken
from pparse.findings import Finding, Severity, Status
from pparse.kernels.msgpack_skip import NEVER, WIDTHS, children, skip, sound
from pparse.lazy import ByValue
from pparse.tree.context import DONE, decode_text
from pparse.tree.entry import LIST, MAP, UNLOADED_VALUE, Entry
from pparse.tree.node import as_dict
from pparse.tree.parser import Confidence, Parser, signatures
from pparse.tree.visit import Visit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any, ClassVar, Final

    from pparse.data.base import Data
    from pparse.tree.context import Done, NodeContext, State, Step
    from pparse.tree.entry import Key
    from pparse.tree.node import Node
    from pparse.tree.parser import Excerpt
    from pparse.tree.result import Result

# -- Values of MessagePack: the numbers by their codes, timestamps, and small values made at once ----------------------

# Kind and layout of the numbers.
NUMBERS: Final = {
    0xCA: ("float32", ">f"),
    0xCB: ("float64", ">d"),
    **{0xCC + nth: ("int", f">{code}") for nth, code in enumerate("BHIQbhiq")},
}
CONSTANTS: Final = {0xC0: ("nil", None), 0xC2: ("bool", False), 0xC3: ("bool", True)}
_STRUCTS: Final = {code: Struct(layout) for code, (_, layout) in NUMBERS.items()}
TIMESTAMP: Final = -1
_TIMES: Final = {4: Struct(">I"), 8: Struct(">Q"), 12: Struct(">Iq")}
LONGEST_TIME: Final = 12
_DAY: Final = 86_400
_SHORT: Final = "the value goes on"


class Timestamp(ByValue, by=("seconds", "nanoseconds")):
    """A time: seconds since 1970 in UTC, and nanoseconds; ``str`` is its ISO form, with all digits."""

    __slots__ = ("nanoseconds", "seconds")

    def __init__(self, seconds: int, nanoseconds: int = 0) -> None:
        self.seconds = seconds
        """Whole seconds since 1970-01-01T00:00:00Z; negative before."""
        self.nanoseconds = nanoseconds
        """Nanoseconds behind them, below 10^9."""

    @classmethod
    def of(cls, payload: bytes, count: int) -> Timestamp:
        """Return the time that 4, 8 or 12 bytes mean. Raises `MalformedError` if there are not so many."""
        layout = _TIMES.get(count)
        if layout is None:
            raise MalformedError(f"a timestamp has 4, 8 or 12 bytes, not {count}")
        fields = layout.unpack(payload)
        if len(payload) == 4:
            return cls(fields[0])
        nanoseconds, seconds = fields if len(payload) == 12 else (fields[0] >> 34, fields[0] & 0x3FFFFFFFF)
        if nanoseconds >= 10**9:
            raise MalformedError(f"a timestamp has {nanoseconds} nanoseconds")
        return cls(seconds, nanoseconds)

    def to_datetime(self) -> Any:
        """Return it as a `datetime.datetime` in UTC, to the microsecond. Raises OverflowError beyond year 9999."""
        from datetime import UTC, datetime, timedelta

        since = timedelta(self.seconds // _DAY, self.seconds % _DAY, self.nanoseconds // 1000)
        return datetime(1970, 1, 1, tzinfo=UTC) + since

    def __str__(self) -> str:
        fraction = f".{self.nanoseconds:09}" if self.nanoseconds else ""
        try:
            return f"{self.to_datetime().replace(microsecond=0, tzinfo=None).isoformat()}{fraction}Z"
        except OverflowError:
            return f"1970-01-01T00:00:00Z {self.seconds:+} s{fraction and ' + 0'}{fraction}"


def container(code: int) -> str | None:
    """Return the kind of a container with this code; None for other values."""
    if 0x80 <= code <= 0x8F or 0xDE <= code <= 0xDF:
        return "map"
    return "array" if 0x90 <= code <= 0x9F or 0xDC <= code <= 0xDD else None


def is_text(code: int) -> bool:
    """Say whether a value with this code is a text."""
    return 0xA0 <= code <= 0xBF or 0xD9 <= code <= 0xDB


def is_extension(code: int) -> bool:
    """Say whether a value with this code is an extension."""
    return 0xC7 <= code <= 0xC9 or 0xD4 <= code <= 0xD8


def head(raw: bytes, at: int) -> tuple[int, int]:
    """Return the length or number of the value at ``raw[at]``, and where its payload begins; the type of an extension
    is its first byte. Raises `EndOfDataError`."""
    if at >= len(raw):
        raise EndOfDataError(_SHORT, offset=at)
    code = raw[at]
    width = WIDTHS[code]
    if at + 1 + width > len(raw):
        raise EndOfDataError(_SHORT, offset=at)
    if width:
        return int.from_bytes(raw[at + 1 : at + 1 + width], "big"), at + 1 + width
    if 0xD4 <= code <= 0xD8:
        return 1 << (code - 0xD4), at + 1
    return code & (0x1F if 0xA0 <= code <= 0xBF else 0x0F), at + 1


def decode(raw: bytes, at: int = 0) -> tuple[Any, int]:
    """Return the value at ``raw[at]`` and where it ends: arrays as tuples, maps as tuples of pairs, texts that are not
    UTF-8 as bytes; for keys and other small values. Raises `EndOfDataError` if it goes on behind ``raw``, and
    `MalformedError`."""
    return _decode(raw, at, is_plain=False)


def decode_plain(raw: bytes, depth: int) -> Any:
    """Return the value that ``raw`` is as plain Python: lists, dicts, texts that are UTF-8.

    Raises `MalformedError` also for what only nodes show: more than ``depth`` levels, and containers as keys.
    """
    return _decode(raw, 0, is_plain=True, depth=depth)[0]


def _decode(raw: bytes, at: int, *, is_plain: bool, depth: int = 0) -> tuple[Any, int]:
    stack: list[tuple[str, int, list[Any]]] = []  # kind, number of values, and those there are
    while True:
        if at >= len(raw):
            raise EndOfDataError(_SHORT, offset=at)
        code = raw[at]
        kind = container(code)
        is_value = is_plain and not (stack and stack[-1][0] == "map" and not len(stack[-1][2]) % 2)
        if kind is not None:
            number, at = head(raw, at)
            if is_plain and (len(stack) >= depth or not is_value):
                raise MalformedError("it is too deep, or a key", offset=at)
            stack.append((kind, number if kind == "array" else 2 * number, []))
        else:
            value, end = _scalar(raw, at, code)
            if is_value and is_text(code) and isinstance(value, bytes):
                raise MalformedError("the text is not UTF-8", offset=at)
            at = end
            if not stack:
                return value, at
            stack[-1][2].append(value)
        while len(stack[-1][2]) == stack[-1][1]:
            kind, _, values = stack.pop()
            made: Any = tuple(values)
            if kind == "map":
                made = tuple(zip(values[::2], values[1::2], strict=True))
            if is_plain:
                made = as_dict(made) if kind == "map" else values
            if not stack:
                return made, at
            stack[-1][2].append(made)


def _scalar(raw: bytes, at: int, code: int) -> tuple[Any, int]:
    if code < 0x80 or code >= 0xE0:
        return (code if code < 0x80 else code - 256), at + 1
    if code in CONSTANTS:
        return CONSTANTS[code][1], at + 1
    if code in _STRUCTS:
        try:
            return _STRUCTS[code].unpack_from(raw, at + 1)[0], at + 1 + _STRUCTS[code].size
        except error:
            raise EndOfDataError(_SHORT, offset=at) from None
    if code == 0xC1:
        raise MalformedError("there is no type 0xc1", offset=at)
    count, start = head(raw, at)
    typed = is_extension(code)
    end = start + count + typed
    if end > len(raw):
        raise EndOfDataError(_SHORT, offset=at)
    payload = raw[start:end]
    if is_text(code):
        return text_or_bytes(payload), end
    if typed and payload[0] == 0xFF:
        return Timestamp.of(payload[1:], count), end
    return payload[typed:], end


def text_or_bytes(payload: bytes) -> str | bytes:
    """Return a text, or its bytes if they are not UTF-8: the specification lets a str have any."""
    try:
        return payload.decode()
    except UnicodeDecodeError:
        return payload


# -- Recognising MessagePack, which has no magic: a map whose keys are texts, or an array of such maps -----------------

HEAD: Final = 4 << 10
# Bytes of keys, with their heads, that do not come about by chance.
_ENOUGH: Final = 8
_MOST_VALUES: Final = 200


def _text_of_keys(raw: bytes) -> tuple[int, int | None]:
    """Return how many bytes of keys are texts, and where the first value ends, if that is in ``raw``.

    Looks at the keys of all maps that begin in ``raw``; 0 if the first is no text, or one has odd characters.
    """
    found = at = 0
    levels: list[list[int]] = [[1, False]]  # of each open container the values still to come, and whether it is a map
    for _ in range(_MOST_VALUES):
        while levels and not levels[-1][0]:
            levels.pop()
        if not levels:
            return found, at
        level = levels[-1]
        level[0] -= 1
        try:
            kind = container(raw[at])
            if level[1] and level[0] % 2:
                key, behind = decode(raw, at)
                if isinstance(key, str) and key.isprintable():
                    found += behind - at
                elif not found or isinstance(key, str):
                    return 0, None
                at = behind
            elif kind is not None:
                number, at = head(raw, at)
                levels.append([number if kind == "array" else 2 * number, kind == "map"])
            elif raw[at] == NEVER:
                return 0, None
            else:
                at, pending = skip(raw, at, 1, len(raw))
                if pending:
                    break
        except (EndOfDataError, IndexError):
            break
        except MalformedError:
            return 0, None
    return found, None


# -- Checking all texts and times of a MessagePack document in one pass, without making nodes --------------------------

_BLOCK: Final = 128 << 10
# The longest head of a value, and a timestamp in full.
_LONGEST: Final = 32


def pass_sound(parser: MsgpackParser, at: int, end: int, pending: int, step: int, *, is_known: bool) -> tuple[int, int]:
    """Pass over up to ``pending`` values from ``at`` to ``end`` whose texts are UTF-8 and whose timestamps are good,
    reading ``step`` bytes at a time.

    Returns where it stopped, and how many values are left: more than 0 at ``end``, and not far before a fault or a gap.
    If it is not known to be whole, a text longer than ``step`` is a fault, and so many children as may be above the
    limit ``entries``.
    """
    extraction = parser.result.extraction
    entries = extraction.session.limits.entries
    # A child has a byte at least, and what begins and ends in a block has no more of them.
    most = entries - step if not is_known and end - at > entries else pending + (1 << 62)
    while pending and at < end:
        extraction.session.check_cancelled()
        try:
            block = extraction.data.pread(at, min(step, end - at))
            pos, left = _look_at(parser, block, at, pending, is_known=is_known)
        except (MalformedError, EndOfDataError, GapError):
            break
        if not pos or left > most:
            break
        at, pending = at + pos, left
    return at, pending


def _look_at(parser: MsgpackParser, block: bytes, base: int, pending: int, *, is_known: bool) -> tuple[int, int]:
    """Look at up to ``pending`` values in ``block``, which begins at offset ``base``; return where the next one begins
    in it, and how many are left.

    Raises `MalformedError` if one is not sound."""
    pos = 0
    while True:
        pos, pending = sound(block, pos, pending)
        if not pending or pos >= len(block) or (pos and len(block) - pos < _LONGEST):
            return pos, pending
        if not is_text(block[pos]):
            pos = decode(block, pos)[1]
        else:
            count, start = head(block, pos)
            if pos and start + count > len(block):
                return pos, pending
            data = parser.result.extraction.data
            fault = find_not_utf8(data, base + start, base + start + count) if is_known else base + start
            if fault is not None and not (is_known and parser.holds_old_raw()):
                raise MalformedError("the text is not UTF-8", offset=base + start)
            pos = start + count
        pending -= 1


# -- Before 2013: a raw, which str is now, had any bytes, and there were no bin, str8 and extensions -------------------

_MOST_LOOKED_AT: Final = 10_000
_RAW16: Final = 0xDA
_NEW: Final = (*range(0xC4, 0xCA), *range(0xD4, 0xDA))
# So many characters of a text a changed byte spoils.
_SPOILT: Final = 4
# So many long texts that are none, one damage does not make: what is new behind them is of damage.
_PROOFS: Final = 3
# So many values behind the first are looked at for a stream.
_FOLLOWING: Final = 16
_LOOKED_INTO: Final = 4 << 10
_SHORTEST_STR8: Final = 32


def is_old_raw(data: Data, start: int, end: int) -> bool:
    """Say whether a file is as the specification was before it had str8, bin and extensions: a raw has any bytes then.

    That is so if no value has one of these, and one is what only the old form has: a raw16 of less than 256 bytes, or
    a raw of which more is no text than one changed byte spoils; or if three of the latter, of 32 bytes or more, precede
    all that is new. Looks at the first 10,000 values (the texts among them: 4 KiB of each), up to the first gap.
    """
    at, base, block = start, start, b""
    is_old, proofs = False, 0
    for _ in range(_MOST_LOOKED_AT):
        if at + _LOOKED_INTO > base + len(block) and base + len(block) < end:
            base, wanted = at, max(0, min(_PIECE, end - at))
            block = data.known(at, wanted)
            end = end if len(block) == wanted else at + len(block)
        pos = at - base
        if pos >= len(block):
            break
        code = block[pos]
        if code in _NEW:
            return False
        behind = skip(block, pos, 1, pos + 1)[0]
        if behind == pos:
            break
        at = base + behind
        if is_text(code):
            count, first = head(block, pos)
            text = block[first : min(behind, first + _LOOKED_INTO)]
            spoilt = 0 if text.isascii() else getincrementaldecoder("utf-8")("replace").decode(text).count("\ufffd")
            is_old |= (code == _RAW16 and _SHORTEST_STR8 <= count < 256) or spoilt > _SPOILT
            proofs += count >= _SHORTEST_STR8 and spoilt > _SPOILT
            if proofs == _PROOFS:
                return True
    return is_old


# Larger containers are read by themselves, and their indexes kept.
_SMALL: Final = 4 << 10
# How far the end of the first value is looked for, to see whether a second one follows; and how much is read at once.
_LOOK: Final = 1 << 20
_PIECE: Final = 16 << 10
# Longer keys are not shown: their values have numbers.
LONGEST_KEY: Final = 4 << 10
# Scalars of so many bytes are decoded with their parent.
_INLINE: Final = 256
_MAPS: Final = (*range(0x81, 0x90), 0xDE, 0xDF)
_ARRAYS: Final = (*range(0x91, 0xA0), 0xDC, 0xDD)


class MsgpackParser(Parser):
    """A MessagePack file."""

    name = "msgpack"
    description = "MessagePack"
    extensions: ClassVar[tuple[str, ...]] = (".msgpack", ".mpk")
    empty_is_nothing = True
    signatures = signatures(*(bytes((code,)) for code in (*_MAPS, *_ARRAYS)))
    viewer = "pparse.viewers.flax.viewer:NumpyMapViewer"
    is_generic = True
    media_type = "application/vnd.msgpack"
    references = ("https://github.com/msgpack/msgpack/blob/master/spec.md",)
    limitations: ClassVar[tuple[str, ...]] = (
        "without its extension, recognised only by a map with text keys, or an array of such maps",
        "a file cut between two values of a stream looks whole",
        "a second value behind a first one of more than 1 MiB is reported, and read with -O documents=many",
    )
    options = {"documents": "values in the file: auto (default), one or many"}
    shapes = {"map": MAP, "array": LIST, "stream": LIST}
    child_state = {"map": "expect_child", "array": "expect_child", "stream": "expect_child"}
    documents: ClassVar[str] = "auto"
    """How many values a file has, if the option does not say."""
    first_odd_key: int | None = None
    """Where the first key that is no text was met in a map that begins with one, of what was read; for flax only."""

    def __init__(self, result: Result) -> None:
        super().__init__(result)
        self._old_raw: bool | None = None
        self._sound_end: int | None = None  # where the first value ends, if it was found sound when it was looked for
        self._documents = str(result.extraction.session.options.get("documents", self.documents))
        if self._documents not in ("auto", "one", "many"):
            raise OptionError(f"option documents must be auto, one or many, not {self._documents!r}")

    @classmethod
    def match(cls, excerpt: Excerpt) -> Confidence:
        """LIKELY if the first bytes are those of a map whose keys are texts, or of an array of such maps."""
        raw = excerpt.head(HEAD)
        if not raw or (kind := container(raw[0])) is None:
            return Confidence.NO
        found, end = _text_of_keys(raw)
        is_whole = kind == "map" and end is not None and end == excerpt.size
        return Confidence.LIKELY if found >= _ENOUGH or (found and is_whole) else Confidence.NO

    def holds_old_raw(self) -> bool:
        """Say whether texts that are not UTF-8 are bytes (see `is_old_raw`), which is told once; else they are damaged.

        Asked when the first such text is met; reads up to 10,000 values then.
        """
        if self._old_raw is None:
            extraction = self.result.extraction
            self._old_raw = is_old_raw(extraction.data, extraction.start, self._limit)
            if self._old_raw:
                reason = "it is written by the specification of before 2013: a str that is not UTF-8 is read as bytes"
                self.note("old-raw", reason, None, severity=Severity.NOTE)
        return self._old_raw

    @property
    def _limit(self) -> int:
        """Where the data end, or far behind that if nobody knows."""
        end = self.result.extraction.end
        return 1 << 62 if end is None else end

    # -- the root ----------------------------------------------------------------------------------------------------

    def root_entry(self) -> Entry:
        """Describe the first value; or a stream, if it is no container or not the only one."""
        extraction = self.result.extraction
        start, data = extraction.start, extraction.data
        raw = data.known(start, min(5, self._limit - start))
        if not raw and (extraction.end == start or not data.available(start, 1)):
            finding = self.note("truncated", "the document is empty", start)
            return Entry(None, "stream", start, start, status=Status.TRUNCATED, finding=finding)
        kind = container(raw[0]) if raw else None
        if kind is None or len(raw) <= WIDTHS[raw[0]] or self._is_stream(start):
            return Entry(None, "stream", start, extraction.end, status=None)
        number, first = head(raw, 0)
        return Entry(None, kind, start, None, status=None, note=(number, start + first))

    def _is_stream(self, start: int) -> bool:
        """Say whether the root is a stream: if the option does not say, whether values follow the first, which has at
        most 1 MiB, and among the next ones a container another.

        Other values behind a container are rather what is left of one whose parts a damaged byte took apart: of a map,
        whose containers have keys in between.
        """
        if self._documents != "auto":
            return self._documents == "many"
        data, end = self.result.extraction.data, self._limit
        at, pending = pass_sound(self, start, min(end, start + _LOOK), 1, _PIECE, is_known=False)
        if not pending:
            self._sound_end = at
        try:
            while pending:
                block = data.pread(at, max(0, min(_PIECE, end - at)))
                pos, pending = skip(block, 0, pending, len(block))
                at += pos
                if not pos or at - start > _LOOK:
                    return False
            if at - start > _LOOK:
                return False
            block = data.pread(at, max(0, min(_PIECE, end - at)))
        except GapError:
            return False
        pos, before = 0, True
        for _ in range(_FOLLOWING):
            if pending or pos >= len(block):
                return False
            follows, before = before, container(block[pos]) is not None
            if follows and before:
                return True
            pos, pending = skip(block, pos, 1, len(block))
        return False

    def begin(self, ctx: NodeContext) -> tuple[int, State | Done, int]:
        """Begin with the first child."""
        note = ctx.node.note
        return (ctx.node.start if note is None else note[1]), self.expect_child, 0

    # -- children ----------------------------------------------------------------------------------------------------

    def expect_child(self, ctx: NodeContext, block: bytes, base: int) -> Step:
        """Pass over many small children, or emit one."""
        node = ctx.node
        if node.note is None:
            if ctx.is_at_end:
                return ctx.pos, DONE, 0
            left = 1 << 62
        else:
            left = node.note[0] - ctx.emitted
            if not left:
                return ctx.pos, DONE, 0
        if ctx.collected is None and ctx.fresh is None and not ctx.wanted_occurrence:
            offsets = array("q")
            at = children(block, ctx.pos - base, left, 1 + (node.kind == "map"), _SMALL, offsets, base)
            if offsets:
                self.note_keys(ctx, block, base, offsets)
                count = ctx.index.count + len(offsets)
                self.result.extraction.session.limits.check("entries", count, "the number of children")
                ctx.index.add_many(offsets)
                ctx.emitted += len(offsets)
                return base + at, self.expect_child, 0
        at = ctx.pos
        key: Key = None
        if node.kind == "map":
            ctx.scratch = (at, 1)
            self.note_keys(ctx, block, base, (at,))
            try:
                key, ctx.pos = self._key(ctx, block, at - base, base)
            except EndOfDataError:
                return at, self.expect_key_end, 1
            if type(key) is bytes and is_text(block[at - base]) and not self.holds_old_raw():
                reason = "a key is a text that is not UTF-8: it is shown as bytes"
                self.note("malformed", reason, at, ctx.pos - at)
        return self._emit_value(ctx, block, base, key, at)

    def note_keys(self, ctx: NodeContext, block: bytes, base: int, places: Iterable[int]) -> None:
        """Take note of the keys that begin at ``places`` of the children that are read now."""

    def _key(self, ctx: NodeContext, block: bytes, at: int, base: int) -> tuple[Key, int]:
        """Return a key as the tree has keys (None: no text, bytes or number), and the offset behind it.

        Raises `EndOfDataError` if it is a container, or long.
        """
        if at >= len(block):
            ctx.take_bytes(1)  # ends the state
        code = block[at]
        width = WIDTHS[code]
        if container(code) is not None or (width and head(ctx.take_bytes(1 + width), 0)[0] > LONGEST_KEY):
            raise EndOfDataError("the key is not shown")
        try:
            key, end = decode(block, at)
        except EndOfDataError:
            ctx.pos = base + at
            if not ctx.at_end:
                ctx.take_bytes(len(block) - at + 1)
            raise
        except MalformedError as error:
            if not is_extension(code):
                raise
            self.note("malformed", f"a key is wrong: {error.reason}", base + at)
            count, start = head(block, at)
            key, end = None, start + 1 + count
        return (key if isinstance(key, str | bytes | int) else None), base + end

    def expect_key_end(self, ctx: NodeContext, block: bytes, base: int) -> Step:
        """Pass over a key that is not shown."""
        at, pending = ctx.scratch
        pos, pending = self._pass(ctx, block, base, pending)
        ctx.scratch = (at, pending)
        return pos, self.expect_key_end if pending else self.expect_value, 1

    def expect_value(self, ctx: NodeContext, block: bytes, base: int) -> Step:
        """Emit a value whose key is not shown."""
        return self._emit_value(ctx, block, base, None, ctx.scratch[0])

    def expect_end(self, ctx: NodeContext, block: bytes, base: int) -> Step:
        """Pass over a container that is too deep to be read, and emit it."""
        entry, pending = ctx.scratch
        pos, pending = self._pass(ctx, block, base, pending)
        ctx.scratch = (entry, pending)
        if pending:
            return pos, self.expect_end, 1
        if ctx.there(pos - ctx.pos) < pos - ctx.pos:
            return pos, self.expect_end, 1  # its last payload is cut
        entry.end = pos
        ctx.pos = pos
        ctx.emit(entry)
        return pos, self.expect_child, 0

    def _pass(self, ctx: NodeContext, block: bytes, base: int, pending: int) -> tuple[int, int]:
        """Pass over values; return where and how many are left. Ends the state if not even one head is there."""
        at = ctx.pos - base
        pos, left = skip(block, at, pending, len(block))
        if left and pos < len(block) and block[pos] == NEVER:
            raise MalformedError("there is no type 0xc1", offset=base + pos)
        if pos == at and left:
            ctx.take_bytes(len(block) - at + 1)
        return base + pos, left

    # -- values ------------------------------------------------------------------------------------------------------

    def _emit_value(self, ctx: NodeContext, block: bytes, base: int, key: Key, at: int) -> Step:
        """Emit the value at ``ctx.pos``, whose record begins ``at``."""
        start = ctx.pos
        (code,) = ctx.take("B")
        if code == NEVER:
            raise MalformedError("there is no type 0xc1", offset=start)
        if code < 0x80 or code >= 0xE0:
            ctx.emit(Entry(key, "int", start, ctx.pos, code if code < 0x80 else code - 256, at=at))
        elif code in CONSTANTS:
            kind, value = CONSTANTS[code]
            ctx.emit(Entry(key, kind, start, ctx.pos, value, at=at))
        elif code in NUMBERS:
            kind, layout = NUMBERS[code]
            (value,) = ctx.take(layout)
            ctx.emit(Entry(key, kind, start, ctx.pos, value, at=at))
        else:
            count, _ = head(bytes((code,)) + ctx.take_bytes(WIDTHS[code]), 0)
            around = container(code)
            if around is not None:
                return self._emit_container(ctx, block, base, Entry(key, around, start, None, at=at), count)
            if is_text(code):
                ctx.emit_text(key, count, at=at, kind="str", most=_INLINE, is_bytes=self.holds_old_raw)
            elif code <= 0xC6:
                ctx.emit_next(key, "bin", count, at=at)
            else:
                (number,) = ctx.take("b")
                self.emit_extension(ctx, key, number, count, at)
        return ctx.pos, self.expect_child, 0

    def _emit_container(self, ctx: NodeContext, block: bytes, base: int, entry: Entry, count: int) -> Step:
        """Emit a container of ``count`` children, which begin at ``ctx.pos``."""
        start = ctx.pos
        entry.status, entry.note = None, (count, start)
        values = count if entry.kind == "array" else 2 * count
        pos, pending = skip(block, start - base, values, min(len(block), start - base + _SMALL))
        if not pending and pos <= len(block):
            entry.end = ctx.pos = base + pos
        elif ctx.node.depth + 2 > ctx.result.extraction.session.limits.depth:
            ctx.scratch = (entry, values)
            return start, self.expect_end, 1
        ctx.emit(entry)
        return (ctx.pos, self.expect_child, 0) if entry.end is not None else ctx.behind_child(self.expect_child)

    def emit_extension(self, ctx: NodeContext, key: Key, number: int, count: int, at: int) -> None:
        """Emit an extension of type ``number``, whose payload is the next ``count`` bytes."""
        if number != TIMESTAMP or ctx.there(count) < count:
            ctx.emit_next(key, "timestamp" if number == TIMESTAMP else f"ext({number})", count, at=at)
            return
        start = ctx.pos
        entry = Entry(key, "timestamp", start, start + count, at=at)
        payload = ctx.take_bytes(min(count, LONGEST_TIME))
        try:
            entry.value = Timestamp.of(payload, count)
        except MalformedError as error:
            entry.status, entry.finding = Status.DAMAGED, Finding("malformed", error.reason, offset=start)
        ctx.emit(entry)
        ctx.skip(count - len(payload))

    def load_scalar(self, node: Node) -> Any:
        """Decode texts that were not decoded with their parents."""
        value = super().load_scalar(node)
        if node.kind != "str" or not isinstance(value, bytes):
            return value
        try:
            return decode_text(value, node.start)
        except MalformedError as error:
            if self.holds_old_raw():
                return value
            self.note_damage(node, error)
            raise

    def finish(self, ctx: NodeContext) -> None:
        """Close the node; report what follows the only value of a file."""
        node = ctx.node
        super().finish(ctx)
        if node.parent is None and node.kind != "stream":
            behind = node.end or ctx.pos
            if behind < self._limit and self.result.extraction.data.available(behind, 1):
                reason = f"more data follows the value; {spoken('-O documents=many')} reads a list of values"
                self.note("trailing-data", reason, behind, severity=trailing_severity("document"))

    def check(self, *, strict: bool = False) -> Iterator[Visit]:
        """Look at everything in one pass, without an index; node by node, if something is wrong."""
        root, data = self.result.root, self.result.extraction.data
        with suppress(LimitError):  # noted on the way
            end = self._find_sound_end() if root.known_status is None and root.index is None else None
            if end is not None and (end >= self._limit or not data.available(end, 1)):
                self.result.close_node(root, Status.COMPLETE, None, end=end)
            else:
                root.index_to(None)  # notes what is wrong, or follows
            if root.known_status is Status.COMPLETE and (end is not None or self._find_sound_end() is not None):
                yield Visit.of(root, 0)
                return
        yield from self.checked_nodes()

    def _find_sound_end(self) -> int | None:
        """Return where the root ends, if all in it is whole and sound; None also if only its index can tell that."""
        extraction, root = self.result.extraction, self.result.root
        data, is_known = extraction.data, root.known_status is not None
        if not is_known and (root.kind == "stream" or data.access is not Access.FREE or data.gaps):
            return None
        data.check_unchanged()
        end, pending = self._sound_end, 0
        if end is None:
            limit, count = root.end or self._limit, 1 << 62 if root.kind == "stream" else 1
            with extraction.session.budget.charge(2 * _BLOCK, "checking texts"):
                end, pending = pass_sound(self, root.start, limit, count, _BLOCK, is_known=is_known)
        if is_known:
            return end if end >= (root.end or 0) else None
        return end if not pending and not data.gaps and data.available(end - 1, 1) else None

    def checked_nodes(self) -> Iterator[Visit]:
        """Walk through all nodes, and look at long texts."""
        root = self.result.root
        for visit in self.walk(root, detail=False):
            if visit.kind == "str" and visit.value is UNLOADED_VALUE and visit.status is Status.COMPLETE:
                fault = None
                with suppress(EndOfDataError, GapError):  # what is lost is told of what lies around it
                    fault = find_not_utf8(root.extraction.data, visit.start, visit.end or visit.start)
                if fault is not None and not self.holds_old_raw():
                    visit.status = Status.DAMAGED
                    visit.finding = Finding("malformed", "the text is not UTF-8", offset=fault)
            yield visit

    # -- keys of other types -----------------------------------------------------------------------------------------

    def plain_value(self, node: Node) -> Any:
        """Return a small container at once, if it is whole and nothing in it needs a node."""
        limits = self.result.extraction.session.limits
        is_whole = node.kind in ("map", "array") and node.known_status in (None, Status.COMPLETE)
        data = self.result.extraction.data
        if not is_whole or data.flawed or node.end is None or node.end - node.start > limits.leaf_bytes:
            return super().plain_value(node)
        raw = data.pread(node.start, node.end - node.start)
        try:
            return decode_plain(raw, min(limits.leaf_depth, limits.depth - node.depth - 1))
        except (EndOfDataError, MalformedError):
            return UNLOADED_VALUE

    def plain_key(self, node: Node) -> Any:
        """Return the key of a child as it is: also of one that the tree only numbers."""
        if node.key is not None or node.parent is None or node.parent.kind != "map":
            return node.key
        at = self.result.entry(node.parent, node.ordinal).at
        raw = self.result.extraction.data.pread(at, min(LONGEST_KEY, node.start - at))
        try:
            return decode(raw)[0]
        except EndOfDataError:
            return f"[#{node.ordinal}]"
