"""The tensors of one safetensors file.

A header is gone through once and then judged as a whole: any entry may contradict another, and bytes behind the data
mean that tensors may lie elsewhere. A large header is not held: a later question reads from the text again what it
needs of it, nothing if it has up to 4 MiB.

Of a header above 256 KiB, tensors are yielded as their entries are read. Who asks one for its status gets it from the
whole header, which is then read to its end. Lists of the command line print rows while the header is read.
"""

from __future__ import annotations

from pparse.data.range_status import cut_status
from pparse.errors import EndOfDataError, LimitError, MalformedError, UnsupportedError
from pparse.findings import COMPLETE, Finding, Status
from pparse.parsers.safetensors.header import HeaderEntry
from pparse.tensors.span import Span
from pparse.tensors.status import last_written, unwritten_in
from pparse.tensors.tensor import UNKNOWN_SHAPE, Tensor
from pparse.tensors.viewer import Viewer
from pparse.tree.entry import SCALAR
from pparse.tree.index import meant_by_name, name_in, name_of_repeated

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from typing import Any

    from pparse.document.extraction import Extraction
    from pparse.parsers.safetensors.parser import Row, SafetensorsParser
    from pparse.tensors.status import Extent
    from pparse.tree.entry import Entry, Key
    from pparse.tree.node import Node


class HeaderTensor(Tensor):
    """A tensor that knows which entry of the header it is."""

    __slots__ = ("alike", "info", "last_byte", "ordinal", "stored_nbytes")

    def __init__(self, name: str, ordinal: int, info: HeaderEntry, status: Status, owner: SafetensorsViewer) -> None:
        # Not by the method of the base, and what every row of a list asks for is no property: there may be a million.
        self.name, self.key, self._spans = name, None, _spans_of
        self.dtype, self.shape, self.stored_dtype, self.alike = info.kind  # type: ignore[misc]
        self.byteorder, self.encoding, self._strides, self._content, self._shared = "little", "raw", None, None, None
        self._status, self._verified, self._finding, self._told, self.unwritten_nbytes = status, None, None, 0, 0
        self._owner = owner
        if info.begin == info.end:
            self._check_empty()
        self.ordinal = ordinal
        """The number of its header entry."""
        self.info = info
        """The entry."""
        self.stored_nbytes = info.end - info.begin  # type: ignore[misc]
        self.last_byte = owner._base + info.end  # type: ignore[misc,operator]

    def as_listed(self) -> tuple[Status, bool | None]:
        """Return status and what was verified as far as the header was read, if nothing else is known."""
        return (self._status, None) if self._owner._is_quiet() else super().as_listed()

    def _is_flawed(self) -> bool:
        """Whether anything is known against the file, without a `Span` for it."""
        return self._owner.extraction.data.flawed  # type: ignore[no-any-return]

    def why_listed(self) -> Finding | None:
        """Return what is wrong with it as far as the header was read, if nothing else is known."""
        return self._found() if self._owner._is_quiet() else super().why_listed()


def _spans_of(tensor: HeaderTensor) -> tuple[Span]:
    owner, length = tensor._owner, tensor.stored_nbytes
    if owner._path is None:
        owner._path = owner.extraction.path
    return (Span(owner.extraction.data, tensor.last_byte - length, length, owner._path, owner._end),)


class SafetensorsViewer(Viewer):
    """A mapping of tensor names to tensors, for one file."""

    places_by_offset = True
    rules = "safetensors"

    def __init__(self, extraction: Extraction) -> None:
        super().__init__(extraction)
        self.parser: SafetensorsParser = extraction.result.parser  # type: ignore[assignment]
        self._holes: list[tuple[int, int]] | None = None
        self._path: str | None = None
        self._data = extraction.data
        self._base: int | None = None
        self._there = 0
        self._end: int | None = None
        self._resolved = False
        self._recount = False  # whether tensors were listed as what they turned out not to be

    def tensors(self) -> Iterator[Tensor]:
        """Yield every tensor in the order of the header.

        Of a large header, each is yielded as soon as its entry is read. If two then turn out to have one name, the
        first, which was yielded under that name, has a finding in `findings` after the last one.
        """
        parser = self.parser
        streams = not self._resolved and parser.streams
        yield from self._made(parser.unjudged() if streams else parser.infos())
        if streams and (parser.conflicts or parser.adrift is not None):
            self._recount = True
            self._note_early()

    def resolve_all(self) -> None:
        """From now on, read a large header in full before its tensors are listed."""
        self._resolved = True

    def _note_early(self) -> None:
        """Add the findings on tensors that were listed before it was known that their names occur twice."""
        header = self.parser.header
        early = sorted(ordinal for ordinal in self.parser.namesakes if ordinal < self.parser.plain.count)
        for ordinal in early[: self.extraction.session.limits.findings]:
            finding = self._tensor(ordinal, header.entry(header.root, ordinal).key, *self.parser.info(ordinal)).finding
            if finding is not None:
                self.findings.add(finding)

    def tensors_from(self, number: int) -> Iterator[Tensor]:
        """Yield the tensors from number ``number`` on; the header is read from there, once it is known."""
        if not number:
            yield from self.tensors()
            return
        yield from self._made(self.parser.infos(self.parser.header_ordinal(number)))

    def size_hint(self) -> int:
        """Return the number of tensors."""
        return self.parser.count()

    def has_more_than(self, count: int) -> bool:
        """Return whether there are more than ``count`` tensors; of a large header, as far as the first 4 MiB tell."""
        return self.parser.plain.has_more_than(count) if self.parser.streams else self.parser.count() > count

    def __iter__(self) -> Iterator[str]:
        parser = self.parser
        for ordinal, name, _, _ in parser.unjudged() if parser.streams else parser.infos():
            yield name if type(name) is str and ordinal not in parser.namesakes else self._shown(ordinal, name)

    def __len__(self) -> int:
        return self.parser.count()

    def _shown(self, ordinal: int, name: Key) -> str:
        """Return the name of a tensor whose key in the header is no text, or that of another one, too."""
        if not isinstance(name, str):
            return f"header[#{ordinal}]"
        header = self.parser.header
        number = header.occurrence(header.root, ordinal, name)
        return name_of_repeated(name, number, lambda key, nth: header.find(header.root, key, nth))

    def _made(self, rows: Iterable[Row]) -> Iterator[Tensor]:
        """Yield the tensors of rows: a sound one, as nearly all are, is made here."""
        parser, there = self.parser, -1
        for ordinal, name, info, entry in rows:
            is_sound = info.end <= there and type(info) is HeaderEntry and entry is None and type(name) is str
            if is_sound and parser.adrift is None and not parser.namesakes:
                yield HeaderTensor(name, ordinal, info, COMPLETE, self)  # type: ignore[arg-type]
                continue
            yield self._tensor(ordinal, name, info, entry)
            there = -1 if self._holes else self._there  # both were found out for the first one

    def _tensor(
        self, ordinal: int, name: Key, info: HeaderEntry, entry: Entry | None, shown: str | None = None
    ) -> Tensor:
        parser = self.parser
        if shown is None:
            shown = name if type(name) is str and ordinal not in parser.namesakes else self._shown(ordinal, name)
        if entry is not None:
            return self._lost(shown, entry)
        if self._base is None:
            self._base = parser.data_start
            self._there = self.extraction.find_end() - self._base
            self._end = self._base + self._there if self.extraction.end is not None else None
        problem, holes = info.problem, self.holes if self._holes is None else self._holes
        is_whole = info.end <= self._there and problem is None and parser.adrift is None
        status = COMPLETE if is_whole else parser.claimed_status(info, self._there)
        tensor = HeaderTensor(shown, ordinal, info, status, self)
        if problem is not None:
            tensor.finding = self._bad_entry(tensor, problem, info)
        elif holes or not is_whole:
            if parser.adrift is not None:
                self._set_adrift(tensor)
            if holes:
                tensor.unwritten_nbytes = unwritten_in(holes, self._base + info.begin, self._base + info.end)[1]
        return tensor

    def _lost(self, shown: str, entry: Entry) -> Tensor:
        """Return a tensor at whose entry the header itself is cut or damaged: the rest of that cannot be read."""
        reason = entry.finding.reason if entry.finding is not None else "the header entry cannot be read"
        finding = Finding(
            "bad-entry", f"its header entry: {reason}", path=shown, source=self.extraction.name, offset=entry.start
        )
        status = Status.MISSING if entry.status is Status.TRUNCATED else entry.status or Status.DAMAGED
        return Tensor(shown, None, UNKNOWN_SHAPE, (), status=status, finding=finding, owner=self)

    def _bad_entry(self, tensor: Tensor, problem: str, info: HeaderEntry | None = None) -> Finding:
        more: Any = {} if info is None else {"severity": info.severity, "wanted": info.wanted, "got": info.got}
        source, offset = self.extraction.name, tensor.spans[0].offset
        return Finding("bad-entry", problem, path=tensor.name, source=source, offset=offset, **more)

    @property
    def _has_news(self) -> bool:  # type: ignore[override]
        """Whether tensors conflict with others or may lie elsewhere, or it is not known yet if they do."""
        parser = self.parser
        return not parser.is_resolved or bool(parser.conflicts) or parser.adrift is not None

    def _is_quiet(self) -> bool:
        """Return whether nothing is known about tensors but what their entries say."""
        data, parser = self._data, self.parser
        return not (data.flawed or data.has_proofs or parser.conflicts or parser.adrift)

    def renew(self, tensor: Tensor) -> None:
        """Tell a tensor that it conflicts with another or may lie elsewhere, if that was found since it was made."""
        if not self.extraction.session.closed:
            self.parser.resolve_header()
        problem = self.parser.conflict_of(tensor.ordinal) if isinstance(tensor, HeaderTensor) else None
        if problem is not None:
            tensor.status, tensor.finding = Status.DAMAGED, self._bad_entry(tensor, problem)
        elif self.parser.adrift is not None and isinstance(tensor, HeaderTensor):
            self._set_adrift(tensor)

    def _set_adrift(self, tensor: HeaderTensor) -> None:
        """Tell a tensor that it may lie elsewhere; not one without bytes, if others are only shifted."""
        parser, span = self.parser, tensor.spans[0]
        if span.length or not parser.shifted:
            code, source = "shifted" if parser.shifted else "bad-entry", self.extraction.name
            tensor.status = Status.DAMAGED
            tensor.finding = Finding(code, str(parser.adrift), path=tensor.name, source=source, offset=span.offset)

    @property
    def holes(self) -> list[tuple[int, int]]:
        """Stretches of the file that were never written, in order."""
        if self._holes is None:
            self._holes = self.parser.unwritten()
        return self._holes

    def finding_of(self, tensor: Tensor) -> Finding:
        """Return the finding on a tensor that lies in a hole of the file."""
        span = tensor.spans[0]
        first, length = unwritten_in(self.holes, span.offset, span.offset + span.length)
        reason = f"{length} of {span.length} bytes were never written (a file hole): they read as zeros"
        source = self.extraction.name
        return Finding("unwritten", reason, path=tensor.name, source=source, offset=first, length=length)

    def find(self, name: str) -> Tensor | None:
        """Return the tensor with that name (``name#2``: the second with the name), or None."""
        look_up = self.parser.look_up
        found = look_up(name, 1) or meant_by_name(name, look_up)
        if found is None:
            return None
        ordinal, info, entry = found
        return self._tensor(ordinal, name, info, entry, name)

    def node_of(self, tensor: Tensor) -> Node | None:
        """Return the node of a tensor's bytes."""
        tensors = self.root.find("tensors")
        return None if tensors is None else meant_by_name(tensor.name, tensors.find)

    def tensor_at(self, node: Node) -> Tensor | None:
        """Return the tensor whose bytes are a node."""
        table = node.parent
        return self.find(name_in(table, node)) if table is not None and table is self.root.find("tensors") else None

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The header's ``__metadata__``, as far as it is whole; empty if there is none."""
        node = self.parser.metadata_node()
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
            for tensor in self.tensors():
                extent.add(tensor)
        self._complete(extent)
        return self.keep_extent(extent)

    def _complete(self, extent: Extent) -> None:
        extraction, parser = self.extraction, self.parser
        zeroed = parser.zeroed_header()
        if zeroed is not None:
            self.findings.add(zeroed)
            extent.document_status, extent.resume_at, extent.resume_file = Status.DAMAGED, 0, extraction.name
            return
        try:
            data_start = parser.data_start - extraction.start
            parser.resolve_header()
            header = parser.text_status
        except MalformedError as error:
            short = (extent.actual or 0) < 8
            extent.document_status, extent.at_least = cut_status(damaged=not short), True
            code = "truncated" if short else "malformed"
            told: Any = {"offset": error.offset, "wanted": error.wanted, "got": error.got}
            parser.result.findings.add(Finding(code, error.reason, source=extraction.name, **told))
            if short:
                extent.expected, extent.resume_at, extent.resume_file = 8, extent.actual, extraction.name
            return
        extent.document_status = header if parser.wrong_length is None else Status.DAMAGED
        if parser.wrong_length is not None:
            self.findings.add(parser.wrong_length)
        extent.at_least = header is Status.TRUNCATED
        kind = "object" if parser.is_plain else parser.header.root.kind
        if kind != "object" and not (kind == "unknown" and extent.at_least):  # nothing of it is there
            reason = f"the header is a JSON {kind}, not an object"
            self.findings.add(Finding("malformed", reason, source=extraction.name, offset=parser.header.root.start))
            extent.document_status = Status.DAMAGED
        elif header is Status.DAMAGED:
            self.findings.extend(parser.header.findings)
        elif header is Status.COMPLETE and parser.is_at_odds:
            from pparse.viewers.safetensors.rules import layout_findings, metadata_findings

            for finding in (*layout_findings(parser), *metadata_findings(self)):
                self.findings.add(finding)
            extent.document_status = Status.DAMAGED
        extent.expected = max(data_start, extent.last_byte - extraction.start)
        if extent.actual is not None and extent.actual < extent.expected:
            extent.cut_files, extent.resume_at, extent.resume_file = 1, extent.actual, extraction.name
        if self.holes and self.holes[0][0] - extraction.start < extent.expected:
            # A download into a preallocated file: bytes before the first hole exist. Holes begin at whole blocks of
            # the file system, so the zeros right before a hole may not have been written either.
            extent.resume_at = last_written(extraction.data, extraction.start, self.holes[0][0]) - extraction.start
            extent.resume_file = extraction.name
