"""The nodes of a TensorFlow graph, streamed: name, operation, inputs and device of each NodeDef, without a tree node.

A GraphDef may have a million NodeDefs; a tree node would take some 50 us each, this takes 3. The bytes of the list are
walked block by block, jumping over large attributes (constants). What the bytes of one part alone do not tell
(elements that chunks of a ``.cpb`` add to, damage) is read piece by piece, or through the tree.

WireField numbers are those of tensorflow/core/framework/node_def.proto.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from pparse.data.reader import Range
from pparse.errors import FaultError, PparseError
from pparse.findings import Finding
from pparse.kernels.wire import LEN, PADDING, read_length
from pparse.parsers.protobuf.index import Lost, OverlayEntry
from pparse.parsers.protobuf.lists import ListIndex, Run
from pparse.parsers.protobuf.window import Window
from pparse.viewers.tensor_proto.viewer import index_of, node_at

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any, Final

    from pparse.graphs.source import Row
    from pparse.parsers.protobuf.index import PartScan, Piece
    from pparse.parsers.protobuf.window import WireField
    from pparse.tree.node import Node

_NAME: Final = 1 << 3 | LEN
_OP: Final = 2 << 3 | LEN
_INPUT: Final = 3 << 3 | LEN
_DEVICE: Final = 4 << 3 | LEN
_ATTR: Final = 5 << 3 | LEN
_REST: Final = (6 << 3 | LEN, 7 << 3 | LEN)
# An entry of the map ``attr`` begins with its key, as every serializer writes it.
_CLASS: Final = b"\n\x06_class"
_LOCATION: Final = "loc:@"

_FIRST_BLOCK: Final = 4 << 10
_LAST_BLOCK: Final = 256 << 10
# A NodeDef larger than this that the end of a block cuts off is read field by field, not whole.
_LARGE: Final = 16 << 10


class NodeDefs:
    """The elements of a list of NodeDefs (``GraphDef.node``, ``FunctionDef.node_def``), streamed in order.

    ``elements`` is the list in the tree; None stands for an empty list. Unreadable fields of damaged ones are empty,
    and recorded in the findings of the document.
    """

    def __init__(self, elements: Node | None) -> None:
        self.elements: Any = elements

    def __len__(self) -> int:
        return len(self.elements) if self.elements is not None else 0

    def node(self, ordinal: int) -> Node:
        """Return the node of one element in the tree."""
        count = len(self)
        if not 0 <= ordinal < count:
            raise IndexError(f"there are {count} nodes, none with number {ordinal}")
        node: Node = self.elements.child(ordinal)
        return node

    def rows(self) -> Iterator[Row]:
        """Yield ``(ordinal, name, operation, inputs, device, colocated, None)`` of each element: values have no names.

        ``colocated`` are the names in the attribute ``_class``, without ``loc:@``. Names must be UTF-8.
        """
        if self.elements is None:
            return
        index = index_of(self.elements)
        if index is None:  # not made of NodeDefs: another schema
            for ordinal in range(len(self.elements)):
                yield self._by_tree(ordinal)
            return
        touched = index.touched()
        for first, segment in zip(index.firsts, index.segments, strict=True):
            if isinstance(segment, Run):
                yield from self._run(index, segment.scan, segment.key, first, segment.count, touched)
            else:
                for ordinal in range(first, first + segment.count):
                    yield self._by_pieces(ordinal, index.pieces(ordinal))

    # -- elements one by one in a part ---------------------------------------------------------------------------------

    def _run(
        self, index: ListIndex, scan: PartScan, key: int, ordinal: int, count: int, touched: Sequence[int]
    ) -> Iterator[Row]:
        """Yield the rows of ``count`` elements of a part, from number ``ordinal`` on."""
        stop = ordinal + count
        begin = ordinal
        for found in self._blocks(scan, key, ordinal, stop):
            rows = found if isinstance(found, list) else [self._at(scan, ordinal, found)]
            last = ordinal + len(rows)
            for number in touched[bisect_left(touched, ordinal) : bisect_left(touched, last)]:
                pieces = self._touched(index, scan, key, number, number - begin)
                rows[number - ordinal] = self._by_pieces(number, pieces)
            yield from rows
            ordinal = last
        for number in range(ordinal, stop):  # what the bytes do not tell
            yield self._by_tree(number)

    def _blocks(self, scan: PartScan, key: int, ordinal: int, stop: int) -> Iterator[list[Row] | WireField]:
        """Yield elements up to number ``stop``: many as rows, or one as a field. Ends early if bytes are missing."""
        session = self.elements.extraction.session
        part = scan.part
        window = scan.window()
        tag = key << 3 | LEN
        pos, step = scan.slots[key].offsets[0], _FIRST_BLOCK
        while ordinal < stop:
            session.check_cancelled()
            try:
                block = part.data.pread(pos, min(step, part.end - pos))
            except FaultError:  # a gap, or a chunk that cannot be decompressed
                return
            if not block:
                return
            rows: list[Row] = []
            size = len(block)
            after = read_node_defs(block + PADDING, 0, size, tag, ordinal, stop, rows)
            if rows:
                yield rows
                ordinal += len(rows)
            step = min(4 * step, _LAST_BLOCK)
            if ordinal >= stop:
                return
            if after and size - after < _LARGE and pos + size < part.end:
                pos += after
                continue
            # Large, damaged, or another field: one step by the window.
            try:
                field = window.field(pos + after)
            except FaultError:
                return
            if scan.key_of(field.tag) == key:
                yield field
                ordinal += 1
            pos, step = field.next, _FIRST_BLOCK

    def _at(self, scan: PartScan, ordinal: int, field: WireField) -> Row:
        """Return the row of one element from the field that holds it."""
        if field.end > scan.part.end:
            return self._by_tree(ordinal)
        return self._by_pieces(ordinal, (scan.part.data.range(field.start, field.end),))

    def _touched(self, index: ListIndex, scan: PartScan, key: int, ordinal: int, nth: int) -> list[Piece]:
        """Return the pieces of an element that chunks may add to, the ``nth`` of its part."""
        field = next(iter(scan.fields(key, nth)), None)
        if field is None or field.end > scan.part.end:
            return [Lost("the NodeDef is not whole", None)]
        return [scan.part.data.range(field.start, field.end), *index.pieces(ordinal)]

    def wire(self) -> Iterator[tuple[int, Range | None]]:
        """Yield the ordinal of each element with its bytes, tag and length included; None if not in one range."""
        index = index_of(self.elements)
        if index is None:
            return
        touched = set(index.touched())
        for first, segment in zip(index.firsts, index.segments, strict=True):
            if isinstance(segment, Run):
                part = segment.scan.part
                for ordinal, field in enumerate(segment.scan.fields(segment.key), first):
                    whole = ordinal not in touched and field.end <= part.end
                    yield ordinal, part.data.range(field.begin, field.next) if whole else None
            else:
                yield from ((ordinal, None) for ordinal in range(first, first + segment.count))

    def row(self, ordinal: int) -> Row:
        """Return the row of one element."""
        index = index_of(self.elements)
        if index is not None:
            at = bisect_right(index.firsts, ordinal) - 1
            segment = index.segments[at]
            if isinstance(segment, Run):
                pieces = self._touched(index, segment.scan, segment.key, ordinal, ordinal - index.firsts[at])
                return self._by_pieces(ordinal, pieces)
        return self._by_tree(ordinal)

    # -- one element -------------------------------------------------------------------------------------------------

    def _by_pieces(self, ordinal: int, pieces: Sequence[Piece]) -> Row:
        """Return the row of an element made of pieces; read it through the tree if chunks hold more than attributes."""
        reading = _NodeReading(self.elements)
        try:
            if all(map(reading.add, pieces)):
                return reading.row(ordinal)
        except (FaultError, UnicodeDecodeError):
            pass
        return self._by_tree(ordinal)

    def _by_tree(self, ordinal: int) -> Row:
        """Return the row of an element from the tree; damaged fields are empty, and recorded."""
        node = self.elements.child(ordinal)
        name, op, device = (str(_load(node, key) or "") for key in ("name", "op", "device"))
        inputs = _load_all(node, "input")
        attr = node.find("attr")
        value = attr.find("_class") if attr is not None else None
        texts = _load_all(value.find("list"), "s") if value is not None else []
        return ordinal, name, op, inputs, device, tuple(text.removeprefix(_LOCATION) for text in texts), None


def node_list(message: Node | None) -> Node | None:
    """Return the list of NodeDefs in a GraphDef or a FunctionDef; None for anything else."""
    return node_at(message, "node") or node_at(message, "node_def")


class _NodeReading:
    """One NodeDef, read field by field; large fields that are not needed are skipped."""

    def __init__(self, node: Node) -> None:
        self.limits = node.extraction.session.limits
        self.room = node.extraction.session.budget.charge(0, "the inputs of one node of a graph")
        self.texts: dict[int, bytes] = {}
        self.inputs: list[str] = []
        self.colocated: tuple[str, ...] = ()

    def add(self, piece: Piece) -> bool:
        """Read one piece; return False if it must be read through the tree."""
        if isinstance(piece, OverlayEntry):
            numbers = set(piece.numbers())
            return not numbers - {5, 6, 7} and not (5 in numbers and _overlays_class(piece))
        if not isinstance(piece, Range):
            return False
        window = Window(piece.data, piece.end)
        pos = piece.start
        while pos < piece.end:
            field = window.field(pos)
            pos = field.next
            if pos > piece.end or field.tag & 7 != LEN or not self._field(field, window):
                return False
        return True

    def _field(self, field: WireField, window: Window) -> bool:
        tag = field.tag
        if tag == _ATTR:
            return self._attr(field, window)
        if tag not in (_NAME, _OP, _INPUT, _DEVICE):
            return True
        self.limits.check("name_bytes", field.end - field.start, "a name in a NodeDef", offset=field.start)
        text = window.read(field.start, field.end)
        if tag == _INPUT:
            self.inputs.append(text.decode())
            if not len(self.inputs) & 0xFFF:
                self.room.resize(100 * len(self.inputs))
        else:
            self.texts[tag] = text
        return True

    def _attr(self, field: WireField, window: Window) -> bool:
        head = window.read(field.start, min(field.end, field.start + len(_CLASS)))
        if head != _CLASS:
            return head[:1] == b"\n"
        self.limits.check("header_bytes", field.end - field.start, "the attribute _class", offset=field.start)
        entry = window.read(field.start, field.end)
        found = read_class(entry + PADDING, len(_CLASS), len(entry))
        self.colocated = found or ()
        return found is not None

    def row(self, ordinal: int) -> Row:
        """Return what was read. Raises UnicodeDecodeError."""
        name, op, device = (self.texts.get(tag, b"").decode() for tag in (_NAME, _OP, _DEVICE))
        return ordinal, name, op, self.inputs, device, self.colocated, None


def read_node_defs(  # noqa: C901 -- hot loop: a call for each NodeDef costs 15 %
    block: bytes, pos: int, size: int, tag: int, ordinal: int, stop: int, rows: list[Row]
) -> int:
    """Append the rows of the NodeDefs in ``block[pos:size]``, fields with ``tag``; return where it stopped.

    ``ordinal`` is the number of the first, ``stop`` one past the last one wanted. Stops before anything that is
    not whole in the block, is another field, or needs a closer look. `PADDING` follows the block at ``size``.
    """
    while pos < size and ordinal < stop:
        begin = pos
        if block[pos] != tag:
            return begin
        length = block[pos + 1]
        pos += 2
        try:
            if length >= 0x80:
                length, pos = read_length(block, pos - 1)
            end = pos + length
            if end > size:
                return begin
            name = op = device = ""
            inputs: list[str] = []
            colocated: tuple[str, ...] = ()
            while pos < end:
                byte = block[pos]
                length = block[pos + 1]
                pos += 2
                if length >= 0x80:
                    length, pos = read_length(block, pos - 1)
                after = pos + length
                if byte == _ATTR:
                    if block[pos] != 0x0A:
                        return begin
                    if block[pos + 1] == 6 and block.startswith(_CLASS, pos):
                        found = read_class(block, pos + len(_CLASS), after)
                        if found is None or after > end:
                            return begin
                        colocated = found
                elif byte == _INPUT:
                    inputs.append(block[pos:after].decode())
                elif byte == _NAME:
                    name = block[pos:after].decode()
                elif byte == _OP:
                    op = block[pos:after].decode()
                elif byte == _DEVICE:
                    device = block[pos:after].decode()
                elif byte not in _REST:
                    return begin
                pos = after
            if pos != end:
                return begin
        except (PparseError, UnicodeDecodeError, IndexError):
            return begin
        rows.append((ordinal, name, op, inputs, device, colocated, None))
        ordinal += 1
    return pos


def read_class(block: bytes, pos: int, end: int) -> tuple[str, ...] | None:
    """Return the names in the value of an attribute ``_class`` (``list.s``), whose entry is ``block[pos:end]``.

    None if it is not in the form that serializers write: a message (2) with a message (1) with strings (2).
    """
    for tag in (0x12, 0x0A):
        if pos >= end:
            return ()
        if block[pos] != tag:
            return None
        length, pos = read_length(block, pos + 1)
        if pos + length != end:
            return None
    names = []
    while pos < end:
        if block[pos] != 0x12:
            return None
        length, pos = read_length(block, pos + 1)
        if length > end - pos:
            return None
        names.append(block[pos : pos + length].decode().removeprefix(_LOCATION))
        pos += length
    return tuple(names)


def _overlays_class(overlay: OverlayEntry) -> bool:
    """Return whether chunks add to the attribute ``_class``."""
    attr = overlay.field(5)
    return "_class" in attr.keys() or bool(len(attr.indices()))  # noqa: SIM118 -- no mapping


def _load(node: Node, key: str = "") -> Any:
    """Return a scalar, or one of a message; None if it is not set, or cannot be read, which is recorded."""
    try:
        found = node.find(key) if key else node
        value = found.load() if found is not None else None
        return value.decode() if isinstance(value, bytes) else value
    except (FaultError, UnicodeDecodeError) as error:
        _note(node, key, error)
        return None


def _load_all(node: Node | None, key: str) -> list[str]:
    """Return the elements of a list of strings; empty if they cannot be read, which is recorded."""
    found = node.find(key) if node is not None else None
    return [str(_load(kid) or "") for kid in found.children()] if found is not None else []


def _note(node: Node, key: str, error: Exception) -> None:
    """Record in the findings of the document what cannot be read, at ``key`` of a node or at the node itself."""
    code = "truncated" if isinstance(error, EOFError) else "malformed"
    reason = error.reason if isinstance(error, PparseError) else str(error)
    path = f"{node.path}.{key}" if key else node.path
    node.result.findings.add(Finding(code, reason, path=path, source=node.extraction.name, offset=node.start))
