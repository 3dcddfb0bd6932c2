"""Writes a message of the lazy tree as plain bytes, whatever it is made of.

Messages without overlay entries are copied as they are; along the paths of overlay entries, messages are merged.
Lengths come before the content, so everything is read twice: once to add up the lengths (8 bytes are kept per merged
message), once to write.
"""

from __future__ import annotations

import heapq
from array import array

from pparse.data.base import copy_into
from pparse.errors import MalformedError, PparseError
from pparse.findings import Status
from pparse.kernels.varint import encode_varint
from pparse.kernels.wire import END_GROUP, LEN, START_GROUP
from pparse.parsers.protobuf.index import ChunkRange, MessageIndex, OverlayEntry, OverlayField, PartScan
from pparse.parsers.protobuf.lists import ListIndex
from pparse.parsers.protobuf.values import encode, is_message
from pparse.protobuf.schema import TYPE_BYTES, TYPE_GROUP, TYPE_STRING

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any

    from pparse.data.base import Range
    from pparse.parsers.protobuf.index import Contribution, Origin
    from pparse.protobuf.schema import FieldType
    from pparse.tree.node import Node


# What is written, one operation after another: bytes, a range of the source; the tag of a message whose length follows
# it, first in a tuple; and None at the end of such a message.


def measure(operations: Iterable[Any], *, keeps_empty: bool = True) -> array[int]:
    """Return the size of the message, and of each message in it that begins with a tuple, in order.

    ``keeps_empty``: whether those without a byte are written, too.
    """
    sizes = array("Q", [0])
    open_ones: list[tuple[int, int]] = [(0, 0)]
    for op in operations:
        if op is None:
            at, tag = open_ones.pop()
            if sizes[at] or keeps_empty:
                sizes[open_ones[-1][0]] += tag + len(encode_varint(sizes[at])) + sizes[at]
        elif isinstance(op, tuple):
            open_ones.append((len(sizes), len(op[0])))
            sizes.append(0)
        else:
            sizes[open_ones[-1][0]] += len(op)
    return sizes


def write(
    operations: Iterable[Any], sizes: array[int], out: Callable[[bytes], object], *, keeps_empty: bool = True
) -> int:
    """Write the message piece by piece, with the sizes of `measure`; return the number of bytes."""
    done, number = 0, 1
    for op in operations:
        if op is None:
            continue
        if isinstance(op, tuple):
            size = sizes[number]
            op = op[0] + encode_varint(size) if size or keeps_empty else b""
            number += 1
        if isinstance(op, bytes):
            out(op)
        else:
            copy_into(op.data, op.start, len(op), out)
        done += len(op)
    return done


def operations(root: Node) -> Iterator[Any]:
    """Yield the operations for the whole message ``root``, without recursion."""
    stack = [_message(root)]
    while stack:
        op = next(stack[-1], None)
        if op is None:
            stack.pop()
            if stack:
                yield None
            continue
        yield op
        if isinstance(op, tuple):
            stack.append(op[1])


def _message(node: Node) -> Iterator[Any]:
    """Yield the operations for a message: untouched bytes, part by part, and then each touched field."""
    _require_whole(node)
    node.index_to(None)
    _require_whole(node)
    index: MessageIndex = node.index.note  # type: ignore[union-attr]
    origin: Origin = node.note
    overlays = [part for part in index.parts if isinstance(part, OverlayEntry)]
    numbers = {number for overlay in overlays for number in overlay.numbers()}
    if origin.type is not None:
        numbers |= _rivals(origin, index, numbers)
    for part in index.parts:
        if isinstance(part, PartScan):
            yield from _untouched(part, numbers)
    for number, contributions in index.contributions(origin.type).items():
        if number in numbers and contributions:
            yield from _field(node, number, contributions)


def _rivals(origin: Origin, index: MessageIndex, numbers: set[int]) -> set[int]:
    """Return all members of oneofs of which chunks set a member: they cannot be copied as they are."""
    type = origin.type
    assert type is not None  # noqa: S101 -- the caller looked
    touched = {type.fields[number].oneof for number in numbers if number in type.fields} - {None}
    if not touched:
        return set()
    present = {key for part in index.parts if isinstance(part, PartScan) for key in part.slots}
    return {key for key in present if key in type.fields and type.fields[key].oneof in touched}


def _untouched(part: PartScan, numbers: set[int]) -> Iterator[Range]:
    """Yield the ranges of a part without the fields with these numbers."""
    whole = part.part
    skipped = [part.fields(number) for number in numbers if number in part.slots]
    start = whole.start
    for field in heapq.merge(*skipped, key=lambda field: field.begin):
        if field.begin > start:
            yield whole.data.range(start, field.begin)
        start = field.next
    if whole.end > start:
        yield whole.data.range(start, whole.end)


def _field(node: Node, number: int, contributions: list[Contribution]) -> Iterator[Any]:
    """Yield the operations for a field that chunks touch."""
    origin: Origin = node.note
    field = origin.type.fields.get(number) if origin.type is not None else None
    if field is None:
        name = origin.type.full_name if origin.type else "the type"
        raise MalformedError(f"chunks go to field {number}, which {name} does not have", path=node.path)
    if field.is_map:
        yield from _map(node, field)
    elif field.repeated:
        yield from _list(node, field)
    elif is_message(field):
        yield from _submessage(field, _child(node, field.name))
    else:
        last = contributions[-1]
        if isinstance(last, OverlayField):
            yield from _scalar(field, _child(node, field.name))
        else:
            found = last[0].last(number)
            yield last[0].part.data.range(found.begin, found.next)


def _child(node: Node, name: str) -> Node:
    found = node.find(name)
    if found is None:
        raise MalformedError(f"the field {name} disappeared during writing", path=node.path)
    return found


def _tag(field: FieldType, wire: int | None = None) -> bytes:
    return encode_varint(field.number << 3 | (field.wire_type if wire is None else wire))


def _submessage(field: FieldType, child: Node) -> Iterator[Any]:
    if field.type == TYPE_GROUP:
        yield _tag(field, START_GROUP)
        yield from _message(child)  # in place: a group has no length
        yield _tag(field, END_GROUP)
    else:
        yield _tag(field, LEN), _message(child)


def _scalar(field: FieldType, child: Node) -> Iterator[Any]:
    """Yield a scalar in a chunk: text is decoded, bytes are copied."""
    _require_whole(child)
    if field.type == TYPE_BYTES and isinstance(child.parts[0], ChunkRange):
        part = child.parts[0]
        yield _tag(field) + encode_varint(len(part))
        if len(part):
            yield part
        return
    try:
        value = child.load()
    except PparseError as error:  # an error of the chunk; its place in the message is known here
        error.path, error.source = error.path or child.path, error.source or child.extraction.name
        error.offset = child.start if error.offset is None else error.offset
        raise
    if field.type == TYPE_STRING and not isinstance(value, str):
        raise MalformedError("the text in a chunk is invalid", path=child.path)
    yield _tag(field) + encode(field, value)


def _value(field: FieldType, child: Node) -> Iterator[Any]:
    """Yield one value, a message or a scalar, with its tag."""
    if is_message(field):
        yield from _submessage(field, child)
    elif child.note.text:
        yield from _scalar(field, child)
    else:
        yield _tag(field) + encode(field, child.load())


def _list(node: Node, field: FieldType) -> Iterator[Any]:
    """Yield all elements of a repeated field, some of which chunks touch."""
    child = _child(node, field.name)
    child.index_to(None)
    _require_whole(child)
    index = child.index.note  # type: ignore[union-attr]
    assert isinstance(index, ListIndex)  # noqa: S101 -- what the parser keeps for lists
    for item in index.wire():
        if isinstance(item, int):
            yield from _value(field, child.child(item))
        else:
            yield item


def _map(node: Node, field: FieldType) -> Iterator[Any]:
    """Yield all entries of a map, each key once."""
    child = _child(node, field.name)
    child.index_to(None)
    _require_whole(child)
    for pair in child.children():
        _require_whole(pair)
        yield _tag(field, LEN), _pair(field, pair)


def _pair(field: FieldType, pair: Node) -> Iterator[Any]:
    assert field.map_key is not None  # noqa: S101 -- a map has both
    assert field.map_value is not None  # noqa: S101
    yield _tag(field.map_key) + encode(field.map_key, pair.key)
    yield from _value(field.map_value, pair)


def _require_whole(node: Node) -> None:
    """Raise `MalformedError` or `EndOfDataError` for a node that is not whole."""
    status = node.known_status
    if status is None or status is Status.COMPLETE:
        return
    finding = node.finding
    reason = finding.reason if finding is not None else f"it is {status}"
    reason, offset = f"cannot be merged: {reason}", finding.offset if finding is not None else None
    raise status.error(reason, path=node.path or None, offset=offset, source=node.extraction.name)
