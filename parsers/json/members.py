"""The members of wide objects of JSON, many decoded at a time and without nodes."""

from __future__ import annotations

from bisect import bisect_right

from pparse.errors import PASSING, EndOfDataError, LimitError, MalformedError, PparseError, UnsupportedError
from pparse.findings import Finding, Status
from pparse.parsers.json.damage import DECODE_BATCH, DamagedText, Mended
from pparse.parsers.json.text import WHITESPACE
from pparse.tree.engine import largest_block
from pparse.tree.entry import UNLOADED_VALUE, Entry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from pparse.tree.index import ChildIndex
    from pparse.tree.node import Node


class ObjectMembers(DamagedText):
    """The part of `pparse.parsers.json.parser.JsonParser` that lists the members of an object."""

    def each_member(self, node: Node, first: int = 0) -> Iterator[tuple[int, str | None, Any, Entry | None]]:
        """Yield ``(ordinal, key, value, entry)`` of each child of an object from ``first`` on, decoding many at a time.

        If the child is whole, ``value`` is plain Python and ``entry`` None; otherwise ``value`` is `UNLOADED_VALUE` and
        ``entry`` tells what is wrong. This is the fast way to list a wide object.
        """
        limits = self.result.extraction.session.limits
        skip = first
        whole = self._decode_whole(node) if not first and node.index is None else None
        if whole is not None:
            for ordinal, (key, value) in enumerate(whole):
                yield ordinal, key, value, None
            return
        while True:
            index = node.index_to(None)
            if first >= index.count:
                return
            if isinstance(index.note, Mended):
                yield from self._members_one_by_one(node, max(first, skip), index.count)
                return
            first, begin, count, end = self._batch(index, first)
            self.result.extraction.data.check_unchanged()
            text = b""
            if end - begin <= limits.leaf_bytes and not (index.note is not None and first + count == index.count):
                text = b"{%s}" % self.result.extraction.data.pread(begin, end - begin)
            try:
                pairs = self._decode_members(text, begin, count) if text else None
            except MalformedError:
                if self._take_mended(node, index):
                    continue
                pairs = None
            if pairs is None:
                yield from self._members_one_by_one(node, max(first, skip), first + count)
            for ordinal, (key, value) in enumerate(pairs or (), first):
                if ordinal >= skip:
                    yield ordinal, key, value, None
            first += count

    def member_batches(self, node: Node) -> Iterator[tuple[int, list[tuple[Any, Any]]]]:
        """Yield ``(ordinal of the first, members)`` of an object, some at a time, decoded while its index is made.

        Each byte is read once. Ends behind the last child, or before the first one that is not whole, exceeds a limit,
        or of which an index that is made anew tells otherwise: `each_member` has all that follow.
        """
        index = node.index_to(0)
        self._attach(index)
        first, begin = 0, node.start + 1
        try:
            while node.index is index and not isinstance(index.note, Mended):
                if first == index.count:
                    if index.complete:
                        return
                    self._read_on(node, index)
                    continue
                count, end = self._known_stretch(index, first, begin)
                if not count:
                    return
                self.result.extraction.data.check_unchanged()
                if end - begin > self.result.extraction.session.limits.leaf_bytes:
                    for ordinal, key, value, entry in self._members_one_by_one(node, first, first + count):
                        if entry is not None:
                            return
                        yield ordinal, [(key, value)]
                else:
                    pairs = self._decode_stretch(begin, end, count)
                    if pairs is None:
                        return
                    yield first, pairs
                first, begin = first + count, end + 1
        finally:
            self._detach(index)

    def has_more_than(self, node: Node, count: int) -> bool:
        """Return whether a container has more than ``count`` children, reading no more than that takes.

        The text is kept for a listing by `member_batches`. False if it is too long for that and has fewer.
        """
        from pparse.parsers.json.ahead import MOST_HELD

        index = node.index_to(0)
        if not index.complete:
            self._attach(index)
        begin = index.context.pos if index.context is not None else 0
        while not index.complete and index.count <= count and index.context.pos - begin < MOST_HELD:
            self._read_on(node, index)
        return index.count > count

    def _attach(self, index: ChildIndex) -> None:
        """Keep the text that is read for ``index`` from now on."""
        if not index.complete and (self._ahead is None or self._ahead.index is not index):
            from pparse.parsers.json.ahead import TextAhead  # only large headers need it

            self._ahead = TextAhead(index, self.result.extraction.session.budget)

    def _detach(self, index: ChildIndex) -> None:
        if self._ahead is not None and self._ahead.index is index:
            self._ahead.release()
            self._ahead = None

    def _read_on(self, node: Node, index: ChildIndex) -> None:
        """Index at least one more child, if there is one, in blocks that grow from call to call."""
        ahead, context = self._ahead, index.context
        if ahead is not None and context is not None:
            context.first_block = ahead.block
            largest = largest_block(self.result.extraction.session.budget, self.block_factor)
            ahead.block = min(4 * ahead.block, largest)
        node.index_to(index.count + 1)

    @staticmethod
    def _known_stretch(index: ChildIndex, first: int, begin: int) -> tuple[int, int]:
        """Return ``(count, end)`` of children to decode together from ``first`` on, which begins at ``begin``.

        No children if one of them is the last of a cut container.
        """
        offsets = index.offsets
        slot = first // index.stride + 1
        stop = max(slot, bisect_right(offsets, begin + DECODE_BATCH, slot) - 1)
        if index.complete:
            end, closed = index.end, index.note is None
        else:
            end, closed = index.context.scratch.pending - 1, True
        if stop < len(offsets) - 1 or (stop < len(offsets) and (end - begin > DECODE_BATCH or not closed)):
            return stop * index.stride - first, offsets[stop] - 1
        return (index.count - first, end) if closed else (0, end)

    def _decode_stretch(self, begin: int, end: int, count: int) -> list[tuple[str, Any]] | None:
        """Return ``count`` members, decoded; None if they are not sound, or one exceeds a limit."""
        text = self._ahead.take(begin, end) if self._ahead is not None else None
        if text is None:
            text = self.result.extraction.data.pread(begin, end - begin)
        try:
            return self._decode_members(b"{%s}" % text, begin, count)
        except MalformedError:
            return None

    def _decode_members(self, text: bytes, begin: int, count: int) -> list[tuple[str, Any]] | None:
        """Return the ``count`` members in ``text``; None where one is refused. Raises `MalformedError`."""
        try:
            self.decoder.decode_shallow(text, begin - 1)
        except PASSING:
            raise
        except MalformedError:
            raise
        except PparseError:
            return None
        if len(self.decoder.pairs) != count:
            raise MalformedError("children are missing", offset=begin)
        return self.decoder.pairs

    def decode_once(self, root: Node) -> list[tuple[str, Any]]:
        """Return the members of the document if it is small and sound, and was neither decoded nor indexed before.

        Otherwise, and on later calls, return nothing.
        """
        if root.index is not None or self._mended is not None:
            return []
        pairs, self.decoder.pairs = self._decode_whole(root) or [], []
        return pairs

    def _decode_whole(self, node: Node) -> list[tuple[str, Any]] | None:
        """Return the members of a small, faultless object without an index; None for any other."""
        end = self.result.extraction.known_end(node)
        if end - node.start > self.result.extraction.session.limits.leaf_bytes or node.kind != "object":
            return None
        self.result.check_open()
        text = self.result.extraction.data.pread(node.start, end - node.start).rstrip(WHITESPACE)
        if node.parent is None:
            if not self._parses(text):
                return None
        else:
            try:
                self.decoder.decode_shallow(text, node.start)
            except PASSING:
                raise
            except PparseError:
                return None
        if node.end is None:
            self.result.close_node(node, node.known_status or Status.COMPLETE, None, end=node.start + len(text))
        return self.decoder.pairs

    def _members_one_by_one(
        self, node: Node, first: int, last: int
    ) -> Iterator[tuple[int, str | None, Any, Entry | None]]:
        for ordinal, entry in self.result.entries_from(node, first):
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

    @staticmethod
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
