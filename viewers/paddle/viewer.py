"""The tensors of PaddlePaddle models: parameters in one file, and programs with such a file beside them."""

from __future__ import annotations

from functools import cached_property
from itertools import islice

from pparse.errors import EndOfDataError, FormatError, MalformedError, PathError
from pparse.findings import Status
from pparse.parsers.paddle.params import PaddleParamsParser, params_name
from pparse.parsers.paddle.record import read_head
from pparse.parsers.protobuf.message import Problem
from pparse.tensors.node_viewer import NodeViewer
from pparse.tensors.span import Span
from pparse.tensors.status import finding_by_status, status_by_place
from pparse.tensors.tensor import UNKNOWN_SHAPE, Tensor
from pparse.tree.below import kids_of, node_at, value_at
from pparse.viewers.tensor_proto.external import ExternalFiles, ExternalViewer, PlacedOutside

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any, Final

    from pparse.document.extraction import Extraction
    from pparse.findings import Finding
    from pparse.graphs.graph import Graph
    from pparse.graphs.source import GraphSource
    from pparse.parsers.paddle.record import Parameter
    from pparse.tensors.status import Extent
    from pparse.tree.node import Node

_COST: Final = 400  # memory of a parameter


class PaddleParamsViewer(NodeViewer):
    """A mapping of names to the parameters of one file."""

    places_by_offset = True  # names without a program do

    parser: PaddleParamsParser

    def __init__(self, extraction: Extraction) -> None:
        super().__init__(extraction)
        self.parser = extraction.parse().parser  # type: ignore[assignment]

    def tensor_of(self, node: Node, name: str) -> Tensor:
        """Return the tensor of a record."""
        record = node.note
        told: dict[str, Any] = {"status": node.known_status, "finding": node.finding, "owner": self}
        if record.layout is None:
            return Tensor(name, None, UNKNOWN_SHAPE, (), **told)
        (dtype, shape), extraction, length = record.layout, self.extraction, record.end - record.start
        span = Span(extraction.data, record.start, length, extraction.path, extraction.end)
        spans = (span,) if length == record.layout.nbytes else ()  # of one that is lost, the place is not known
        return Tensor(name, dtype, shape, spans, stored_dtype=str(dtype), **told)

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The file that the names are from."""
        self.root.index_to(None)
        return {"program": self.parser.program} if self.parser.program else {}


class _Parameters:
    """The parameters that a program names, and the tensors in the file beside it, or in one for each."""

    def __init__(self, viewer: PaddleViewer) -> None:
        self._viewer = viewer
        self._known: list[Parameter] = viewer.parser.parameters()[0]  # type: ignore[attr-defined]
        self._numbers = {one.name: number for number, one in enumerate(self._known)}
        budget = viewer.extraction.session.budget
        self._charge = budget.charge(_COST * len(self._known), "the parameters of a program")
        self._location = params_name(viewer.source.name.rpartition("/")[2])

    def places(self, *, most: int | None = None) -> Iterator[Parameter]:
        """Yield the parameters, in the order of their names."""
        yield from islice(self._known, most)

    def find(self, name: str, occurrence: int = 1) -> Parameter | None:
        """Return the parameter of a name; there are no two."""
        number = self._numbers.get(name) if occurrence == 1 else None
        return None if number is None else self._known[number]

    def tensor(self, parameter: Parameter, name: str) -> Tensor:
        """Return the tensor of a parameter: as its file has it, or what is wrong."""
        dtype, shape = parameter.layout
        told: dict[str, Any] = {"stored_dtype": str(dtype), "owner": self._viewer}
        found = self._alone(parameter) if self._are_apart else self._among_others(name)
        if isinstance(found, Tensor):
            spans, status, finding = found.spans, found.claimed_status, found.finding
        else:
            where: Any = {"path": name, "source": self._viewer.extraction.name}
            status, finding = found.status, None
            spans = (found.span,) if isinstance(found, PlacedOutside) else ()
            if found.reason:
                finding = finding_by_status(status, found.reason, **where)
            if not spans and status is not Status.DAMAGED:
                location = name if self._are_apart else self._location
                spans = (Span(None, 0, parameter.layout.nbytes, location),)
        made = Tensor(name, dtype, shape, spans, status=status, finding=finding, **told)
        made.unwritten_nbytes = self._viewer.unwritten(made)[1] if made.is_complete else 0
        return made

    def _among_others(self, name: str) -> Tensor | Problem:
        """Return a tensor of the file with all parameters."""
        found, number = self._beside, self._numbers[name]
        if isinstance(found, Problem):
            return found
        # Records, too, are in the order of the names.
        node = found.root.child(number) if number < len(found.root) else None
        if node is None or node.key != name:
            return Problem(Status.DAMAGED, f"{self._location}, beside the program, has no such parameter")
        return found.tensor_of(node, name)

    @cached_property
    def _are_apart(self) -> bool:
        """Whether each parameter is in a file of its own, called as it is: one is there, and none with all."""
        external = self._viewer.external
        return not external.has(self._location) and any(external.has(one.name) for one in self._known)

    def _alone(self, parameter: Parameter) -> PlacedOutside | Problem:
        """Return where the elements of a parameter are in its own file."""
        name, layout = parameter
        file = self._viewer.external.file(name)
        content = file.content
        if content is None:
            return file.problem or Problem(Status.MISSING, f"{name} cannot be read")
        try:
            start, found = read_head(content.data, content.start, content.find_end())
        except (EndOfDataError, MalformedError) as error:
            wanted = layout.head_size + layout.nbytes
            if isinstance(error, MalformedError) or file.there >= wanted:
                return Problem(Status.DAMAGED, f"{name}, beside the program: {error.reason}")
            file.wanted = wanted
            status = status_by_place(layout.head_size, wanted, file.there)
            return Problem(status, f"{name}, beside the program, ends early: {error.reason}")
        if found != layout:
            return Problem(Status.DAMAGED, f"{name}, beside the program, has {found}, where the program has {layout}")
        return self._viewer.external.place(name, start - content.start, layout.nbytes, layout.nbytes)

    def faults(self) -> list[Finding]:
        """Return what is wrong with the file of all parameters as a whole."""
        if not self._known or self._are_apart or isinstance(self._beside, Problem):
            return []
        return [finding for finding in self._beside.findings if finding.is_fault and not finding.path]

    @cached_property
    def _beside(self) -> PaddleParamsViewer | Problem:
        """The viewer of the file with the parameters; or why they are not known."""
        file = self._viewer.external.file(self._location)
        content = file.content
        if content is None:
            return file.problem or Problem(Status.MISSING, f"{self._location} cannot be read")
        try:
            format = content.format
        except FormatError as error:
            status = Status.DAMAGED if file.there else Status.MISSING
            return Problem(status, f"{self._location}, beside the program: {error.reason}")
        if format != PaddleParamsParser.name:
            return Problem(Status.DAMAGED, f"{self._location}, beside the program, is {format}")
        found: PaddleParamsViewer = content.view()
        ends = (span.offset + span.length for tensor in found.tensors() for span in tensor.spans)
        file.wanted = max(ends, default=content.start) - content.start
        if found.parser.program:
            return found
        return Problem(Status.DAMAGED, f"{self._location} is not of this program: {found.parser.why_unnamed}")


class PaddleViewer(ExternalViewer):
    """A mapping of names to the parameters of a program, whose bytes are in a file beside it."""

    names_may_be_lost = True

    def __init__(self, extraction: Extraction) -> None:
        super().__init__(extraction)
        self.source = extraction
        self.external = ExternalFiles(self.source, self.knows_files)

    @cached_property
    def constants(self) -> _Parameters:  # type: ignore[override]
        """The parameters."""
        return _Parameters(self)

    @property
    def has_values(self) -> bool:  # type: ignore[override]
        """Whether a file with parameters lies beside the program."""
        return any(self.files_beside())

    def _numbered(self) -> Iterator[tuple[Parameter, str]]:
        return ((parameter, parameter.name) for parameter in self.constants.places())

    def frames(self) -> Iterator[Node]:
        """Yield the blocks."""
        return kids_of(self.root.find("blocks"))

    def close_extent(self, extent: Extent) -> Extent:
        """Complete an extent; what is wrong with the file beside the program is wrong with the model."""
        kept = super().close_extent(extent)
        for finding in self.constants.faults():
            self.findings.add(finding)
            kept.worsen(Status.TRUNCATED if finding.code == "truncated" else Status.DAMAGED)
        return kept

    def check(self, *, strict: bool = False) -> Iterator[Finding]:
        """Parse everything, look at each tensor, and say what is wrong with the file beside the program."""
        yield from super().check(strict=strict)
        for finding in self.constants.faults():
            self.findings.add(finding)
            yield finding

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The version of paddle that wrote the program."""
        version = value_at(self.root, "version", "version")
        return {} if version is None else {"version": version}

    def _main(self) -> GraphSource | None:
        """Return the graph of block 0; None if there is none."""
        from pparse.viewers.paddle.graph import PaddleGraph

        block = node_at(self.root, "blocks", 0)
        return None if block is None else PaddleGraph(self, block)

    def graph_of(self, number: int = 0, max_nodes: int | None = None) -> Graph:
        """Return the graph of the main block, the only one that has a number."""
        from pparse.graphs.graph import Graph

        source = None if number else self._main()
        if source is None:
            reason = "a program has one main graph" if number else "the program has no blocks"
            raise PathError(f"{self.extraction.name}: {reason}", path="graph")
        return Graph(source, max_nodes)


class PaddleJsonViewer(PaddleViewer):
    """The same of a program in JSON form."""

    def frames(self) -> Iterator[Node]:
        """Yield the list of operators."""
        parent = next((operator.parent for operator in self.parser.operators()), None)  # type: ignore[attr-defined]
        return iter(() if parent is None else (parent,))

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The version of the form."""
        version = value_at(self.root, "base_code", "version")
        return {} if version is None else {"version": version}

    def _main(self) -> GraphSource | None:
        from pparse.viewers.paddle.pir_graph import PirGraph

        block = self.parser.block  # type: ignore[attr-defined]
        return None if block is None else PirGraph(self, block)
