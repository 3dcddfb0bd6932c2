"""safetensors files.

Layout (huggingface/safetensors, safetensors/src/tensor.rs and README.md): u64 little-endian length N of the header, N
bytes of JSON, then the tensors' bytes. ``data_offsets`` are ``[begin, end)`` counted from byte 8 + N; little-endian, C
order, alignment not guaranteed.

States of the root::

    state          needs    reads                                                   goes to
    expect_length  8        the header's length                                     expect_header
    expect_header  0        nothing: makes the header a child extraction, which     DONE, at the end of the data
                            the JSON parser reads, clipped to its length

The tree is ``header_size``, ``metadata`` (if any), ``tensors``; a tensor has the fields of its header entry and
``data``, its bytes. ``tensors`` keeps no index: its children are those of the header.

A sound header is gone through once, by `pparse.parsers.safetensors.header`, which makes no nodes: viewers ask for the
entries as they stand, and the fields of an entry are found in its text. Any other text is one for the JSON parser,
which is also asked for the nodes of ``metadata``. Either way a header is judged as a whole
(`SafetensorsParser.resolve_header`): the reference reader (tensor.rs, ``Metadata::validate``) requires the tensors one
after the other, without gaps, from the start of the data to the end of the file, and each name once.
"""

from __future__ import annotations

from itertools import chain, islice

from pparse.document.extraction import extraction_of
from pparse.errors import EndOfDataError, LimitError, MalformedError, UnsupportedError
from pparse.findings import ENDS_EARLY, Finding, Severity, Status, worst_status
from pparse.lazy import lazy_pattern
from pparse.limits import format_size
from pparse.parsers.safetensors.header import (
    FIELDS,
    MEMBER,
    METADATA,
    REFERENCE_HEADER_LIMIT,
    SMALL,
    HeaderEntry,
    PlainText,
    State,
    checked,
    info_of,
    is_metadata,
)
from pparse.tensors.status import (
    CONFLICTS,
    NAMESAKE,
    SHARED,
    TensorRanges,
    mark,
    sharers,
    status_by_place,
    tensor_status,
)
from pparse.tree.context import DONE, NodeContext
from pparse.tree.entry import LIST, MAP, UNLOADED_VALUE, Entry
from pparse.tree.parser import Confidence, Container, Listing, Parser, signatures

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any, Final

    from pparse.document.extraction import Extraction
    from pparse.parsers.json.parser import JsonParser
    from pparse.tree.index import ChildIndex
    from pparse.tree.node import Node
    from pparse.tree.parser import Excerpt
    from pparse.tree.result import Result

    Row = tuple[int, str | None, HeaderEntry, Entry | None]

_MAX_HOLES: Final = 10_000
# A hole so near may have zeros beside it that belong to the file (`pparse.data.zero_runs`).
_BESIDE: Final = 64 << 10
_NUMBER: Final = lazy_pattern(rb"[0-9]++")


class SafetensorsParser(Parser, Listing, Container):
    """A safetensors file."""

    name = "safetensors"
    description = "safetensors model file"
    extensions = (".safetensors",)
    empty_is_nothing = True
    signatures = (*signatures(b"{", b" ", b"\n", b"\t", b"\r", b"\xef\xbb\xbf", at=8), *signatures(bytes(16)))
    viewer = "pparse.viewers.safetensors.viewer:SafetensorsViewer"
    references = ("https://github.com/huggingface/safetensors (safetensors/src/tensor.rs)",)
    limitations = ("the format has no checksums: a changed payload byte cannot be noticed",)
    shapes = {"safetensors": MAP, "tensors": MAP, "tensor": MAP, "object": MAP, "array": LIST}

    def __init__(self, result: Result) -> None:
        super().__init__(result)
        self._header: Result | None = None
        self._header_size: int | None = None
        self._plain: PlainText | None = None
        self.adrift: str | None = None  # why it is unknown where the data begins
        self.shifted = False  # whether bytes after the last tensor are the reason
        self._unproved = False  # the header seems to continue behind its end, which is unknown
        self.wrong_length: Finding | None = None  # set if the header's end was found in another way
        self.is_resolved = False  # whether the header was judged as a whole
        self.places: TensorRanges | None = None  # where the tensors lie; None: not known yet
        self.conflicts = bytearray()  # the conflict of each header entry
        self.bad_metadata = False
        self.namesakes: set[int] = set()  # entries whose name occurs more than once
        self._metadata_ordinals: list[int] | None = None

    @classmethod
    def match(cls, excerpt: Excerpt) -> Confidence:
        """CERTAIN for a plausible length followed by the beginning of a JSON object."""
        head = excerpt.head(8 + 16)
        length = int.from_bytes(head[:8], "little")
        size = excerpt.size
        if len(head) < 8:
            return Confidence.NO
        if not 2 <= length <= 1 << 40:
            return cls._match_damaged(excerpt)
        text = head[8:].removeprefix(b"\xef\xbb\xbf").lstrip(b" \t\n\r")
        if text[:1] == b"{" and text[1:].lstrip(b" \t\n\r")[:1] in (b'"', b"}", b""):
            return Confidence.CERTAIN if size is None or length <= size or length < 1 << 31 else Confidence.POSSIBLE
        cut = not text and len(head) < 24 and length <= REFERENCE_HEADER_LIMIT
        return Confidence.POSSIBLE if cut else cls._match_damaged(excerpt)

    @staticmethod
    def _match_damaged(excerpt: Excerpt) -> Confidence:
        """LIKELY if a tensor's entry is near the beginning, though the first bytes are not those of a header."""
        if excerpt.head(2) == b"PK":  # a zip, which may hold such a file as it is
            return Confidence.NO
        return Confidence.LIKELY if MEMBER.search(excerpt.head(4096), 8) is not None else Confidence.NO

    # -- the header, and how long it is --------------------------------------------------------------------------------

    @property
    def header_size(self) -> int:
        """The header's length according to the file, or to its text if the tensors then fill the file.

        Raises `MalformedError` if the length is impossible, or not there.
        """
        if self._header_size is None:
            self._header_size = self._find_size()
            if self.result.extraction.session.options:
                self.header  # noqa: B018 -- the JSON parser refuses wrong values of its options
        return self._header_size

    def _find_size(self) -> int:
        extraction = self.result.extraction
        start, size = extraction.start, extraction.find_end() - extraction.start
        head = extraction.front.held(start, 8) or extraction.data.pread(start, min(8, max(0, size)))
        if len(head) < 8:
            reason = "the file ends inside the header's length"
            raise MalformedError(reason, offset=extraction.start, wanted=8, got=len(head))
        length = int.from_bytes(head, "little")
        there = max(0, size - 8)
        if 2 <= length <= min(there, SMALL, extraction.session.limits.header_bytes):
            plain = self._new_text(length)
            if plain.read_all() and plain.behind != b" ":  # else the header may go on behind its end
                self._plain = plain
                return length
        from pparse.parsers.safetensors.length import LengthFinder

        finder = LengthFinder(self.result)
        length = finder.determine(length, there)
        self.adrift, self._unproved = finder.adrift or self.adrift, finder.unproved
        if finder.wrong is not None:
            self.wrong_length = finder.wrong
            self.result.findings.add(finder.wrong)
        if length <= there:
            extraction.session.limits.check("header_bytes", length, "the header's length", offset=extraction.start)
        elif length > extraction.session.limits.header_bytes:
            most = format_size(extraction.session.limits.header_bytes)
            reason = f"the header's length is beyond the file, and above the largest header ({most})"
            raise MalformedError(reason, offset=extraction.start, wanted=length, got=there)
        return length

    @property
    def header(self) -> Result:
        """The JSON parser's result for the header."""
        header = self._header
        if header is None:
            with self.lock:  # here and not at a door: every look-up calls this several times
                header = self._header = self._header or self._read_header()
        return header

    def _read_header(self) -> Result:
        extraction = extraction_of(self.result)
        start = extraction.start + 8
        child = extraction.child("header", extraction.data, start, start + self.header_size, "json")
        header = child.parse()
        json: JsonParser = header.parser  # type: ignore[assignment]
        json.member = MEMBER
        json.decoder.is_lenient = False
        json.is_all_there = start + self.header_size <= extraction.find_end()
        if self._unproved and json.is_all_there and header.status is Status.DAMAGED:
            # The space behind the header may be its own, pushed out by inserted bytes.
            self.adrift = "the header is damaged and may end elsewhere: it is unknown where tensors begin"
        return header

    @property
    def data_start(self) -> int:
        """Where the data section begins, as an offset of the extraction's data."""
        return self.result.extraction.start + 8 + (self._header_size or self.header_size)

    def enter(self, name: str) -> Extraction | None:
        """Return the child extraction ``header``."""
        return extraction_of(self.header) if name == "header" else None

    def unwritten(self) -> list[tuple[int, int]]:
        """Return the stretches of the file that were never written (file holes), at most 10,000.

        Zeros next to a hole count, as file systems allocate whole blocks.
        """
        data, start, end = self.result.extraction.data, self.result.extraction.start, self.result.extraction.find_end()
        if next(data.holes(max(0, start - _BESIDE), end + _BESIDE), None) is None:  # as nearly always
            return []
        from pparse.data.zero_runs import unwritten

        return list(islice(unwritten(data, start, end), _MAX_HOLES))

    def zeroed_header(self) -> Finding | None:
        """Return a finding if the file begins with zeros in place of its header."""
        if self.is_plain and self.wrong_length is None:
            return None
        from pparse.parsers.safetensors.length import zeroed_header

        return zeroed_header(self.result.extraction)

    # -- the entries -------------------------------------------------------------------------------------------------

    @property
    def plain(self) -> PlainText:
        """The text as far as it is written as all writers do. Raises `MalformedError` without a length."""
        if self._plain is None:
            extraction = self.result.extraction
            size = self._header_size or self.header_size
            extraction.data.prefetch(((extraction.start, 8 + size),))  # all of it will be read
            self._plain = self._plain or self._new_text(size)
        return self._plain

    def _new_text(self, length: int) -> PlainText:
        start = self.result.extraction.start + 8
        return PlainText(self.result.extraction, start, start + length)

    @property
    def is_plain(self) -> bool:
        """Whether the text was read to its end, is sound, and no name occurs twice in it."""
        return self._plain is not None and self._plain.state is State.COMPLETE

    @property
    def is_object(self) -> bool:
        """Whether the header is an object, as far as its beginning tells."""
        return self.is_plain or self.header.root.kind == "object"

    @property
    def text_status(self) -> Status:
        """Status of the header's text, with what is known about its bytes."""
        is_sound = self.is_plain and not self.result.extraction.data.flawed
        return Status.COMPLETE if is_sound else self.header.status

    @property
    def text_findings(self) -> Iterable[Finding]:
        """What is known to be wrong with the header's text."""
        return () if self.is_plain else self.header.findings

    def resolve_header(self) -> None:
        """Go through the header, if that was not done yet, and judge it as a whole.

        Any entry may contradict another, or show that bytes behind the tensors have moved them. Does nothing without a
        readable header; the findings then tell why.
        """
        if not self.is_resolved:
            with self.lock:
                self._judge()

    def _judge(self) -> None:
        try:
            if self.is_resolved or (not self.plain.read_all() and self.header.root.kind != "object"):
                return
        except MalformedError:
            return
        if self.is_plain:
            self._metadata_ordinals = self.plain.metadata_at
            self.places = self.plain.places
        else:
            self._go_through()
        if self.places is not None and (self.places.again or self.places.overlaps):
            self.places = self.all_places()  # only these tell where each break is
        self._find_conflicts()
        self.is_resolved = True

    def _go_through(self) -> None:
        """Read all entries by the JSON parser, and find out where tensors lie and whether a name occurs twice."""
        metadata = list[int]()
        self.places, self._metadata_ordinals = self._places_of(self._each_info(metadata)), metadata
        self.bad_metadata |= len(metadata) > 1
        root = self.header.root
        if root.index_to(None).count > 1 and self.header.repeated_keys(root):
            self.namesakes = self.header.same_keys(root).difference(metadata)

    def all_places(self) -> TensorRanges:
        """Return the places of the tensors, of which all are held meanwhile."""
        return self._places_of(self._rows(), keep=True)

    def _places_of(self, rows: Iterable[Row], *, keep: bool = False) -> TensorRanges:
        places = TensorRanges(self.result.extraction.session.budget, keep=keep)
        for _, _, info, entry in rows:
            if entry is not None or not info.is_placed:
                places.known = False
            else:
                places.add(info.begin, info.end)
        places.close()
        return places

    def _find_conflicts(self) -> None:
        """Record the tensors that share bytes, and those with the same name: any of them may be the wrong one."""
        places = self.places
        assert places is not None  # noqa: S101 -- the caller made them
        if places.overlaps:
            sound = ((n, info.begin, info.end) for n, _, info, entry in self._rows() if not (entry or info.problem))
            mark(self.conflicts, sharers(self.result.extraction.session.budget, sound), SHARED)
        mark(self.conflicts, self.namesakes, NAMESAKE)
        if places.known and self.text_status is Status.COMPLETE:
            extraction, end = self.result.extraction, self.data_start + places.end
            there = extraction.find_end()
            if self.adrift is None and there > end:
                from pparse.data.trailing_bytes import SHIFTED, has_odd_tail

                if has_odd_tail(extraction.data, extraction.start, end, there):
                    self.shifted, self.adrift = True, SHIFTED

    def infos(self, first: int = 0) -> Iterator[Row]:
        """Yield ``(ordinal in the header, name, checked entry, JSON entry if that is not whole)`` of every tensor, from
        header entry ``first`` on, judged.

        Yields nothing without a readable header; the findings then tell why.
        """
        self.resolve_header()
        rows = self._rows(first) if self.is_resolved else iter(())
        if not self.conflicts:
            return rows
        return ((ordinal, name, self._judged(ordinal, info), entry) for ordinal, name, info, entry in rows)

    @property
    def streams(self) -> bool:
        """Whether `unjudged` has entries of a large header before all of it was read."""
        try:
            if self.is_resolved or self.header_size <= SMALL or self._unproved or self.adrift or self.wrong_length:
                return False
        except MalformedError:
            return False
        return self.plain.state is not State.STOPPED and self._reaches_end

    def unjudged(self) -> Iterator[Row]:
        """Yield what `infos` does, but each entry as soon as it is read; only for a header that `streams`.

        What comes later may contradict an entry; at the end, all are judged.
        """
        return chain(self.plain.rows(), self._rest())

    def _rest(self) -> Iterator[Row]:
        self.resolve_header()
        if not self.is_plain:
            yield from self.infos(self.plain.count)

    def _rows(self, first: int = 0) -> Iterator[Row]:
        """Yield what `infos` does, as the entries stand."""
        if self.is_plain:
            return self.plain.rows(first)
        return self._each_info([], first)

    def _each_info(self, metadata: list[int], first: int = 0) -> Iterator[Row]:
        """Yield what `infos` does, read by the JSON parser; adds the ordinals of ``__metadata__`` to ``metadata``."""
        json: JsonParser = self.header.parser  # type: ignore[assignment]
        for ordinal, name, fields, entry in json.each_member(self.header.root, first):
            if name == METADATA:
                metadata.append(ordinal)
                self.bad_metadata |= entry is None and not is_metadata(fields)
            elif entry is not None and entry.status is Status.UNSUPPORTED:
                yield ordinal, name, *self._lone_info(ordinal)
            elif entry is not None:
                yield ordinal, name, checked(fields), entry
            else:
                yield ordinal, name, info_of(self.header, ordinal, fields), None
        json.decoder.pairs = []  # free the whole header

    def _judged(self, ordinal: int, info: HeaderEntry) -> HeaderEntry:
        """Return an entry with its conflict, if it has one."""
        conflict = self.conflict_of(ordinal) if info.problem is None else None
        return info if conflict is None else info.with_problem(conflict)

    def conflict_of(self, ordinal: int) -> str | None:
        """Return why a tensor is in conflict with another, in words; None if, as far as is known, it is not."""
        conflicts = self.conflicts
        return CONFLICTS.get(conflicts[ordinal]) if ordinal < len(conflicts) else None

    def info(self, ordinal: int) -> tuple[HeaderEntry, Entry | None]:
        """Return one entry of the header, checked and judged, and its JSON entry if that is not whole."""
        self.resolve_header()
        info = self.plain.row(ordinal)[1] if self.is_plain else None
        info, entry = (info, None) if info is not None else self._lone_info(ordinal)
        return self._judged(ordinal, info), entry

    def _lone_info(self, ordinal: int) -> tuple[HeaderEntry, Entry | None]:
        """Return one entry of the header, read by itself, and its JSON entry if that is not whole.

        If a field that is not needed exceeds a limit (nested too deep, a number too large), reads the others.
        """
        header = self.header
        node, entry = header.root.child(ordinal), header.entry(header.root, ordinal)
        try:
            try:
                return info_of(header, ordinal, node.to_python()), None
            except (LimitError, UnsupportedError) as error:
                if node.kind != "object":
                    raise
                kids = ((name, node.find(name)) for name in FIELDS)
                info = info_of(header, ordinal, {name: kid.to_python() for name, kid in kids if kid is not None})
                reason = f"a field that is not needed was skipped: {error.reason}"
                header.parser.note("limit", reason, error.offset, path=node.path, severity=Severity.WARNING)
                return info, None
        except (EndOfDataError, MalformedError, LimitError, UnsupportedError) as error:
            refused = isinstance(error, LimitError | UnsupportedError)
            status = Status.UNSUPPORTED if refused else entry.status
            finding = entry.finding or Finding("limit" if refused else "malformed", error.reason, offset=error.offset)
            if status is Status.COMPLETE:
                status = Status.DAMAGED
            other = Entry(entry.key, entry.kind, entry.start, entry.end, status=status, finding=finding)
            return checked(UNLOADED_VALUE), other

    # -- names -------------------------------------------------------------------------------------------------------

    def look_up(self, name: str, occurrence: int) -> tuple[int, HeaderEntry, Entry | None] | None:
        """Return ordinal, judged entry and JSON entry, if that is not whole, of the n-th tensor with that name; None if
        there are fewer."""
        if name == METADATA:
            return None
        if not self.is_resolved:
            try:
                self.plain.keep_hashes()
            except MalformedError:
                return None
            self.resolve_header()
        plain = self._plain
        if plain is not None and plain.state is State.COMPLETE:
            number, info = plain.find(name) if occurrence == 1 else (0, None)
            return None if info is None else (number, self._judged(number, info) if self.conflicts else info, None)
        ordinal = self.header.find(self.header.root, name, occurrence) if self.is_resolved else None
        return None if ordinal is None else (ordinal, *self.info(ordinal))

    def name_hashes(self, first: int = 0) -> Iterator[int]:
        """Yield the hashes of the names of tensors, from header entry ``first`` on."""
        self.resolve_header()
        if self.is_plain:
            return (hash(name) for _, name, _, _ in self.plain.rows(first))
        skipped = set(self.metadata_at())
        hashes = self.header.parser.key_hashes(self.header.root, first)
        return (number for ordinal, number in enumerate(hashes, first) if ordinal not in skipped)

    def metadata_at(self) -> list[int]:
        """Return the ordinals of ``__metadata__`` in the header: at most one in a good file."""
        self.resolve_header()
        return self._metadata_ordinals or []

    def metadata_node(self) -> Node | None:
        """Return the node of ``__metadata__``; None if there is none. Reads no further than it takes to find it."""
        try:
            plain = self.plain
        except MalformedError:
            return None
        while plain.state is State.READING and not plain.metadata_at:
            plain.read_on()
        if plain.state is State.COMPLETE and not plain.metadata_at:
            return None
        root = self.header.root
        return root.find(METADATA) if root.kind == "object" else None

    def count(self) -> int:
        """Return the number of tensors."""
        self.resolve_header()
        if not self.is_resolved:
            return 0
        entries = self.plain.count if self.is_plain else self.header.root.index_to(None).count
        return entries - len(self.metadata_at())

    @property
    def has_duplicates(self) -> bool:
        """Whether a key occurs twice in one object of the header, as far as it was decoded."""
        if self.is_plain:
            return False
        json: JsonParser = self.header.parser  # type: ignore[assignment]
        return bool(json.decoder.duplicates or self.namesakes or len(self.metadata_at()) > 1)

    # -- status ------------------------------------------------------------------------------------------------------

    @property
    def is_at_odds(self) -> bool:
        """Whether the header, though readable, is known to be one that the reference reader refuses."""
        return (
            self.bad_metadata
            or not self.is_tiled
            or any(finding.code == "byte-order-mark" for finding in self.text_findings)
        )

    @property
    def is_tiled(self) -> bool:
        """Whether, as far as is known, the tensors follow each other up to the file's end."""
        places = self.places
        if places is None:
            return True
        there = self.result.extraction.find_end() - self.data_start
        return not places.breaks and (there <= places.end or not places.known)

    def status_of(self, info: HeaderEntry) -> Status:
        """Return the status of a tensor, from its judged entry and what is known about its bytes now."""
        status, data = self.claimed_status(info), self.result.extraction.data
        if info.begin == info.end or not data.flawed:
            return status
        start = self.data_start
        return tensor_status(status, lambda: data.range_status(start + info.begin, start + info.end))

    def claimed_status(self, info: HeaderEntry, there: int | None = None) -> Status:
        """Return the status of a tensor from its entry and the number of data bytes ``there`` (None: find out)."""
        if info.problem is not None:
            return Status.UNSUPPORTED if info.unsupported else Status.DAMAGED
        if self.adrift is not None and not (self.shifted and info.begin == info.end):
            return Status.DAMAGED
        if there is None:
            there = self.result.extraction.find_end() - self.data_start
        return status_by_place(info.begin, info.end, there)

    @property
    def _reaches_end(self) -> bool:
        """Whether no bytes follow the tensor of the last entry; as with nearly all writers, it is the last in the data.

        Costs one read: without it, whether bytes may have come in before a tensor is only known from all entries.
        """
        there = self.result.extraction.find_end() - self.data_start
        if there <= 0:
            return True
        from pparse.parsers.safetensors.length import last_end

        end = last_end(self.result, self.header_size)
        return end is not None and end >= there

    # -- the file ----------------------------------------------------------------------------------------------------

    def root_entry(self) -> Entry:
        """Describe the root; its status is known once it is loaded."""
        extraction = self.result.extraction
        return Entry(None, "safetensors", extraction.start, extraction.end, status=None)

    # -- states ------------------------------------------------------------------------------------------------------

    def begin(self, ctx: NodeContext) -> tuple[int, Any, int]:
        """Begin the root at its first byte; the other containers mirror a piece of the header."""
        node, index = ctx.node, ctx.index
        if node.kind == "safetensors":
            return node.start, self.expect_length, 8
        if node.kind == "tensors":
            index.count = self.count()
            return node.start, DONE, 0
        is_plain = self.is_plain and not self.result.extraction.data.flawed
        if is_plain and node.kind == "array" and node.parent is not None and node.parent.kind == "tensor":
            return self._emit_numbers(ctx)
        if is_plain and node.kind == "tensor":
            ordinal = self.header_ordinal(node.ordinal)
            word = self.info(ordinal)[0].kind[2]
            values = zip(FIELDS, ("string", "array", "array"), (word, UNLOADED_VALUE, UNLOADED_VALUE), strict=True)
            for (field, kind, value), (start, end) in zip(values, self.plain.places_in_text(ordinal), strict=True):
                ctx.emit(Entry(field, kind, start, end, value))
            return self._emit_data(ctx)
        mirrored = index.note = self._mirrored(node)
        as_row = node.kind == "tensor" and mirrored.shape == LIST and len(mirrored) == len(FIELDS)
        for kid in mirrored.children():
            value = kid.value if kid.shape == "scalar" else UNLOADED_VALUE
            key = FIELDS[kid.ordinal] if as_row else kid.key
            ctx.emit(Entry(key, kid.kind, kid.start, kid.end, value, kid.known_status, kid.finding))
        return self._emit_data(ctx) if node.kind == "tensor" else (node.start, DONE, 0)

    def _emit_numbers(self, ctx: NodeContext) -> tuple[int, Any, int]:
        """Emit the numbers of a list in a plain header, whose text is short: there is no JSON parser to ask."""
        start = ctx.pos
        text = self.result.extraction.data.read_exact(start, (ctx.node.end or start) - start)
        for number in _NUMBER.finditer(text):
            ctx.emit(Entry(None, "number", start + number.start(), start + number.end(), int(number[0])))
        return start, DONE, 0

    def _emit_data(self, ctx: NodeContext) -> tuple[int, Any, int]:
        """Emit the bytes of a tensor."""
        node = ctx.node
        info, _ = self.info(self.header_ordinal(node.ordinal))
        start, end = self.data_start + info.begin, self.data_start + info.end
        status, finding = self.status_of(info), None
        if status in ENDS_EARLY:
            told = {"wanted": end - start, "got": max(0, self.result.extraction.find_end() - start)}
            reason = "the tensor extends beyond the end of the file"
            finding = self.finding_at("truncated", reason, node.path, start, **told)
        ctx.emit(Entry("data", "bytes", start, end, status=status, finding=finding))
        return node.start, DONE, 0

    def expect_length(self, ctx: NodeContext, block: bytes, base: int) -> tuple[int, Any, int]:
        """Read the header's length."""
        zeroed = self.zeroed_header()
        if zeroed is not None:
            self.result.close_node(ctx.node, Status.DAMAGED, zeroed)
            return ctx.pos + 8, DONE, 0
        size = self.header_size
        ctx.emit(Entry("header_size", "uint64", ctx.pos, ctx.pos + 8, size))
        return ctx.pos + 8, self.expect_header, 0

    def expect_header(self, ctx: NodeContext, block: bytes, base: int) -> tuple[int, Any, int]:
        """Hand the header to the JSON parser, and emit its parts."""
        root = self.header.root
        if root.kind != "object":
            self.note_damage(ctx.node, MalformedError("the header is not a JSON object", offset=root.start))
            return ctx.pos, DONE, 0
        metadata = self.metadata_node()
        if metadata is not None:
            ctx.emit(Entry("metadata", metadata.kind, metadata.start, metadata.end, status=metadata.known_status))
        end = self.result.extraction.find_end()
        ctx.emit(Entry("tensors", "tensors", min(self.data_start, end), end, status=None))
        return ctx.pos, DONE, 0

    def finish(self, ctx: NodeContext) -> None:
        """Close a container with the status of what is below it."""
        node = ctx.node
        status = node.known_status
        if status is None and node.kind in ("safetensors", "tensors") and self._header_size is not None:
            self.resolve_header()
            status = Status.DAMAGED if self.wrong_length is not None else self.text_status
            if status is Status.COMPLETE:
                status = worst_status(*{self.status_of(info) for _, _, info, _ in self.infos()})
                if self.is_at_odds:
                    status = Status.DAMAGED
                elif status in ENDS_EARLY:
                    status = Status.TRUNCATED
        self.result.close_node(node, status or Status.COMPLETE, None, end=node.end)

    def cut(self, ctx: NodeContext) -> None:
        """Close the root: the file ends inside the header's length."""
        reason, end = "the file ends inside the header's length", self.result.extraction.find_end()
        finding = self.finding_at("truncated", reason, "", end, wanted=8, got=end - ctx.pos)
        self.result.close_node(ctx.node, Status.TRUNCATED, finding)

    # -- children ----------------------------------------------------------------------------------------------------

    def entries(self, node: Node, index: ChildIndex, first: int, count: int) -> list[Entry]:
        """Describe tensors by the header's entries."""
        if node.kind != "tensors":
            return super().entries(node, index, first, count)
        return [self._tensor_entry(*row) for row in islice(self.infos(self.header_ordinal(first)), count)]

    def _tensor_entry(self, _: int, name: str | None, info: HeaderEntry, entry: Entry | None) -> Entry:
        if entry is not None:
            kind = "tensor" if entry.kind == "object" else "invalid"
            return Entry(name, kind, entry.start, entry.end, status=entry.status, finding=entry.finding)
        start, end, finding = self.data_start + info.begin, self.data_start + info.end, None
        if info.problem is not None:
            told: Any = {"severity": info.severity, "wanted": info.wanted, "got": info.got}
            finding = self.finding_at("bad-entry", info.problem, name or "", start, **told)
        elif self.shifted and info.begin < info.end:
            finding = self.finding_at("shifted", str(self.adrift), name or "", start)
        kind = "invalid" if info.is_scalar else "tensor"
        return Entry(name, kind, start, end, status=self.status_of(info), finding=finding)

    def key_hashes(self, node: Node, first: int = 0, stop: int | None = None) -> Iterator[int]:
        """Yield the hashes of the keys; the names of tensors come from the header, whose entries need not be made."""
        if node.kind != "tensors":
            yield from super().key_hashes(node, first, stop)
            return
        names = self.name_hashes(self.header_ordinal(first))
        yield from islice(names, None if stop is None else max(0, stop - first))

    def header_ordinal(self, ordinal: int) -> int:
        """Return the number of the header entry of a tensor, counted with ``__metadata__``."""
        for skipped in self.metadata_at():
            if skipped <= ordinal:
                ordinal += 1
        return ordinal

    def _mirrored(self, node: Node) -> Node:
        """Return the node of the header that ``node`` mirrors; an index holds the one that its own node mirrors."""
        # By number: a key may occur twice.
        ordinals: list[int] = []
        found: Node | None = None
        while found is None and node.parent is not None and node.kind != "tensor":
            ordinals.append(node.ordinal)
            node = node.parent
            index = node.index  # read once: the budget may evict it at any time
            found = index.note if index is not None else None
        if found is None and node.kind == "tensor":
            found = self.header.root.child(self.header_ordinal(node.ordinal))
        elif found is None:
            ordinals.pop()  # "metadata"
            found = self.header.root.find(METADATA)
            assert found is not None  # noqa: S101 -- its node was made from it
        for ordinal in reversed(ordinals):
            found = found.child(ordinal)
        return found

    def load_scalar(self, node: Node) -> Any:
        """Return a tensor's bytes, or a long string of the header."""
        if node.kind in ("bytes", "uint64"):
            return super().load_scalar(node)
        return self._mirrored(node).load()

    def python_size(self, node: Node) -> int:
        """Count the header's text: `to_python` leaves the tensors' bytes out."""
        return super().python_size(node) if node.kind == "bytes" else self.header_size

    def to_python(self, node: Node) -> Any:
        """Return header entries as plain Python, without the tensors' bytes."""
        if node.kind == "tensor":
            return self._mirrored(node).to_python()
        if node.kind in ("tensors", "safetensors"):
            from pparse.tree.node import as_dict

            return as_dict([(kid.key, self.to_python(kid)) for kid in node.children()])
        return super().to_python(node)
