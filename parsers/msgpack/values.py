"""Values of MessagePack: the numbers by their codes, timestamps, and small values made at once."""

from __future__ import annotations

from struct import Struct, error

from pparse.errors import EndOfDataError, MalformedError
from pparse.kernels.msgpack_skip import WIDTHS
from pparse.tree.views import as_dict

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

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


class Timestamp:
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

    def __repr__(self) -> str:
        return f"Timestamp({self.seconds}, {self.nanoseconds})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Timestamp) and (self.seconds, self.nanoseconds) == (other.seconds, other.nanoseconds)

    def __hash__(self) -> int:
        return hash((self.seconds, self.nanoseconds))


def container(code: int) -> str | None:
    """Return the kind of a container with this code; None for other values."""
    if 0x80 <= code <= 0x8F or 0xDE <= code <= 0xDF:
        return "map"
    return "array" if 0x90 <= code <= 0x9F or 0xDC <= code <= 0xDD else None


def is_text(code: int) -> bool:
    """Say whether a value with this code is a text."""
    return 0xA0 <= code <= 0xBF or 0xD9 <= code <= 0xDB


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
    is_extension = 0xC7 <= code <= 0xC9 or 0xD4 <= code <= 0xD8
    end = start + count + is_extension
    if end > len(raw):
        raise EndOfDataError(_SHORT, offset=at)
    payload = raw[start:end]
    if is_text(code):
        return text_or_bytes(payload), end
    if is_extension and payload[0] == 0xFF:
        return Timestamp.of(payload[1:], count), end
    return payload[is_extension:], end


def text_or_bytes(payload: bytes) -> str | bytes:
    """Return a text, or its bytes if they are not UTF-8: the specification lets a str have any."""
    try:
        return payload.decode()
    except UnicodeDecodeError:
        return payload
