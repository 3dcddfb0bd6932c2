"""Where a TensorFlow document has tensors: in the constants of its graphs and functions, and in other attributes.

They are streamed: a NodeDef without a tensor costs a look at a few bytes, and nothing is kept. A tensor is named after
its node if it is the ``value`` of a Const, ``@function/node`` in a function; ``node.attr`` in another attribute, and
``node.attr[3]`` in a list. A file with chunks but without their metadata has the tensors of each chunk.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import namedtuple
from functools import cached_property, partial
from itertools import accumulate, islice, repeat

from pparse.errors import FaultError, PparseError
from pparse.findings import Finding, Status
from pparse.kernels.wire import PADDING, VARINT, read_length, skip_payload
from pparse.parsers.cpb.parser import CHUNKS
from pparse.parsers.protobuf.index import WireWindow
from pparse.parsers.protobuf.message import Message, Problem, problem_of
from pparse.protos import schema as builtin_schema
from pparse.tree.below import kids_of, node_at, value_at
from pparse.tree.entry import SCALAR
from pparse.viewers.tensor_proto.viewer import TensorPlace, TensorPlaces, index_of, messages_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any, Final

    from pparse.parsers.protobuf.index import Payload, Piece
    from pparse.parsers.protobuf.lists import Run
    from pparse.parsers.protobuf.parser import ProtobufParser
    from pparse.tree.node import Node
    from pparse.viewers.tensorflow.tensors import TensorflowMaker


# -- The name of a constant that is searched for, and the bytes that a NodeDef with that name must contain -------------

# A label is the name of the node, or that name with ``.attr`` or ``.attr[3]`` appended. So for a known label, the name
# of the node is one of a few texts, and is in the NodeDef as it is, after its length.

# For up to this many dots in a name, each possible name of the node is searched for.
_MOST_DOTS: Final = 8


def letters_of(name: str, prefix: str = "") -> tuple[bytes, ...]:
    """Return byte strings, one of which is in every NodeDef that may have the name after ``prefix``; () if unknown.

    A missing or unreadable name of a node cannot be searched for: its label begins with ``.`` or ``[``.
    """
    name = name[len(prefix) :]
    if not name or name[0] in ".[":
        return ()
    try:
        text = name.encode()
    except UnicodeEncodeError:
        return ()
    texts = [*(text[:at] for at in range(len(text)) if text[at] == 0x2E), text]
    if len(texts) > _MOST_DOTS:
        return (texts[0],)  # all others begin with it
    # The length in one byte, or the last byte of a longer varint with the same value.
    return tuple(
        head + text for text in texts for head in ((bytes((len(text),)), b"\0") if len(text) < 0x80 else (b"",))
    )


SAVED_MODEL: Final = "tensorflow.SavedModel"
META_GRAPH: Final = "tensorflow.MetaGraphDef"
GRAPH: Final = "tensorflow.GraphDef"
LIBRARY: Final = "tensorflow.FunctionDefLibrary"
FUNCTION: Final = "tensorflow.FunctionDef"
NODE: Final = "tensorflow.NodeDef"
TENSOR: Final = "tensorflow.TensorProto"
KINDS: Final = frozenset((SAVED_MODEL, META_GRAPH, GRAPH, LIBRARY, FUNCTION, NODE, TENSOR, CHUNKS))

# Fields: of NodeDef, of a pair of its map, of AttrValue and its list.
_NAME, _OP, _ATTR = 1, 2, 5
_LIST, _TENSOR, _LIST_TENSOR = 1, 8, 8
_TAG_NAME, _TAG_OP, _TAG_ATTR, _TAG_TENSOR = 0x0A, 0x12, 0x2A, 0x42
_REST: Final = (0x1A, 0x22, 0x32, 0x3A)
# NodeDefs up to this size are scanned in one go.
_SMALL: Final = 16 << 10
CONST: Final = "Const"
# How the tag of a tensor begins: in one byte, or in more than it needs, which the library reads, too.
_TENSORS: Final = (bytes((_TAG_TENSOR,)), bytes((_TAG_TENSOR | 0x80, 0)), bytes((_TAG_TENSOR | 0x80, 0x80)))
# A NodeDef without any of these holds no tensor; a longer varint with the length of `CONST` ends with a zero.
_HOLDING: Final = (*_TENSORS, b"\x05Const", b"\0Const")
# NodeDefs that are searched for names before a table of all names is made, and how often others may be skipped.
_MOST_LOOKED: Final = 1 << 16
_MOST_SEARCHES: Final = 64
# NodeDefs of up to so many bytes together are searched for the letters of a name.
_MOST_BYTES: Final = 1 << 20


class Constants(TensorPlaces):
    """The constants of one document, in order; numbers are those of the scope (a graph or a function), and of the node.

    A name is searched for on the first look-up, and as long as most NodeDefs can be skipped.
    """

    layouts = "II"
    what = "constants"
    maker: TensorflowMaker

    def __init__(self, parser: ProtobufParser, maker: TensorflowMaker) -> None:
        super().__init__(parser, maker)
        schema = builtin_schema()
        self.node_type = schema.message(NODE)
        self.attr_type = schema.message("tensorflow.AttrValue")
        # The part used last, and the list of its functions. Nothing else holds that list: otherwise it would be read
        # again for each function in it.
        self._held: tuple[Base, Node, Node | None] | None = None
        self._searches = self._looked = 0  # names that were looked for, and NodeDefs that were looked at for that

    # -- scopes ------------------------------------------------------------------------------------------------------

    @cached_property
    def bases(self) -> list[Base]:
        """The graphs, and other parts with constants."""
        root = self.parser.result.root
        if root.kind != CHUNKS:
            return list(_bases_of(root, ""))
        return [base for chunk in root.children() for base in _bases_of(chunk, chunk.path)]

    @cached_property
    def _firsts(self) -> list[int]:
        """The numbers of the first scopes of the parts."""
        return list(accumulate((base.count for base in self.bases[:-1]), initial=0))

    def _opened(self, base: Base) -> tuple[Node, Node | None]:
        """Return the node of a part, and the list of its functions if it has one."""
        held = self._held
        if held is None or held[0] is not base:
            node = self.parser.result.root.at(base.path)
            functions = None
            if base.kind == GRAPH and base.count > 1:
                functions = functions_of(node)
            elif base.kind == LIBRARY:
                functions = node.find("function")
            self._held = held = base, node, functions
        return held[1:]

    # -- everything --------------------------------------------------------------------------------------------------

    def places(
        self, *, most: int | None = None, scopes: list[Any] | None = None, sought: str | None = None
    ) -> Iterator[TensorPlace]:
        """Yield where each tensor is, in file order, with its name, which may not be unique.

        If a name is ``sought``, NodeDefs without its letters may be left out. Reads at most ``most`` NodeDefs.
        """
        steps = repeat(None) if most is None else repeat(None, most)
        places = ((base, inner) for base in self.bases for inner in range(base.count))
        for number, (base, inner) in enumerate(places):
            try:
                yield from self._places_in(base, inner, number, sought, steps, every=most is not None)
            except FaultError as error:
                self._note(base.path, error)

    def _places_in(
        self, base: Base, inner: int, number: int, sought: str | None, steps: Iterator[object], *, every: bool
    ) -> Iterator[TensorPlace]:
        if next(steps, False) is False:
            return
        node, functions = self._opened(base)
        if base.kind in (TENSOR, NODE):
            yield from self._alone(base, node, number)
            return
        nodes, prefix = _nodes_of(node, functions, base.kind, inner)
        if nodes is None or (sought is not None and not sought.startswith(prefix)):
            return
        session = self.parser.result.extraction.session
        letters = letters_of(sought, prefix) if sought is not None else () if every else _HOLDING
        for (ordinal, pieces, window), _ in zip(self._elements(nodes, letters), steps, strict=False):
            if not ordinal & 0xFFF:
                session.check_cancelled()
            yield from self._places_of((number, ordinal), prefix, pieces, window)

    def _alone(self, base: Base, node: Node, number: int) -> Iterator[TensorPlace]:
        """Yield the tensors of a part that is a single message."""
        if base.kind == TENSOR:
            yield TensorPlace(base.path, node.note.pieces, None, (number, 0))
        else:
            yield from self._places_of((number, 0), "", node.note.pieces)

    def _elements(
        self, nodes: Node, letters: Sequence[bytes] = ()
    ) -> Iterator[tuple[int, Sequence[Piece], WireWindow | None]]:
        """Yield the pieces of each NodeDef of a list, and a window that may hold its bytes.

        With ``letters``, NodeDefs that contain none of them may be left out.
        """
        return messages_of(nodes, partial(self._numbered, letters=letters) if letters else None)

    def _numbered(self, run: Run, window: WireWindow, *, letters: Sequence[bytes]) -> Iterator[Payload]:
        """Yield the elements of a run with their numbers, except those that contain none of the ``letters``."""
        scan = run.scan
        check = self.parser.result.extraction.session.check_cancelled
        for first, count, low, high in scan.groups_of(run.key, window):
            block = scan.part.data.known(low, high - low) if high - low <= _MOST_BYTES else b""
            is_all, found = len(block) == high - low, _next(block, letters, 0)
            if is_all and found < 0:
                if not first & 0xFFFF:
                    check()
                continue
            self._looked += 0 if letters is _HOLDING else count
            for payload in islice(scan.payloads(run.key, window, first), count):
                if is_all and 0 <= found < payload[1] - low:
                    found = _next(block, letters, payload[1] - low)
                if not is_all or 0 <= found < payload[2] - low:
                    yield payload

    def _note(self, path: str, error: PparseError) -> None:
        finding = Finding("malformed", error.reason, path=path, source=self.make.extraction.name, offset=error.offset)
        self.parser.result.findings.add(finding)

    # -- one node ----------------------------------------------------------------------------------------------------

    def _places_of(
        self, at: tuple[int, int], prefix: str, pieces: Sequence[Piece], window: WireWindow | None = None
    ) -> Iterator[TensorPlace]:
        """Yield the tensors of one NodeDef."""
        part = self.plain(pieces)
        if part is not None and part.end - part.start <= _SMALL:
            window = window or WireWindow(part.data, part.end)
            raw = window.read(part.start, part.end)
            if _next(raw, _HOLDING, 0) < 0:
                return
            found = tensors_in(raw + PADDING, len(raw))
            if found is not None:
                data, base = part.data, part.start
                for label, start, end in found:
                    yield TensorPlace(prefix + label, (data.range(base + start, base + end),), window, at)
                return
        yield from self._by_messages(at, prefix, pieces)

    def _by_messages(self, at: tuple[int, int], prefix: str, pieces: Sequence[Piece]) -> Iterator[TensorPlace]:
        message = Message(self.make, pieces, self.node_type)
        name = self.text(message, _NAME, None)
        shown = prefix + (name if name is not None else f"[{at[1]}]")
        is_const = self.text(message, _OP) == CONST
        seen = False
        problem = message.problem
        try:
            for key, value in message.items(_ATTR):
                attr = Message(self.make, value, self.attr_type, message.near)
                own = is_const and key == "value"
                label = shown if own else f"{shown}.{key}"
                tensor = attr.pieces(_TENSOR)
                if tensor is not None:
                    seen = seen or own
                    yield TensorPlace(label, tensor, attr.near, at)
                elif own:
                    problem = attr.problem or problem
                listed = attr.message(_LIST)
                if listed is not None:
                    for number, element in enumerate(listed.elements(_LIST_TENSOR)):
                        yield TensorPlace(f"{label}[{number}]", element, listed.near, at)
        except FaultError as error:
            problem = problem_of(error)
        if is_const and not seen:
            problem = problem or Problem(Status.DAMAGED, "the constant has no value")
            yield TensorPlace(shown, problem, None, at)

    # -- by name -----------------------------------------------------------------------------------------------------

    def worth_searching(self, name: str) -> Iterator[TensorPlace] | None:
        """Return the places that may have a name."""
        self._searches += 1
        few = self._searches < _MOST_SEARCHES and self._looked < _MOST_LOOKED
        if self._searches == 1 or (few and letters_of(name)):
            return self.places(sought=name)
        return None

    def at(self, scopes: Sequence[Any], *numbers: int) -> Iterator[TensorPlace]:
        """Yield the places of one node."""
        scope, ordinal = numbers
        part = bisect_right(self._firsts, scope) - 1
        base, inner = self.bases[part], scope - self._firsts[part]
        node, functions = self._opened(base)
        if base.kind in (TENSOR, NODE):
            yield from self._alone(base, node, scope)
            return
        nodes, prefix = _nodes_of(node, functions, base.kind, inner)
        index = index_of(nodes)
        if index is not None:
            yield from self._places_of((scope, ordinal), prefix, index.message_at(ordinal)[0])


class Base(namedtuple("Base", "kind path count")):
    """A part of the document that has constants. The first scope of a graph are its nodes, the others its functions.

    ``count`` is the number of scopes in it.
    """

    __slots__ = ()


def count_of(node: Node | None) -> int:
    """Return the number of children that `kids_of` yields."""
    return len(node) if node is not None and node.shape != SCALAR else 0


def _bases_of(node: Node, path: str) -> Iterator[Base]:
    kind = node.kind
    if kind == SAVED_MODEL:
        for graph in kids_of(node.find("meta_graphs")):
            yield from _bases_of(graph, graph.path)
    elif kind == META_GRAPH:
        inner = node.find("graph_def")
        if inner is not None:
            yield from _bases_of(inner, inner.path)
    elif kind == GRAPH:
        yield Base(kind, path, 1 + count_of(functions_of(node)))
    elif kind == LIBRARY:
        yield Base(kind, path, count_of(node.find("function")))
    elif kind in (FUNCTION, NODE, TENSOR):
        yield Base(kind, path, 1)


def functions_of(graph: Node) -> Node | None:
    """Return the list of the functions of a graph."""
    return node_at(graph, "library", "function")


def _nodes_of(node: Node, functions: Node | None, kind: str, inner: int) -> tuple[Node | None, str]:
    """Return the list of NodeDefs in a scope of ``node``, and the prefix of names in it."""
    if kind == GRAPH and not inner:
        return node.find("node"), ""
    function = node
    if kind != FUNCTION:
        if functions is None:
            return None, ""
        function = functions.child(inner - (kind == GRAPH))
    return function.find("node_def"), f"@{function_name(function)}/"


def function_name(function: Node) -> str:
    """Return the name of a FunctionDef; ``[3]`` if it cannot be read."""
    name = value_at(function, "signature", "name")
    return f"[{function.ordinal}]" if name is None else str(name)


def _next(block: bytes, letters: Sequence[bytes], start: int) -> int:
    """Return where the first of the ``letters`` stands in a block from ``start`` on; -1: nowhere."""
    found = -1
    for text in letters:
        at = block.find(text, start, found) if found >= 0 else block.find(text, start)
        found = at if at >= 0 else found
    return found


def tensors_in(raw: bytes, size: int) -> list[tuple[str, int, int]] | None:
    """Return the tensors of the NodeDef ``raw[:size]``: their labels, and where each begins and ends in it.

    None if it is not in the form that serializers write, and needs a closer look. `PADDING` follows ``raw[:size]``.
    """
    name = op = ""
    found: list[tuple[str, int, int, int]] = []
    keys: set[bytes] = set()
    pos = 0
    try:
        while pos < size:
            tag = raw[pos]
            start, end = _payload(raw, pos + 1)
            if tag == _TAG_ATTR:
                if raw[start] != _TAG_NAME:
                    return None
                at, after = _payload(raw, start + 1)
                key = raw[at:after]
                if after >= end or raw[after] != _TAG_OP or key in keys:
                    return None
                keys.add(key)
                at, after = _payload(raw, after + 1)
                if after != end:
                    return None
                if at < after and not _tensors_of_value(raw, at, after, key.decode(), found):
                    return None
            elif tag == _TAG_NAME:
                name = raw[start:end].decode()
            elif tag == _TAG_OP:
                op = raw[start:end].decode()
            elif tag not in _REST:
                return None
            pos = end
    except (PparseError, UnicodeDecodeError, IndexError):
        return None
    if pos != size or (op == CONST and not any(key == "value" and number < 0 for key, number, _, _ in found)):
        return None
    return _labelled(name, op, found) if found else []


def _labelled(name: str, op: str, found: list[tuple[str, int, int, int]]) -> list[tuple[str, int, int]]:
    """Return tensors of a node by label: that of a constant is the node's name, others are attributes of it."""
    labels = []
    for text, number, start, end in found:
        label = name if op == CONST and text == "value" else f"{name}.{text}"
        labels.append((label if number < 0 else f"{label}[{number}]", start, end))
    return labels


def _payload(raw: bytes, pos: int) -> tuple[int, int]:
    length = raw[pos]
    pos += 1
    if length >= 0x80:
        length, pos = read_length(raw, pos - 1)
    return pos, pos + length


def _tensors_of_value(raw: bytes, pos: int, end: int, key: str, found: list[tuple[str, int, int, int]]) -> bool:
    """Add the tensors of the AttrValue ``raw[pos:end]``; return False unless it is a single field."""
    tag = raw[pos]
    if tag & 7 != 2:
        return skip_payload(raw, pos + 1, tag & 7) == end if tag & 7 in (VARINT, 5) else False
    start, stop = _payload(raw, pos + 1)
    if stop != end:
        return False
    if tag == _TAG_TENSOR:
        found.append((key, -1, start, end))
    elif tag == _TAG_NAME and _next(raw[start:end], _TENSORS, 0) >= 0:
        number = 0
        while start < end:
            tag = raw[start]
            if tag >= 0x80 or tag & 7 not in (0, 1, 2, 5):
                return False
            if tag == _TAG_TENSOR:
                at, after = _payload(raw, start + 1)
                found.append((key, number, at, after))
                number += 1
                start = after
            else:
                start = skip_payload(raw, start + 1, tag & 7)
        return start == end
    return True
