"""Tells whether bytes look like a message of a type, by its fields and those of nested messages."""

from __future__ import annotations

from pparse.data.base import BytesData
from pparse.errors import MalformedError
from pparse.kernels.wire import END_GROUP, LEN, PADDING, SLACK, START_GROUP, read_length, read_tag, scan, skip_payload
from pparse.parsers.protobuf.index import PartScan, accepts
from pparse.parsers.protobuf.values import is_message
from pparse.protobuf.schema import TYPE_STRING

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pparse.protobuf.schema import MessageType


def fits(head: bytes, type: MessageType, *, complete: bool) -> bool:
    """Say whether the fields of a message (or its beginning) are all of ``type``, two levels down."""
    level = [(head, type, complete)]
    for _ in range(3):
        below = []
        for raw, kind, whole in level:
            found = PartScan(BytesData(raw).range(0, len(raw)), kind)
            try:
                pos, _ = scan(raw + PADDING, 0, len(raw) if whole else max(0, len(raw) - SLACK), found.found, [])
            except MalformedError:
                return False
            found.complete(0)
            if (whole and pos > len(raw)) or any(key < 0 or key not in kind.fields for key in found.slots):
                return False
            for key in found.slots:
                field = kind.fields[key]
                if field.wire_type != LEN:
                    continue
                for item, _ in zip(found.fields(key), range(8), strict=False):
                    if item.end > len(raw):
                        continue
                    if field.message is not None and is_message(field):
                        below.append((raw[item.start : item.end], field.message, True))
                    elif field.type == TYPE_STRING and not is_text(raw[item.start : item.end]):
                        return False
        level = below
    return bool(head)


def is_text(raw: bytes) -> bool:
    """Say whether bytes can be the text of a field: UTF-8 without control characters."""
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return False
    return not any(char < " " and char not in "\t\n\r" for char in text)


def fitting_tags(head: bytes, type: MessageType) -> int:
    """Return how many tags, from the first on and down to the leaves, belong to ``type`` before one that does not.

    So a message with damage near its beginning can still be recognised.
    """
    return _fitting_tags(head + PADDING, 0, len(head), type)


def goes_on_fitting(head: bytes, type: MessageType, least: int) -> bool:
    """Say whether bytes are the damaged beginning of a message of ``type``: ``least`` tags fit from a later offset on.

    That offset is a field after others that may belong to the type; or, if these end in something invalid, any offset
    after that. (A message of another type may have a field of this type.)
    """
    block, pos, size = head + PADDING, 0, len(head)
    known = True
    try:
        while pos < size:
            if pos and known and _fitting_tags(block, pos, size, type) >= least:
                return True
            tag, after = read_tag(block, pos)
            field = type.fields.get(tag >> 3)
            if tag < 8 or tag & 7 in (START_GROUP, END_GROUP):
                break
            known = known and field is not None and accepts(field, tag & 7)
            if tag & 7 == LEN:
                length, after = read_length(block, after)
                after += length
            else:
                after = skip_payload(block, after, tag & 7)
            pos = after
        else:
            return False
    except MalformedError:
        pass
    heads = {number << 3 | LEN for number, field in type.fields.items() if field.message is not None}
    return any(block[at] in heads and _fitting_tags(block, at, size, type) >= least for at in range(pos, size))


def _fitting_tags(block: bytes, pos: int, size: int, type: MessageType) -> int:
    count = 0
    open_types: list[tuple[int, MessageType]] = [(1 << 62, type)]
    try:
        while pos < size:
            end, kind = open_types[-1]
            if pos >= end:
                open_types.pop()
                continue
            tag, pos = read_tag(block, pos)
            field = kind.fields.get(tag >> 3)
            if field is None or not accepts(field, tag & 7) or tag & 7 in (START_GROUP, END_GROUP):
                return count
            count += 1
            if tag & 7 != LEN:
                pos = skip_payload(block, pos, tag & 7)
                continue
            length, pos = read_length(block, pos)
            if pos + length > end or (field.type == TYPE_STRING and not is_text(block[pos : min(pos + length, size)])):
                return count - 1
            if field.message is not None:
                open_types.append((pos + length, field.message))
            else:
                pos += length
    except MalformedError:
        pass
    return count
