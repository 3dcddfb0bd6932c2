"""A viewer of a document whose tensors are messages: they are streamed, and found by name."""

from __future__ import annotations

from abc import abstractmethod
from array import array
from itertools import islice

from pparse.data.base import Range
from pparse.data.trailing_bytes import LAST_BEFORE_BREAK
from pparse.errors import FaultError
from pparse.findings import Finding, Status
from pparse.parsers.protobuf.check import fitting_tags
from pparse.parsers.protobuf.index import ChunkRange
from pparse.parsers.protobuf.lists import ListIndex, Run
from pparse.parsers.protobuf.message import Problem
from pparse.tensors.status import last_written
from pparse.tensors.viewer import MOST_HOLES, Viewer
from pparse.tree.entry import SCALAR
from pparse.tree.index import EACH, KeyTable, key_hash, meant_by_name, name_of_repeated
from pparse.tree.result import near_misses

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
    from typing import Any, ClassVar, Final

    from pparse.data.base import Data
    from pparse.document.extraction import Extraction
    from pparse.graphs.graph import Graph
    from pparse.limits import Charge
    from pparse.parsers.protobuf.index import Payload, Piece, WireWindow
    from pparse.parsers.protobuf.message import Message
    from pparse.parsers.protobuf.parser import ProtobufParser
    from pparse.protobuf.schema import MessageType
    from pparse.tensors.status import Extent
    from pparse.tensors.tensor import Tensor
    from pparse.tree.node import Node
    from pparse.viewers.tensor_proto.maker import TensorMaker

    Value = Sequence[Piece] | Problem

# Hashes of so many names are held, in so many bytes each, to notice a repeated one; behind that a table is made.
_MOST_SEEN: Final = 50_000
_SEEN: Final = 80
# Memory of a name while a table is made, besides its numbers.
_MAKING: Final = 24
# Memory of a scope.
_SCOPE: Final = 300
# Nodes searched for names similar to one that does not exist.
_NEAR: Final = 20_000
# So many tags behind a message show that it ends where it seems to; fewer bytes than that show nothing.
_FITTING: Final = 3
_TOO_SHORT: Final = 4
_BEHIND: Final = 512
# Findings of tensors that repeat those of the document.
_TOLD: Final = frozenset(("truncated", "missing"))


class TensorPlace:
    """Where a tensor is."""

    __slots__ = ("at", "name", "near", "value")

    def __init__(self, name: str, value: Value, near: WireWindow | None = None, at: tuple[int, ...] = ()) -> None:
        self.name = name
        """Name of the tensor."""
        self.value = value
        """What the tensor is made of."""
        self.near = near
        """A window that may hold its bytes."""
        self.at = at
        """The numbers by which `TensorPlaces.at` finds it."""


class TensorPlaces:
    """Where a document has tensors, in order; `find` looks one up by name, in a table once it is worth making."""

    layouts: ClassVar[str]
    """Of the numbers of a place, as `array` writes them."""
    what: ClassVar[str] = "tensors"
    """What the tensors are called, where memory for their names is refused."""

    def __init__(self, parser: ProtobufParser, maker: TensorMaker) -> None:
        self.parser = parser
        self.maker = maker
        self.make = parser.make
        # By the hash of names: numbers of their places, and the scopes of these. The budget may drop it at any time.
        self._table: tuple[KeyTable, list[array[int]], list[Any]] | None = None
        self._charge: Charge | None = None
        # What is in one stretch of a file is there if what lies behind it is.
        data = maker.extraction.data
        self._file, self._file_end = data if data.is_plain else None, -1

    @abstractmethod
    def places(self, *, most: int | None = None, scopes: list[Any] | None = None) -> Iterator[Any]:
        """Yield where each tensor is, in order, with its name, which may not be unique; of at most ``most`` nodes.

        Scopes that `at` needs to be given again are appended to ``scopes``.
        """

    @abstractmethod
    def at(self, scopes: Sequence[Any], *numbers: int) -> Iterator[Any]:
        """Yield the places that have these numbers: those in one message of a list."""

    @abstractmethod
    def worth_searching(self, name: str) -> Iterable[Any] | None:
        """Return places to go through for the first with that name, if that costs less than a table; else None."""

    @property
    def table(self) -> KeyTable:
        """The tensors by the hash of their name."""
        return self._tables()[0]

    def _tables(self) -> tuple[KeyTable, list[array[int]], list[Any]]:
        found = self._table
        if found is not None:
            return found
        budget = self.parser.result.extraction.session.budget
        hashes, columns = array("q"), [array(layout) for layout in self.layouts]
        each = EACH + sum(column.itemsize for column in columns)
        appends = [column.append for column in columns]  # looked up once: there may be millions
        scopes: list[Any] = []
        with budget.charge(0, f"collecting the names of {self.what}") as charge:
            for place in self.places(scopes=scopes):
                hashes.append(key_hash(place.name))
                for append, number in zip(appends, place.at, strict=True):
                    append(number)
                if not len(hashes) & 0xFFF:
                    charge.resize((each + _MAKING) * len(hashes) + _SCOPE * len(scopes))
            found = KeyTable(hashes), columns, scopes
        self._table = found
        size = each * len(hashes) + _SCOPE * len(scopes)
        self._charge = budget.charge(size, f"the names of {self.what}", self._forget)
        return found

    def _forget(self) -> None:
        self._table = None

    def find(self, name: str, occurrence: int = 1) -> Any:
        """Return the n-th place with that name; None if there are fewer."""
        if occurrence == 1 and self._table is None and (places := self.worth_searching(name)) is not None:
            return next((place for place in places if place.name == name), None)
        table, columns, scopes = self._tables()
        before: tuple[int, ...] | None = None
        for number in table.candidates(name):
            at = tuple(column[number] for column in columns)
            if at == before:  # places of one message come together
                continue
            before = at
            for place in self.at(scopes, *at):
                if place.name == name:
                    occurrence -= 1
                    if not occurrence:
                        return place
        return None

    def tensor(self, place: Any, name: str | None = None) -> Tensor:
        """Return the tensor at a place, under that name."""
        shown = place.name if name is None else name
        if isinstance(place.value, Problem):
            return self.maker.missing(shown, place.value)
        return self.maker.tensor(shown, place.value, place.near)

    def plain(self, pieces: Sequence[Piece]) -> Range | None:
        """Return the one stretch of bytes that a message consists of, if all of it is there; else None."""
        part = pieces[0] if len(pieces) == 1 else None
        if part.__class__ is Range and part.data is self._file and part.end <= self._file_end:
            return part
        if not isinstance(part, Range) or isinstance(part, ChunkRange) or part.end > (end := self.make.data_end(part)):
            return None
        if part.data is self._file:
            self._file_end = end
        return part

    def ends_at_break(self, part: Range, around: Iterable[MessageType]) -> bool:
        """Say whether what follows a message is no field of those around it, so that it may not end where it seems to.

        Asked of models that are damaged only: it reads.
        """
        left = min(self.make.data_end(part), self.parser.result.extraction.find_end()) - part.end
        if left < _TOO_SHORT:
            return False
        raw = part.data.read_known(part.end, min(_BEHIND, left))[0]
        least = _FITTING if left >= _BEHIND else 1
        return all(fitting_tags(raw, type) < least for type in around)

    def doubt_end(self, made: Tensor) -> None:
        """Say of a tensor that it may not end where it seems to."""
        where: Any = {"source": self.make.extraction.name, "offset": made.spans[0].offset if made.spans else None}
        made.doubt(Finding("shifted", LAST_BEFORE_BREAK, path=made.name, **where))

    @staticmethod
    def text(message: Message, number: int, default: str | None = "") -> Any:
        """Return the text in a field; ``default`` if it cannot be read."""
        try:
            return str(message.scalar(number))
        except FaultError:
            return default


class ProtoViewer(Viewer):
    """A mapping of names to the tensors of a document; ``parser`` is its parser.

    A name that occurs again becomes ``name#2``.
    """

    names_may_be_lost = False  # a graph may be all there, and have no such constant
    constants: TensorPlaces
    """Where the tensors are."""

    def __init__(self, extraction: Extraction) -> None:
        super().__init__(extraction)
        self.parser: ProtobufParser = extraction.parse().parser  # type: ignore[assignment]
        # Of a folder, the file in it.
        self.source: Extraction = getattr(self.parser, "member", extraction)
        self._others: tuple[Data, list[tuple[int, int]]] | None = None
        self._extent_of = 0  # what was known of the chunks when it was made
        self._graph: Graph | None = None

    @property
    def graph(self) -> Graph:
        """The graph, the first of several: its nodes, edges, inputs and outputs, bodies and functions."""
        if self._graph is None:
            self._graph = self.graph_of()
        return self._graph

    @abstractmethod
    def frames(self) -> Iterator[Node]:
        """Yield the nodes that hold the nodes of graphs: if one is cut or damaged, the document is."""

    # -- tensors -----------------------------------------------------------------------------------------------------

    def tensors(self) -> Iterator[Tensor]:
        """Yield every tensor in file order."""
        for place, name in self._numbered():
            yield self.constants.tensor(place, name)

    def _each_name(self) -> Generator[tuple[str, Any], None, None]:
        for place, name in self._numbered():
            yield name, place

    def _given(self, name: str, what: Any) -> Tensor:
        return self.constants.tensor(what, name)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def suggest(self, name: str) -> tuple[str, ...]:
        """Return up to three similar names from the first nodes."""
        return near_misses(name, (place.name for place in self.constants.places(most=_NEAR)))

    def _numbered(self) -> Iterator[tuple[Any, str]]:
        """Yield the places with their final names: a name that was used before gets the next free number."""
        seen: set[int] | None = set()
        repeated: set[int] = set()
        counts: dict[str, int] = {}
        budget = self.extraction.session.budget
        with budget.charge(0, "the names that came so far") as charge:
            for ordinal, place in enumerate(self.constants.places()):
                name = place.name
                if seen is not None:
                    key = hash(name)
                    if key not in seen and ordinal < _MOST_SEEN:
                        seen.add(key)
                        if not ordinal & 0xFFF:
                            charge.resize(_SEEN * ordinal)
                        yield place, name
                        continue
                    # One came again, or there are too many: from here on, those that share a hash are looked at.
                    repeated = {other for group in self.constants.table.repeated() for other in group}
                    if repeated:
                        for other, earlier in zip(range(ordinal), self.constants.places(), strict=False):
                            if other in repeated:
                                counts[earlier.name] = counts.get(earlier.name, 0) + 1
                    seen = None
                    charge.resize(0)
                number = 1
                if ordinal in repeated:
                    number = counts[name] = counts.get(name, 0) + 1
                yield place, name_of_repeated(name, number, self.constants.find)

    def find(self, name: str) -> Tensor | None:
        """Return the tensor with that name (``name#2``: the second with the name), or None."""
        place = meant_by_name(name, self.constants.find)
        return self.constants.tensor(place, name) if place is not None else None

    def finding_of(self, tensor: Tensor) -> Finding:
        """Return the finding on a tensor that lies in a hole of the file."""
        found = super().finding_of(tensor)
        found.source = self.source.name
        return found

    @property
    def _file(self) -> Extraction:
        return self.source

    def _holes_of(self, data: Data) -> list[tuple[int, int]]:
        """Return the holes of the file, or of another one beside it, of which the last is kept."""
        if data is self.source.data:
            return self.holes
        if self._others is None or self._others[0] is not data:
            self._others = data, list(islice(data.holes(0, data.size or 0), MOST_HOLES)) if data.is_file else []
        return self._others[1]

    # -- how complete it is ------------------------------------------------------------------------------------------

    def check(self, *, strict: bool = False) -> Iterator[Finding]:
        """Parse everything, then look at each tensor and count its listed values."""
        known = set(self.findings)
        self.own_status()
        yield from (finding for finding in self.findings if finding not in known)
        told = False
        for finding in super().check(strict=strict):
            told = told or finding.code in _TOLD
            yield finding
        extent = self.new_extent()
        for tensor in self.tensors():
            wrong = self._verify(tensor)
            if wrong is not None and not (told and wrong.code in _TOLD):
                self.findings.add(wrong)
                yield wrong
            extent.add(tensor)
        self.close_extent(extent)  # who asks for it next need not go through all again

    @staticmethod
    def _verify(tensor: Tensor) -> Finding | None:
        if tensor.is_complete and tensor.encoding == "typed" and tensor.shape:
            try:
                tensor.readinto(bytearray(0)) if not tensor.size else tensor[(0,) * tensor.ndim]
            except FaultError as error:
                return Finding("malformed", error.reason, path=tensor.name, offset=error.offset)
        return tensor.finding

    @property
    def kept_extent(self) -> Extent | None:
        """The last extent, unless reading the document's bytes, or a tensor, told more since."""
        return super().kept_extent if self._extent_of == self._known else None

    @property
    def _known(self) -> int:
        """How many faults were found in chunks."""
        verdicts = getattr(self.parser, "verdicts", None)
        return verdicts.version if verdicts is not None else 0

    def close_extent(self, extent: Extent) -> Extent:
        """Complete an extent to which all tensors were added; `extent` then returns it."""
        source = self.source
        status = self.own_status()
        if status is Status.COMPLETE:
            codes = {finding.code for finding in self.findings}
            if "malformed" in codes:  # a node was read that is damaged
                status = Status.DAMAGED
            elif "limit" in codes:
                status = Status.UNSUPPORTED
        if (extent.truncated or extent.missing) and status is not Status.DAMAGED:
            status = Status.TRUNCATED
        extent.document_status, extent.expected = status, extent.actual or 0
        if status is Status.TRUNCATED:
            extent.end_early(self.parser.missing() or 0)
            extent.cut_files, extent.resume_file = 1, source.name
        if extent.unwritten and self.holes:  # resuming at the end of the file would never fill the hole
            written = last_written(source.data, source.start, self.holes[0][0])
            extent.resume_at, extent.resume_file = written - source.start, source.name
        return self.keep_extent(extent)

    def keep_extent(self, extent: Extent) -> Extent:
        """Keep ``extent``, to which all tensors were added."""
        self._extent_of = self._known
        return super().keep_extent(extent)

    def own_status(self) -> Status:
        """Return the status of the message: TRUNCATED or DAMAGED also if a graph in it is, and its root is whole."""
        try:
            worst = self.root.status
        except FaultError:
            return Status.DAMAGED
        if worst is not Status.COMPLETE:
            return worst
        for node in self.frames():
            status = node.status
            if status is Status.DAMAGED:
                return status
            if status is Status.TRUNCATED:
                worst = status
        return worst

    def is_whole(self) -> bool:
        """Return whether nothing of the message is known to be missing or wrong."""
        return self.own_status() is Status.COMPLETE


def index_of(elements: Node | None) -> ListIndex | None:
    """Return the index of a list of messages; None if there is none, or it is damaged."""
    index = elements.index_to(None).note if elements is not None and elements.shape != SCALAR else None
    return index if isinstance(index, ListIndex) else None


def message_at(elements: Node | None, ordinal: int) -> tuple[Sequence[Piece], WireWindow | None]:
    """Return one message of a list, as `messages_of` yields it. Raises `IndexError` if it is not there."""
    index = index_of(elements)
    if index is None or not 0 <= ordinal < index.count:
        raise IndexError(f"there is no message {ordinal}")
    return index.message_at(ordinal)


def messages_of(
    elements: Node | None, numbered: Callable[[Run, WireWindow], Iterator[Payload]] | None = None
) -> Iterator[tuple[int, Sequence[Piece], WireWindow | None]]:
    """Yield what `ListIndex.messages` does of a list; nothing if there is none, or it is damaged.

    ``numbered`` is used if no element has overlay entries.
    """
    index = index_of(elements)
    if index is None:
        return iter(())
    return index.messages(None if numbered is None or index.touched() else numbered)


def wires(elements: Node | None) -> Iterator[tuple[int, Range | None]]:
    """Yield the number of each message of a list with its bytes, tag and length included; None if not in one range."""
    index = index_of(elements)
    if index is None:
        return
    touched = set(index.touched())
    for first, segment in zip(index.firsts, index.segments, strict=True):
        if not isinstance(segment, Run):
            yield from ((number, None) for number in range(first, first + segment.count))
            continue
        part = segment.scan.part
        for number, field in enumerate(segment.scan.fields(segment.key), first):
            is_whole = number not in touched and field.end <= part.end
            yield number, part.data.range(field.begin, field.next) if is_whole else None


def joined(pieces: Iterable[Any]) -> Iterator[Any]:
    """Yield ranges, neighbours as one, and what else there is between them."""
    last: Any = None
    for found in pieces:
        if isinstance(last, Range) and isinstance(found, Range) and last.data is found.data and last.end == found.start:
            last = last.data.range(last.start, found.end)
            continue
        if last is not None:
            yield last
        last = found
    if last is not None:
        yield last
