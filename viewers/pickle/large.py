"""Large numpy arrays in pickles: described by their nodes, without reading their bytes."""

from __future__ import annotations

from pparse.data.spliced import DerivedData
from pparse.errors import PASSING, EndOfDataError, GapError, MalformedError, PparseError
from pparse.parsers.pickle.arrays import MASKED_CONTENT, MASKED_MASK, Array, array_of, masked_of
from pparse.parsers.pickle.payload import payload
from pparse.parsers.pickle.values import Call

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

    from pparse.data.base import Data
    from pparse.parsers.pickle.arrays import MaskedArray
    from pparse.tree.node import Node

# Where the bytes stand in the arguments or the state of the calls that make arrays.
_CONTENT: Final = {"_frombuffer": 0, "_reconstruct": -1}


class TextBytes(DerivedData):
    """Bytes that a pickle of protocol 0 to 2 has as a text, a character each: made of the text when they are read."""

    copies = False

    def __init__(self, node: Node, size: int) -> None:
        extraction = node.extraction
        super().__init__(extraction.name, size, extraction.data.stats)
        self._node = node
        self.sources = (extraction.data,)
        self._content: bytes | None = None

    def pieces(self, start: int, end: int) -> tuple[tuple[Data, int, int], ...]:
        """Return all of the text."""
        node = self._node
        return ((node.extraction.data, node.start, node.end or node.start),)

    def _pread(self, offset: int, length: int) -> bytes:
        if self._content is None:
            loaded = self._node.load()
            content = as_latin1(loaded) if isinstance(loaded, str) else loaded
            if not isinstance(content, bytes | bytearray) or len(content) != self.size:
                raise MalformedError(
                    "the bytes of an array are not as many as it has, or no bytes", offset=self._node.start
                )
            content = bytes(content)
            budget = self._node.extraction.session.budget
            self._charge = budget.charge(len(content), "the bytes of an array", self._forget)
            self._content = content
            return content[offset : offset + length]
        return self._content[offset : offset + length]

    def _forget(self) -> None:
        self._content = None


def as_latin1(text: str) -> bytes | None:
    """Return the bytes that ``text`` has, a character each; None if a character is above 255."""
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        return None


def large_array(node: Node) -> Array | None:
    """Return the array that a large ``call`` would make; None if it would make none, or what it says cannot be read."""
    try:
        return _large_array(node)
    except (MalformedError, EndOfDataError, GapError):
        return None


def _large_array(node: Node) -> Array | None:
    parts = {kid.key: kid for kid in node.children()}
    name = parts["callable"].load() if "callable" in parts else None
    place = _CONTENT.get(getattr(name, "name", "").rpartition(".")[2])
    holder = parts.get("args" if place == 0 else "state")
    if place is None or holder is None or holder.kind != "tuple":
        return None
    values = list(holder.children())
    if not values:
        return None
    content = values[place]
    if content.kind not in ("bytes", "bytearray", "str"):
        return None
    try:
        known: list[Any] = [_value_of(kid) for kid in values if kid is not content]
    except PASSING:
        raise
    except PparseError:
        return None
    known.insert(place if place == 0 else len(known), b"")
    call = Call(name, tuple(known) if place == 0 else parts["args"].to_python())
    call.state = None if place == 0 else tuple(known)
    found = array_of(call)
    if found is None:
        return None
    _set_place(found, content)
    return found


def _set_place(found: Array, content: Node) -> None:
    """Let an array have its bytes where the node of its content is."""
    found.content = None
    data = content.extraction.data
    place_of = payload(data, content.start, content.end or content.start)
    if place_of is None or content.kind == "str":
        size = _size_of(found)
        found.place = TextBytes(content, size), 0, size
    else:
        found.place = data, *place_of


def large_masked(node: Node) -> MaskedArray | None:
    """Return the masked array that a large ``call`` would make; None if it would make none, or cannot be read."""
    try:
        return _large_masked(node)
    except PASSING:
        raise
    except PparseError:
        return None


def _large_masked(node: Node) -> MaskedArray | None:
    parts = {kid.key: kid for kid in node.children()}
    state = parts.get("state")
    if "callable" not in parts or "args" not in parts or state is None or state.kind != "tuple":
        return None
    kids = list(state.children())
    contents = {at: kids[at] for at in (MASKED_CONTENT, MASKED_MASK) if at < len(kids)}
    if any(kid.kind not in ("bytes", "bytearray", "str") for kid in contents.values()):
        return None
    call = Call(parts["callable"].load(), ())
    call.state = tuple(b"" if at in contents else _value_of(kid) for at, kid in enumerate(kids))
    found = masked_of(call)
    if found is not None:
        _set_place(found.elements, contents[MASKED_CONTENT])
        _set_place(found.mask, contents[MASKED_MASK])
    return found


def _value_of(node: Node) -> Any:
    return node.load() if node.shape == "scalar" else node.to_python()


def large_objects(parts: list[Node]) -> Node | None:
    """Return the list of the elements of a large array of objects; None if the call with these parts makes none."""
    found = {part.key: part for part in parts}
    name = str(found["callable"].load()) if "callable" in found and found["callable"].kind == "global" else ""
    state = found.get("state")
    if not name.endswith(".multiarray._reconstruct") or state is None or state.kind != "tuple" or len(state) < 4:
        return None
    last = state.child(len(state) - 1)
    return last if last.kind == "list" else None


def _size_of(array: Array) -> int:
    from math import prod

    from pparse.tensors.dtype import DType

    try:
        return prod(array.shape) * DType.of(array.dtype or "").itemsize
    except ValueError:
        return 0
