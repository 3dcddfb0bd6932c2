"""Guess what a length-delimited protobuf field of an unknown schema holds: a message, text, or other bytes.

The wire format does not tell (https://protobuf.dev/programming-guides/encoding/#structure): ``0a 03 61 62 63`` is a
message with a string in field 1, and text of five characters, two of them odd. So each reading gets a price in bits:
the length of the data in a code made for readings of that kind. The shortest wins, and the distance to the next gives
the confidence.

- Bytes cost eight bits each. Packed repeated values count as bytes: a list of small numbers has no structure to be
  confident of, and a short one may as well be text or a message.
- Text must be UTF-8; letters are cheap, control characters expensive.
- A message must parse to its end: tags of known wire types, numbers of 1 to 2^29 - 1, groups closed by their own
  number, lengths that stay inside. Small field numbers are cheap, ascending or repeated as all writers have them, and
  so are small values. A payload costs as much as its cheapest reading, down to `MAX_DEPTH` levels.

If the data is both text without control characters and a message to its last byte, the confidence stays below 0.9.

Raises nothing on any input. Reads at most `MAX_LOOK` bytes and `MAX_FIELDS` fields, without recursion.
"""

from __future__ import annotations

from math import inf, log2

from pparse.lazy import lazy_pattern

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

MESSAGE: Final = "message"
TEXT: Final = "text"
BYTES: Final = "bytes"

MAX_LOOK: Final = 64 * 1024
MAX_FIELDS: Final = 4096
MAX_DEPTH: Final = 6

_MAX_NUMBER: Final = (1 << 29) - 1
_MAX_GROUPS: Final = 64
_NO_EVIDENCE: Final = 0.3
_AMBIGUOUS: Final = 0.85

# What is known before looking: other bytes are rare beside messages and text, but not among fields too large to be
# looked at whole.
_BYTES_ARE_RARE: Final = 3.0
# So many bits of distance make a reading ten times as likely as the other (3.3 if the codes were the real frequencies).
_BITS_PER_TEN: Final = 5.0

# Bits of a tag's wire type: varint, 8 bytes, length-delimited, group, end of group, 4 bytes.
_WIRE_BITS: Final = (1.3, 5.0, 1.0, 9.0, 2.0, 4.0)
# For what no writer does without need: a varint longer than it must be, a number reserved by protobuf itself, a field
# after one of a higher number.
_ODD_VARINT: Final = 12.0
_ODD_NUMBER: Final = 10.0
_DESCENDING: Final = 4.0

_CONTROLS: Final = lazy_pattern(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
# Characters as rare in text as ASCII control characters: C1 controls, private use, specials.
_ODD_CHARACTERS: Final = lazy_pattern("[\x80-\x9f\ue000-\uf8ff\ufff0-\uffff\U000e1000-\U0010ffff]")
_ODD_CHARACTER: Final = 14.0


def _price_list() -> bytes:
    """Return the price of each byte in text, in quarters of a bit."""
    prices = bytearray([28]) * 256
    prices[:0x20] = bytes([80]) * 0x20
    prices[0x7F] = 80
    prices[0x80:] = bytes([22]) * 0x80  # of a valid sequence
    for characters, price in ((b"\t\n\r", 36), (b"_./-:0123456789", 22), (b"ABCDEFGHIJKLMNOPQRSTUVWXYZ", 24)):
        for character in characters:
            prices[character] = price
    for character in b" abcdefghijklmnopqrstuvwxyz":
        prices[character] = 20
    return bytes(prices)


_PRICES: Final = _price_list()


class _GuessFrame:
    """A message being read: ``data[pos:end]`` is left of it, and more beyond the data if it is ``cut``."""

    __slots__ = ("bits", "cut", "end", "groups", "plain", "pos", "previous")

    def __init__(self, pos: int, end: int, cut: bool, plain: float) -> None:
        self.pos = pos
        self.end = end
        self.cut = cut
        self.plain = plain  # what the same bytes cost if they are no message
        self.bits = 0.0
        self.previous = 0
        self.groups: list[int] = []

    def stop(self) -> None:
        """End here: as expected if the data is cut here; otherwise the bytes are not a message."""
        self.bits = self.bits + 8.0 * (self.end - self.pos) if self.cut else inf
        self.pos = self.end

    def refuse(self) -> None:
        """End here: the bytes are not a message, even if the data is cut."""
        self.cut = False
        self.stop()


def guess(data: bytes, complete: bool = True) -> tuple[str, float]:
    """Return what ``data`` most probably holds, ``"message"``, ``"text"`` or ``"bytes"``, and a confidence of 0 to 1.

    ``data`` is the payload of a length-delimited field, or, not ``complete``, the first bytes of one. Below a
    confidence of about 0.7 the data fits two kinds; empty data fits all three, and is ``("bytes", 0.3)``.
    """
    if not data:
        return BYTES, _NO_EVIDENCE
    if len(data) > MAX_LOOK:
        data = data[:MAX_LOOK]
        complete = False
    bits = {
        BYTES: 8.0 * len(data) + (_BYTES_ARE_RARE if complete else 0.0),
        TEXT: _text_bits(data, complete),
        MESSAGE: _message_bits(data, complete),
    }
    kind, second = sorted(bits, key=bits.__getitem__)[:2]
    odds: float = 10.0 ** -min((bits[second] - bits[kind]) / _BITS_PER_TEN, 3.0)
    confidence = 1.0 / (1.0 + odds)
    if max(bits.values()) < inf and not _CONTROLS.search(data):
        # Both to the last byte: words whose second letter happens to be their length are real, and so are messages.
        confidence = min(confidence, _AMBIGUOUS)
    return kind, confidence


def _text_bits(data: bytes, complete: bool) -> float:
    """Return the price of ``data`` as text; infinite if it is not UTF-8 (its end may be cut unless ``complete``)."""
    bits = sum(data.translate(_PRICES)) / 4.0
    if data.isascii():
        return bits
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        if complete or error.reason != "unexpected end of data":
            return inf
        text = data[: error.start].decode()
    return bits + _ODD_CHARACTER * len(_ODD_CHARACTERS.findall(text))


def _message_bits(data: bytes, complete: bool) -> float:
    """Return the price of ``data`` as a message; infinite if it is not a message."""
    frame = _GuessFrame(0, len(data), not complete, inf)
    above: list[_GuessFrame] = []
    fields = 0
    while True:
        if frame.pos < frame.end:
            fields += 1
            if fields > MAX_FIELDS:
                _skip_rest(data, frame)
                continue
            child = _read_field(data, frame, len(above) < MAX_DEPTH)
            if frame.bits > frame.plain:
                # No message that way; and what it would cost no longer matters.
                frame.refuse()
                continue
            if child is not None:
                above.append(frame)
                frame = child
            continue
        if frame.groups and not frame.cut:
            frame.bits = inf
        if not above:
            return frame.bits
        # One bit says which reading of the payload it is.
        bits = 1.0 + min(frame.bits, frame.plain)
        frame = above.pop()
        frame.bits += bits


def _skip_rest(data: bytes, frame: _GuessFrame) -> None:
    """Take the rest of ``frame`` unread, at a price that is neutral."""
    rest = data[frame.pos : frame.end]
    frame.bits += min(8.0 * len(rest), _text_bits(rest, False))
    frame.pos = frame.end
    frame.groups.clear()


def _read_field(data: bytes, frame: _GuessFrame, deeper: bool) -> _GuessFrame | None:
    """Read one field of ``frame`` and pay for it; return a frame for its payload if that may be a message itself."""
    start = frame.pos
    tag, pos = data[start], start + 1
    if tag >= 0x80:
        tag, pos = _varint(data, start, frame.end)
    number = tag >> 3
    wire = tag & 7
    if pos < 0 or wire > 5 or not 1 <= number <= _MAX_NUMBER or (pos - start > 1 and data[pos - 1] == 0):
        # No writer makes a tag longer than needed, so that is no message either.
        if pos >= 0:
            frame.cut = False
        frame.stop()
        return None
    if wire == 4:
        if frame.groups and frame.groups.pop() == number:
            frame.bits += _WIRE_BITS[4]
            frame.pos = pos
        else:
            frame.refuse()
        return None
    frame.bits += _WIRE_BITS[wire] + _number_bits(number, frame.previous)
    frame.previous = number
    frame.pos = pos
    if wire == 0:
        _pay_varint(data, frame)
    elif wire == 2:
        return _open_payload(data, frame, deeper)
    elif wire == 3:
        frame.groups.append(number)
        if len(frame.groups) > _MAX_GROUPS:
            frame.refuse()
    elif (size := 8 if wire == 1 else 4) > frame.end - pos:
        frame.stop()
    else:
        frame.bits += 8.0 * size
        frame.pos = pos + size
    return None


def _number_bits(number: int, previous: int) -> float:
    """Return the price of a field number after ``previous`` (0 at the beginning)."""
    odd = _ODD_NUMBER if 19_000 <= number < 20_000 else 0.0
    if number == previous:
        return odd + 1.5
    if number > previous:
        return odd + 1.0 + 1.5 * log2(number - previous)
    return odd + 1.0 + 1.5 * log2(number) + _DESCENDING


def _pay_varint(data: bytes, frame: _GuessFrame) -> None:
    """Read the value of a varint field."""
    start = frame.pos
    value, pos = _varint(data, start, frame.end)
    if pos < 0:
        frame.cut = frame.cut and frame.end - start < 10
        frame.stop()
        return
    size = pos - start
    if size == 1:
        frame.bits += 5.0 if value < 16 else 7.5
    elif size == 10:
        # Negative numbers; mostly small ones.
        frame.bits += 25.0 if value >> 32 == 0xFFFFFFFF else 70.0
    else:
        frame.bits += 7.0 * size
    if size > 1 and data[pos - 1] == 0:
        frame.bits += _ODD_VARINT
    frame.pos = pos


def _open_payload(data: bytes, frame: _GuessFrame, deeper: bool) -> _GuessFrame | None:
    """Read the length of a field and skip its payload, in ``frame``; return a frame for the payload."""
    start = frame.pos
    if start < frame.end and data[start] < 0x80:  # nearly always: then without a call
        length, pos = data[start], start + 1
    else:
        length, pos = _varint(data, start, frame.end)
    left = frame.end - pos
    if pos < 0 or (length > left and not frame.cut):
        frame.cut = frame.cut and frame.end - start < 10
        frame.stop()
        return None
    small = 1.2 * log2(length + 1)
    if frame.cut:
        frame.bits += 4.0 + small
    else:
        # Often the last field; else short, or any length that stays inside.
        frame.bits += 1.7 if length == left else min(log2(left + 1) + 0.5, 3.0 + small)
    if pos - start > 1 and data[pos - 1] == 0:
        frame.bits += _ODD_VARINT
    cut = length > left
    end = frame.end if cut else pos + length
    frame.pos = end
    if end == pos:
        return None
    payload = data[pos:end]
    plain = min(8.0 * len(payload), _text_bits(payload, not cut))
    if not deeper:
        frame.bits += 1.0 + plain
        return None
    return _GuessFrame(pos, end, cut, plain)


def _varint(data: bytes, pos: int, end: int) -> tuple[int, int]:
    """Return the varint at ``data[pos:end]`` and the position after it; -1 for that if it does not end there."""
    value = shift = 0
    for at in range(pos, min(end, pos + 10)):
        byte = data[at]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at + 1
        shift += 7
    return 0, -1
