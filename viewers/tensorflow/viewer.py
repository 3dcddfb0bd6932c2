"""TensorFlow's protos as models: the constants of a SavedModel, MetaGraphDef or GraphDef, whole, in chunks or cut.

The weights of a TF2 SavedModel are in the checkpoint beside it; the proto has constants, signatures, collections and
assets. Reads only what is asked for.
"""

from __future__ import annotations

from itertools import islice

from pparse.errors import PparseError
from pparse.findings import Finding, Status
from pparse.parsers.cpb.parser import CHUNKS
from pparse.parsers.protobuf.schema import builtin_schema
from pparse.tensors.unwritten import last_written, unwritten_in
from pparse.tensors.viewer import Extent, Viewer
from pparse.tree.repeated_names import meant_by_name, name_of_repeated
from pparse.tree.result import near_misses
from pparse.viewers.tensorflow.constants import GRAPH, KINDS, META_GRAPH, SAVED_MODEL, Constants, kids_of
from pparse.viewers.tensorflow.messages import PASSING_OR_LIMIT
from pparse.viewers.tensorflow.tensors import TensorMaker

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any, Final

    from pparse.document.extraction import Extraction
    from pparse.parsers.protobuf.parser import ProtobufParser
    from pparse.tensors.tensor import Tensor
    from pparse.tree.node import Node
    from pparse.viewers.tensorflow.constants import Place
    from pparse.viewers.tensorflow.meta import Asset, Signature

# Up to this many names are held to number repeated ones; for more, a table of hashes is made.
_HOLD_UP_TO: Final = 10_000
_HOLD_LETTERS: Final = 1 << 20
# NodeDefs searched for names similar to one that does not exist.
_NEAR: Final = 20_000
_MAX_HOLES: Final = 10_000
# Findings of tensors that repeat those of the document.
_TOLD: Final = frozenset(("truncated", "missing"))


class TensorflowViewer(Viewer):
    """A mapping of names to the constants of a document; ``parser`` is its parser.

    A name that occurs again, for example in a second meta graph, becomes ``name#2``.
    """

    row_bytes = 3_200  # with the node that its bytes are in
    names_may_be_lost = False  # a graph may be all there, and have no such constant

    def __init__(self, extraction: Extraction) -> None:
        super().__init__(extraction)
        self.parser: ProtobufParser = extraction.parse().parser  # type: ignore[assignment]
        # Of a folder, the file in it.
        self.source: Extraction = getattr(self.parser, "member", extraction)
        misplaced = getattr(self.parser, "misplaced", lambda: None)  # a chunked proto has it
        self._maker = TensorMaker(self.source, self.parser.make, builtin_schema(), self, misplaced)
        self._maker.lost_content = self.root.kind == CHUNKS
        self.constants = Constants(self.parser, self._maker)
        self._found = 0
        self._holes: list[tuple[int, int]] | None = None
        self._extent_of = 0  # what was known of the chunks when it was made
        self._graph: Any = None

    @classmethod
    def applies(cls, parser: Any) -> bool:
        """Return whether a document of this parser holds a TensorFlow message: a ``.cpb`` may be of any type."""
        return parser.result.root.kind in KINDS

    @property
    def graph(self) -> Any:
        """The graph: its nodes, edges, functions (`pparse.viewers.tensorflow.graph.TensorflowGraph`)."""
        if self._graph is None:
            from pparse.viewers.tensorflow.graph import TensorflowGraph

            self._graph = TensorflowGraph(self.root)
        return self._graph

    # -- tensors -----------------------------------------------------------------------------------------------------

    def tensors(self) -> Iterator[Tensor]:
        """Yield every tensor in file order."""
        for place, name in self._numbered():
            yield self.constants.tensor(place, name)

    def __iter__(self) -> Iterator[str]:
        return (name for _, name in self._numbered())

    def suggest(self, name: str) -> tuple[str, ...]:
        """Return up to three similar names from the first nodes."""
        return near_misses(name, (place.name for place in self.constants.places(most=_NEAR)))

    def _numbered(self) -> Iterator[tuple[Place, str]]:
        """Yield the places with their final names: a name that was used before gets the next free number."""
        held: dict[str, int] | None = {}
        repeated: set[int] = set()
        counts: dict[str, int] = {}
        letters = 0
        for ordinal, place in enumerate(self.constants.places()):
            name = place.name
            letters += len(name)
            if held is not None and (len(held) >= _HOLD_UP_TO or letters > _HOLD_LETTERS):
                # Too many to hold: from here on, only those that share a hash with another one are looked at.
                repeated = {other for group in self.constants.table.repeated() for other in group}
                counts, held = held if repeated else {}, None
            if held is not None:
                number = held[name] = held.get(name, 0) + 1
            elif ordinal in repeated:
                number = counts[name] = counts.get(name, 0) + 1
            else:
                number = 1
            yield place, name_of_repeated(name, number, self.constants.find)

    def find(self, name: str) -> Tensor | None:
        """Return the tensor with that name (``name#2``: the second with the name), or None."""
        place = meant_by_name(name, self.constants.find)
        return self.constants.tensor(place, name) if place is not None else None

    def finding_of(self, tensor: Tensor) -> Finding | None:
        """Return the finding on a tensor that lies in a hole of the file."""
        first, length = self.unwritten(tensor)
        if not length:
            return None
        return Finding(
            "unwritten",
            f"{length:,} of {tensor.stored_nbytes:,} bytes were never written (a file hole): they read as zeros",
            path=tensor.name,
            source=self.source.name,
            offset=first,
            length=length,
        )

    @property
    def holes(self) -> list[tuple[int, int]]:
        """Stretches of the file that were never written, in order, at most 10,000."""
        if self._holes is None:
            source = self.source
            self._holes = list(islice(source.data.holes(source.start, source.known_end()), _MAX_HOLES))
        return self._holes

    def unwritten(self, tensor: Tensor) -> tuple[int, int]:
        """Return ``(offset of the first, number)`` of the bytes of a tensor that lie in holes of the file."""
        first = length = 0
        for span in tensor.spans if self.holes else ():
            if span.data is self.source.data:
                at, count = unwritten_in(self.holes, span.offset, span.offset + span.length)
                first, length = first or at, length + count
        return first, length

    # -- what the file says of itself --------------------------------------------------------------------------------

    @property
    def metadata(self) -> Mapping[str, Any]:
        """What the document says about itself: tags, versions, operations; for a SavedModel, per meta graph."""
        from pparse.viewers.tensorflow.meta import metadata_of

        return metadata_of(self.root)

    def meta_graphs(self) -> Iterator[Node]:
        """Yield the nodes of the meta graphs."""
        root = self.root
        roots = root.children() if root.kind == CHUNKS else iter((root,))
        for node in roots:
            if node.kind == META_GRAPH:
                yield node
            elif node.kind == SAVED_MODEL:
                graphs = node.find("meta_graphs")
                yield from kids_of(graphs)

    def graph_defs(self) -> Iterator[Node]:
        """Yield the nodes of the GraphDefs; for chunks without metadata, those that are there."""
        for base in self.constants.bases:
            if base.kind == GRAPH:
                yield self.root.at(base.path)

    @property
    def signatures(self) -> Mapping[str, Signature]:
        """The signatures by name (``name#2``: in a second meta graph), each read on demand."""
        from pparse.viewers.tensorflow.meta import NodeMapping, signature_of

        return NodeMapping(self.meta_graphs(), "signature_def", signature_of)

    @property
    def collections(self) -> Mapping[str, Any]:
        """The collections by name, as lists of text, numbers or bytes; collections of variables as lists of dicts."""
        from pparse.viewers.tensorflow.meta import NodeMapping, collection_of

        return NodeMapping(self.meta_graphs(), "collection_def", collection_of)

    @property
    def assets(self) -> list[Asset]:
        """The files that the graph needs, with the tensors that take their paths."""
        from pparse.viewers.tensorflow.meta import assets_of

        return [asset for graph in self.meta_graphs() for asset in assets_of(graph)]

    # -- how complete it is ------------------------------------------------------------------------------------------

    def check(self, *, strict: bool = False) -> Iterator[Finding]:
        """Parse everything, then look at each tensor and count its listed values."""
        told = False
        for finding in super().check(strict=strict):
            told = told or finding.code in _TOLD
            yield finding
        for tensor in self.tensors():
            wrong = self._verify(tensor)
            if wrong is not None and not (told and wrong.code in _TOLD):
                self.findings.add(wrong)
                yield wrong

    @staticmethod
    def _verify(tensor: Tensor) -> Finding | None:
        if tensor.status is Status.COMPLETE and tensor.encoding == "typed" and tensor.shape:
            try:
                tensor.readinto(bytearray(0)) if not tensor.size else tensor[(0,) * tensor.ndim]
            except PASSING_OR_LIMIT:
                raise
            except PparseError as error:
                return Finding("malformed", error.reason, path=tensor.name, offset=error.offset)
        return tensor.finding

    def extent(self) -> Extent:
        """Return how large the document is and should be, and where it was cut."""
        extent = self.kept_extent if self._extent_of == self._known else None
        if extent is None:
            extent = self.new_extent()
            for tensor in self.tensors():
                extent.add(tensor)
            self.close_extent(extent)
        return extent

    @property
    def _known(self) -> int:
        """How many faults were found in the bytes of the tensors."""
        verdicts = getattr(self.parser, "verdicts", None)
        return self._found + (verdicts.version if verdicts is not None else 0)

    def note_damage(self) -> None:
        """Drop the last extent: reading a tensor found it damaged."""
        self._found += 1

    def new_extent(self) -> Extent:
        """Return an extent to add tensors to while listing them; then call `close_extent`."""
        actual = self.source.known_end() - self.source.start
        return Extent(actual, known=self.extraction.session.stats.discoveries)

    def close_extent(self, extent: Extent) -> Extent:
        """Complete an extent to which all tensors were added; `extent` then returns it."""
        self._extent_of = self._known
        root, source = self.root, self.source
        try:
            status = root.status
        except PASSING_OR_LIMIT:
            raise
        except PparseError:
            status = Status.DAMAGED
        if status is Status.COMPLETE:
            status = self._worst_below()
        extent.document_status = status
        there = extent.actual or 0
        extent.expected = there
        if status is Status.TRUNCATED or (status is not Status.DAMAGED and (extent.truncated or extent.missing)):
            extent.document_status = Status.TRUNCATED
            extent.expected = max(there + 1, self._expected())
            extent.at_least = True
            extent.cut_files = 1
            extent.resume_at, extent.resume_file = there, source.name
        if extent.unwritten:  # resuming at the end of the file would never fill the hole
            written = last_written(source.data, source.start, self.holes[0][0])
            extent.resume_at, extent.resume_file = written - source.start, source.name
        return self.keep_extent(extent)

    def _worst_below(self) -> Status:
        """Return TRUNCATED or DAMAGED if a graph is, even if its root is whole."""
        worst = Status.COMPLETE
        for node in (*self.meta_graphs(), *self.graph_defs()):
            status = node.status
            if status is Status.DAMAGED:
                return status
            if status is Status.TRUNCATED:
                worst = status
        return worst

    def _expected(self) -> int:
        """Return the least number of bytes that the file should have, according to its fields."""
        missing = self.parser.missing()
        return self.source.known_end() - self.source.start + missing if missing is not None else 0
