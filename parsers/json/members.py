"""The members of a wide object, many decoded at a time and without nodes."""

from __future__ import annotations

from pparse.errors import DataError, EndOfDataError, LimitError, MalformedError, PparseError, UnsupportedError
from pparse.findings import Finding, Status
from pparse.parsers.json.record import Mended
from pparse.parsers.json.text import DECODE_BATCH, WHITESPACE
from pparse.tree.entry import UNLOADED_VALUE, Entry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from pparse.parsers.json.parser import JsonParser
    from pparse.tree.index import ChildIndex
    from pparse.tree.node import Node


def each_member(parser: JsonParser, node: Node, first: int = 0) -> Iterator[tuple[int, str | None, Any, Entry | None]]:
    """Yield what `JsonParser.each_member` does."""
    limits = parser.result.extraction.session.limits
    skip = first
    whole = _decode_whole(parser, node) if not first and node.index is None else None
    if whole is not None:
        for ordinal, (key, value) in enumerate(whole):
            yield ordinal, key, value, None
        return
    while True:
        index = node.index_to(None)
        if first >= index.count:
            return
        if isinstance(index.note, Mended):
            yield from _members_one_by_one(parser, node, max(first, skip), index.count)
            return
        first, begin, count, end = _batch(index, first)
        parser.result.extraction.data.check_unchanged()
        text = b""
        if end - begin <= limits.leaf_bytes and not (index.note is not None and first + count == index.count):
            text = b"{%s}" % parser.result.extraction.data.pread(begin, end - begin)
        try:
            pairs = _decode_members(parser, text, begin, count) if text else None
        except MalformedError:
            if parser.damage.take(node, index):
                continue
            pairs = None
        if pairs is None:
            yield from _members_one_by_one(parser, node, max(first, skip), first + count)
        for ordinal, (key, value) in enumerate(pairs or (), first):
            if ordinal >= skip:
                yield ordinal, key, value, None
        first += count


def _decode_members(parser: JsonParser, text: bytes, begin: int, count: int) -> list[tuple[str, Any]] | None:
    """Return the ``count`` members in ``text``; None where one is refused. Raises `MalformedError`."""
    try:
        parser.decoder.decode_shallow(text, begin - 1)
    except MalformedError:
        raise
    except DataError:
        return None
    if len(parser.decoder.pairs) != count:
        raise MalformedError("children are missing", offset=begin)
    return parser.decoder.pairs


def _decode_whole(parser: JsonParser, node: Node) -> list[tuple[str, Any]] | None:
    """Return the members of a small, faultless object without an index; None for any other."""
    end = parser.result.extraction.find_end(node)
    if end - node.start > parser.result.extraction.session.limits.leaf_bytes or node.kind != "object":
        return None
    parser.result.check_open()
    text = parser.result.extraction.data.pread(node.start, end - node.start).rstrip(WHITESPACE)
    if node.parent is None:
        if not parser.damage.parses(text):
            return None
    else:
        try:
            parser.decoder.decode_shallow(text, node.start)
        except DataError:
            return None
    if node.end is None:
        parser.result.close_node(node, node.known_status or Status.COMPLETE, None, end=node.start + len(text))
    return parser.decoder.pairs


def _members_one_by_one(
    parser: JsonParser, node: Node, first: int, last: int
) -> Iterator[tuple[int, str | None, Any, Entry | None]]:
    for ordinal, entry in parser.result.entries_from(node, first):
        if ordinal >= last:
            return
        key = entry.key if isinstance(entry.key, str) else None
        if entry.status is not Status.COMPLETE:
            yield ordinal, key, UNLOADED_VALUE, entry
        elif entry.value is not UNLOADED_VALUE:
            yield ordinal, key, entry.value, None
        else:
            try:
                yield ordinal, key, node.child(ordinal).to_python(), None
            except (EndOfDataError, MalformedError) as error:
                yield ordinal, key, UNLOADED_VALUE, _refused(entry, Status.DAMAGED, "malformed", error)
            except (LimitError, UnsupportedError) as error:
                yield ordinal, key, UNLOADED_VALUE, _refused(entry, Status.UNSUPPORTED, "limit", error)


def _batch(index: ChildIndex, first: int) -> tuple[int, int, int, int]:
    """Return ``(first, offset, count, end)`` of children to decode together, with ``first`` among them."""
    stride, offsets = index.stride, index.offsets
    slot = first // stride
    first = slot * stride
    begin = offsets[slot]
    stop = slot + 1
    while stop < len(offsets) and offsets[stop] - begin <= DECODE_BATCH:
        stop += 1
    if stop >= len(offsets):
        return first, begin, index.count - first, index.end
    return first, begin, (stop - slot) * stride, offsets[stop] - 1


def _refused(entry: Entry, status: Status, code: str, error: PparseError) -> Entry:
    """Return a copy of an entry, which the index may hold, for a child that cannot be decoded."""
    finding = Finding(code, error.reason, offset=error.offset, option=error.option)
    return Entry(entry.key, entry.kind, entry.start, entry.end, status=status, finding=finding, at=entry.at)
