"""The protobuf wire format: from field to field (protobuf.dev, "Encoding").

A field is a tag (varint: field number << 3 | wire type) and a payload: a varint (wire type 0), 8 bytes (1), a length
and that many bytes (2), fields up to an end-group tag (3 and 4), or 4 bytes (5).

`scan` walks the fields of a block and notes where those of each tag begin. Its block must have `SLACK` bytes behind the
last field that may begin in it (zeros at the end of a message), so that no header needs a check of bounds: a header has
at most 5 + 10 bytes.
"""

from __future__ import annotations

from pparse.errors import MalformedError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Final

VARINT: Final = 0
FIXED64: Final = 1
LEN: Final = 2
START_GROUP: Final = 3
END_GROUP: Final = 4
FIXED32: Final = 5

SLACK: Final = 20
PADDING: Final = bytes(SLACK)
# The most nested groups that are skipped (protobuf's own limit for messages is 100).
MAX_GROUPS: Final = 1_000
_NO_TAG: Final = -1


def scan(  # noqa: C901 -- hot loop: a call an element costs a tenth and more
    block: bytes, pos: int, stop: int, found: dict[int, list[int]], groups: list[int], base: int = 0
) -> tuple[int, int]:
    """Walk the fields that begin in ``block[pos:stop]``; return where the next one begins, and where the last began.

    The begin of each field is appended to ``found[tag]`` (a dict that makes its lists, as a defaultdict does).
    ``groups`` are the numbers of open groups, whose contents are skipped. The next field may lie beyond the block;
    ``base`` is the block's offset, for errors. Raises `MalformedError` if something is not a field.
    """
    last = pos
    if groups:
        pos, last = leave_groups(block, pos, stop, groups, base)
    tag = _NO_TAG
    wire = 0
    begins: list[int] = []
    while pos < stop:
        last = pos
        byte = block[pos]
        pos += 1
        if byte >= 0x80:
            byte, pos = read_tag(block, last, base)
        if byte != tag:  # most of a large message are runs of one field: look its list up once
            tag = byte
            wire = tag & 7
            if wire > FIXED32 or tag < 8:
                raise no_field(tag, base + last)
            if wire == END_GROUP:
                raise MalformedError("a group ends that was never opened", offset=base + last)
            begins = found[tag]
            if wire == LEN and pos == last + 1:
                append = begins.append
                while True:  # go through the run
                    append(last)
                    length = block[last + 1]
                    if length < 0x80:
                        pos = last + length + 2
                    elif (byte := block[last + 2]) < 0x80:
                        pos = last + length + (byte << 7) - 0x7D
                    else:
                        length, pos = read_length(block, last + 1, base)
                        pos += length
                    if pos >= stop or block[pos] != tag:
                        break
                    last = pos
                continue
        begins.append(last)
        if wire == LEN:
            length, pos = read_length(block, pos, base)
            pos += length
        elif wire == VARINT:
            if block[pos] < 0x80:
                pos += 1
            else:
                pos = skip_varint(block, pos, base)
        elif wire == FIXED32:
            pos += 4
        elif wire == FIXED64:
            pos += 8
        else:
            groups.append(tag >> 3)
            start = last
            pos, last = leave_groups(block, pos, stop, groups, base)
            last = start
            tag = _NO_TAG
    return pos, last


def leave_groups(block: bytes, pos: int, stop: int, groups: list[int], base: int) -> tuple[int, int]:
    """Walk to the end of the outermost open group, or to ``stop``.

    Returns where it stopped, and where the last tag (the end of the group, if it came to that) begins.
    """
    last = pos
    while groups and pos < stop:
        last = pos
        tag, pos = read_tag(block, pos, base)
        wire = tag & 7
        if wire > FIXED32 or tag < 8:
            raise no_field(tag, base + last)
        if wire == END_GROUP:
            if groups[-1] != tag >> 3:
                raise MalformedError(f"group {tag >> 3} ends inside another one", offset=base + last)
            groups.pop()
        elif wire == START_GROUP:
            if len(groups) >= MAX_GROUPS:
                raise MalformedError(f"groups are nested deeper than {MAX_GROUPS}", offset=base + last)
            groups.append(tag >> 3)
        else:
            pos = skip_payload(block, pos, wire, base)
    return pos, last


def fields(block: bytes, pos: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield the tag of each field of the message in ``block[pos:end]``, and where its payload begins and ends.

    `PADDING` follows the message in ``block``. The payload of a group ends behind its end tag. Raises `MalformedError`
    if something is not a field, or extends beyond the message.
    """
    while pos < end:
        begin = pos
        tag, start = (block[pos], pos + 1) if block[pos] < 0x80 else read_tag(block, pos)
        wire = tag & 7
        if wire > FIXED32 or tag < 8:
            raise no_field(tag, begin)
        if wire == LEN:
            length, start = (block[start], start + 1) if block[start] < 0x80 else read_length(block, start)
            pos = start + length
        elif wire == START_GROUP:
            groups = [tag >> 3]
            pos, _ = leave_groups(block, start, end, groups, 0)
            pos = end + 1 if groups else pos
        elif wire == END_GROUP:
            raise MalformedError("a group ends that was never opened", offset=begin)
        else:
            pos = skip_payload(block, start, wire)
        if pos > end:
            reason = "a field extends beyond its message"
            raise MalformedError(reason, offset=begin, wanted=pos - begin, got=end - begin)
        yield tag, start, pos


def within(block: bytes, pos: int, end: int, *tags: int) -> Iterator[tuple[int, int]]:
    """Yield where the payload begins and ends of each field that ``tags`` lead to, from message to message in it.

    As `fields`, of the message in ``block[pos:end]``.
    """
    for tag, start, stop in fields(block, pos, end):
        if tag == tags[0]:
            yield from within(block, start, stop, *tags[1:]) if len(tags) > 1 else ((start, stop),)


def skip_payload(block: bytes, pos: int, wire: int, base: int = 0) -> int:
    """Return where the payload of that wire type, which begins at ``block[pos]``, ends (no group)."""
    if wire == LEN:
        length, pos = read_length(block, pos, base)
        return pos + length
    if wire == VARINT:
        return skip_varint(block, pos, base)
    return pos + (8 if wire == FIXED64 else 4)


def read_tag(block: bytes, pos: int, base: int = 0) -> tuple[int, int]:
    """Return the tag at ``block[pos]`` and the position after it; at most five bytes, 32 bits."""
    byte = block[pos]
    if byte < 0x80:
        return byte, pos + 1
    tag = byte & 0x7F
    for at in range(pos + 1, pos + 5):
        byte = block[at]
        tag |= (byte & 0x7F) << 7 * (at - pos)
        if byte < 0x80:
            if tag >> 32:
                break
            return tag, at + 1
    raise MalformedError("not the tag of a field: its varint is too long", offset=base + pos)


def read_length(block: bytes, pos: int, base: int = 0) -> tuple[int, int]:
    """Return the length at ``block[pos]`` and the position after it; at most 63 bits.

    The library refuses a length of more than five bytes. One that needs them (32 GiB and more) is read all the same.
    """
    length = 0
    for at in range(pos, pos + 9):
        byte = block[at]
        length |= (byte & 0x7F) << 7 * (at - pos)
        if byte < 0x80:
            if at > pos + 4 and not length >> 35:
                break
            return length, at + 1
    raise MalformedError("the length of a field is too large, or has more bytes than it needs", offset=base + pos)


def skip_varint(block: bytes, pos: int, base: int = 0) -> int:
    """Return the position after the varint at ``block[pos]``; at most ten bytes."""
    for at in range(pos, pos + 10):
        if block[at] < 0x80:
            return at + 1
    raise MalformedError("a varint has more than ten bytes", offset=base + pos)


def read_value(block: bytes, pos: int) -> tuple[int, int]:
    """Return the varint at ``block[pos]`` modulo 2^64, as protobuf reads it, and the position after it."""
    byte = block[pos]
    if byte < 0x80:
        return byte, pos + 1
    value = byte & 0x7F
    for at in range(pos + 1, pos + 10):
        byte = block[at]
        value |= (byte & 0x7F) << 7 * (at - pos)
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, at + 1
    raise MalformedError("a varint has more than ten bytes", offset=pos)


def no_field(tag: int, offset: int) -> MalformedError:
    """Return the error for a tag that is not that of a field."""
    what = f"wire type {tag & 7}" if tag & 7 > FIXED32 else "field number 0"
    return MalformedError(f"not a field: there is no {what}", offset=offset)
