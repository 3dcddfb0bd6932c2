"""The tensors of one safetensors file.

A header above 256 KiB is not held: it is read again whenever more of it is needed. How often, by what is asked::

    tensors(), values(), len(), extent(), status  once each time
    has_more_than(n)                              as far as shows it; a listing does not read that again, up to 4 MiB
    name in model, model[name], find              once, if it was not read yet: any entry may contradict another; then
                                                  twice, for a table of keys; then the entry alone
    size_hint()                                   once, for the index
    check()                                       twice, to list it; more to find out what is damaged

Nothing is listed before the header is known in full if every status depends on its end (bytes follow the data, or its
length is in doubt), or after `settle`; that takes two readings.
"""

from __future__ import annotations

from itertools import chain

from pparse.data.range_status import cut_status
from pparse.errors import EndOfDataError, LimitError, MalformedError, UnsupportedError
from pparse.findings import Finding, Severity, Status
from pparse.tensors.tensor import UNKNOWN_SHAPE, Span, Tensor
from pparse.tensors.unwritten import last_written, unwritten_in
from pparse.tensors.viewer import Viewer
from pparse.tree.entry import SCALAR
from pparse.tree.repeated_names import meant_by_name, name_of_repeated

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Mapping
    from typing import Any

    from pparse.document.extraction import Extraction
    from pparse.parsers.json.parser import JsonParser
    from pparse.parsers.safetensors.entry import TensorInfo
    from pparse.parsers.safetensors.parser import SafetensorsParser
    from pparse.tensors.extent import Extent
    from pparse.tree.entry import Entry
    from pparse.tree.node import Node

    Info = tuple[int, str | None, TensorInfo, Entry | None]

# While it is listed, a header of at most this many bytes is held decoded.
_HOLD_UP_TO = 256 << 10


class HeaderTensor(Tensor):
    """A tensor that knows which entry of the header it is."""

    __slots__ = ("ordinal",)

    ordinal: int
    """The number of its header entry."""


class SafetensorsViewer(Viewer):
    """A mapping of tensor names to tensors, for one file."""

    places_by_offset = True
    rules = "safetensors"

    def __init__(self, extraction: Extraction) -> None:
        super().__init__(extraction)
        self.parser: SafetensorsParser = extraction.parse().parser  # type: ignore[assignment]
        self._holes: list[tuple[int, int]] | None = None
        self._path = extraction.path
        self._base: int | None = None
        self._there = 0
        self._settled = False
        self._late: list[int] = []  # tensors that were listed before it was known that their names occur twice
        self._recount = False  # whether tensors were listed as what they turned out not to be

    def tensors(self) -> Iterator[Tensor]:
        """Yield every tensor in the order of the header.

        Of a large header that was not read yet, each is yielded as soon as its entry is read. If two then turn out to
        have one name, the first was as its own entry says; that it is damaged is in `findings` after the last one. To
        know it before the first, call `settle`.
        """
        yield from self._listed()
        if self._recount:
            self._note_late()

    def _listed(self) -> Iterator[Tensor]:
        parser = self.parser
        try:
            size = parser.header_size
        except MalformedError:
            return
        if size <= _HOLD_UP_TO:
            # Few enough to hold: repeated names show without a separate pass.
            held = list(parser.infos())
            alike = len({name for _, name, _, _ in held}) < len(held)
            parser.repeats = alike or parser.repeats
            yield from self._numbered(held, range(1 << 62) if alike else ())
        elif parser.is_unread and parser.reaches_end and not self._settled:
            namesakes: set[int] = set()
            late: set[int] = set()
            yield from self._numbered(parser.listed(namesakes, late), namesakes, late)
            self._late = sorted(late)[: self.extraction.session.limits.findings]
            parser.compare()
            self._recount = bool(parser.conflicts)
        else:
            parser.settle()
            yield from self._numbered(parser.infos(), parser.repeated())

    def settle(self) -> None:
        """From now on, read a large header in full before its tensors are listed."""
        self._settled = True

    def _numbered(
        self, infos: Iterable[Info], namesakes: Container[int], late: Container[int] = ()
    ) -> Iterator[Tensor]:
        """Yield tensors; of ``namesakes``, the second as ``name#2``, even if the first is ``late``, so came before."""
        seen: dict[str, int] = {}
        for ordinal, name, info, entry in infos:
            if namesakes and ordinal in namesakes and name is not None:
                number = 1 + (seen.get(name, 0) or bool(late and self._ordinal(name, 1) in late))
                seen[name] = number
                yield self._tensor(ordinal, name, info, entry, name_of_repeated(name, number, self._ordinal))
            else:
                yield self._tensor(ordinal, name, info, entry)

    def _note_late(self) -> None:
        """Add the findings on tensors that were listed before it was known that their names occur twice."""
        header = self.parser.header
        for ordinal in self._late:
            key = header.entry(header.root, ordinal).key
            tensor = self._tensor(ordinal, key if isinstance(key, str) else None, *self.parser.info(ordinal))
            if tensor.finding is not None:
                self.findings.add(tensor.finding)

    def tensors_from(self, number: int) -> Iterator[Tensor]:
        """Yield the tensors from number ``number`` on; a large header is read from there, if no name occurs twice."""
        try:
            large = number > 0 and self.parser.header_size > _HOLD_UP_TO
            if large:
                self.parser.settle()
            if not large or self.parser.header.root.kind != "object" or self.parser.repeated():
                yield from super().tensors_from(number)
                return
        except MalformedError:
            return
        for ordinal, name, info, entry in self.parser.infos_from(self.parser.header_ordinal(number)):
            yield self._tensor(ordinal, name, info, entry)

    def size_hint(self) -> int | None:
        """Return the number of header entries; None for a small header without an index."""
        try:
            if self.parser.header_size <= _HOLD_UP_TO:
                return None
            root = self.parser.header.root
        except MalformedError:
            return 0
        return len(root) if root.kind == "object" else 0

    def has_more_than(self, count: int) -> bool:
        """Return whether a large header has more than ``count`` entries, as far as the first 4 MiB tell."""
        if not self.parser.is_unread:
            return super().has_more_than(count)
        header = self.parser.header
        json: JsonParser = header.parser  # type: ignore[assignment]
        return json.has_more_than(header.root, count)

    def _tensor(
        self, ordinal: int, name: str | None, info: TensorInfo, entry: Entry | None, shown: str | None = None
    ) -> Tensor:
        shown = shown or (f"header[#{ordinal}]" if name is None else name)
        if entry is not None:
            # The header itself is cut or damaged here; the rest of the entry cannot be read.
            status = Status.MISSING if entry.status is Status.TRUNCATED else entry.status or Status.DAMAGED
            reason = entry.finding.reason if entry.finding is not None else "the header entry cannot be read"
            finding = Finding(
                "bad-entry", f"its header entry: {reason}", path=shown, source=self.extraction.name, offset=entry.start
            )
            return Tensor(shown, None, UNKNOWN_SHAPE, (), status=status, finding=finding, owner=self)
        if self._base is None:
            self._base = self.parser.data_start
            self._there = self.extraction.known_end() - self._base
        end = self._base + self._there if self.extraction.end is not None else None
        span = Span(self.extraction.data, self._base + info.begin, info.end - info.begin, self._path, end)
        tensor = HeaderTensor(
            shown,
            info.dtype,
            info.shape,
            (span,),
            stored_dtype=info.stored_dtype,
            status=self.parser.claimed_status(info, self._there),
            owner=self,
        )
        tensor.ordinal = ordinal
        if self.parser.adrift is not None and info.problem is None and tensor.claimed_status is Status.DAMAGED:
            code = "shifted" if self.parser.shifted else "bad-entry"
            tensor.finding = Finding(
                code, self.parser.adrift, path=shown, source=self.extraction.name, offset=span.offset
            )
        if info.problem is not None:
            tensor.finding = self._bad_entry(tensor, info.problem, info)
        elif self._holes is not None or self.holes:
            tensor.unwritten_nbytes = self._unwritten(span)[1] if self._holes else 0
        return tensor

    def _bad_entry(self, tensor: Tensor, problem: str, info: TensorInfo | None = None) -> Finding:
        return Finding(
            "bad-entry",
            problem,
            severity=Severity.ERROR if info is None else info.severity,
            path=tensor.name,
            source=self.extraction.name,
            offset=tensor.spans[0].offset,
            wanted=None if info is None else info.wanted,
            got=None if info is None else info.got,
        )

    @property
    def _has_news(self) -> bool:  # type: ignore[override]
        """Whether tensors are known to be in conflict with others."""
        return bool(self.parser.conflicts)

    def judge_again(self, tensor: Tensor) -> None:
        """Tell a tensor that it is in conflict with another, whoever found that out since it was made."""
        problem = self.parser.conflict_of(tensor.ordinal) if isinstance(tensor, HeaderTensor) else None
        if problem is not None:
            tensor.status, tensor.finding = Status.DAMAGED, self._bad_entry(tensor, problem)

    @property
    def holes(self) -> list[tuple[int, int]]:
        """Stretches of the file that were never written, in order."""
        if self._holes is None:
            self._holes = self.parser.unwritten()
        return self._holes

    def _unwritten(self, span: Span) -> tuple[int, int]:
        """Return ``(offset of the first, number)`` of those bytes of ``span`` that lie in holes of the file."""
        holes = self._holes if self._holes is not None else self.holes
        return unwritten_in(holes, span.offset, span.offset + span.length)

    def finding_of(self, tensor: Tensor) -> Finding | None:
        """Return the finding on a tensor that lies in a hole of the file."""
        if not tensor.unwritten_nbytes:
            return None
        span = tensor.spans[0]
        first, length = self._unwritten(span)
        return Finding(
            "unwritten",
            f"{length} of {span.length} bytes were never written (a file hole): they read as zeros",
            path=tensor.name,
            source=self.extraction.name,
            offset=first,
            length=length,
        )

    def find(self, name: str) -> Tensor | None:
        """Return the tensor with that name (``name#2``: the second with the name), or None."""
        from pparse.parsers.safetensors.entry import METADATA

        return meant_by_name(name, lambda key, number: None if key == METADATA else self._find(key, number, name))

    def node_of(self, tensor: Tensor) -> Node | None:
        """Return the node of a tensor's bytes."""
        tensors = self.root.find("tensors")
        return None if tensors is None else meant_by_name(tensor.name, tensors.find)

    def _ordinal(self, name: str, occurrence: int) -> int | None:
        header = self.parser.header
        return header.find(header.root, name, occurrence)

    def _find(self, name: str, occurrence: int, shown: str) -> Tensor | None:
        try:
            header = self.parser.header
        except MalformedError:
            return None
        if header.root.kind != "object":
            return None
        self.parser.settle()
        seen = self.parser.peek_member(name, occurrence)
        if seen is not None:
            return self._tensor(seen[0], name, seen[1], None, shown)
        ordinal = header.find(header.root, name, occurrence)
        if ordinal is None:
            return None
        return self._tensor(ordinal, name, *self.parser.info(ordinal), shown)

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The header's ``__metadata__``, as far as it is whole; empty if there is none."""
        from pparse.parsers.safetensors.entry import METADATA

        try:
            header = self.parser.header
        except MalformedError:
            return {}
        node = header.root.find(METADATA) if header.root.kind == "object" else None
        if node is None or node.kind != "object":
            return {}
        try:
            return node.to_python()  # type: ignore[no-any-return]
        except (EndOfDataError, MalformedError, LimitError, UnsupportedError):
            found = {}
            for kid in node.children():
                if kid.status is Status.COMPLETE and kid.shape == SCALAR and isinstance(kid.key, str):
                    found[kid.key] = kid.load()
            return found

    def check(self, *, strict: bool = False) -> Iterator[Finding]:
        """Check everything, and yield each finding as it is made; ``strict`` adds the rules of the reference reader."""
        from pparse.viewers.safetensors.rules import check_file

        return check_file(self, strict=strict)

    def close_extent(self, extent: Extent) -> Extent:
        """Complete an extent to which all tensors were added; `extent` then returns it.

        Counts again if tensors turned out to be damaged after they were listed; then it returns another one.
        """
        if self._recount:
            self._recount, extent = False, self.new_extent()
            for tensor in self._listed():
                extent.add(tensor)
        self._complete(extent)
        return self.keep_extent(extent)

    def _complete(self, extent: Extent) -> None:
        extraction, parser = self.extraction, self.parser
        zeroed = parser.zeroed_header()
        if zeroed is not None:
            self.findings.add(zeroed)
            extent.document_status = Status.DAMAGED
            extent.resume_at, extent.resume_file = 0, extraction.name
            return
        try:
            data_start = parser.data_start - extraction.start
            header = parser.header.status
        except MalformedError as error:
            short = (extent.actual or 0) < 8
            extent.document_status = cut_status(damaged=not short)
            extent.expected = 8 if short else None
            extent.at_least = True
            parser.result.findings.add(
                Finding(
                    "truncated" if short else "malformed",
                    error.reason,
                    source=extraction.name,
                    offset=error.offset,
                    wanted=error.wanted,
                    got=error.got,
                )
            )
            extent.resume_at = extent.actual if short else None
            extent.resume_file = extraction.name if short else None
            return
        extent.document_status = header if parser.wrong_length is None else Status.DAMAGED
        if parser.wrong_length is not None:
            self.findings.add(parser.wrong_length)
        kind = parser.header.root.kind
        if kind != "object" and not (kind == "unknown" and header is Status.TRUNCATED):  # nothing of it is there
            reason = f"the header is a JSON {kind}, not an object"
            self.findings.add(Finding("malformed", reason, source=extraction.name, offset=parser.header.root.start))
            extent.document_status = Status.DAMAGED
        elif header is Status.DAMAGED:
            self.findings.extend(parser.header.findings)
        elif header is Status.COMPLETE and parser.is_at_odds:
            from pparse.viewers.safetensors.rules import layout_findings, metadata_findings

            for finding in chain(layout_findings(parser), metadata_findings(self)):
                self.findings.add(finding)
            extent.document_status = Status.DAMAGED
        extent.at_least = header is Status.TRUNCATED
        extent.expected = max(data_start, extent.last_byte - extraction.start)
        if extent.actual is not None and extent.actual < extent.expected:
            extent.cut_files = 1
            extent.resume_at = extent.actual
            extent.resume_file = extraction.name
        if self.holes and self.holes[0][0] - extraction.start < extent.expected:
            # A download into a preallocated file: bytes before the first hole exist. Holes begin at whole blocks of
            # the file system, so the zeros right before a hole may not have been written either.
            extent.resume_at = last_written(extraction.data, extraction.start, self.holes[0][0]) - extraction.start
            extent.resume_file = extraction.name
