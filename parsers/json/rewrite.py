"""The text of a large JSON value as `json.dumps` writes it, a piece at a time: a block is held, not the value."""

from __future__ import annotations

from json import JSONEncoder

from pparse.parsers.json.walk import TextWalk, following_scalars, refuse_fault, tokens
from pparse.tree.entry import MAP, SCALAR, UNLOADED_VALUE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, Final

    from pparse.parsers.json.document import JsonText
    from pparse.tree.node import Node
    from pparse.tree.visit import Visit

# How many levels are indented: blanks grow with the square of the depth.
_INDENTED: Final = 200
# Pieces of text are joined up to so many characters.
_JOINED: Final = 64 << 10


def rewritten(parser: JsonText, node: Node, indent: int | None, ensure_ascii: bool) -> Iterator[str] | None:
    """Return what yields the text of a container; None if its keys occur twice, and must be given other names.

    All of it is read once before, and what is wrong with it raised as by `pparse.parsers.json.walk.assemble`.
    """
    node.index_to(None)
    node._refuse_if_not_whole()
    repeated = parser.decoder.duplicates
    walk = _begin(parser, node)
    for _ in tokens(walk, detail=False):
        pass
    refuse_fault(walk)
    walk.charge.release()
    if walk.repeated or parser.decoder.duplicates != repeated:
        parser.decoder.duplicates = repeated
        return None
    return _Writer(_begin(parser, node), indent, ensure_ascii).pieces(node)


def _begin(parser: JsonText, node: Node) -> TextWalk:
    walk = TextWalk(parser, node)
    walk.push(walk.data.pread(node.start, 1)[0])
    walk.pos += 1
    return walk


class _Writer:
    """Writes the visits of a walk over sound text."""

    def __init__(self, walk: TextWalk, indent: int | None, ensure_ascii: bool) -> None:
        walk.whole_leaves = True
        self._walk = walk
        self._indent = indent
        self._encode: Callable[[Any], str] = JSONEncoder(ensure_ascii=ensure_ascii, indent=indent).encode
        self._flat: Callable[[Any], str] = JSONEncoder(ensure_ascii=ensure_ascii).encode

    def pieces(self, node: Node) -> Iterator[str]:
        """Yield the text."""
        found: list[str] = []
        size = 0
        for text in self._texts(node):
            found.append(text)
            size += len(text)
            if size >= _JOINED:
                yield "".join(found)
                found, size = [], 0
        self._walk.charge.release()
        yield "".join(found)

    def _texts(self, node: Node) -> Iterator[str]:
        walk = self._walk
        closers = ["}" if node.kind == "object" else "]"]
        yield "{" if node.kind == "object" else "["
        empty = True
        for visit in tokens(walk, detail=True):
            refuse_fault(walk)
            while len(closers) > visit.depth:
                yield (closers.pop() if empty else self._line(len(closers) - 1) + closers.pop())
                empty = False
            yield ("" if empty else self._comma) + self._line(visit.depth)
            if closers[-1] == "}":
                yield f"{self._flat(visit.key)}: "
            empty = visit.shape != SCALAR
            if empty:
                closers.append("}" if visit.shape == MAP else "]")
                yield "{" if visit.shape == MAP else "["
                continue
            yield self._value(visit)
            if closers[-1] == "]" and (more := following_scalars(walk)):
                yield self._comma + self._line(visit.depth) + self._run(more, visit.depth)
        refuse_fault(walk)
        while closers:
            yield (closers.pop() if empty else self._line(len(closers) - 1) + closers.pop())
            empty = False

    @property
    def _comma(self) -> str:
        return ", " if self._indent is None else ","

    def _line(self, depth: int) -> str:
        return "" if self._indent is None else "\n" + " " * (self._indent * min(depth, _INDENTED))

    def _value(self, visit: Visit) -> str:
        walk, value = self._walk, visit.value
        if value is UNLOADED_VALUE and visit.end is not None:
            length = visit.end - visit.start
            walk.limits.check("scalar_bytes", length, f"the {visit.kind}", offset=visit.start)
            value = walk.parser.decoder.decode(walk.data.read_exact(visit.start, length), visit.start)
        text = self._encode(value)
        return text.replace("\n", self._line(visit.depth)) if self._indent is not None else text

    def _run(self, values: list[Any], depth: int) -> str:
        """Return elements of a list: of no text with a comma in it, in one go."""
        text = self._flat(values)[1:-1]
        between = self._comma + self._line(depth)
        if '"' in text:
            return between.join(map(self._flat, values))
        return text if self._indent is None else text.replace(", ", between)
