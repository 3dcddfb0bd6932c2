"""The tensors of a file that is a FlatBuffer: what all such formats have in common.

A format says which tables describe tensors (`FlatBuffersViewer.described`) and what one of them says (`tensor_of`).
None has checksums. Where bytes were taken out of a file or came in, offsets that lead over that place are wrong: what
touches it is damaged (`pparse.parsers.flatbuffers.survey`), and so is what ends a file that is longer than its tables
say.
"""

from __future__ import annotations

from abc import abstractmethod
from functools import partial
from math import prod

from pparse.data.trailing_bytes import SHIFTED, has_odd_tail
from pparse.errors import DataError, FaultError, LimitError, MalformedError, PathError
from pparse.findings import COMPLETE, Finding, Status
from pparse.limits import count_words
from pparse.tensors.span import Span
from pparse.tensors.status import status_by_place
from pparse.tensors.tensor import UNKNOWN_SHAPE, Tensor
from pparse.tensors.viewer import Viewer
from pparse.tree.index import meant_by_name, name_of_repeated

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any, Final

    from pparse.document.extraction import Extraction
    from pparse.graphs.graph import Graph
    from pparse.graphs.source import GraphSource
    from pparse.parsers.flatbuffers.parser import FlatBuffersParser
    from pparse.parsers.flatbuffers.survey import Survey
    from pparse.parsers.flatbuffers.table import Table
    from pparse.tensors.dtype import DType
    from pparse.tensors.status import Extent

# Memory of a name and a place in the list of tensors.
_EACH: Final = 300
# A tensor of more dimensions than numpy has is none.
_MOST_DIMENSIONS: Final = 64
TORN: Final = "offsets lead over its bytes, or to them, that are wrong: bytes may have come in here, or gone"
"""Why a tensor is in doubt that looks whole."""


class FlatBuffersViewer(Viewer):
    """A mapping of names to tensors; a second one of a name is ``name#2``."""

    places_by_offset = True

    parser: FlatBuffersParser

    def __init__(self, extraction: Extraction) -> None:
        super().__init__(extraction)
        self.parser = extraction.parse().parser  # type: ignore[assignment]
        self._path = extraction.path
        self._known_ends: tuple[Survey, int, int] | None = None
        self._listed: tuple[object, list[tuple[str, Any]], dict[str, list[int]]] | None = None
        self._charge = extraction.session.budget.charge(0, "the names of tensors")

    @abstractmethod
    def described(self) -> Iterator[tuple[str, Any]]:
        """Yield the name of each tensor that has bytes, in the order of the file, and what tells where it is described.

        Of one whose description cannot be read, what it may be called, and the `DataError`. Raises that, too: there are
        no others then, and the status of the root tells why.
        """

    @abstractmethod
    def tensor_of(self, name: str, what: Any) -> Tensor:
        """Return the tensor that ``what`` describes. Raises `DataError`."""

    # -- tensors -------------------------------------------------------------------------------------------------------

    @property
    def survey(self) -> Survey | None:
        """What a pass over all tables found; None if a limit ended it."""
        try:
            return self.parser.survey
        except LimitError:
            return None

    def _list(self) -> tuple[list[tuple[str, Any]], dict[str, list[int]]]:
        """Return what describes each tensor by number, and the numbers of those with a name."""
        data = self.extraction.data
        stamp = (data.revision, data.reach)
        if self._listed is None or self._listed[0] != stamp:
            rows: list[tuple[str, Any]] = []
            numbers: dict[str, list[int]] = {}
            size = 0
            try:
                for name, what in self.described():
                    numbers.setdefault(name, []).append(len(rows))
                    rows.append((name, what))
                    size += _EACH + len(name)
                    if not len(rows) & 0xFF:
                        self._charge.resize(size)
            except DataError:
                pass
            self._charge.resize(size)
            self._listed = stamp, rows, numbers
        return self._listed[1], self._listed[2]

    def _nth(self, name: str, number: int) -> int | None:
        found = self._list()[1].get(name, ())
        return found[number - 1] if number <= len(found) else None

    def tensors(self) -> Iterator[Tensor]:
        """Yield every tensor in the order of the file."""
        rows, _ = self._list()
        seen: dict[str, int] = {}
        for name, what in rows:
            nth = seen[name] = seen.get(name, 0) + 1
            yield self._made(name if nth == 1 else name_of_repeated(name, nth, self._nth), what)

    def find(self, name: str) -> Tensor | None:
        """Return the tensor with that name, or None."""
        number = meant_by_name(name, self._nth)
        return None if number is None else self._made(name, self._list()[0][number][1])

    def size_hint(self) -> int | None:
        """Return how many tensors there are, once they were listed."""
        return None if self._listed is None else len(self._listed[1])

    def _made(self, name: str, what: Any) -> Tensor:
        try:
            if isinstance(what, DataError):
                raise what
            tensor = self.tensor_of(name, what)
        except DataError as error:
            status = Status.after(error)
            told: Any = {"path": name, "source": self.extraction.name, "offset": error.offset}
            finding = Finding(status.code, f"its description cannot be read: {error.reason}", **told)
            return Tensor(name, None, UNKNOWN_SHAPE, (), status=status, finding=finding, owner=self)
        if self.holes and tensor.spans:
            tensor.unwritten_nbytes = self.unwritten(tensor)[1]
        return tensor

    def stored(
        self,
        kind: type[Tensor],
        name: str,
        dtype: DType | None,
        shape: tuple[int, ...],
        start: int,
        length: int,
        stored: str,
        wanted: int | None,
    ) -> Tensor:
        """Return a tensor whose bytes are ``length`` at ``start`` of the file; ``wanted``: as its shape needs."""
        extraction = self.extraction
        there = extraction.find_end()
        told: Any = partial(Finding, path=name, source=extraction.name)
        status, finding = status_by_place(start, start + length, there), None
        if wanted is not None and wanted != length:
            status = Status.DAMAGED
            finding = told(
                "bad-entry", f"it has {count_words(length, 'byte')}, its shape needs {wanted:,}", offset=start
            )
        elif status is not COMPLETE:
            got = max(0, there - start)
            reason = f"{got:,} of its {count_words(length, 'byte')} are there"
            finding = told(status.code, reason, offset=start, wanted=length, got=got)
        elif dtype is None and stored.lstrip("-").isdecimal():
            status = Status.UNSUPPORTED
            finding = told("unsupported", f"its type is {stored}, which pparse does not know", offset=start)
        elif not length and (doubt := self._why_empty(start)) is not None:
            status, finding = Status.DAMAGED, told("doubt", doubt, offset=start)
        elif (doubt := self._doubt(start, start + length)) is not None:
            status, finding = Status.DAMAGED, told("shifted", doubt, offset=start, length=length)
        span = Span(extraction.data, start, length, self._path, extraction.end)
        return kind(name, dtype, shape, (span,), stored_dtype=stored, status=status, finding=finding, owner=self)

    def _why_empty(self, start: int) -> str | None:
        """Return why a tensor without bytes may have some: the number before it is in doubt."""
        extraction = self.extraction
        if extraction.data.flawed:
            extraction.resolve()  # a checksum of its own may tell that it is right
        return extraction.data.why_suspect(max(extraction.start, start - 4), start)

    def faulty(
        self,
        name: str,
        dtype: DType | None,
        shape: tuple[int, ...],
        stored: str,
        finding: tuple[Status, str, str],
        spans: tuple[Span, ...] = (),
    ) -> Tensor:
        """Return a tensor that is not all here; the finding: status, code and words."""
        status, code, reason = finding
        told = Finding(code, reason, path=name, source=self.extraction.name)
        return Tensor(name, dtype, shape, spans, stored_dtype=stored, status=status, finding=told, owner=self)

    def _doubt(self, start: int, end: int) -> str | None:
        """Return why bytes that are there may be others than they were."""
        survey = self.survey
        if survey is None or start == end:
            return None
        if survey.torn is not None:
            low, high = survey.torn
            low, high = min(low, high), max(low, high)
            if start < high and low < end:
                return TORN
        if end >= self._ends[0] and self._ends[1]:
            return SHIFTED
        return None

    @property
    def _ends(self) -> tuple[int, int]:
        """Where the file should end, and `odd_tail`; told once for a survey, as each tensor asks."""
        survey = self.parser.survey
        if self._known_ends is None or self._known_ends[0] is not survey:
            extraction, end = self.extraction, self.parser.own_end(survey)
            there = extraction.find_end()
            odd = there - end if has_odd_tail(extraction.data, extraction.start, end, there) else 0
            self._known_ends = survey, end, odd
        return self._known_ends[1:]

    @property
    def odd_tail(self) -> int:
        """How many bytes follow that belong to nothing, and may have come in before the end."""
        return 0 if self.survey is None else self._ends[1]

    def check(self, *, strict: bool = False) -> Iterator[Finding]:
        """Look at everything and yield each finding, with those on tensors, which their tables alone do not show."""
        yield from super().check(strict=strict)
        seen = len(self.findings)
        self.extent()
        told = {finding.path for finding in self.findings}
        for tensor in self.tensors():
            if not tensor.is_complete and (finding := tensor.finding) is not None and tensor.name not in told:
                self.findings.add(finding)
        yield from (self.findings[at] for at in range(seen, len(self.findings) - self.findings.omitted))

    # -- what it says of itself ----------------------------------------------------------------------------------------

    def facts(self) -> Iterator[tuple[str, Any]]:
        """Yield what the model says about itself, by name. Raises `DataError` where it cannot be read any further."""
        yield from ()

    @property
    def metadata(self) -> Mapping[str, Any]:
        """What the model says about itself, as far as it can be read; no empty texts and lists."""
        found: dict[str, Any] = {}
        try:
            for key, value in self.facts():
                found[key] = value
        except DataError:
            pass
        return {key: value for key, value in found.items() if value not in ("", [], {})}

    # -- the graph -----------------------------------------------------------------------------------------------------

    def graph_source(self, number: int) -> GraphSource | None:
        """Return what the format says of graph ``number``; None if there is none. Raises `DataError`."""
        return None

    def graph_of(self, number: int = 0, max_nodes: int | None = None) -> Graph:
        """Return graph ``number`` of the model.

        Raises `UnsupportedError` if the format has none, `PathError` if the model has fewer, `DataError` if it cannot
        be read.
        """
        if type(self).graph_source is FlatBuffersViewer.graph_source:
            return super().graph_of(number, max_nodes)
        name = self.extraction.name
        try:
            found = self.graph_source(number) if number >= 0 else None
        except FaultError as error:
            reason = f"the graph cannot be read: {error.reason}"
            raise Status.after(error).error(reason, source=name, offset=error.offset) from error
        if found is None:
            survey = self.survey
            if not number and survey is not None and (why := survey.finding) is not None:
                reason = f"the graph cannot be read: {why.reason}"
                raise survey.status.error(reason, source=name, offset=why.offset)
            raise PathError(f"{name}: the model has no graph {number}", path="graph")
        from pparse.graphs.graph import Graph

        return Graph(found, max_nodes)

    @property
    def graph(self) -> Graph | None:
        """The first graph; None if there is none, or it cannot be read."""
        try:
            return self.graph_of()
        except FaultError:
            return None

    # -- the file ------------------------------------------------------------------------------------------------------

    def close_extent(self, extent: Extent) -> Extent:
        """Complete an extent to which all tensors were added."""
        extraction, survey = self.extraction, self.survey
        if survey is not None and survey.finding is not None:
            self.findings.add(survey.finding)
        if rest := self.odd_tail:
            end = extraction.find_end() - rest
            reason = "bytes after the last table belong to nothing"
            where: Any = {"source": extraction.name, "offset": end, "length": rest}
            self.findings.add(Finding("trailing-bytes", reason, **where))
        if survey is not None and survey.torn is None:  # a wrong offset says nothing of the end
            extent.last_byte = max(extent.last_byte, self._ends[0])
        kept = super().close_extent(extent)
        if kept.document_status is Status.TRUNCATED:
            kept.at_least = True  # what is lost may lead further
        return kept


def shape_of(table: Table, field: str) -> tuple[int, ...]:
    """Return the shape that a field of a table states. Raises `MalformedError` if no array can have it."""
    shape: tuple[int, ...] = table.numbers(field)
    if len(shape) > _MOST_DIMENSIONS or min(shape, default=0) < 0 or prod(shape) >= 1 << 62:
        raise MalformedError("it has a shape that no array can have", offset=table.at)
    return shape


def packed_size(dtype: DType, shape: tuple[int, ...]) -> int:
    """Return the bytes of an array whose elements may share bytes."""
    return -(-prod(shape) * dtype.bits // 8)
