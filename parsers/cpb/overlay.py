"""What the chunks of a ``.cpb`` add to the message, path by path.

A chunked field has a tag, which is a path of fields with indices and map keys, and the chunk that belongs there. An
*overlay* at a path is the set of chunked fields whose tags lead through it. It is found by dividing the overlay of the
path above by the next step. So a million chunked fields cost 4 to 12 bytes each on the levels that are read.

Order (as in TensorFlow's Merger, tensorflow/tools/proto_splitter/merge.cc): chunks at a path come before chunks below
it, in the order of chunk indices; elements come by index, keys in the order of occurrence. Chunked fields below a
chunked field (their tags continue its own) are applied with it. Fields below a chunked field that has no tag, or is a
scalar, are ignored; such a field takes chunk 0 if it names none.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left

from pparse.errors import DataError, EndOfDataError, Fault, GapError, MalformedError, UnsupportedError
from pparse.parsers.cpb.metadata import INDEX, KEY
from pparse.parsers.cpb.scalars import key_as
from pparse.parsers.protobuf.entries import check_whole
from pparse.parsers.protobuf.index import ChunkRange, Lost, MessageIndex, Origin, OverlayEntry, OverlayField
from pparse.parsers.protobuf.lists import ListIndex
from pparse.parsers.protobuf.values import is_message
from pparse.protobuf.schema import TYPE_UINT64
from pparse.tree.entry import SCALAR
from pparse.tree.index import ranked

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import Any, Final

    from pparse.limits import Charge, MemoryBudget
    from pparse.parsers.cpb.metadata import ChunkedMessage, ChunkMetadata, Step
    from pparse.parsers.protobuf.index import Piece
    from pparse.riegeli.lookup import RecordLookup
    from pparse.tree.node import Node

# Tags of chunked fields are kept while they take up to this share of the budget, at so many bytes each and per step.
_KEPT: Final = 8
_TAG_COST: Final = 100
_STEP_COST: Final = 110
_MAX_NESTING: Final = 100


class ChunkOpener:
    """The chunks of one file, by their index."""

    def __init__(self, metadata: ChunkMetadata, lookup: RecordLookup, budget: MemoryBudget) -> None:
        self.metadata = metadata
        self.lookup = lookup
        self.budget = budget

    def open(self, index: int) -> ChunkRange:
        """Return the bytes of a chunk. Raise `MalformedError` if they contradict the metadata."""
        info = self.metadata.chunk(index)
        if info.lost:
            raise MalformedError("the chunk is lost: its bytes are damaged or missing", offset=info.position)
        record = self.lookup.record(info.position)
        if len(record) != info.size:
            raise MalformedError(
                f"the record at the position of chunk {index} is not that chunk",
                offset=info.position,
                wanted=info.size,
                got=len(record),
            )
        return ChunkRange(record.data, record.start, record.end, index, info.type)

    def piece(self, index: int) -> Piece:
        """Return the bytes of a chunk, or the reason why they are lost."""
        try:
            return self.open(index)
        except DataError as error:
            return Lost(f"chunk {index} cannot be read: {error.reason}", error, Fault.UNREADABLE)


class Scope:
    """One tree of chunked fields, of the root or below a chunked field, where its tags start."""

    def __init__(self, chunks: ChunkOpener, message: ChunkedMessage, nesting: int = 0) -> None:
        self.chunks = chunks
        self.message = message
        self.nesting = nesting
        self._tags: list[list[Step]] | None = None  # the budget may drop them at any time
        self._charge: Charge | None = None
        self.problems: list[str] = []

    def pieces(self) -> list[Piece]:
        """Return the pieces of the scope's message, in order."""
        pieces: list[Piece] = []
        if self.message.chunk_index is not None:
            pieces.append(self.chunks.piece(self.message.chunk_index))
        blank: list[int] = []
        others = array("I")
        for ordinal, steps in self.steps(range(self.message.count)):
            if steps:
                others.append(ordinal)
            else:
                blank.append(ordinal)
        pieces += self.ended(blank, alone=True)
        pieces += [Lost(problem, None) for problem in self.problems]
        if others:
            pieces.append(Overlay(self, others, 0))
        return pieces

    def steps(self, ordinals: Sequence[int]) -> Iterable[tuple[int, list[Step]]]:
        """Yield the tag of each of these chunked fields, as steps; invalid ones are skipped and recorded."""
        tags = self._tags
        if tags is not None:
            for ordinal in ordinals:
                yield ordinal, tags[ordinal]
            return
        budget = self.chunks.budget
        left = budget.limit // _KEPT
        few = len(ordinals) == self.message.count and self.message.count * (_TAG_COST + _STEP_COST) <= left
        kept: list[list[Step]] = []
        same: dict[Step, Step] = {}
        for ordinal, field in self.message.fields(ordinals):
            try:
                steps = field.steps()
            except MalformedError as error:
                reason = f"chunked field {ordinal}: {error.reason}"
                if reason not in self.problems and len(self.problems) < 100:
                    self.problems.append(reason)
                few = False
                continue
            if few:
                kept.append([same.setdefault(step, step) for step in steps])
                left -= _TAG_COST + _STEP_COST * len(steps)
                few = left >= 0
            yield ordinal, steps
        cost = budget.limit // _KEPT - left
        if few and budget.fits(cost):
            self._charge = budget.charge(cost, "the tags of chunked fields", self._forget)
            self._tags = kept

    def _forget(self) -> None:
        self._tags = None

    def ended(self, ordinals: Iterable[int], *, alone: bool = False) -> list[Piece]:
        """Return the chunks of chunked fields whose tags end here, and what is below them, by chunk index.

        A chunked field that names no chunk adds nothing of its own, unless only its chunk counts (``alone``: it has no
        tag, or is a scalar). Then everything below is ignored, and an index that is not written is 0.
        """
        found = []
        pieces: list[Piece] = []
        for ordinal, field in self.message.fields(list(ordinals)):
            try:
                message = field.message(self.chunks.budget)
            except MalformedError as error:
                pieces.append(Lost(f"chunked field {ordinal}: {error.reason}", error))
                continue
            found.append((message.chunk_index or 0, ordinal, message))
        found.sort(key=lambda item: item[:2])
        for index, _, message in found:
            if alone or not message.count:
                if alone or message.chunk_index is not None:
                    pieces.append(self.chunks.piece(index))
            elif self.nesting >= _MAX_NESTING:
                pieces.append(Lost(f"chunked fields are nested deeper than {_MAX_NESTING}", None))
            else:
                pieces += Scope(self.chunks, message, self.nesting + 1).pieces()
        return pieces


class Overlay(OverlayEntry):
    """The chunked fields of a scope below one path, which has ``depth`` steps."""

    __slots__ = ("_parted", "depth", "ordinals", "scope")

    def __init__(self, scope: Scope, ordinals: array[int], depth: int) -> None:
        self.scope = scope
        self.ordinals = ordinals
        self.depth = depth
        self._parted: dict[int, array[int]] | None = None

    def _parts(self) -> dict[int, array[int]]:
        if self._parted is None:
            found: dict[int, array[int]] = {}
            for ordinal, steps in self.scope.steps(self.ordinals):
                number = steps[self.depth][0]
                if number not in found:
                    found[number] = array("I")
                found[number].append(ordinal)
            self._parted = found
        return self._parted

    def numbers(self) -> Sequence[int]:
        """Return the numbers of the fields with chunks, ascending."""
        return sorted(self._parts())

    def field(self, number: int) -> OverlayField:
        """Return the overlay of one field."""
        return FieldOverlay(self, self._parts()[number])


class FieldOverlay(OverlayField):
    """The chunks that belong to one field."""

    __slots__ = ("_given", "_indices", "_keys", "_ordinals", "_starts", "_whole")

    owner: Overlay

    def __init__(self, owner: Overlay, ordinals: array[int], *, listed: bool = False) -> None:
        super().__init__(owner)
        self._given = ordinals
        self._whole = array("I")
        self._keys: dict[tuple[type, Any], array[int]] = {}
        values, indexed = array("q"), array("I")
        depth = owner.depth
        for ordinal, steps in owner.scope.steps(ordinals):
            _, kind, value = steps[depth]
            if listed and kind == KEY and (index := key_as(value, TYPE_UINT64)) is not None:
                kind, value = INDEX, index
            if kind is None:
                self._whole.append(ordinal)
            elif kind == KEY:
                self._keys.setdefault((type(value), value), array("I")).append(ordinal)
            elif kind == INDEX:
                values.append(min(value, (1 << 63) - 1))
                indexed.append(ordinal)
        ascending, order = ranked(values)
        self._ordinals = array("I", (indexed[at] for at in order))
        self._indices = array("q")
        self._starts = array("I")
        for at, value in enumerate(ascending):
            if not at or ascending[at - 1] != value:
                self._indices.append(value)
                self._starts.append(at)
        self._starts.append(len(ascending))

    def _pieces(self, ordinals: Sequence[int], *, scalar: bool, singular: bool = False) -> list[Piece]:
        scope, depth = self.owner.scope, self.owner.depth
        here: dict[int, list[int]] = {}  # by length: tags that repeat the number come later
        deeper = array("I")
        for ordinal, steps in scope.steps(ordinals):
            # A singular scalar whose number is repeated is still that scalar.
            again = scalar and singular and all(step == steps[depth] for step in steps[depth + 1 :])
            if again or len(steps) == depth + 1:
                here.setdefault(len(steps), []).append(ordinal)
            else:
                deeper.append(ordinal)
        pieces = [piece for length in sorted(here) for piece in scope.ended(here[length], alone=scalar)]
        if deeper:
            pieces.append(Overlay(scope, deeper, depth + 1))
        return pieces

    def claims(self) -> int:
        """Return how many chunked fields belong to the field as a whole, without opening their chunks."""
        return len(self._whole)

    def elements(self) -> FieldOverlay:
        """Return this for a list, in which the form of a number does not matter."""
        return FieldOverlay(self.owner, self._given, listed=True) if self._keys else self

    def whole(self, *, scalar: bool = False) -> list[Piece]:
        """Return the pieces for the field as a whole."""
        return self._pieces(self._whole, scalar=scalar, singular=True) if self._whole else []

    def indices(self) -> Sequence[int]:
        """Return the indices of elements with chunks."""
        return self._indices

    def at_index(self, index: int, *, scalar: bool = False) -> list[Piece]:
        """Return the pieces for one element."""
        at = bisect_left(self._indices, index)
        return self._pieces(sorted(self._ordinals[self._starts[at] : self._starts[at + 1]]), scalar=scalar)

    def keys(self) -> Sequence[Any]:
        """Return the keys with chunks."""
        return [key for _, key in self._keys]

    def at_key(self, key: Any, *, scalar: bool = False) -> list[Piece]:
        """Return the pieces for one key."""
        return self._pieces(self._keys[type(key), key], scalar=scalar)


# -- chunks without a place --------------------------------------------------------------------------------------------
#
# A chunk without a place leaves a hole elsewhere: a constant without values reads as zeros, which is legal. In a
# message with a misplaced chunk, the values may be in that chunk.


class _Misplaced(MalformedError):
    """A chunk has no place, or the wrong one."""


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
                try:
                    check_whole(overlay, field.name)
                except MalformedError as error:
                    raise _Misplaced(error.reason) from error
            if not is_message(field) and sum(overlay.claims() for overlay in overlays) > 1:
                raise _Misplaced(f"several chunks belong to one {field.name}; the last one counts")
        child = node.find(field.name)
        if child is not None:
            yield child
