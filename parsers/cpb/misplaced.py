"""Checks that every chunk of a ``.cpb`` has a place in the message: one without a place leaves a hole elsewhere.

A constant without values reads as zeros, which is legal. In a message with a misplaced chunk, the values may be in that
chunk.
"""

from __future__ import annotations

from pparse.errors import EndOfDataError, GapError, LimitError, MalformedError, UnsupportedError
from pparse.parsers.protobuf.fields import check_whole
from pparse.parsers.protobuf.index import Lost, MessageIndex, Origin, OverlayEntry, OverlayField
from pparse.parsers.protobuf.lists import ListIndex
from pparse.parsers.protobuf.values import is_message
from pparse.tree.entry import SCALAR

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pparse.tree.node import Node


class _Misplaced(Exception):
    """A chunk has no place, or the wrong one."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def misplaced(root: Node, check_cancelled: Callable[[], None]) -> str | None:
    """Follow the paths of chunks; return what is wrong with the first misplaced one, or None.

    Lost or damaged chunks have a place. Raise `LimitError`.
    """
    try:
        stack = [_below(root)]
        while stack:
            check_cancelled()
            node = next(stack[-1], None)
            if node is None:
                stack.pop()
            else:
                stack.append(_below(node))
    except _Misplaced as found:
        return found.reason
    except LimitError:
        raise
    except (MalformedError, EndOfDataError, GapError, UnsupportedError):
        return None  # something on the way is lost, but has a place
    return None


def _below(node: Node) -> Iterator[Node]:
    """Yield the child nodes that chunks belong to. Raise `_Misplaced` if a place is wrong."""
    origin = node.note
    if node.shape == SCALAR or not isinstance(origin, Origin):
        return
    lost = next((piece for piece in origin.pieces if isinstance(piece, Lost) and piece.error is None), None)
    if lost is not None:
        raise _Misplaced(lost.reason)
    node.index_to(None)
    index = node.index.note if node.index is not None else None
    if isinstance(index, MessageIndex):
        yield from _fields(node, origin, index)
    elif isinstance(index, ListIndex):
        reason = next((reason for reason, offset, _ in index.problems if offset is None), None)
        if reason is not None:
            raise _Misplaced(reason)
        if index.field is None or is_message(index.field):
            yield from (node.child(ordinal) for ordinal in index.touched())
    else:
        for child in node.children():
            if isinstance(child.note, Origin) and any(
                isinstance(piece, OverlayEntry | Lost) for piece in child.note.pieces
            ):
                yield child


def _fields(node: Node, origin: Origin, index: MessageIndex) -> Iterator[Node]:
    for number, contributions in index.contributions(origin.type).items():
        overlays = [item for item in contributions if isinstance(item, OverlayField)]
        if not overlays:
            continue
        field = origin.type.fields.get(number) if origin.type is not None else None
        if field is None:
            if origin.type is not None:
                raise _Misplaced(f"a chunk belongs to field {number}, which {origin.type.full_name} does not have")
            continue
        if not field.repeated:
            for overlay in overlays:
                _check_whole(overlay, field.name)
            if not is_message(field) and sum(overlay.claims() for overlay in overlays) > 1:
                raise _Misplaced(f"several chunks belong to one {field.name}; the last one counts")
        child = node.find(field.name)
        if child is not None:
            yield child


def _check_whole(overlay: OverlayField, name: str) -> None:
    try:
        check_whole(overlay, name)
    except MalformedError as error:
        raise _Misplaced(error.reason) from error
